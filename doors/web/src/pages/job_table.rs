//! Jobs in rows: with the columns that a person has chosen, and boxes to mark some of them.

use std::time::Duration;

use axum::http::HeaderMap;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use spindle_access::Role;

use crate::actions::undo::tag;
use crate::cookie;
use crate::form::Form;
use crate::html::{bytes, cut, hidden_form, job_link, queue_link, status_badge, time, unseen};
use crate::page::Page;
use crate::pages::login::own_path;
use crate::query::Query;
use crate::shapes::Job;

/// A column; the job's number is always the first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Column {
    Status,
    Queue,
    Tries,
    What,
    Tags,
    Key,
    Priority,
    Door,
    Worker,
    Payload,
    Runs,
    Finished,
    Submitted,
}

impl Column {
    /// All, as they stand from left to right: their names in the cookie and on the page.
    const ALL: [(Column, &str, &str); 13] = [
        (Column::Status, "status", "Status"),
        (Column::Queue, "queue", "Queue"),
        (Column::Tries, "tries", "Tries"),
        (Column::What, "what", "What"),
        (Column::Tags, "tags", "Tags"),
        (Column::Key, "key", "Unique key"),
        (Column::Priority, "priority", "Priority"),
        (Column::Door, "door", "Door"),
        (Column::Worker, "worker", "Worker"),
        (Column::Payload, "payload", "Payload"),
        (Column::Runs, "runs", "Runs"),
        (Column::Finished, "finished", "Finished"),
        (Column::Submitted, "submitted", "Submitted"),
    ];
    /// The columns without a choice; the time that matters most follows them.
    const USUAL: [Column; 4] = [Column::Status, Column::Queue, Column::Tries, Column::What];

    fn is_number(self) -> bool {
        self.is_time() || matches!(self, Column::Tries | Column::Priority | Column::Payload)
    }

    fn is_time(self) -> bool {
        matches!(self, Column::Runs | Column::Finished | Column::Submitted)
    }
}

/// The columns of lists of jobs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Columns(Vec<Column>);

impl Columns {
    /// The columns that a cookie names; `None` if it names no known column.
    pub fn named(text: &str) -> Option<Columns> {
        let names: Vec<&str> = text.split('.').collect();
        let found = Column::ALL.into_iter().filter(|(_, name, _)| names.contains(name));
        let found: Vec<Column> = found.map(|(column, ..)| column).collect();
        (!found.is_empty()).then_some(Columns(found))
    }

    /// The columns without a choice, for jobs of one status or of any.
    fn usual(status: Option<&str>) -> Columns {
        let time = match status {
            Some("dead" | "done") => Column::Finished,
            Some("scheduled") => Column::Runs,
            _ => Column::Submitted,
        };
        Columns(Column::USUAL.into_iter().chain([time]).collect())
    }

    /// The columns that the visitor has chosen, or the usual ones for what the list shows.
    fn of(page: &Page, filter: &Query) -> Columns {
        let chosen = page.visit.columns.clone();
        chosen.unwrap_or_else(|| Columns::usual(filter.get("status")))
    }

    /// The value of the cookie.
    fn names(&self) -> String {
        let chosen = Column::ALL.into_iter().filter(|(column, ..)| self.has(*column));
        chosen.map(|(_, name, _)| name).collect::<Vec<_>>().join(".")
    }

    fn has(&self, column: Column) -> bool {
        self.0.contains(&column)
    }

    fn without(&self, column: Column) -> Columns {
        Columns(self.0.iter().copied().filter(|it| *it != column).collect())
    }

    fn keep(&self, headers: &mut HeaderMap, encrypted: bool) {
        cookie::set(headers, cookie::COLUMNS, &self.names(), Some(cookie::CHOICE_TIME), encrypted);
    }
}

