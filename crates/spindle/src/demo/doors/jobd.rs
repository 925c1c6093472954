//! jobd: a client of the server's master, and a worker that is registered there.
//!
//! A jobd job is a row that waits for somebody to name it; with Spindle as the table that is a
//! parked job. So the submitter puts a parked job in and asks the master for `run-manual`. The
//! master passes that on to the worker that serves the target, which releases the job and answers
//! when it has ended, whoever ran it.

use std::{io, net::SocketAddr, thread, time::Duration};

use serde_json::{Value, json};
use spindle_jobd_master::{
    link::{Connection, Link, RequestError, Responder},
    wire::{Arguments, Request, raw},
};
use spindle_tls::stream::MaybeTls;
use tokio::{net::TcpStream, runtime, task::spawn_blocking};

use super::{Addresses, Submitter, Task};
use crate::{
    client::{
        session::AskError,
        web::{ApiRequest, Http},
    },
    demo::task::TTR_MS,
};

/// How long the end of a job is waited for.
const END_WITHIN: Duration = Duration::from_secs(60);
/// How long the master may take to register a worker.
const REGISTER_WITHIN: Duration = Duration::from_secs(30);
/// The pause before it registers again.
const AGAIN: Duration = Duration::from_millis(50);
/// No message of the demo is nearly as long.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

async fn connect(master: SocketAddr) -> io::Result<(Link, Connection)> {
    let stream = TcpStream::connect(master).await?;
    Link::open(MaybeTls::Plain(stream), MESSAGE_BYTES_MAX)
}

fn lost(error: RequestError) -> AskError {
    match error {
        // The worker is not registered yet, or again.
        RequestError::Refused(text) => AskError::Failed(text),
        other => AskError::Io(io::Error::other(other)),
    }
}

/// Puts parked jobs in, and lets the master run them.
pub struct JobdSubmitter {
    addresses: Addresses,
    http: Http,
    /// The job that is there, and was not asked for with success.
    parked: Option<(usize, u64)>,
}

impl JobdSubmitter {
    /// At these doors.
    pub fn new(addresses: Addresses) -> Self {
        Self { addresses, http: addresses.http(), parked: None }
    }

    fn park(&mut self, task: &Task) -> Result<u64, AskError> {
        if let Some((number, id)) = self.parked
            && number == task.number
        {
            return Ok(id);
        }
        let job = json!({
            "queue": task.queue, "payload": task.payload, "parked": true, "ttr_ms": TTR_MS,
            "unique": {"key": task.key(), "mode": "existing"},
        });
        let answer: Value = self.http.ask(ApiRequest::post("/api/v1/jobs").with(&job))?;
        let id = answer.get("id").and_then(Value::as_u64);
        let id = id.ok_or_else(|| AskError::Strange(format!("{answer} has no id")))?;
        self.parked = Some((task.number, id));
        Ok(id)
    }

    async fn run_manual(&self, id: u64, target: &str) -> Result<(), AskError> {
        let (link, connection) = connect(self.addresses.jobd_master).await?;
        tokio::spawn(connection.run(|_, responder| responder.error("a client answers nothing")));
        let jobs = raw(&json!({ "jobs": [{"id": id, "target": target}] }));
        let answer = link.request_within(END_WITHIN, "run-manual", Some(&jobs)).await;
        link.close();
        let answer: Value = serde_json::from_str(answer.map_err(lost)?.get())
            .map_err(|error| AskError::Strange(error.to_string()))?;
        let name = id.to_string();
        let part = |part: &str| answer.get(part).and_then(|jobs| jobs.get(&name)).cloned();
        match (part("jobs"), part("errors")) {
            (Some(_), _) => Ok(()),
            // It was released before the crash, and the answer to that was lost.
            (None, Some(Value::String(text))) if text.contains("!= manual") => Ok(()),
            _ => Err(AskError::Failed(format!("run-manual answered {answer}"))),
        }
    }
}

impl Submitter for JobdSubmitter {
    fn submit(&mut self, task: &Task) -> Result<String, AskError> {
        let id = self.park(task)?;
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.run_manual(id, task.queue))?;
        Ok(id.to_string())
    }
}

/// A jobd worker at the master: what it answers to `run-manual`. It ends with its connection.
pub struct Registration;

impl Registration {
    /// Registers for these targets and answers the master until the connection ends.
    pub fn serve(addresses: &Addresses, targets: &[&str]) -> io::Result<()> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let served = runtime.block_on(serve(addresses, targets));
        // Jobs that somebody waits for keep nobody.
        runtime.shutdown_background();
        served
    }

    /// Does that on a thread of its own, again and again as long as `goes_on` says so.
    pub fn keep(
        addresses: Addresses,
        targets: Vec<&'static str>,
        goes_on: impl Fn() -> bool + Send + 'static,
    ) -> io::Result<thread::JoinHandle<()>> {
        let keeps = move || {
            while goes_on() {
                // Why it ended is no matter: the server was killed, or is about to be.
                let _ = Self::serve(&addresses, &targets);
                thread::sleep(AGAIN);
            }
        };
        thread::Builder::new().name("jobd-worker".to_owned()).spawn(keeps)
    }
}

async fn serve(addresses: &Addresses, targets: &[&str]) -> io::Result<()> {
    let (link, connection) = connect(addresses.jobd_master).await?;
    let addresses = *addresses;
    let reading = tokio::spawn(connection.run(move |request, responder| {
        answer(addresses, request, responder);
    }));
    let who = raw(&json!({ "targets": targets, "name": "demo" }));
    let registered = link.request_within(REGISTER_WITHIN, "register-worker", Some(&who)).await;
    registered.map_err(io::Error::other)?;
    link.closed().await;
    reading.await.map_err(io::Error::other)
}

fn answer(addresses: Addresses, request: Request, responder: Responder) {
    match request.kind.as_str() {
        "run-manual" => responder.checked(Arguments::of(&request.data).ids(), |ids, responder| {
            spawn_blocking(move || responder.data(&run(&addresses.http(), &ids)));
        }),
        // It waits for its jobs anyway.
        "poll" => responder.ok(),
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
