//! The jobd master's workers: who serves which targets, and pausing them.

use std::time::{SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use spindle_core::audit::Action;
use spindle_http::{Answered, Code, Pass, Problem, whole};
use spindle_jobd_master::{
    LastStatus, MasterHandle, Meant, NotMeant, Order, Outcome, Selection, WorkerView,
};
use utoipa::ToSchema;

use super::audit::note;
use crate::api::Api;
use crate::extract::{Args, OptionalBody};
use crate::instant;
use crate::numbers::{bounded, cursor_number};

const LIMIT: usize = 100;
pub(crate) const LIMIT_MAX: usize = 256;
/// Targets of a worker in an answer.
const TARGETS_MAX: usize = 1_000;
/// Targets and workers that a body may name.
pub(crate) const NAMED_MAX: usize = 1_000;
/// The longest description of a worker's trouble that is shown; it is for people.
const TROUBLE_CHARS_MAX: usize = 500;

/// Which part of the list.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Asked {
    /// At most so many workers, 1 to 256; 100 by default.
    #[param(minimum = 1, maximum = 256)]
    limit: Option<usize>,
    /// Where the last page ended: its `next_cursor`.
    #[param(pattern = "^[0-9]{1,15}$")]
    cursor: Option<String>,
}

/// The jobd master and its workers.
#[derive(Serialize, ToSchema)]
#[schema(as = Jobd)]
pub(crate) struct Page {
    /// Where the master listens.
    address: String,
    /// Its workers, in the order in which they registered.
    workers: Vec<Worker>,
    /// Targets that a client has poked and that no worker serves; at most 100. The next worker that
    /// registers with one is polled for it.
    unserved: Vec<String>,
    /// How many those are in all.
    unserved_count: usize,
    /// Where to go on; not there at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// A worker that is connected to the master.
#[derive(Serialize, ToSchema)]
#[schema(as = JobdWorker)]
pub(crate) struct Worker {
    /// Its number. A worker that connects again has another.
    id: u64,
    /// Its name, which other workers may have too.
    name: String,
    /// Where its connection comes from.
    address: String,
    /// When it registered.
    registered_at: String,
    /// Whether it answered the last time it was asked for its status. The master asks when somebody
    /// looks, at most once a second, and waits a second for the answer.
    answers: bool,
    /// Why there is no newer status, if it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    /// When it reported the status that is shown here. Not there if it never has.
    #[serde(skip_serializing_if = "Option::is_none")]
    reported_at: Option<String>,
    /// Its targets; at most 1,000 of all.
    targets: Vec<Target>,
    /// How many it has.
    targets_count: usize,
    /// How many rows of its table clients wait for.
    #[serde(skip_serializing_if = "Option::is_none")]
    awaited: Option<usize>,
    /// How many rows of its table wait for a person to decide about them.
    #[serde(skip_serializing_if = "Option::is_none")]
    undecided: Option<usize>,
    /// What is wrong with its table, if something is.
    #[serde(skip_serializing_if = "Option::is_none")]
    table_trouble: Option<String>,
}

/// A target of a worker. What its worker has not told is not there.
#[derive(Serialize, ToSchema)]
#[schema(as = JobdTarget)]
pub(crate) struct Target {
    /// Its name.
    name: String,
    /// Whether no more of its jobs are started.
    #[serde(skip_serializing_if = "Option::is_none")]
    paused: Option<bool>,
    /// How many of its jobs may run at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    concurrency: Option<u32>,
    /// How many of its jobs run at this worker, or wait there for a free slot.
    #[serde(skip_serializing_if = "Option::is_none")]
    jobs: Option<usize>,
}

/// Which targets of which workers. Without both: all of all.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = JobdSelection)]
pub(crate) struct SelectionBody {
    /// Only these targets, 1 to 1000. Each must be served by a worker that is meant.
    #[serde(default)]
    #[schema(min_items = 1, max_items = 1000)]
    targets: Option<Vec<String>>,
    /// Only at these workers, by their `id`, 1 to 1000.
    #[serde(default)]
    #[schema(min_items = 1, max_items = 1000)]
    #[schema(value_type = Option<Vec<u64>>)]
    workers: Option<Vec<WorkerId>>,
}

/// A worker's `id`, which may be written as any whole number.
#[derive(Deserialize)]
#[serde(transparent)]
struct WorkerId(#[serde(deserialize_with = "whole")] u64);

/// What became of it.
#[derive(Serialize, ToSchema)]
#[schema(as = JobdChanged)]
pub(crate) struct Changed {
    /// How many workers were told.
    asked: usize,
    /// How many of them did it.
    done: usize,
    /// The others.
    failed: Vec<Failed>,
}

/// A worker that did not do what it was told.
#[derive(Serialize, ToSchema)]
#[schema(as = JobdFailed)]
pub(crate) struct Failed {
    /// Its number.
    id: u64,
    /// Its name.
    name: String,
    /// What it said, or that it did not answer; for people.
    detail: String,
}

/// List the workers that are connected to the jobd master, with their targets, and what each says of
/// them. A worker that does not answer within a second is listed with what it said before.
#[utoipa::path(get, path = "/api/v1/jobd",
    operation_id = "list_jobd_workers", tag = "jobd", params(Asked),
    responses(
        (status = 200, description = "The master and its workers", body = Page),
        (status = "4XX", description = "Refused, or there is no master")))]
