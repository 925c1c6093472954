//! Lists of jobs, and the search.

use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use spindle_access::Role;

use crate::ask::{Asked, segment};
use crate::html::{
    Tab, batch_path, button, empty, grouped, pager, plural, queue_path, shell, status_badge,
};
use crate::page::Page;
pub(crate) use crate::pages::job_table::table;
use crate::pages::job_table::{chooser, of_list};
use crate::query::Query;
use crate::shapes::{Batch, Counts, Job, JobPage, QueueName};

/// Jobs of a page.
const LIMIT: &str = "50";
/// What a list can be narrowed by: the API's words for it.
pub(crate) const FILTERS: [&str; 14] = [
    "ids",
    "queue",
    "queue_base64",
    "status",
    "door",
    "tag",
    "unique_key",
    "batch",
    "text",
    "field",
    "fingerprint",
    "created_from",
    "created_before",
    "deleted_by",
];
const DOORS: [&str; 6] = ["api", "workq", "gearman", "gearman_draft", "lightjq", "jobq"];

/// Jobs of any status.
pub(crate) async fn list(page: Page) -> Asked<Response> {
    let query = page.query();
    listed(&page, &List { tab: Tab::Jobs, path: "/jobs", title: "Jobs", status: None }, query).await
}

/// Jobs that failed for good.
pub(crate) async fn dead(page: Page) -> Asked<Response> {
    let query = page.query();
    let list = List { tab: Tab::Dead, path: "/dead", title: "Dead jobs", status: Some("dead") };
    listed(&page, &list, query).await
}

/// Jobs whose time has not come.
pub(crate) async fn scheduled(page: Page) -> Asked<Response> {
    let query = page.query();
    let list = List {
        tab: Tab::Scheduled,
        path: "/scheduled",
        title: "Scheduled jobs",
        status: Some("scheduled"),
    };
    listed(&page, &list, query).await
}

/// A kind of list.
struct List {
    tab: Tab,
    path: &'static str,
    title: &'static str,
    /// Only jobs of this status, whatever the address says.
    status: Option<&'static str>,
}

async fn listed(page: &Page, list: &List, query: Query) -> Asked<Response> {
    let query = match list.status {
        Some(_) => query.with("status", ""),
        None => query,
    };
    let meant =
        query.clone().with("status", list.status.or(query.get("status")).unwrap_or_default());
    let filter = meant.only(&FILTERS);
    let mut asked = filter.clone().with("limit", LIMIT).with("order", "desc");
    if let Some(cursor) = query.get("cursor") {
        asked = asked.with("cursor", cursor);
    }
    // Only the counts that queues keep anyway are shown; any other would need a walk.
    if filter.fields().all(|(name, _)| name.starts_with("queue") || name == "status") {
        asked = asked.with("count", "true");
    }
    let found: JobPage = page.ask.get(&asked.to("/api/v1/jobs")).await?;
    let body = html! {
        (heading(page, list, &filter, &found))
        @if list.status.is_none() { (by_status(&query)) }
        (search_form(list, &query))
        @if found.jobs.is_empty() {
            (nothing(&filter, &found))
        } @else {
            (of_list(page, &found.jobs, &filter))
        }
        @if found.partial {
            p.muted { "There was more to look through than one page may: the list goes on." }
        }
        (pager(list.path, &query, found.next_cursor.as_deref()))
    };
    Ok(shell(page, list.tab, list.title, body).await)
}

fn heading(page: &Page, list: &List, filter: &Query, found: &JobPage) -> Markup {
    let count = found.total.map(|total| {
        let at_least = if found.total_is_at_least { "at least " } else { "" };
        format!("{at_least}{}", plural(total, "job"))
    });
    let has_filter = filter.fields().next().is_some();
    html! {
        div.head {
            div {
                h1 { (list.title) }
                @if let Some(count) = count { p.muted { (count) } }
            }
            div.acts {
                @if has_filter && !found.jobs.is_empty() && page.may(Role::Manage) {
                    (for_all(filter, found.total.filter(|_| !found.total_is_at_least)))
                }
                @if !found.jobs.is_empty() { (chooser(page, filter)) }
            }
        }
    }
}

/// The actions on all jobs that are meant, and the number of these jobs where it is known.
fn for_all(filter: &Query, total: Option<u64>) -> Markup {
    let to = |action: &str| filter.to(&format!("/jobs/all/{action}"));
    let is = |status: &str| filter.get("status") == Some(status);
    let count = total.map(|total| format!(" {}", grouped(total))).unwrap_or_default();
    let words = |verb: &str| format!("{verb} all{count}…");
    html! {
        @if is("dead") || is("done") { (button(&to("retry"), "", &words("Retry"))) }
        @if is("parked") { (button(&to("release"), "", &words("Release"))) }
        @if is("ready") || is("scheduled") || is("blocked") { (button(&to("park"), "", &words("Park"))) }
        (button(&to("delete"), "danger", &words("Delete")))
    }
}

