//! Small parts of pages.

use jiff::Timestamp;
use maud::{Markup, html};

use crate::form::TOKEN;
use crate::html::words::{duration_ms, grouped};
use crate::page::Page;
use crate::query::Query;
use crate::shapes::QueueName;

/// The longest name that is shown in full, in characters. A link has it whole.
const NAME_CHARS_MAX: usize = 80;

/// Text for screen readers only, such as the head of a column of links.
pub(crate) fn unseen(word: &str) -> Markup {
    html! { span.unseen { (word) } }
}

/// A time, and how long ago or ahead it is.
pub(crate) struct Time {
    at: Timestamp,
    now_ms: u64,
}

impl Time {
    /// One that the API has written. None: it is no time.
    pub fn read(text: &str, now_ms: u64) -> Option<Time> {
        Some(Time { at: text.parse().ok()?, now_ms })
    }

    /// Milliseconds since 1970.
    pub fn ms(&self) -> i64 {
        self.at.as_millisecond()
    }

    fn distance(&self) -> String {
        let now = i64::try_from(self.now_ms).unwrap_or(i64::MAX);
        let ago = now.saturating_sub(self.ms());
        let span = duration_whole(ago.unsigned_abs());
        match ago {
            -999..1000 => "now".to_owned(),
            1000.. => format!("{span} ago"),
            _ => format!("in {span}"),
        }
    }

    /// Day, time and zone.
    fn exact(&self) -> String {
        self.at.strftime("%Y-%m-%d %H:%M:%S%.3f UTC").to_string()
    }

    /// The time of the day.
    pub fn clock(&self) -> String {
        self.at.strftime("%H:%M:%S").to_string()
    }
}

/// Without fractions of a second, because it is only meant for reading.
pub(crate) fn duration_whole(ms: u64) -> String {
    if ms < 10_000 { format!("{} s", ms / 1000) } else { duration_ms(ms) }
}

/// A time as how far it is from now, the exact one on hover.
pub(crate) fn time(text: &str, now_ms: u64) -> Markup {
    shown_time(Time::read(text, now_ms).as_ref(), text)
}

/// The same of one that is read already.
pub(crate) fn shown_time(time: Option<&Time>, text: &str) -> Markup {
    match time {
        Some(time) => html! {
            time datetime=(text) title=(time.exact()) { (time.distance()) }
        },
        None => html! { (text) },
    }
}

/// How long it was from one time to another.
pub(crate) fn span_of(from: &str, to: &str) -> Option<u64> {
    let (from, to) = (Time::read(from, 0)?, Time::read(to, 0)?);
    u64::try_from(to.ms() - from.ms()).ok()
}

/// How long ago a time was; none if it lies ahead.
pub(crate) fn since(text: &str, now_ms: u64) -> Option<u64> {
    now_ms.checked_sub(u64::try_from(Time::read(text, now_ms)?.ms()).ok()?)
}

/// An age, amber from five minutes on.
pub(crate) fn age_of(ms: Option<u64>) -> Markup {
    match ms {
        None => html! { span.zero { "–" } },
        Some(ms) => html! {
            span.leased[ms >= 300_000] { (duration_whole(ms)) }
        },
    }
}

/// A count; none is grey.
pub(crate) fn number(count: u64) -> Markup {
    html! { span.zero[count == 0] { (grouped(count)) } }
}

/// A status: its colour and its word.
pub(crate) fn status_badge(status: &str) -> Markup {
    html! { span class={ "st " (status) } { (status) } }
}

/// A text cut to what a line takes.
pub(crate) fn cut(text: &str, chars_max: usize) -> String {
    let in_line = |c: char| if matches!(c, '\n' | '\r' | '\t') { ' ' } else { visible(c) };
    let mut cut: String = text.chars().take(chars_max).map(in_line).collect();
    if text.chars().nth(chars_max).is_some() {
        cut.push('…');
    }
    cut
}

/// The first line of a text that says more below it, as a stack trace does.
pub(crate) fn first_line(text: &str, chars_max: usize) -> String {
    let mut lines = text.trim().lines();
    let first = cut(lines.next().unwrap_or_default(), chars_max);
    if lines.next().is_some() && !first.ends_with('…') { first + " …" } else { first }
}

/// Shows control characters as symbols, and neutralises those that change the direction of writing:
/// a name must not rearrange the line that it is in.
pub(crate) fn visible(c: char) -> char {
    match c {
        '\u{0}'..='\u{1f}' => char::from_u32(0x2400 + c as u32).unwrap_or('\u{fffd}'),
        '\u{7f}' => '\u{2421}',
        '\u{80}'..='\u{9f}'
        | '\u{202a}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}'
        | '\u{200e}'
        | '\u{200f}' => '\u{fffd}',
        c => c,
    }
}

/// The address of a queue's page, or of another page about the queue.
pub(crate) fn queue_path(path: &str, queue: &QueueName) -> String {
    let (field, name) = queue.field();
    Query::new().with(field, &name).to(path)
}

/// A queue's name, as the link to its page.
pub(crate) fn queue_link(queue: &QueueName) -> Markup {
    html! {
        a href=(queue_path("/queue", queue)) dir="auto" { (cut(&queue.shown(), NAME_CHARS_MAX)) }
    }
}

/// A job's number, as the link to its page.
pub(crate) fn job_link(id: u64) -> Markup {
    html! { a.mono href={ "/jobs/" (id) } { (id) } }
}

/// The address of a batch's page.
pub(crate) fn batch_path(id: u64) -> String {
    format!("/batches/{id}")
}

/// A batch by its number, as the link to its page.
pub(crate) fn batch_link(id: u64) -> Markup {
    html! { a href=(batch_path(id)) { "batch " span.mono { (id) } } }
}

/// A row of a list of facts.
pub(crate) fn fact(name: &str, value: Markup) -> Markup {
    html! { dt { (name) } dd { (value) } }
}

/// A list of facts.
pub(crate) fn facts(rows: Markup) -> Markup {
    html! { dl { (rows) } }
}

/// The text in place of an empty list: what will be here, and the command that fills it.
pub(crate) fn empty(what: &str, command: Option<&str>) -> Markup {
    html! {
        div.empty {
            p { (what) }
            @if let Some(command) = command { pre { (command) } }
        }
    }
}

/// The link to where a list goes on, if it does; back to its beginning from anywhere else.
pub(crate) fn pager(path: &str, query: &Query, next: Option<&str>) -> Markup {
    let begins = query.get("cursor").is_none();
    html! {
        @if !begins || next.is_some() {
            nav.pager aria-label="More of the list" {
                @if !begins { a href=(query.clone().with("cursor", "").to(path)) { "First page" } }
                @if let Some(next) = next {
                    a href=(query.clone().with("cursor", next).to(path)) rel="next" { "Next page" }
                }
            }
        }
    }
}

/// The hidden field that every form has.
pub(crate) fn hidden_form(page: &Page) -> Markup {
    html! { input type="hidden" name=(TOKEN) value=(page.form_token()); }
}

/// A link that looks like a button. `kind` is a class: `primary`, `danger`, or nothing.
pub(crate) fn button(to: &str, kind: &str, text: &str) -> Markup {
    html! { a class={ "btn " (kind) } href=(to) { (text) } }
}
