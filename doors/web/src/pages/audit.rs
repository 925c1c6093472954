//! What people did.

use axum::response::Response;
use maud::{Markup, html};

use crate::ask::Asked;
use crate::html::{Tab, cut, duration_ms, empty, job_link, pager, plural, queue_link, shell, time};
use crate::page::Page;
use crate::pages::constraint::constraint_link;
use crate::pages::schedules::schedule_link;
use crate::shapes::{AuditEntry, AuditPage, QueueName};

/// Entries of a page.
const LIMIT: &str = "50";
/// What the list can be narrowed by: the API's words for it.
const FILTERS: [(&str, &str); 4] =
    [("who", "Who"), ("action", "Action"), ("queue", "Queue"), ("job", "Job")];

/// The audit log, the newest first.
pub(crate) async fn list(page: Page) -> Asked<Response> {
    let query = page.query();
    let names = FILTERS.map(|(name, _)| name);
    let filter = query.clone().only(&names);
    let cursor = query.get("cursor").unwrap_or_default();
    let asked = filter.clone().with("cursor", cursor).with("limit", LIMIT);
    let found: AuditPage = page.ask.get(&asked.to("/api/v1/audit")).await?;
    let now_ms = page.now_ms();
    let is_filtered = filter.fields().next().is_some();
    let body = html! {
        h1 { "Audit" }
        p.muted { "What people changed, here or by a command. What clients and workers do is not in it." }
        form.filter action="/audit" {
            @for (name, label) in FILTERS {
                label {
                    span { (label) }
                    input name=(name) value=(query.get(name).unwrap_or_default()) maxlength="512" autocomplete="off";
                }
            }
            div.acts {
                button.btn.primary type="submit" { "Search" }
                @if is_filtered { a.btn href="/audit" { "Clear" } }
            }
        }
        @if found.entries.is_empty() {
            (empty(if is_filtered { "No entry is like that." } else { "Nobody has changed anything yet." }, None))
        } @else {
            table.list {
                thead { tr { th { "When" } th { "Who" } th { "Did" } th { "To" } th { "Detail" } } }
                tbody { @for entry in &found.entries { (row(entry, now_ms)) } }
            }
        }
        (pager("/audit", &query, found.next_cursor.as_deref()))
    };
    Ok(shell(&page, Tab::Audit, "Audit", body).await)
}

fn row(entry: &AuditEntry, now_ms: u64) -> Markup {
    let who = &entry.who;
    let name = if who.name.is_empty() { &who.kind } else { &who.name };
    html! {
        tr {
            td.nowrap { (time(&entry.at, now_ms)) }
            td.actor {
                (cut(name, 60))
                span.soft { " · " (who.address) " · " (who.door) }
            }
            td.nowrap { b { (entry.action.replace('_', " ")) } }
            td.sentence { (what(entry)) }
            td.what dir="auto" { (cut(&detail(entry), 200)) }
        }
    }
}

fn what(entry: &AuditEntry) -> Markup {
    let has_queue = entry.queue != QueueName::default();
    let is_inside = entry.job.is_some() || entry.count.is_some() || entry.schedule.is_some();
    html! {
        @if let Some(id) = entry.job { "job " (job_link(id)) " " }
        @if let Some(count) = entry.count { (plural(count, "job")) " " }
        @if let Some(name) = &entry.schedule { "schedule " (schedule_link(name)) " " }
        @if has_queue {
            (if is_inside { "in " } else { "queue " })
            (queue_link(&entry.queue))
        }
        @if let Some(name) = &entry.constraint { "constraint " (constraint_link(name)) }
    }
}

/// Further details. For settings and constraints they have the form `keep_ms 3600000` and `120 per
/// 60000 ms`; here the times are made readable.
fn detail(entry: &AuditEntry) -> String {
    match entry.action.as_str() {
        "set_queue" | "put_constraint" => with_durations(&entry.detail),
        _ => entry.detail.clone(),
    }
}

fn with_durations(text: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut is_time = false;
    for word in text.split(' ') {
        let (digits, behind) = word.split_at(word.trim_end_matches([',', ';']).len());
        let number: Option<u64> = digits.parse().ok();
        match (number, digits.strip_suffix("_ms"), digits) {
            (Some(ms), ..) if is_time => words.push(duration_ms(ms) + behind),
            (_, _, "ms") if words.last().is_some_and(|last| last.parse::<u64>().is_ok()) => {
                let ms = words.pop().and_then(|last| last.parse().ok()).unwrap_or_default();
                words.push(duration_ms(ms) + behind);
            }
            (_, Some(name), _) => words.push(name.to_owned() + behind),
            _ => words.push(word.to_owned()),
        }
        is_time = word.ends_with("_ms");
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_settings_and_constraints_are_for_people() {
        for (text, said) in [
            ("keep_ms 3600000", "keep 1 h"),
            (
                "fails_max 3, ttr_default_ms 90000, jobs_max 9",
                "fails_max 3, ttr_default 1 min, jobs_max 9",
            ),
            ("new, 120 per 60000 ms, 120 at once", "new, 120 per 1 min, 120 at once"),
            (
                "no ttr_default_ms, jobs_max 20, no backoff",
                "no ttr_default, jobs_max 20, no backoff",
            ),
            ("", ""),
        ] {
            assert_eq!(with_durations(text), said);
        }
    }
}
