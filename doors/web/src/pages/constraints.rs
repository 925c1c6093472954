//! Constraints: what they limit, and how much of it is in use.

use axum::response::Response;
use maud::{Markup, html};
use spindle_http::ConditionBody;

use crate::ask::Asked;
use crate::html::{Tab, cut, duration_ms, empty, grouped, number, pager, plural, shell, time};
use crate::page::Page;
use crate::query::Query;
use crate::shapes::{Bucket, Constraint, ConstraintPage, QueueName};

/// Constraints of a page.
const LIMIT: &str = "20";
/// Values that are shown of each.
const BUCKETS_MAX: usize = 8;

/// The constraints, by name.
pub(crate) async fn list(page: Page) -> Asked<Response> {
    let query = page.query();
    let cursor = query.get("cursor").unwrap_or_default();
    let asked = Query::new().with("limit", LIMIT).with("cursor", cursor);
    let found: ConstraintPage = page.ask.get(&asked.to("/api/v1/constraints")).await?;
    let now_ms = page.now_ms();
    let body = html! {
        h1 { "Constraints" }
        @if found.constraints.is_empty() {
            (empty(
                "A constraint limits how many jobs run at once, or start in a time.",
                Some("spindle constraint put smtp --queue mail --running-max 10"),
            ))
        }
        @for constraint in &found.constraints { (one(constraint, now_ms)) }
        (pager("/constraints", &query, found.next_cursor.as_deref()))
    };
    Ok(shell(&page, Tab::Constraints, "Constraints", body).await)
}

fn one(it: &Constraint, now_ms: u64) -> Markup {
    let holds = it.buckets.iter().any(|bucket| !bucket.admits && bucket.jobs > bucket.running);
    html! {
        section.constraint {
            h2 dir="auto" {
                (cut(&it.name, 80)) " "
                @if holds { span.st.leased { "holds jobs back" } }
            }
            p { (limits(it)) " " (matched(it)) }
            @if let Some(reason) = &it.unreadable { p.notice.bad { (reason) } }
            @for note in &it.notes { p.notice { (cut(note, 600)) } }
            @if it.remaining > 0 {
                p.muted { (plural(it.remaining, "job")) " that were there before are still to be looked at." }
            }
            @if holds && let Some(queue) = &it.queue {
                @let queue = QueueName::text(queue);
                @let (field, name) = queue.field();
                p { a href=(Query::new().with(field, &name).with("status", "ready").to("/jobs")) { "See who waits" } }
            }
            @if it.buckets.is_empty() { p.muted { "No job falls under it now." } }
            @else { (usage(it, now_ms)) }
        }
    }
}

fn limits(it: &Constraint) -> String {
    let running = it.running_max.map(|max| match max {
        0 => "None of its jobs may run".to_owned(),
        max => format!("At most {} running at once", plural(max, "job")),
    });
    let rate = it.rate.as_ref().map(|rate| {
        let burst = rate.burst.filter(|burst| *burst != rate.count);
        let burst = burst.map(|burst| format!(", {} at once", grouped(burst))).unwrap_or_default();
        format!("{} in {}{burst}", plural(rate.count, "start"), duration_ms(rate.per_ms))
    });
    let said: Vec<String> = [running, rate].into_iter().flatten().collect();
    let per = it.per.as_ref().map(|field| format!(" for each value of {}", cut(field, 80)));
    format!("{}{}.", said.join("; "), per.unwrap_or_default())
}

fn matched(it: &Constraint) -> Markup {
    html! {
        "It is about jobs "
        @match (&it.queue, &it.queue_glob) {
            (Some(queue), _) => { "of " (crate::html::queue_link(&QueueName::text(queue))) },
            (None, Some(glob)) => { "of queues like " code { (cut(glob, 80)) } },
            (None, None) => { "of all queues" },
        }
        @for (number, condition) in it.conditions.iter().take(8).enumerate() {
            (if number == 0 { " where " } else { " and " }) code { (condition_words(condition)) }
        }
        "."
    }
}

fn condition_words(condition: &ConditionBody) -> String {
    let ConditionBody { pointer, op, value, values } = condition;
    let op = serde_json::to_value(op).ok();
    let op = op.as_ref().and_then(|op| op.as_str()).unwrap_or_default();
    let value = value.as_ref().map(ToString::to_string);
    let values = values.as_ref().map(|values| serde_json::Value::from(values.clone()).to_string());
    let value = value.or(values).unwrap_or_default();
    cut(format!("{pointer} {op} {value}").trim_end(), 160)
}

fn usage(it: &Constraint, now_ms: u64) -> Markup {
    let more = it.buckets_count.saturating_sub(BUCKETS_MAX.min(it.buckets.len()) as u64);
    html! {
        table.list {
            thead {
                tr {
                    @if it.per.is_some() { th { "Value" } }
                    th.r { "Running" } th.r { "Unfinished" } th.r { "Starts left" } th { "Now" }
                }
            }
            tbody { @for bucket in it.buckets.iter().take(BUCKETS_MAX) { (row(it, bucket, now_ms)) } }
        }
        @if more > 0 { p.muted { (plural(more, "more value")) "." } }
    }
}

fn row(it: &Constraint, bucket: &Bucket, now_ms: u64) -> Markup {
    html! {
        tr {
            @if it.per.is_some() {
                td.mono { (bucket.value_hash.as_deref().unwrap_or("–")) }
            }
            td.r {
                (number(bucket.running))
                @if let Some(max) = it.running_max { span.soft { " of " (grouped(max)) } }
            }
            td.r { (number(bucket.jobs)) }
            td.r { @match bucket.tokens { Some(tokens) => (number(tokens)), None => span.zero { "–" } } }
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