pub(crate) async fn list(State(api): State<Api>, Args(asked): Args<Asked>) -> Answered<Json<Page>> {
    let limit = bounded("limit", asked.limit.unwrap_or(LIMIT), 1..=LIMIT_MAX)?;
    let after = cursor_number(asked.cursor.as_deref())?.unwrap_or(0);
    let master = master(&api)?;
    let found = master.workers(after, limit).await;
    let last = found.workers.last().filter(|_| found.has_more);
    Ok(Json(Page {
        address: master.address().to_string(),
        next_cursor: last.map(|worker| worker.id.to_string()),
        workers: found.workers.into_iter().map(Worker::of).collect(),
        unserved: found.unserved,
        unserved_count: found.unserved_count,
    }))
}

/// Have workers start no more jobs of targets. Those that run go on. It lasts until it is continued
/// or the worker starts anew.
#[utoipa::path(post, path = "/api/v1/jobd/pause",
    operation_id = "pause_jobd_targets", tag = "jobd",
    request_body = Option<SelectionBody>,
    responses(
        (status = 200, description = "What became of it at each worker", body = Changed),
        (status = "4XX", description = "Refused, or there is no such target, worker or master")))]
pub(crate) async fn pause(
    State(api): State<Api>,
    pass: Pass,
    OptionalBody(body): OptionalBody<SelectionBody>,
) -> Answered<Json<Changed>> {
    give(&api, &pass, Order::Pause, body).await
}

/// Have workers start jobs of paused targets again.
#[utoipa::path(post, path = "/api/v1/jobd/continue",
    operation_id = "continue_jobd_targets", tag = "jobd",
    request_body = Option<SelectionBody>,
    responses(
        (status = 200, description = "What became of it at each worker", body = Changed),
        (status = "4XX", description = "Refused, or there is no such target, worker or master")))]
pub(crate) async fn go_on(
    State(api): State<Api>,
    pass: Pass,
    OptionalBody(body): OptionalBody<SelectionBody>,
) -> Answered<Json<Changed>> {
    give(&api, &pass, Order::Continue, body).await
}

async fn give(
    api: &Api,
    pass: &Pass,
    order: Order,
    body: SelectionBody,
) -> Answered<Json<Changed>> {
    let selection = body.selection()?;
    let master = master(api)?;
    let meant = master.meant(&selection).map_err(not_meant)?;
    if meant.is_empty() {
        return Ok(Json(Changed::of(Vec::new())));
    }
    let action = match order {
        Order::Pause => Action::PauseTargets,
        Order::Continue => Action::ContinueTargets,
    };
    // Noted before any worker is told: what the workers then do happens outside the server, and no
    // record can include it.
    note(api, pass, action, said_of(&selection, &meant)).await;
    let outcomes = master.give(order, &selection).map_err(not_meant)?;
    Ok(Json(Changed::of(outcomes.await)))
}

