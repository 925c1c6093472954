//! The constraints: what they limit, and whether they hold jobs back.

use axum::response::Response;
use maud::{Markup, html};
use spindle_access::{Role, Target};
use spindle_http::{ConditionBody, Op};

use crate::ask::Asked;
use crate::html::{
    Tab, button, cut, duration_ms, empty, grouped, number, pager, plural, queue_link, shell,
};
use crate::page::Page;
use crate::pages::constraint::constraint_link;
use crate::query::Query;
use crate::shapes::{Constraint, ConstraintPage, QueueName};

/// Constraints of a page.
const LIMIT: &str = "20";
/// Conditions of each that are shown, and the most characters of one.
const CONDITIONS_MAX: usize = 4;
const CONDITION_CHARS_MAX: usize = 80;

/// The constraints, by name.
pub(crate) async fn list(page: Page) -> Asked<Response> {
    let query = page.query();
    let cursor = query.get("cursor").unwrap_or_default();
    let asked = Query::new().with("limit", LIMIT).with("cursor", cursor);
    let found: ConstraintPage = page.ask.get(&asked.to("/api/v1/constraints")).await?;
    let body = html! {
        div.head {
            h1 { "Constraints" }
            @if may_change(&page) {
                div.acts { (button("/constraint/edit", "primary", "New constraint…")) }
            }
        }
        @if found.constraints.is_empty() {
            (empty(
                "A constraint limits how many jobs run at once, or start in a time.",
                Some("spindle constraint put smtp --queue mail --running-max 10"),
            ))
        } @else {
            (table(&found.constraints))
        }
        (pager("/constraints", &query, found.next_cursor.as_deref()))
    };
    Ok(shell(&page, Tab::Constraints, "Constraints", body).await)
}

/// Whether the visitor may change constraints, which apply to all queues.
pub(crate) fn may_change(page: &Page) -> bool {
    page.ask.login.clone().authorize(Role::Manage, Target::AllQueues).is_ok()
}

/// How many unfinished jobs of full buckets do not run; only the few buckets listed with a
/// constraint count.
pub(crate) fn held(it: &Constraint) -> u64 {
    let full = it.buckets.iter().filter(|bucket| !bucket.admits);
    full.map(|bucket| bucket.jobs.saturating_sub(bucket.running)).sum()
}

fn table(constraints: &[Constraint]) -> Markup {
    html! {
        table.list {
            thead {
                tr {
                    th { "Constraint" } th { "Limit" } th { "Jobs" } th.r { "Running" } th { "Now" }
                }
            }
            tbody { @for it in constraints { (row(it)) } }
        }
    }
}

fn row(it: &Constraint) -> Markup {
    let running = it.buckets.iter().map(|bucket| bucket.running).sum();
    // For a constraint with values, only the first buckets are here.
    let is_all = it.buckets_count as usize <= it.buckets.len();
    html! {
        tr {
            td.name { (constraint_link(&it.name)) }
            td { (limits(it)) }
            td.sentence { (matched(it)) }
            td.r data-label="running" {
                (number(running))
                @if !is_all { span.soft { " at least" } }
                @else if let Some(max) = it.running_max.filter(|_| it.per.is_none()) {
                    span.soft { " of " (grouped(max)) }
                }
            }
            td {
                @if it.unreadable.is_some() { span.st.dead { "not understood" } }
                @else if held(it) > 0 {
                    span.st.leased { "holds back " (grouped(held(it))) }
                } @else { span.st.done { "has room" } }
            }
        }
    }
}

/// What it limits, in a sentence.
pub(crate) fn limits(it: &Constraint) -> String {
    let running = it.running_max.map(|max| match max {
        0 => "None may run".to_owned(),
        max => format!("At most {} running at once", grouped(max)),
    });
    let rate = it.rate.as_ref().map(|rate| {
        let burst = rate.burst.filter(|burst| *burst != rate.count);
        let burst = burst.map(|burst| format!(", {} at once", grouped(burst))).unwrap_or_default();
        format!("{} in {}{burst}", plural(rate.count, "start"), duration_ms(rate.per_ms))
    });
    let said: Vec<String> = [running, rate].into_iter().flatten().collect();
    let per = it.per.as_ref().map(|field| format!(" for each value of {}", cut(field, 80)));
    let each = if it.per_shard { ", on each shard" } else { "" };
    format!("{}{}{each}.", said.join("; "), per.unwrap_or_default())
}

/// Which jobs it is about, in a sentence.
pub(crate) fn matched(it: &Constraint) -> Markup {
    let more = it.conditions.len().saturating_sub(CONDITIONS_MAX) as u64;
    html! {
        "Jobs "
        @match (&it.queue, &it.queue_glob) {
            (Some(queue), _) => { "of " (queue_link(&QueueName::text(queue))) },
            (None, Some(glob)) => { "of queues like " code { (cut(glob, 80)) } },
            (None, None) => { "of all queues" },
        }
        @for (number, condition) in it.conditions.iter().take(CONDITIONS_MAX).enumerate() {
            (if number == 0 { " where " } else { " and " }) code { (condition_words(condition)) }
        }
        @if more > 0 { " and " (plural(more, "more condition")) }
        "."
    }
}

fn condition_words(condition: &ConditionBody) -> String {
    let ConditionBody { pointer, op, value, values } = condition;
    let value = value.as_ref().map(ToString::to_string);
    let values = values.as_ref().map(|values| serde_json::Value::from(values.clone()).to_string());
    let value = value.or(values).unwrap_or_default();
    cut(format!("{pointer} {} {value}", op_words(*op)).trim_end(), CONDITION_CHARS_MAX)
}

/// How a field compares, in words.
pub(crate) fn op_words(op: Op) -> &'static str {
    match op {
        Op::Eq => "is",
        Op::Ne => "is not",
        Op::Lt => "is below",
        Op::Le => "is at most",
        Op::Gt => "is above",
        Op::Ge => "is at least",
        Op::In => "is one of",
        Op::Glob => "is like",
        Op::Exists => "is there",
        Op::Absent => "is not there",
    }
}