fn by_status(query: &Query) -> Markup {
    let to = |status: &str| query.clone().with("cursor", "").with("status", status).to("/jobs");
    let chosen = query.get("status").unwrap_or_default();
    html! {
        nav.chips aria-label="Status" {
            a href=(to("")) aria-current=[chosen.is_empty().then_some("true")] { "All" }
            @for status in Counts::STATUSES {
                a href=(to(status)) aria-current=[(chosen == status).then_some("true")] {
                    (status_badge(status))
                }
            }
        }
    }
}

fn search_form(list: &List, query: &Query) -> Markup {
    let value = |name: &str| query.get(name).unwrap_or_default().to_owned();
    let more = ["door", "batch", "created_from", "created_before", "fingerprint"];
    let is_open = more.iter().any(|name| query.get(name).is_some());
    html! {
        form.filter action=(list.path) {
            @for kept in ["status", "queue_base64"] {
                @if let Some(value) = query.get(kept) { input type="hidden" name=(kept) value=(value); }
            }
            (field("queue", "Queue", &value("queue"), ""))
            (field("tag", "Tag", &value("tag"), ""))
            (field("unique_key", "Unique key", &value("unique_key"), ""))
            (field("text", "Text in the payload", &value("text"), ""))
            (field("field", "Field of the payload", &value("field"), "/customer=acme"))
            details.more open[is_open] {
                summary { "More" }
                div {
                    label {
                        span { "Door" }
                        select name="door" {
                            option value="" { "any" }
                            @for door in DOORS {
                                option value=(door) selected[value("door") == door] { (door) }
                            }
                        }
                    }
                    (field("batch", "Batch", &value("batch"), "its number"))
                    (field("created_from", "Submitted from", &value("created_from"), "2030-01-31T08:00:00Z"))
                    (field("created_before", "Submitted before", &value("created_before"), "2030-01-31T08:00:00Z"))
                    (field("fingerprint", "Failed with", &value("fingerprint"), "connection refused to db-#"))
                }
            }
            div.acts {
                button.btn.primary type="submit" { "Search" }
                @if query.clone().only(&FILTERS).fields().next().is_some() {
                    a.btn href=(list.path) { "Clear" }
                }
            }
        }
    }
}

fn field(name: &str, label: &str, value: &str, placeholder: &str) -> Markup {
    let hint = (!placeholder.is_empty()).then_some(placeholder);
    html! {
        // On a phone, empty fields are hidden until More is opened.
        label.filled[!value.is_empty()] {
            span { (label) }
            input name=(name) value=(value) maxlength="1024" placeholder=[hint] autocomplete="off";
        }
    }
}

fn nothing(filter: &Query, found: &JobPage) -> Markup {
    let has_filter = filter.fields().next().is_some();
    match (found.next_cursor.is_some(), has_filter, filter.get("status")) {
        (true, ..) => {
            empty("None among those that were looked at yet: go on with the next page.", None)
        }
        (_, true, Some("dead")) => empty("No job is dead here.", None),
        (_, true, _) => empty("No job is like that.", None),
        (_, false, _) => empty(
            "Jobs will be here as soon as somebody submits one.",
            Some("spindle add mail 'to: a@example.org'"),
        ),
    }
}

/// Finds what the search box is about: a job by any of its names, a batch by its number, a queue, else text in payloads.
pub(crate) async fn search(page: Page) -> Asked<Response> {
    let query = page.query();
    let text = query.get("q").unwrap_or_default().trim();
    let job = format!("/api/v1/jobs/{}?bytes_max=0", segment(text.as_bytes()));
    if !text.is_empty()
        && let Ok(job) = page.ask.get::<Job>(&job).await
    {
        return Ok(Redirect::to(&format!("/jobs/{}", job.id)).into_response());
    }
    let batch = format!("/api/v1/batches/{}", segment(text.as_bytes()));
    if !text.is_empty()
        && let Ok(batch) = page.ask.get::<Batch>(&batch).await
    {
        return Ok(Redirect::to(&batch_path(batch.id)).into_response());
    }
    let queue = QueueName::text(text);
    let path = format!("/api/v1/queues/{}", segment(text.as_bytes()));
    let to = if text.is_empty() {
        "/jobs".to_owned()
    } else if page.ask.get::<serde_json::Value>(&path).await.is_ok() {
        queue_path("/queue", &queue)
    } else {
        Query::new().with("text", text).to("/jobs")
    };
    Ok(Redirect::to(&to).into_response())
}