fn master(api: &Api) -> Answered<&MasterHandle> {
    let master = api.options().jobd_master.as_ref();
    master.ok_or_else(|| {
        let detail = "this server was started with --jobd-master off";
        Problem::new(Code::NoJobdMaster, detail)
    })
}

fn not_meant(missing: NotMeant) -> Problem {
    let code = match &missing {
        NotMeant::Worker(_) => Code::WorkerNotFound,
        NotMeant::Target(_) => Code::TargetNotFound,
    };
    Problem::new(code, missing.to_string())
}

/// The targets and workers meant, for the audit log, which truncates the text. Workers are given by
/// name, since their numbers do not last.
fn said_of(selection: &Selection, meant: &[Meant]) -> String {
    let targets = selection.targets.as_ref();
    let targets = targets.map_or_else(|| "all targets".to_owned(), |targets| targets.join(", "));
    let workers = match selection.workers {
        None => "all workers that serve them".to_owned(),
        Some(_) => meant.iter().map(|it| &it.name[..]).collect::<Vec<_>>().join(", "),
    };
    format!("{targets} of {workers}")
}

impl SelectionBody {
    fn selection(self) -> Answered<Selection> {
        let SelectionBody { targets, workers } = self;
        for (field, named) in [
            ("targets", targets.as_ref().map(Vec::len)),
            ("workers", workers.as_ref().map(Vec::len)),
        ] {
            if let Some(named) = named {
                bounded(&format!("the length of {field}"), named, 1..=NAMED_MAX)?;
            }
        }
        let workers = workers.map(|ids| ids.into_iter().map(|WorkerId(id)| id).collect());
        Ok(Selection { targets, workers })
    }
}

impl Changed {
    fn of(outcomes: Vec<Outcome>) -> Changed {
        let asked = outcomes.len();
        let failed: Vec<Failed> = outcomes
            .into_iter()
            .filter_map(|Outcome { worker, name, done }| {
                let detail = cut(&done.err()?);
                Some(Failed { id: worker, name, detail })
            })
            .collect();
        Changed { asked, done: asked - failed.len(), failed }
    }
}

impl Worker {
    fn of(view: WorkerView) -> Worker {
        let (targets, targets_count) = targets_of(&view);
        let status = view.last_status.as_ref().map(|LastStatus { status, .. }| status);
        Worker {
            id: view.id,
            name: view.name,
            address: view.address.to_string(),
            registered_at: shown(view.registered),
            answers: view.problem.is_none(),
            problem: view.problem.as_deref().map(cut),
            reported_at: view.last_status.as_ref().map(|last| shown(last.at)),
            targets,
            targets_count,
            awaited: status.map(|status| status.job_promises_count),
            undecided: status.map(|status| status.unfinished.len()),
            table_trouble: status.and_then(|status| status.table_trouble.as_deref()).map(cut),
        }
    }
}

/// The targets that a worker has registered, and those that only its status has: they leave when
/// their jobs have ended. Returned with their count.
fn targets_of(view: &WorkerView) -> (Vec<Target>, usize) {
    let reported = view.last_status.as_ref().map(|last| &last.status.targets);
    let leaving = reported.into_iter().flat_map(|targets| targets.keys());
    let leaving = leaving.filter(|name| !view.targets.contains(name));
    let names: Vec<&String> = view.targets.iter().chain(leaving).collect();
    let count = names.len();
    let targets = names.into_iter().take(TARGETS_MAX).map(|name| {
        let status = reported.and_then(|targets| targets.get(name));
        Target {
            name: name.clone(),
            paused: status.map(|status| status.paused),
            concurrency: status.map(|status| status.concurrency),
            jobs: status.map(|status| status.length),
        }
    });
    (targets.collect(), count)
}

fn shown(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    instant::shown(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

fn cut(text: &str) -> String {
    text.chars().take(TROUBLE_CHARS_MAX).collect()
}
