//! What the master asks workers on a client's behalf, and how it joins their answers.

use std::{collections::BTreeMap, time::Duration};

use futures_util::future::join_all;
use indexmap::{IndexMap, IndexSet};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json, value::RawValue};
use tracing::warn;

use crate::{
    link::{Link, RequestError, Responder},
    manual::ManualResults,
    wire::raw,
    workers::{Registered, Workers},
};

/// How long a worker may take for an answer that does not wait for jobs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

fn not_found(target: &str) -> String {
    format!("worker serving target '{target}' not found")
}

/// A worker's answer, or why there is none, for the client.
fn answer_of(
    worker: &str,
    answer: Result<Box<RawValue>, RequestError>,
) -> Result<Box<RawValue>, String> {
    answer.map_err(|error| match error {
        RequestError::Refused(text) => text,
        RequestError::Closed | RequestError::ClosedBecause(_) => {
            format!("worker '{worker}' went away")
        }
        RequestError::Silent(_) => format!("worker '{worker}': {error}"),
    })
}

/// The same, read as what this request is answered with.
fn read<T: DeserializeOwned>(
    worker: &str,
    answer: Result<Box<RawValue>, RequestError>,
) -> Result<T, String> {
    serde_json::from_str(answer_of(worker, answer)?.get()).map_err(|error| {
        warn!(worker, %error, "an answer cannot be read");
        format!("worker '{worker}' answered something else")
    })
}

/// Whether targets are to rest or to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// No more of their jobs are started.
    Pause,
    /// Their jobs are started again.
    Continue,
}

impl Order {
    fn kind(self) -> &'static str {
        match self {
            Order::Pause => "pause",
            Order::Continue => "continue",
        }
    }
}

/// What became of an order at one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The worker's number.
    pub worker: u64,
    /// Its name.
    pub name: String,
    /// What it refused, or that it did not answer; for people.
    pub done: Result<(), String>,
}

/// The worker's targets among those that an order is for; all of its targets, if the order is for
/// all. `None`: it serves none of them.
pub(crate) fn share(worker: &Registered, asked: Option<&IndexSet<String>>) -> Option<Vec<String>> {
    let share = asked.map_or_else(|| worker.targets.clone(), |asked| worker.among(asked));
    (asked.is_none() || !share.is_empty()).then_some(share)
}

/// Sends an order to those of the workers that serve one of the targets, now; the future waits for
/// their answers.
pub(crate) fn give(
    order: Order,
    workers: &[&Registered],
    asked: Option<&IndexSet<String>>,
) -> impl Future<Output = Vec<Outcome>> + Send + use<> {
    let request = |worker: &&Registered| {
        let share = share(worker, asked)?;
        let data = asked.is_some().then(|| raw(&json!({ "targets": share })));
        worker.report.changes();
        let answer = worker.link.request_within(PATIENCE, order.kind(), data.as_deref());
        let (id, name) = (worker.id, worker.name.clone());
        Some(async move {
            let done = answer_of(&name, answer.await).map(drop);
            Outcome { worker: id, name, done }
        })
    };
    join_all(workers.iter().filter_map(request))
}

/// `pause` and `continue`: for all workers, or for those that serve the targets.
pub(crate) fn pass_to_targets(
    workers: &Workers,
    order: Order,
    targets: Option<Vec<String>>,
    responder: Responder,
) {
    let asked: Option<IndexSet<String>> = targets.map(|targets| targets.into_iter().collect());
    let unserved = asked.iter().flatten().filter(|target| !workers.is_served(target));
    let mut problems: Vec<String> = unserved.map(|target| not_found(target)).collect();
    let all: Vec<&Registered> = workers.all().iter().collect();
    let outcomes = give(order, &all, asked.as_ref());
    tokio::spawn(async move {
        problems.extend(outcomes.await.into_iter().filter_map(|outcome| outcome.done.err()));
        let outcome = if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) };
        responder.outcome(outcome);
    });
}

/// `run-manual`: each job goes to one worker that serves its target.
pub(crate) fn run_manual(workers: &mut Workers, jobs: &[(i64, &str)], responder: Responder) {
    let mut results = ManualResults::default();
    let mut shares: Vec<(Link, String, Vec<i64>)> = Vec::new();
    for &(id, target) in jobs {
        let Some(worker) = workers.pick(target) else {
            results.errors.insert(id, not_found(target));
            continue;
        };
        match shares.iter_mut().find(|(link, ..)| *link == worker.link) {
            Some((.., ids)) => ids.push(id),
            None => shares.push((worker.link.clone(), worker.name.clone(), vec![id])),
        }
    }
    let request = |(link, name, ids): (Link, String, Vec<i64>)| {
        let data = raw(&json!({ "ids": ids }));
        let answer = link.request("run-manual", Some(&data), None);
        async move { (read(&name, answer.await), name, ids) }
    };
    let answers = join_all(shares.into_iter().map(request));
    tokio::spawn(async move {
        for (answer, name, ids) in answers.await {
            results.join(complete(answer, &name, ids));
        }
        responder.data(&results);
    });
}

/// A worker's results, with an error for each job that it left out.
fn complete(answer: Result<ManualResults, String>, worker: &str, ids: Vec<i64>) -> ManualResults {
    let nothing = || format!("worker '{worker}' said nothing about it");
    let (mut results, missing) = match answer {
        Ok(results) => (results, nothing()),
        Err(problem) => (ManualResults::default(), problem),
    };
    for id in ids {
        if !results.jobs.contains_key(&id) {
            results.errors.entry(id).or_insert_with(|| missing.clone());
        }
    }
    results
}

/// The answer to `send-signal`.
#[derive(Default, Serialize)]
struct Signalled {
    #[serde(flatten)]
    sent: BTreeMap<i64, bool>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    errors: BTreeMap<i64, String>,
}

impl Signalled {
    fn join(&mut self, answer: Result<BTreeMap<String, bool>, String>, ids: Vec<i64>) {
        for id in ids {
            match &answer {
                Ok(sent) => {
                    *self.sent.entry(id).or_default() |= sent.get(&id.to_string()) == Some(&true)
                }
                Err(problem) => drop(self.errors.insert(id, problem.clone())),
            }
        }
    }
}

/// `send-signal`: to every worker that serves a job's target, because the master does not know
/// which of them runs it.
pub(crate) fn send_signal(workers: &Workers, jobs: &[(i64, &Value, &str)], responder: Responder) {
    let mut signalled = Signalled::default();
    for (id, _, target) in jobs.iter().filter(|(.., target)| !workers.is_served(target)) {
        signalled.errors.insert(*id, not_found(target));
    }
    let request = |worker: &Registered| {
        let served = jobs.iter().filter(|(.., target)| worker.serves(target));
        let share: IndexMap<i64, &Value> = served.map(|(id, signal, _)| (*id, *signal)).collect();
        if share.is_empty() {
            return None;
        }
        let data = raw(&json!({ "jobs": share }));
        let answer = worker.link.request_within(PATIENCE, "send-signal", Some(&data));
        let (name, ids) = (worker.name.clone(), share.into_keys().collect());
        Some(async move { (read(&name, answer.await), ids) })
    };
    let answers = join_all(workers.all().iter().filter_map(request));
    tokio::spawn(async move {
        for (answer, ids) in answers.await {
            signalled.join(answer, ids);
        }
        signalled.errors.retain(|id, _| signalled.sent.get(id) != Some(&true));
        responder.data(&signalled);
    });
}
