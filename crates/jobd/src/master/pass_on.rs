//! What the master asks workers on a client's behalf, and how it joins their answers.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use indexmap::{IndexMap, IndexSet};
use serde::Serialize;
use serde_json::{Value, value::RawValue};
use tokio::task::JoinSet;

use super::{run::Shared, workers::Registered};
use crate::{
    link::{Link, RequestError, Responder},
    manual::ManualResults,
    wire::{Arguments, raw},
};

/// How long a worker may take to answer what it can answer at once.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

type Answer = Result<Box<RawValue>, RequestError>;

/// Waits for all, in order.
pub(super) async fn all(
    answers: impl IntoIterator<Item = impl Future<Output = Answer> + Send + 'static>,
) -> Vec<Answer> {
    let mut tasks = JoinSet::new();
    let mut outcomes: Vec<Answer> = Vec::new();
    for (index, answer) in answers.into_iter().enumerate() {
        outcomes.push(Err(RequestError::Closed));
        tasks.spawn(async move { (index, answer.await) });
    }
    while let Some(done) = tasks.join_next().await {
        if let Ok((index, outcome)) = done
            && let Some(place) = outcomes.get_mut(index)
        {
            *place = outcome;
        }
    }
    outcomes
}

fn not_found(target: &str) -> String {
    format!("worker serving target '{target}' not found")
}

/// Why a worker gave no answer, as a client is told.
fn why(name: &str, error: &RequestError) -> String {
    match error {
        RequestError::Refused(text) => text.clone(),
        RequestError::Closed => format!("worker '{name}' went away"),
        RequestError::Silent(_) => format!("worker '{name}': {error}"),
    }
}

/// The answer to `send-signal`.
#[derive(Default, Serialize)]
struct Signalled {
    #[serde(flatten)]
    sent: BTreeMap<i64, bool>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    errors: BTreeMap<i64, String>,
}

