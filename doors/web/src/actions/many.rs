//! Actions on all jobs that a search finds.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use axum::extract::Path;
use maud::{Markup, html};
use serde_json::{Map, Value};

use spindle_http::Problem;

use crate::actions::{Answer, Question, done, no_action, undo};
use crate::ask::{Asked, Fault};
use crate::form::Form;
use crate::html::{Tab, cut, grouped, plural};
use crate::page::Page;
use crate::pages::jobs::FILTERS;
use crate::query::Query;
use crate::shapes::{BulkAnswer, Deletion};

/// Where there are several shards, the one whose jobs are meant, because each shard numbers its
/// deletions by itself.
const SHARD: &str = "shard";

/// The longest that a person waits for an action; the page then says what is left.
const TIME_MAX: Duration = Duration::from_secs(10);

/// An action: its name, the button's word, what it does.
const ACTIONS: [(&str, &str, &str); 6] = [
    ("retry", "Retry", "They run again, with all their tries."),
    ("park", "Park", "They are kept aside, and no worker gets them until they are released."),
    ("release", "Release", "They run when their time has come."),
    ("cancel", "Cancel", "They end as dead. Workers that have some of them lose those."),
    (
        "delete",
        "Delete",
        "They are gone with payloads and results; for a minute that can be undone.",
    ),
    ("undo", "Undo the deletion of", "They are as they were before they were deleted."),
];

fn known(action: &str) -> Asked<&'static (&'static str, &'static str, &'static str)> {
    ACTIONS.iter().find(|(name, ..)| *name == action).ok_or_else(no_action)
}

/// The outcome for the jobs, real or of a dry run.
#[derive(Default)]
struct Total {
    matched: u64,
    changed: u64,
    refused: BTreeMap<String, u64>,
    is_all: bool,
    /// The requests that deleted them, and until when that can be undone, by shard where there are several.
    deletions: BTreeMap<Option<u8>, Vec<Deletion>>,
}

impl Total {
    fn offer(&self, page: &Page, filter: &Query) -> Markup {
        html! {
            @for (shard, deletions) in &self.deletions {
                @if let Some(first) = deletions.first() {
                    @let requests: Vec<u64> = deletions.iter().map(|it| it.request).collect();
                    @let jobs = undo::deleted_by(&requests, filter);
                    @let jobs = match shard {
                        Some(shard) => jobs.with(SHARD, &shard.to_string()),
                        None => jobs,
                    };
                    (undo::offer(page, &jobs, &first.until))
                }
            }
        }
    }
}

/// The question, with how many it is about.
pub(crate) async fn ask(page: Page, Path(action): Path<String>) -> Answer {
    let (name, verb, about) = known(&action)?;
    let filter = page.query().joined("ids").only(&FILTERS);
    if filter.fields().next().is_none() {
        return Err(Problem::out_of_range("no job is chosen: go back, and mark some").into());
    }
    let total = would_run(&page, &filter, name).await?;
    let jobs = counted(&total);
    let question = Question {
        tab: Tab::Jobs,
        title: &format!("{verb} {jobs}?"),
        about: html! {
            (described(&filter))
            p { (about) }
            (refused(&total))
        },
        fields: html! {
            @for (name, value) in filter.fields() {
                input type="hidden" name=(name) value=(value);
            }
        },
        button: &format!("{verb} {jobs}"),
        is_dangerous: matches!(*name, "delete" | "cancel"),
        to: &format!("/jobs/all/{name}"),
        back: &filter.to("/jobs"),
    };
    Ok(question.ask(&page).await)
}

/// Does it.
pub(crate) async fn act(page: Page, Path(action): Path<String>, form: Form) -> Answer {
    let (name, verb, _) = known(&action)?;
    let of_shard = form.query().get(SHARD).map(str::to_owned);
    let filter = form.query().only(&FILTERS);
    let total = run_on(&page, &filter, name, of_shard.as_deref()).await?;
    let jobs = plural(total.changed, "job");
    let title = match *name {
        "delete" => format!("{jobs} deleted"),
        "undo" => format!("{jobs} brought back"),
        _ => format!("{verb}: {jobs} changed"),
    };
    let again = filter.to(&format!("/jobs/all/{name}"));
    let about = html! {
        (total.offer(&page, &filter))
        (described(&filter))
        (refused(&total))
        @if !total.is_all {
            p { "There are more. " a href=(again) { "Go on with the others" } }
        }
    };
    Ok(done(&page, Tab::Jobs, &title, about, &filter.to("/jobs"), "Back to the list").await)
}

/// How many jobs would be changed. This is a single request, so it counts only as far as that gets.
async fn would_run(page: &Page, filter: &Query, action: &str) -> Asked<Total> {
    run(page, filter, action, true, "/api/v1/jobs/bulk").await
}

/// Does it, for all jobs or those of one shard.
async fn run_on(page: &Page, filter: &Query, action: &str, shard: Option<&str>) -> Asked<Total> {
    let at = match shard {
        Some(shard) => Query::new().with(SHARD, shard).to("/api/v1/jobs/bulk"),
        None => "/api/v1/jobs/bulk".to_owned(),
    };
    run(page, filter, action, false, &at).await
}

/// Asks the API until all are done, or the time is over.
async fn run(page: &Page, filter: &Query, action: &str, dry_run: bool, at: &str) -> Asked<Total> {
    let fields = filter.fields().map(|(name, value)| (name.to_owned(), Value::from(value)));
    let fields: Map<String, Value> = fields.collect();
    let (began, mut total, mut cursor) = (Instant::now(), Total::default(), None::<String>);
    loop {
        let mut body = Map::new();
        body.insert("filter".to_owned(), fields.clone().into());
        body.insert("action".to_owned(), action.into());
        body.insert("dry_run".to_owned(), dry_run.into());
        if action == "delete" {
            body.insert("undo_ms".to_owned(), undo::UNDO_MS.into());
        }
        if let Some(cursor) = cursor {
            body.insert("cursor".to_owned(), cursor.into());
        }
        let body = Value::Object(body);
        let answer: Result<BulkAnswer, Fault> = page.ask.post(at, &body).await;
        let answer = match answer {
            // The part that is done must be reported.
            Err(_) if total.changed > 0 && !dry_run => return Ok(total),
            answer => answer?,
        };
        total.matched += answer.matched;
        total.changed += answer.changed;
        total.deletions.entry(answer.shard).or_default().extend(answer.deletion);
        for (code, count) in answer.refused {
            *total.refused.entry(code).or_default() += count;
        }
        total.is_all = answer.next_cursor.is_none();
        cursor = answer.next_cursor;
        if total.is_all || dry_run || began.elapsed() >= TIME_MAX {
            return Ok(total);
        }
    }
}

fn counted(total: &Total) -> String {
    let at_least = if total.is_all { "" } else { "at least " };
    format!("{at_least}{}", plural(total.changed, "job"))
}

/// Which jobs are meant.
fn described(filter: &Query) -> Markup {
    html! {
        p {
            "All jobs with "
            @for (number, (name, value)) in filter.fields().enumerate() {
                (if number == 0 { "" } else { " and " }) (name.replace('_', " ")) " "
                code dir="auto" { (cut(value, 120)) }
            }
            ", as they are when the button is pressed."
        }
    }
}

fn refused(total: &Total) -> Markup {
    html! {
        @for (code, count) in &total.refused {
            p.muted { (grouped(*count)) " of them cannot be changed: " (code.replace('_', " ")) "." }
        }
    }
}