/// Remembers which columns are wanted, and goes back to the list.
pub(crate) async fn choose(page: Page, form: Form) -> Response {
    let mut response = Redirect::to(own_path(form.field("next"))).into_response();
    let names = form.query().joined("column");
    let columns = Columns::named(&names.get("column").unwrap_or_default().replace(',', "."));
    let (headers, encrypted) = (response.headers_mut(), page.visit.is_encrypted);
    match columns {
        Some(columns) => columns.keep(headers, encrypted),
        None => cookie::set(headers, cookie::COLUMNS, "", Some(Duration::ZERO), encrypted),
    }
    response
}

/// The list of columns to choose from.
pub(crate) fn chooser(page: &Page, filter: &Query) -> Markup {
    let shown = Columns::of(page, filter);
    html! {
        details.columns {
            summary.btn { "Columns" }
            form method="post" action="/columns" data-aside {
                (hidden_form(page))
                input type="hidden" name="next" value=(own_path(&page.visit.at));
                @for (column, name, title) in Column::ALL {
                    label {
                        input type="checkbox" name="column" value=(name)
                            checked[shown.has(column)];
                        " " (title)
                    }
                }
                button.btn.primary type="submit" { "Show these" }
            }
        }
    }
}

/// The usual columns, for pages that show a few jobs.
pub(crate) fn table(jobs: &[Job], now_ms: u64, with_queue: bool) -> Markup {
    let columns = Columns::usual(None);
    let columns = if with_queue { columns } else { columns.without(Column::Queue) };
    rows(jobs, now_ms, &columns, false)
}

/// A table with the chosen columns; for visitors who may act, each row has a box, and actions on
/// the marked jobs are offered. `filter` is what the list shows: actions that fit none of these
/// jobs are not offered.
pub(crate) fn of_list(page: &Page, jobs: &[Job], filter: &Query) -> Markup {
    let has_queue = filter.fields().any(|(name, _)| name.starts_with("queue"));
    let columns = Columns::of(page, filter);
    let columns = if has_queue { columns.without(Column::Queue) } else { columns };
    if !page.may(Role::Manage) {
        return rows(jobs, page.now_ms(), &columns, false);
    }
    html! {
        form.marks method="get" action="/jobs/all/delete" {
            // A token for some queues may act on jobs of a queue that it names.
            @for name in ["queue", "queue_base64"] {
                @if let Some(value) = filter.get(name) {
                    input type="hidden" name=(name) value=(value);
                }
            }
            (rows(jobs, page.now_ms(), &columns, true))
            div.marked {
                span { "With the marked jobs:" }
                @for (action, word) in actions(filter.get("status")) {
                    button.btn.danger[action == "delete"] type="submit"
                        formaction={ "/jobs/all/" (action) } { (word) }
                }
            }
        }
    }
}

/// The actions on jobs of a status, or of any.
fn actions(status: Option<&str>) -> impl Iterator<Item = (&'static str, &'static str)> {
    let fits: &[&str] = match status {
        Some("dead" | "done") => &["retry", "delete"],
        Some("parked") => &["release", "cancel", "delete"],
        Some("leased") => &["cancel", "delete"],
        Some("ready" | "scheduled" | "blocked") => &["park", "cancel", "delete"],
        _ => &["retry", "park", "release", "cancel", "delete"],
    };
    let all = [
        ("retry", "Retry…"),
        ("park", "Park…"),
        ("release", "Release…"),
        ("cancel", "Cancel…"),
        ("delete", "Delete…"),
    ];
    all.into_iter().filter(|(action, _)| fits.contains(action))
}

fn rows(jobs: &[Job], now_ms: u64, columns: &Columns, with_boxes: bool) -> Markup {
    let shown = || Column::ALL.into_iter().filter(|(column, ..)| columns.has(*column));
    html! {
        table.list {
            thead {
                tr {
                    @if with_boxes { th.box { (unseen("Mark")) } }
                    th { "Job" }
                    @for (column, _, title) in shown() {
                        th.r[column.is_number()].opt[column == Column::Tries] { (title) }
                    }
                }
            }
            tbody {
                @for job in jobs {
                    tr data-key=(job.id) {
                        @if with_boxes {
                            td.box {
                                label {
                                    input type="checkbox" name="ids" value=(job.id)
                                        aria-label={ "Mark job " (job.id) };
                                }
                            }
                        }
                        td { (job_link(job.id)) }
                        @for (column, ..) in shown() { (cell(column, job, now_ms, columns)) }
                    }
                }
            }
        }
    }
}