impl Shared {
    /// `pause` and `continue`: for all workers, or for those that serve the targets.
    pub(super) fn pass_to_targets(
        self: &Arc<Self>,
        kind: &'static str,
        targets: Option<Vec<String>>,
        responder: Responder,
    ) {
        let asked: Option<IndexSet<String>> = targets.map(|targets| targets.into_iter().collect());
        let workers = self.workers.lock();
        let mut problems: Vec<String> = asked
            .iter()
            .flatten()
            .filter(|target| !workers.is_served(target))
            .map(|target| not_found(target))
            .collect();
        let request = |worker: &Registered| {
            let data = match &asked {
                None => None,
                Some(asked) => {
                    let served = worker.among(asked);
                    if served.is_empty() {
                        return None;
                    }
                    Some(raw(&serde_json::json!({ "targets": served })))
                }
            };
            let answer = worker.link.request_within(PATIENCE, kind, data.as_deref());
            Some((worker.name.clone(), answer))
        };
        let (names, answers): (Vec<_>, Vec<_>) = workers.all().iter().filter_map(request).unzip();
        drop(workers);
        tokio::spawn(async move {
            for (name, outcome) in names.iter().zip(all(answers).await) {
                if let Err(error) = outcome {
                    problems.push(why(name, &error));
                }
            }
            let outcome = if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) };
            responder.outcome(outcome);
        });
    }

    /// `run-manual`: each job goes to one worker that serves its target.
    pub(super) fn run_manual(
        self: &Arc<Self>,
        jobs: &[Arguments<'_>],
        responder: Responder,
    ) -> Result<(), (Responder, String)> {
        let mut asked = Vec::with_capacity(jobs.len());
        for job in jobs {
            match job.integer("id").and_then(|id| Ok((id, job.text("target")?))) {
                Ok(job) => asked.push(job),
                Err(text) => return Err((responder, text)),
            }
        }
        let mut results = ManualResults::default();
        let mut shares: Vec<(Link, String, Vec<i64>)> = Vec::new();
        let mut workers = self.workers.lock();
        for (id, target) in asked {
            let Some(worker) = workers.pick(target) else {
                results.errors.insert(id, not_found(target));
                continue;
            };
            match shares.iter_mut().find(|(link, ..)| *link == worker.link) {
                Some((.., ids)) => ids.push(id),
                None => shares.push((worker.link.clone(), worker.name.clone(), vec![id])),
            }
        }
        let answers: Vec<_> = shares
            .iter()
            .map(|(link, _, ids)| {
                let data = raw(&serde_json::json!({ "ids": ids }));
                link.request("run-manual", Some(&data), None)
            })
            .collect();
        drop(workers);
        tokio::spawn(async move {
            for ((_, name, ids), answer) in shares.iter().zip(all(answers).await) {
                join_results(&mut results, name, ids, answer);
            }
            responder.data(&results);
        });
        Ok(())
    }

    /// `send-signal`: to every worker that serves a job's target, because nobody knows which of
    /// them runs it.
    pub(super) fn send_signal(
        self: &Arc<Self>,
        jobs: &[Arguments<'_>],
        responder: Responder,
    ) -> Result<(), (Responder, String)> {
        let mut asked = Vec::with_capacity(jobs.len());
        for job in jobs {
            let id = job.integer("id");
            let signal = id.and_then(|id| Ok((id, job.required("signal")?)));
            match signal.and_then(|(id, signal)| Ok((id, signal, job.text("target")?))) {
                Ok(job) => asked.push(job),
                Err(text) => return Err((responder, text)),
            }
        }
        let mut signalled = Signalled::default();
        let workers = self.workers.lock();
        let mut answers = Vec::new();
        let mut names = Vec::new();
        let mut waited: HashMap<i64, usize> = HashMap::new();
        for (id, _, target) in &asked {
            if !workers.is_served(target) {
                signalled.errors.insert(*id, not_found(target));
            }
        }
        for worker in workers.all() {
            let share: IndexMap<String, &Value> = asked
                .iter()
                .filter(|(.., target)| worker.targets.iter().any(|served| served == target))
                .map(|(id, signal, _)| (id.to_string(), *signal))
                .collect();
            if share.is_empty() {
                continue;
            }
            for id in share.keys().filter_map(|id| id.parse().ok()) {
                *waited.entry(id).or_default() += 1;
            }
            let data = raw(&serde_json::json!({ "jobs": share }));
            names.push((worker.name.clone(), share.keys().cloned().collect::<Vec<_>>()));
            answers.push(worker.link.request_within(PATIENCE, "send-signal", Some(&data)));
        }
        drop(workers);
        tokio::spawn(async move {
            for ((name, ids), answer) in names.iter().zip(all(answers).await) {
                signalled.join(name, ids, answer);
            }
            signalled.errors.retain(|id, _| signalled.sent.get(id) != Some(&true));
            responder.data(&signalled);
        });
        Ok(())
    }
}

impl Signalled {
    fn join(&mut self, name: &str, ids: &[String], answer: Answer) {
        let sent = match answer {
            Ok(answer) => serde_json::from_str::<BTreeMap<String, bool>>(answer.get())
                .map_err(|_| format!("worker '{name}' answered something else")),
            Err(error) => Err(why(name, &error)),
        };
        for id in ids.iter().filter_map(|id| id.parse::<i64>().ok()) {
            match &sent {
                Ok(sent) => {
                    let was_sent = sent.get(&id.to_string()).copied().unwrap_or(false);
                    *self.sent.entry(id).or_default() |= was_sent;
                }
                Err(text) => drop(self.errors.insert(id, text.clone())),
            }
        }
    }
}

/// Adds one worker's answer to `run-manual`.
fn join_results(results: &mut ManualResults, name: &str, ids: &[i64], answer: Answer) {
    let mut answered = match answer {
        Ok(answer) => serde_json::from_str::<ManualResults>(answer.get()).map_err(|error| {
            tracing::warn!(worker = name, %error, "an answer to run-manual cannot be read");
            format!("worker '{name}' answered something else")
        }),
        Err(error) => Err(why(name, &error)),
    };
    for id in ids {
        match &mut answered {
            Ok(answered) => {
                if !answered.jobs.contains_key(id) && !answered.errors.contains_key(id) {
                    answered.errors.insert(*id, format!("worker '{name}' said nothing about it"));
                }
            }
            Err(text) => drop(results.errors.insert(*id, text.clone())),
        }
    }
    if let Ok(answered) = answered {
        results.join(answered);
    }
}
