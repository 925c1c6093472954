//! What a master answers to each request.

use std::sync::Arc;

use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};
use spindle_limits::WorkerNames;
use tracing::info;

use crate::{
    link::{Link, Responder},
    memory::MemoryUsage,
    pass_on::{Order, PATIENCE, pass_to_targets, run_manual, send_signal},
    pokes::Pokes,
    server::Service,
    wire::{Arguments, Request},
    workers::Registered,
};

/// Answers of a worker can carry the outputs of many jobs.
pub(crate) const WORKER_ANSWER_BYTES_MAX: usize = 1 << 30;
/// The longest name of a worker, which is kept while it is there. Most are a host's name.
pub(crate) const WORKER_NAME_BYTES_MAX: usize = 1024;

/// The answer to `status`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MasterStatus {
    /// Who is registered.
    pub workers: Vec<WorkerEntry>,
    /// This process's memory.
    pub memory_usage: MemoryUsage,
}

/// A worker's entry in the answer to `status`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerEntry {
    /// Its address.
    pub remote_addr: String,
    /// Its port of this connection.
    pub remote_port: u16,
    /// The targets it serves.
    pub targets: Vec<String>,
    /// Its name.
    pub name: String,
    /// What it answered to `status`, when workers were to be asked: JSON text, `null` when it did
    /// not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_status: Option<Box<RawValue>>,
}

impl WorkerEntry {
    fn of(worker: &Registered) -> Self {
        let remote = worker.link.remote();
        Self {
            remote_addr: remote.ip().to_canonical().to_string(),
            remote_port: remote.port(),
            targets: worker.targets.clone(),
            name: worker.name.clone(),
            worker_status: None,
        }
    }
}

/// Answers the requests of clients, and those of workers that register.
pub(crate) struct Requests(pub(crate) Arc<Pokes>);

impl Service for Requests {
    fn request(&self, request: Request, responder: Responder) {
        let arguments = Arguments::of(&request.data);
        let workers = &self.0.workers;
        match request.kind.as_str() {
            "register-worker" => {
                let outcome = self.register(&arguments, &responder);
                responder.outcome(outcome);
            }
            "poke" => {
                let targets = arguments.targets();
                let targets = targets.and_then(|some| some.ok_or("targets are missing".to_owned()));
                responder.checked(targets, |targets, responder| {
                    responder.ok();
                    self.0.poke(targets);
                });
            }
            "pause" => self.give(Order::Pause, &arguments, responder),
            "continue" => self.give(Order::Continue, &arguments, responder),
            "status" => self.status(&arguments, responder),
            "run-manual" => {
                let jobs = arguments.jobs(|job| Ok((job.integer("id")?, job.text("target")?)));
                responder.checked(jobs, |jobs, responder| {
                    run_manual(&mut workers.lock(), &jobs, responder);
                });
            }
            "send-signal" => {
                let jobs = arguments.jobs(|job| {
                    Ok((job.integer("id")?, job.required("signal")?, job.text("target")?))
                });
                responder.checked(jobs, |jobs, responder| {
                    send_signal(&workers.lock(), &jobs, responder);
                });
            }
            unknown => responder.error(&format!("unknown request type: '{unknown}'")),
        }
    }

    fn closed(&self, link: &Link) {
        if let Some(worker) = self.0.workers.lock().drop_link(link) {
            info!(worker = worker.name, peer = %link.remote(), "went away");
        }
    }
}

impl Requests {
    fn give(&self, order: Order, arguments: &Arguments<'_>, responder: Responder) {
        responder.checked(arguments.targets(), |targets, responder| {
            pass_to_targets(&self.0.workers.lock(), order, targets, responder);
        });
    }

    fn register(&self, arguments: &Arguments<'_>, responder: &Responder) -> Result<(), String> {
        let targets = arguments.targets()?;
        let link = responder.link();
        let name = match (arguments.field("name"), &targets) {
            (Some(Value::String(name)), _) => name.clone(),
            (None, Some(_)) => link.remote().to_string(),
            _ => return Err("name is missing or invalid".to_owned()),
        };
        let targets = targets.unwrap_or_default();
        if name.len() > WORKER_NAME_BYTES_MAX {
            return Err(format!("name is too long: at most {WORKER_NAME_BYTES_MAX} bytes"));
        }
        if !WorkerNames::allow(&targets) {
            return Err("too many targets: at most 1024, with 64 KiB of names in all".to_owned());
        }
        info!(worker = name, ?targets, peer = %link.remote(), "registers");
        link.raise_answer_bytes_max(WORKER_ANSWER_BYTES_MAX);
        let worker = Registered::new(link.clone(), name.clone(), targets);
        let mut workers = self.0.workers.lock();
        let due = workers.register(worker);
        if !due.is_empty() {
            // Sent before the answer to the registration, as the original does.
            self.0.poll_worker(link.clone(), name, due);
        }
        Ok(())
    }

    fn status(&self, arguments: &Arguments<'_>, responder: Responder) {
        let asks_workers = arguments.field("poll_workers").and_then(Value::as_bool) == Some(true);
        let workers = self.0.workers.lock();
        let mut entries: Vec<_> = workers.all().iter().map(WorkerEntry::of).collect();
        let asked = workers.all().iter().filter(|_| asks_workers);
        let ask = |worker: &Registered| worker.link.request_within(PATIENCE, "status", None);
        let answers: Vec<_> = asked.map(ask).collect();
        drop(workers);
        let answer = |workers| {
            responder.data(&MasterStatus { workers, memory_usage: MemoryUsage::now() });
        };
        if answers.is_empty() {
            return answer(entries);
        }
        tokio::spawn(async move {
            for (entry, answer) in entries.iter_mut().zip(join_all(answers).await) {
                entry.worker_status = Some(answer.unwrap_or_else(|_| RawValue::NULL.to_owned()));
            }
            answer(entries);
        });
    }
}
