//! What a worker answers to each request.

use std::{sync::Arc, time::Duration};

use indexmap::IndexMap;
use serde_json::Value;
use spindle_jobd_master::{
    link::Responder,
    memory::MemoryUsage,
    wire::{Arguments, Request},
    worker_status::{Unfinished, WorkerStatus},
};
use tokio::{sync::mpsc, time::timeout};

use super::{
    daemon::{Daemon, Event, Stage},
    stop::SHUTTING_DOWN,
};
use crate::{
    launcher::{ProcessId, SignalNumber, SignalRequest},
    table::{Owned, RowId},
};

/// How long `status` waits for the table's answer which unfinished rows are still there.
const STATUS_PATIENCE: Duration = Duration::from_secs(1);
/// How long `send-signal` waits for a job's task to send it.
const SIGNAL_PATIENCE: Duration = Duration::from_secs(5);

impl Daemon {
    pub(super) fn answer(&mut self, request: &Request, responder: Responder) {
        let arguments = Arguments::of(&request.data);
        match request.kind.as_str() {
            "poll" => responder.outcome(self.poll(&arguments)),
            "pause" => {
                let targets = arguments.targets();
                responder.outcome(targets.and_then(|names| self.queues.pause(names.as_deref())));
            }
            "continue" => {
                let targets = arguments.targets();
                responder.outcome(targets.and_then(|names| self.queues.resume(names.as_deref())));
            }
            "status" => self.status(responder),
            "run-manual" => self.run_manual(&arguments, responder),
            "send-signal" => self.send_signal(&arguments, responder),
            "add-target" => responder.outcome(self.add_target(&arguments)),
            "remove-target" => responder.outcome(self.remove_target(&arguments)),
            "set-target-concurrency" => {
                let change = arguments.target_concurrency();
                responder.outcome(
                    change.and_then(|(name, limit)| self.queues.set_concurrency(name, limit)),
                );
            }
            unknown => responder.error(&format!("unknown request type: '{unknown}'")),
        }
    }

    fn poll(&mut self, arguments: &Arguments<'_>) -> Result<(), String> {
        let targets = arguments.targets()?;
        if self.stopping.is_some() {
            return Err(SHUTTING_DOWN.to_owned());
        }
        self.queues.poll(targets.as_deref())
    }

    fn add_target(&mut self, arguments: &Arguments<'_>) -> Result<(), String> {
        let (name, concurrency) = arguments.target_concurrency()?;
        self.queues.add(name, concurrency)?;
        self.names_changed();
        Ok(())
    }

    fn remove_target(&mut self, arguments: &Arguments<'_>) -> Result<(), String> {
        self.queues.remove(arguments.text("target")?)?;
        self.names_changed();
        Ok(())
    }

    fn run_manual(&mut self, arguments: &Arguments<'_>, responder: Responder) {
        let ids = match arguments.ids() {
            Ok(_) if self.stopping.is_some() => return responder.error(SHUTTING_DOWN),
            Ok(ids) => ids,
            Err(text) => return responder.error(&text),
        };
        self.turn.manual.extend(self.tickets.open(&ids, responder));
    }

    fn status(&self, responder: Responder) {
        if self.unfinished.is_empty() {
            return self.send_status(responder);
        }
        // A person may have decided about some of them since.
        let (table, mark) = (Arc::clone(&self.parts.table), self.parts.mark.clone());
        let events = self.parts.events.clone();
        tokio::spawn(async move {
            let owned = timeout(STATUS_PATIENCE, table.owned(&mark)).await;
            let owned = owned.ok().and_then(Result::ok);
            // Fails when the daemon has ended.
            let _ = events.send(Event::Status(responder, owned));
        });
    }

    pub(super) fn answer_status(&mut self, responder: Responder, owned: Option<Vec<Owned>>) {
        if let Some(owned) = owned {
            let is_running = |id| owned.iter().any(|row| row.id == id && row.running);
            self.unfinished.retain(|row| is_running(row.id));
        }
        self.send_status(responder);
    }

    fn send_status(&self, responder: Responder) {
        responder.data(&WorkerStatus {
            targets: self.queues.status(),
            job_promises_count: self.tickets.len(),
            memory_usage: MemoryUsage::now(),
            unfinished: self.unfinished.iter().map(|row| self.undecided(row)).collect(),
            table_trouble: self.trouble.clone(),
        });
    }

    fn undecided(&self, row: &Owned) -> (i64, Unfinished) {
        let process = self.parts.begun.process(row.id);
        let unfinished = Unfinished {
            target: row.target.clone(),
            since: row.started_s,
            pid: process.map(|process| process.pid),
            alive: process.map(ProcessId::is_running),
        };
        (row.id.0, unfinished)
    }

    fn send_signal(&self, arguments: &Arguments<'_>, responder: Responder) {
        let jobs = arguments.field("jobs").and_then(Value::as_object);
        let mut asked: Vec<(String, Option<mpsc::Sender<SignalRequest>>, Option<SignalNumber>)> =
            jobs.into_iter()
                .flatten()
                .map(|(id, signal)| (id.clone(), self.running(id), SignalNumber::from_json(signal)))
                .collect();
        asked.sort_by_key(|(id, ..)| (id.parse::<i64>().ok(), id.clone()));
        tokio::spawn(async move {
            let mut outcomes = IndexMap::new();
            for (id, job, signal) in asked {
                let was_sent = match (job, signal) {
                    (Some(job), Some(signal)) => {
                        let sending = SignalRequest::send(&job, signal);
                        timeout(SIGNAL_PATIENCE, sending).await.unwrap_or(false)
                    }
                    _ => false,
                };
                outcomes.insert(id, was_sent);
            }
            responder.data(&outcomes);
        });
    }

    fn running(&self, id: &str) -> Option<mpsc::Sender<SignalRequest>> {
        match &self.jobs.get(&RowId(id.parse().ok()?))?.stage {
            Stage::Running(signals) => Some(signals.clone()),
            _ => None,
        }
    }
}
