//! One constraint: what it limits, how much of that is in use, and who waits for it.

use axum::response::Response;
use maud::{Markup, html};

use crate::ask::Asked;
use crate::html::{Tab, button, cut, grouped, number, plural, queue_link, shell, time, unseen};
use crate::page::Page;
use crate::pages::constraints::{held, limits, matched, may_change};
use crate::pages::job::sentence;
use crate::pages::named::{CONSTRAINT, path_of};
use crate::query::Query;
use crate::shapes::{Bucket, Constraint, HeldPage, QueueName};

/// The most waiting queues shown.
const QUEUES_MAX: usize = 25;

/// A constraint's name, as the link to its page.
pub(crate) fn constraint_link(name: &str) -> Markup {
    html! { a href=(path_of("/constraint", name)) dir="auto" { (cut(name, 60)) } }
}

/// A constraint.
pub(crate) async fn show(page: Page) -> Asked<Response> {
    let (name, path) = CONSTRAINT.named(&page.query())?;
    let it: Constraint = page.ask.get(&path).await?;
    let waiting: HeldPage = page.ask.get(&format!("{path}/held?limit={QUEUES_MAX}")).await?;
    let now_ms = page.now_ms();
    let title = cut(&name, 200);
    let body = html! {
        div.head {
            div {
                h1 dir="auto" { (title) }
                p.sub {
                    @if held(&it) > 0 { span.st.leased { "holds jobs back" } }
                    @else { span.st.done { "has room" } }
                    " · " (limits(&it)) " " (matched(&it))
                }
            }
            @if may_change(&page) {
                div.acts {
                    (button(&path_of("/constraint/edit", &name), "", "Change…"))
                    (button(&path_of("/constraint/remove", &name), "danger", "Remove…"))
                }
            }
        }
        @if let Some(reason) = &it.unreadable { p.notice.bad { (reason) } }
        @for note in &it.notes { p.notice { (sentence(&cut(note, 600))) "." } }
        @if it.remaining > 0 {
            p.muted { (plural(it.remaining, "job")) " that were there before are still to be looked at." }
        }
        h2 { "In use" }
        @if it.buckets.is_empty() { p.muted { "No unfinished job falls under it." } }
        @else { (usage(&it, now_ms)) }
        h2 { "Who waits" }
        (who_waits(&waiting))
    };
    Ok(shell(&page, Tab::Constraints, &format!("Constraint {title}"), body).await)
}

fn usage(it: &Constraint, now_ms: u64) -> Markup {
    let more = it.buckets_count.saturating_sub(it.buckets.len() as u64);
    html! {
        table.list {
            thead {
                tr {
                    @if it.per.is_some() { th { "Value" } }
                    th.r { "Running" } th.r { "Unfinished" }
                    @if it.rate.is_some() { th.r { "Starts left" } }
                    th { "Now" }
                }
            }
            tbody { @for bucket in &it.buckets { (row(it, bucket, now_ms)) } }
        }
        @if more > 0 { p.muted { (plural(more, "more value")) "." } }
        @if it.per.is_some() { p.muted { "A value is shown by its hash: the jobs have it." } }
    }
}

fn row(it: &Constraint, bucket: &Bucket, now_ms: u64) -> Markup {
    html! {
        tr {
            @if it.per.is_some() {
                td.mono { (bucket.value_hash.as_deref().unwrap_or("–")) }
            }
            td.r data-label="running" {
                (number(bucket.running))
                @if let Some(max) = it.running_max { span.soft { " of " (grouped(max)) } }
            }
            td.r data-label="unfinished" { (number(bucket.jobs)) }
            @if it.rate.is_some() {
                td.r data-label="starts left" { @if let Some(tokens) = bucket.tokens { (number(tokens)) } }
            }
            td {
                @if bucket.admits { span.st.done { "has room" } }
                @else {
                    span.st.leased { "full" }
                    @if let Some(at) = &bucket.frees_at { " until " (time(at, now_ms)) }
                }
            }
        }
    }
}

fn who_waits(waiting: &HeldPage) -> Markup {
    let ready = |queue: &QueueName| {
        let (field, name) = queue.field();
        Query::new().with(field, &name).with("status", "ready").to("/jobs")
    };
    html! {
        @if waiting.queues.is_empty() {
            p.muted { "Nobody: it holds no ready job back." }
        } @else {
            table.list {
                thead { tr { th { "Queue" } th.r { "Ready jobs held back" } th { (unseen("Actions")) } } }
                tbody {
                    @for it in &waiting.queues {
                        tr {
                            td.name { (queue_link(&it.queue)) }
                            td.r data-label="held back" { (number(it.jobs)) }
                            td { a href=(ready(&it.queue)) { "See the ready jobs" } }
                        }
                    }
                }
            }
        }
        @if waiting.partial { p.muted { "There may be more: not all were looked at." } }
    }
}
