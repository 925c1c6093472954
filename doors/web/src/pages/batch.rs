//! One batch: how its jobs stand, and what waits for it.

use axum::extract::Path;
use axum::response::Response;
use maud::{Markup, html};
use spindle_access::Role;

use crate::ask::{Asked, segment};
use crate::html::{
    Tab, batch_link, batch_path, button, cut, fact, facts, grouped, number, plural, queue_link,
    shell, status_badge, time,
};
use crate::page::Page;
use crate::pages::batches::status;
use crate::pages::before;
use crate::query::Query;
use crate::shapes::Batch;

/// The batch that an address names.
pub(crate) async fn find(page: &Page, id: &str) -> Asked<Batch> {
    page.ask.get(&format!("/api/v1/batches/{}", segment(id.as_bytes()))).await
}

/// A batch.
pub(crate) async fn show(page: Page, Path(id): Path<String>) -> Asked<Response> {
    let it = find(&page, &id).await?;
    let flow = before::flow(&page, it.id).await?;
    let now_ms = page.now_ms();
    let body = html! {
        (head(&page, &it))
        (counts(&page, &it))
        (flow)
        (about(&it, now_ms))
    };
    Ok(shell(&page, Tab::Batches, &format!("Batch {}", it.id), body).await)
}

fn head(page: &Page, it: &Batch) -> Markup {
    let ended = it.jobs.total - it.jobs.unfinished;
    html! {
        div.head {
            div {
                h1 dir="auto" {
                    "Batch " span.mono { (it.id) }
                    @if !it.name.is_empty() { " " (cut(&it.name, 200)) }
                }
                p.sub {
                    (status(it)) " · " (grouped(ended)) " of " (plural(it.jobs.total, "job"))
                    " ended · in " (queue_link(&it.queue))
                }
            }
            div.acts { (buttons(page, it)) }
        }
    }
}

/// What can be done to it as it is now.
fn buttons(page: &Page, it: &Batch) -> Markup {
    let to = |action: &str| format!("{}/{action}", batch_path(it.id));
    let (field, queue) = it.queue.field();
    let submit = Query::new().with(field, &queue).with("batch", &it.id.to_string()).to("/submit");
    let (is_open, is_finished) = (it.status == "open", it.jobs.unfinished == 0);
    html! {
        @if is_open && page.may(Role::Submit) {
            (button(&to("seal"), "primary", "Seal…"))
            (button(&submit, "", "Submit a job"))
        }
        @if (is_open || !is_finished) && page.may(Role::Manage) {
            (button(&to("cancel"), "danger", "Cancel…"))
        }
    }
}

/// How its jobs stand. A list of a batch's jobs covers all queues.
fn counts(page: &Page, it: &Batch) -> Markup {
    let jobs = Query::new().with("batch", &it.id.to_string());
    let sees_all = page.sees_all();
    html! {
        ul.counts.four {
            @for (word, count) in it.jobs.all() {
                @let shown = html! { (status_badge(word)) " " b { (number(count)) } };
                li {
                    @if sees_all && matches!(word, "done" | "dead") {
                        a href=(jobs.clone().with("status", word).to("/jobs")) { (shown) }
                    } @else {
                        div { (shown) }
                    }
                }
            }
        }
        @if sees_all { p { a href=(jobs.to("/jobs")) { "The jobs of this batch" } } }
    }
}

fn about(it: &Batch, now_ms: u64) -> Markup {
    let times = [("Sealed", &it.sealed_at), ("Ended", &it.ended_at), ("Removed", &it.kept_until)];
    html! {
        h2 { "Facts" }
        (facts(html! {
            @if let Some(parent) = it.parent { (fact("Belongs to", batch_link(parent))) }
            @if let Some(key) = &it.key {
                (fact("Key", html! { span.mono dir="auto" { (cut(key, 256)) } }))
            }
            (fact("Opened", time(&it.opened_at, now_ms)))
            @for (name, at) in times {
                @if let Some(at) = at { (fact(name, time(at, now_ms))) }
            }
        }))
    }
}
