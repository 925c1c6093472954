//! Pausing targets of jobd's workers, and going on with them.

use axum::extract::Path;
use axum::response::{IntoResponse, Redirect};
use maud::{Markup, html};
use serde_json::{Map, Value, json};
use spindle_http::Problem;

use crate::actions::{Answer, Question, done, no_action};
use crate::ask::{Asked, Fault};
use crate::form::Form;
use crate::html::{Tab, cut, plural};
use crate::page::Page;
use crate::query::Query;
use crate::shapes::{Jobd, JobdChanged, JobdWorker};

/// Names that a question lists.
const NAMES_MAX: usize = 8;
/// The most workers listed that did not do it.
const FAILED_MAX: usize = 50;

/// What an address or a form means.
struct Meant {
    target: Option<String>,
    worker: Option<u64>,
    /// The same as hidden fields.
    query: Query,
}

impl Meant {
    /// A selection of all targets of all workers must be explicit, so that a lost field does not
    /// widen it.
    fn read(query: Query) -> Asked<Meant> {
        let target = query.get("target").map(str::to_owned);
        let worker = query.get("worker").map(str::parse).transpose();
        let worker = worker.map_err(|_| refused("a worker is named by its number"))?;
        if target.is_none() && worker.is_none() && query.get("all") != Some("yes") {
            return Err(refused("the address names no target and no worker"));
        }
        let query = query.only(&["target", "worker", "all"]);
        Ok(Meant { target, worker, query })
    }

    fn body(&self) -> Value {
        let mut body = Map::new();
        if let Some(target) = &self.target {
            body.insert("targets".to_owned(), json!([target]));
        }
        if let Some(worker) = self.worker {
            body.insert("workers".to_owned(), json!([worker]));
        }
        body.into()
    }

    /// How many targets of this worker.
    fn count_of(&self, worker: &JobdWorker) -> usize {
        match (&self.target, self.worker) {
            (_, Some(id)) if id != worker.id => 0,
            (None, _) => worker.targets_count,
            (Some(name), _) => worker.targets.iter().filter(|it| it.name == *name).count(),
        }
    }
}

fn refused(detail: &str) -> Fault {
    Problem::out_of_range(detail).into()
}

/// The verb, and what follows.
fn words(action: &str) -> Asked<(&'static str, &'static str)> {
    match action {
        "pause" => Ok((
            "Pause",
            "No more of their jobs are started there until they are continued, or the worker starts \
             anew. Jobs that run go on.",
        )),
        "continue" => Ok(("Continue", "Their jobs are started there again.")),
        _ => Err(no_action()),
    }
}

/// The question.
pub(crate) async fn ask(page: Page, Path(action): Path<String>) -> Answer {
    let (verb, follows) = words(&action)?;
    let meant = Meant::read(page.query())?;
    let found: Jobd = page.ask.get("/api/v1/jobd?limit=256").await?;
    let at: Vec<&JobdWorker> =
        found.workers.iter().filter(|worker| meant.count_of(worker) > 0).collect();
    let targets: usize = at.iter().map(|worker| meant.count_of(worker)).sum();
    let more = if found.next_cursor.is_some() && meant.worker.is_none() { "at least " } else { "" };
    let workers = plural(at.len() as u64, "worker");
    let what = match &meant.target {
        Some(name) => cut(name, 80),
        None => plural(targets as u64, "target"),
    };
    let title = format!("{verb} {what} at {more}{workers}?");
    let about: Markup = html! {
        p { (follows) }
        @if at.is_empty() {
            p.notice { "No worker serves it now. It may have gone, or have registered anew." }
        } @else {
            p.muted dir="auto" {
                @for (number, worker) in at.iter().take(NAMES_MAX).enumerate() {
                    @if number > 0 { ", " }
                    (cut(&worker.name, 60)) " (" (worker.address) ")"
                }
                @if at.len() > NAMES_MAX { " and " (at.len() - NAMES_MAX) " more" }
            }
        }
    };
    let fields = html! {
        @for (name, value) in meant.query.fields() { input type="hidden" name=(name) value=(value); }
    };
    let question = Question {
        tab: Tab::Jobd,
        title: &title,
        about,
        fields,
        button: &format!("{verb} {what}"),
        is_dangerous: false,
        to: &format!("/jobd/{action}"),
        back: "/jobd",
    };
    Ok(question.ask(&page).await)
}

/// Does it.
pub(crate) async fn act(page: Page, Path(action): Path<String>, form: Form) -> Answer {
    words(&action)?;
    let meant = Meant::read(form.query())?;
    let path = format!("/api/v1/jobd/{action}");
    let changed: JobdChanged = page.ask.post(&path, &meant.body()).await?;
    if changed.failed.is_empty() {
        return Ok(Redirect::to("/jobd").into_response());
    }
    let title = format!("{} of {} did it", changed.done, plural(changed.asked, "worker"));
    let left = changed.failed.len().saturating_sub(FAILED_MAX);
    let about = html! {
        p { "The others may still do it, if they only did not answer in time." }
        ul {
            @for failed in changed.failed.iter().take(FAILED_MAX) {
                li dir="auto" { b { (cut(&failed.name, 60)) } ": " (cut(&failed.detail, 300)) }
            }
        }
        @if left > 0 { p.muted { "And " (left) " more." } }
    };
    Ok(done(&page, Tab::Jobd, &title, about, "/jobd", "See the workers").await)
}