fn cell(column: Column, job: &Job, now_ms: u64, columns: &Columns) -> Markup {
    let times = columns.0.iter().filter(|column| column.is_time()).count();
    let when = |word: &str, at: Option<&String>| {
        // On a phone the columns have no heads: a single time is clear, and two times are labelled.
        let word = (times > 1).then_some(word);
        html! { td.r.nowrap data-before=[word] { @if let Some(at) = at { (time(at, now_ms)) } } }
    };
    let tags = |count: usize| {
        html! { @for tag in job.tags.iter().take(count) { " " span.tag { (cut(tag, 24)) } } }
    };
    match column {
        Column::Status => html! { td { (status_badge(&job.status)) (tag(job)) } },
        Column::Queue => html! { td.name { (queue_link(&job.queue)) } },
        Column::Tries => html! { td.r.opt { (job.attempts) } },
        Column::What => html! {
            td.what {
                (what(job, columns, now_ms))
                @if !columns.has(Column::Tags) { (tags(3)) }
            }
        },
        Column::Tags => html! { td { (tags(8)) } },
        Column::Key => html! {
            td.mono dir="auto" { @if let Some(key) = &job.unique_key { (cut(key, 80)) } }
        },
        Column::Priority => html! { td.r { (job.priority) } },
        Column::Door => html! { td { (job.origin) } },
        Column::Worker => html! {
            td.mono dir="auto" { @if let Some(lease) = &job.lease { (cut(&lease.worker, 60)) } }
        },
        Column::Payload => html! { td.r.nowrap { (bytes(job.payload_bytes)) } },
        Column::Runs => when("runs", job.run_at.as_ref()),
        Column::Finished => when("finished", job.finished_at.as_ref()),
        Column::Submitted => when("submitted", Some(&job.created_at)),
    }
}

/// The first line of a job's error.
pub(crate) fn error_of(job: &Job) -> Option<String> {
    let result = job.result.as_ref().filter(|result| !result.success)?;
    let said = [&result.error, &result.message, &result.code];
    let text = said.into_iter().find(|text| !text.is_empty())?;
    Some(cut(text.lines().next().unwrap_or_default(), 100))
}

/// The detail that matters most for a job of this status.
fn what(job: &Job, columns: &Columns, now_ms: u64) -> Markup {
    let error = error_of(job);
    let stands = match (job.status.as_str(), &job.run_at, &job.lease) {
        ("scheduled", Some(at), _) if !columns.has(Column::Runs) => {
            Some(html! { "runs " (time(at, now_ms)) })
        }
        ("leased", _, Some(lease)) => Some(html! {
            "since " (time(&lease.started_at, now_ms))
            @if !lease.worker.is_empty() { " by " span.mono { (cut(&lease.worker, 40)) } }
        }),
        ("done", ..) if !columns.has(Column::Finished) => {
            job.finished_at.as_ref().map(|at| html! { "done " (time(at, now_ms)) })
        }
        _ => None,
    };
    html! {
        @if let Some(stands) = &stands { (stands) @if error.is_some() { " · " } }
        @if let Some(error) = error { span.mono dir="auto" { (error) } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_names_columns_and_nonsense_none() {
        let some = Columns::named("submitted.key.nonsense").unwrap();
        assert_eq!(some, Columns(vec![Column::Key, Column::Submitted]), "in the order of the page");
        assert_eq!(Columns::named(&some.names()).as_ref(), Some(&some));
        for nonsense in ["", "nonsense", "key,status", "<script>"] {
            assert_eq!(Columns::named(nonsense), None, "{nonsense}");
        }
    }
}
