//! What a master answers to each request.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};
use tracing::info;

use super::{
    pass_on::{PATIENCE, all},
    run::Shared,
    workers::Registered,
};
use crate::{
    link::Responder,
    memory::MemoryUsage,
    wire::{Arguments, Request},
};

/// Answers of a worker can carry the outputs of many jobs.
const WORKER_MESSAGE_BYTES_MAX: usize = 1 << 30;

/// The answer to `status`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MasterStatus {
    /// Who is registered.
    pub workers: Vec<WorkerEntry>,
    /// This process's memory.
    pub memory_usage: MemoryUsage,
}

/// What `status` says of a worker.
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

impl Shared {
    pub(super) fn answer(self: &Arc<Self>, request: &Request, responder: Responder) {
        let arguments = Arguments::of(&request.data);
        match request.kind.as_str() {
            "register-worker" => {
                let outcome = self.register(&arguments, &responder);
                responder.outcome(outcome);
            }
            "poke" => match arguments.targets() {
                Ok(Some(targets)) => {
                    responder.ok();
                    self.poke(targets);
                }
                Ok(None) => responder.error("targets are missing"),
                Err(text) => responder.error(&text),
            },
            "pause" => self.pause_or_continue("pause", &arguments, responder),
            "continue" => self.pause_or_continue("continue", &arguments, responder),
            "status" => self.status(&arguments, responder),
            "run-manual" => {
                self.with_jobs(&arguments, responder, |jobs, responder| {
                    self.run_manual(jobs, responder)
                });
            }
            "send-signal" => {
                self.with_jobs(&arguments, responder, |jobs, responder| {
                    self.send_signal(jobs, responder)
                });
            }
            unknown => responder.error(&format!("unknown request type: '{unknown}'")),
        }
    }

    fn with_jobs(
        &self,
        arguments: &Arguments<'_>,
        responder: Responder,
        run: impl FnOnce(&[Arguments<'_>], Responder) -> Result<(), (Responder, String)>,
    ) {
        match arguments.jobs() {
            Ok(jobs) => {
                if let Err((responder, text)) = run(&jobs, responder) {
                    responder.error(&text);
                }
            }
            Err(text) => responder.error(&text),
        }
    }

    fn pause_or_continue(
        self: &Arc<Self>,
        kind: &'static str,
        arguments: &Arguments<'_>,
        responder: Responder,
    ) {
        match arguments.targets() {
            Ok(targets) => self.pass_to_targets(kind, targets, responder),
            Err(text) => responder.error(&text),
        }
    }

    fn register(
        self: &Arc<Self>,
        arguments: &Arguments<'_>,
        responder: &Responder,
    ) -> Result<(), String> {
        let targets = arguments.targets()?;
        let link = responder.link();
        let name = match (arguments.field("name"), &targets) {
            (Some(Value::String(name)), _) => name.clone(),
            (None, Some(_)) => link.remote().to_string(),
            _ => return Err("name is missing or invalid".to_owned()),
        };
        let targets = targets.unwrap_or_default();
        info!(worker = name, ?targets, peer = %link.remote(), "registers");
        link.set_message_bytes_max(WORKER_MESSAGE_BYTES_MAX);
        let worker = Registered::new(link.clone(), name.clone(), targets);
        let mut workers = self.workers.lock();
        let due = workers.register(worker);
        if !due.is_empty() {
            // Sent before the answer to the registration, as the original does.
            self.poll_worker(link.clone(), name, due);
        }
        Ok(())
    }

    fn status(&self, arguments: &Arguments<'_>, responder: Responder) {
        let asks_workers = arguments.field("poll_workers").and_then(Value::as_bool);
        let workers = self.workers.lock();
        let mut entries: Vec<_> = workers.all().iter().map(WorkerEntry::of).collect();
        let answers: Vec<_> = if asks_workers == Some(true) {
            let ask = |worker: &Registered| worker.link.request_within(PATIENCE, "status", None);
            workers.all().iter().map(ask).collect()
        } else {
            Vec::new()
        };
        drop(workers);
        if answers.is_empty() {
            let memory_usage = MemoryUsage::now();
            return responder.data(&MasterStatus { workers: entries, memory_usage });
        }
        tokio::spawn(async move {
            for (entry, answer) in entries.iter_mut().zip(all(answers).await) {
                entry.worker_status = Some(answer.unwrap_or_else(|_| RawValue::NULL.to_owned()));
            }
            responder.data(&MasterStatus { workers: entries, memory_usage: MemoryUsage::now() });
        });
    }
}
