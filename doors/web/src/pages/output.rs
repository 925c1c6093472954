//! The output that a job's workers wrote: its end is shown on the job's page, and everything kept
//! can be downloaded.

use maud::{Markup, html};

use crate::ask::Asked;
use crate::decode;
use crate::html::bytes;
use crate::page::Page;
use crate::shapes::{Output, OutputPiece};

/// The most bytes of HTML that the output takes on a page, so that no more bytes of it can be shown.
const SHOWN_BYTES_MAX: usize = 16_384;

/// The part of a job's page with the end of its output; nothing while it has none.
pub(crate) async fn end(page: &Page, job: u64) -> Markup {
    let path = format!("/api/v1/jobs/{job}/output?tail_bytes={SHOWN_BYTES_MAX}");
    // A job that is gone meanwhile has none either.
    let output = page.ask.get::<Output>(&path).await.unwrap_or_default();
    let Some(first) = output.pieces.first() else { return html! {} };
    let begins_later = first.offset > 0;
    let mut tries = by_try(output.pieces);
    let is_cut = cut(&mut tries) || begins_later;
    html! {
        section #output data-follow {
            h2 { "Output " span.soft { "· " (bytes(output.next)) " in all" } }
            nav.views aria-label="The output as a file" {
                a href={ "/jobs/" (job) "/bytes/output" } download { "Download" }
            }
            div.tail tabindex="0" role="region" aria-label="The end of the output" {
                div {
                    @for it in &tries {
                        @if tries.len() > 1 { p.soft { "Try " (it.attempt) } }
                        pre { (decode::plain(&it.text)) }
                    }
                }
            }
            @if is_cut { p.muted { "Only the end is shown." } }
        }
    }
}

/// The output of one attempt.
struct Written {
    attempt: u32,
    text: String,
}

fn by_try(pieces: Vec<OutputPiece>) -> Vec<Written> {
    let mut tries: Vec<Written> = Vec::new();
    for OutputPiece { attempt, text, .. } in pieces {
        match tries.last_mut().filter(|last| last.attempt == attempt) {
            Some(last) => last.text.push_str(&text),
            None => tries.push(Written { attempt, text }),
        }
    }
    tries
}

/// Cuts the output to the end that a page has room for. Returns whether anything was cut off.
fn cut(tries: &mut Vec<Written>) -> bool {
    let mut room = SHOWN_BYTES_MAX;
    let mut is_cut = false;
    for it in tries.iter_mut().rev() {
        let shown = decode::end_of(&it.text, &mut room);
        if shown.len() < it.text.len() {
            is_cut = true;
            it.text = shown.to_owned();
        }
    }
    tries.retain(|it| !it.text.is_empty());
    is_cut
}

/// All output that is kept of the job at this address of the API.
pub(crate) async fn whole(page: &Page, path: &str) -> Asked<Vec<u8>> {
    // Output written meanwhile is left out; otherwise a busy worker would keep the answer open.
    let end = page.ask.get::<Output>(&format!("{path}/output?tail_bytes=0")).await?.next;
    let (mut text, mut from) = (String::new(), 0);
    while from < end {
        let found: Output = page.ask.get(&format!("{path}/output?from={from}")).await?;
        if found.pieces.is_empty() {
            break;
        }
        text.extend(found.pieces.into_iter().map(|piece| piece.text));
        from = found.next;
    }
    Ok(text.into_bytes())
}
