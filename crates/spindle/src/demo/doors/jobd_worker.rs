//! A worker that is registered at the server's master: what it answers to the master's requests.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use serde_json::{Value, json};
use spindle_jobd_master::{
    link::Responder,
    memory::MemoryUsage,
    wire::{Arguments, Request, raw},
    worker_status::{TargetStatus, WorkerStatus},
};
use tokio::{runtime, task::spawn_blocking};

use super::{
    Addresses,
    jobd::{END_WITHIN, connect},
};
use crate::client::{
    session::AskError,
    web::{ApiRequest, Http},
};

/// How long the master may take to register a worker.
const REGISTER_WITHIN: Duration = Duration::from_secs(30);
/// The pause before it registers again.
const AGAIN: Duration = Duration::from_millis(50);

/// The targets that a worker serves, with its state of each. Clones share it.
#[derive(Clone)]
pub struct Targets(Arc<Mutex<Vec<(&'static str, TargetStatus)>>>);

impl Targets {
    /// Each target with its first state.
    pub fn new(targets: impl IntoIterator<Item = (&'static str, TargetStatus)>) -> Self {
        Self(Arc::new(Mutex::new(targets.into_iter().collect())))
    }

    fn locked(&self) -> MutexGuard<'_, Vec<(&'static str, TargetStatus)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nothing of it may be started. A target that is not served is not paused.
    pub fn is_paused(&self, target: &str) -> bool {
        self.locked().iter().any(|(name, status)| *name == target && status.paused)
    }

    /// Sets how many jobs of a target run now.
    pub fn run(&self, target: &str, length: usize) {
        let mut targets = self.locked();
        let found = targets.iter_mut().find(|(name, _)| *name == target);
        found.into_iter().for_each(|(_, status)| status.length = length);
    }

    /// Pauses these, or goes on with them; without names all.
    fn set_paused(&self, targets: Option<&[String]>, paused: bool) {
        for (name, status) in self.locked().iter_mut() {
            if targets.is_none_or(|targets| targets.iter().any(|target| target == name)) {
                status.paused = paused;
            }
        }
    }

    fn names(&self) -> Vec<&'static str> {
        self.locked().iter().map(|(name, _)| *name).collect()
    }

    fn status(&self) -> WorkerStatus {
        let of_targets = self.locked().iter().map(|(name, it)| ((*name).to_owned(), *it)).collect();
        WorkerStatus {
            targets: of_targets,
            job_promises_count: 0,
            memory_usage: MemoryUsage::now(),
            unfinished: Default::default(),
            table_trouble: None,
        }
    }
}

/// A jobd worker at the master. It ends with its connection.
pub struct Registration {
    /// Its name.
    pub name: &'static str,
    /// What it serves.
    pub targets: Targets,
}

impl Registration {
    /// Registers and answers the master until the connection ends. `registered` is called in between.
    fn serve(&self, node: Addresses, registered: impl FnOnce()) -> io::Result<()> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let served = runtime.block_on(self.serve_once(node, registered));
        // Requests that still wait for ends of jobs are dropped, so that the thread can end.
        runtime.shutdown_background();
        served
    }

    /// Registers and answers on a thread of its own, again and again as long as `goes_on` says so, at
    /// one node after the other; each node passes it on to the leader's master.
    pub fn keep(
        self,
        nodes: Vec<Addresses>,
        goes_on: impl Fn() -> bool + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        spawn(move || {
            for node in nodes.iter().cycle().copied().take_while(|_| goes_on()) {
                // Why it ended is no matter: the server was killed, or is about to be.
                let _ = self.serve(node, || ());
                thread::sleep(AGAIN);
            }
        })
    }

    /// Does it once, on a thread of its own, and returns when it is registered.
    pub fn begin(self, server: Addresses) -> io::Result<()> {
        let (sender, outcome) = mpsc::channel();
        spawn(move || {
            let registered = sender.clone();
            let ended = self.serve(server, move || drop(registered.send(Ok(()))));
            // After the first message there is no receiver any more.
            let _ = sender.send(ended);
        })?;
        outcome.recv().map_err(io::Error::other)?
    }

    async fn serve_once(&self, node: Addresses, registered: impl FnOnce()) -> io::Result<()> {
        let (link, connection) = connect(node.jobd_master).await?;
        let targets = self.targets.clone();
        let reading = tokio::spawn(connection.run(move |request, responder| {
            answer(node, &targets, &request, responder);
        }));
        let who = raw(&json!({ "targets": self.targets.names(), "name": self.name }));
        let answered = link.request_within(REGISTER_WITHIN, "register-worker", Some(&who)).await;
        answered.map_err(io::Error::other)?;
        registered();
        link.closed().await;
        reading.await.map_err(io::Error::other)
    }
}

fn spawn(body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name("jobd-worker".to_owned()).spawn(body)
}

fn answer(addresses: Addresses, targets: &Targets, request: &Request, responder: Responder) {
    let arguments = Arguments::of(&request.data);
    match request.kind.as_str() {
        "run-manual" => responder.checked(arguments.ids(), |ids, responder| {
            spawn_blocking(move || responder.data(&run(&addresses.http(), &ids)));
        }),
        // It waits for its jobs anyway.
        "poll" => responder.ok(),
        "status" => responder.data(&targets.status()),
        "pause" | "continue" => {
            let is_pause = request.kind == "pause";
            responder.outcome(
                arguments.targets().map(|names| targets.set_paused(names.as_deref(), is_pause)),
            );
        }
        other => responder.error(&format!("the demo's worker knows no {other}")),
    }
}

/// Releases jobs and waits for their ends.
fn run(http: &Http, ids: &[i64]) -> Value {
    let (mut jobs, mut errors) = (serde_json::Map::new(), serde_json::Map::new());
    for id in ids {
        let release = http.answer(ApiRequest::post(&format!("/api/v1/jobs/{id}/release")));
        let wait = format!("/api/v1/jobs/{id}/wait?wait_s={}", END_WITHIN.as_secs());
        let ended =
            release.and_then(|_| http.ask::<Value>(ApiRequest::get(&wait).waiting(END_WITHIN)));
        match ended {
            Ok(job) => {
                let is_done = job.get("status").is_some_and(|status| status == "done");
                let result = if is_done { "ok" } else { "fail" };
                jobs.insert(
                    id.to_string(),
                    json!({ "result": result, "code": i32::from(!is_done) }),
                );
            }
            Err(AskError::Refused { .. }) => {
                errors.insert(id.to_string(), json!("status = waiting != manual"));
            }
            Err(error) => {
                errors.insert(id.to_string(), json!(error.to_string()));
            }
        }
    }
    json!({ "jobs": jobs, "errors": errors })
}
