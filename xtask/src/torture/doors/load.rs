//! Clients of every door, which submit jobs and work, and note the answers.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::books::{Books, Door};
use super::gearman::Gearman;
use super::http::{self, Http};
use super::{LIGHTJQ_QUEUE, TRAVELLING, TTL_MS, lock};
use crate::torture::client::{Answer, Client};
use crate::torture::cluster::Pulse;
use crate::torture::ending::Ending;
use crate::torture::job::{Dice, Job};
use crate::torture::server::Addresses;

/// The pause between two requests for work when there is none.
const IDLE: Duration = Duration::from_millis(2);
const STATES_MAX: u64 = 20;
/// The accountant's clients may be at work beside these, and have the numbers below.
const UUIDS: u64 = 1 << 40;

/// A job's payload, by which its receiver knows which job it is.
fn payload(job: u64) -> Value {
    json!({ "torture": job, "fill": "x".repeat(Dice::new(job).below(700) as usize) })
}

/// The job that a payload says it is, if all of it is there.
fn job_of(found: &Value) -> io::Result<u64> {
    let job = found["torture"].as_u64().unwrap_or_default();
    if *found == payload(job) { Ok(job) } else { Err(surprise(&format!("a payload {found}"))) }
}

fn job_of_bytes(bytes: &[u8]) -> io::Result<u64> {
    job_of(&serde_json::from_slice(bytes)?)
}

fn surprise(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

/// A client of some door, of this server.
type PlayedBy<'a> = fn(&Load<'a>, Addresses) -> io::Result<()>;

/// What is special about a load.
#[derive(Clone, Copy)]
pub struct Manner<'a> {
    /// The queue for jobs of doors whose clients name one.
    pub queue: &'static str,
    /// The clients go on until their connections break.
    pub until_it_ends: bool,
    /// How long a lease lasts.
    pub ttr_ms: u64,
    /// The pause between two actions of a client.
    pub pace: Duration,
    /// Of a cluster: notes which nodes answer. Leases may run out meanwhile.
    pub pulse: Option<&'a Pulse>,
}

/// The clients of one cycle.
pub struct Load<'a> {
    books: &'a Mutex<Books>,
    /// One server, or the nodes of a cluster.
    servers: Vec<Addresses>,
    manner: Manner<'a>,
    pub ending: Ending,
    /// How many clients are connected.
    connected: AtomicUsize,
    /// The server is gone.
    pub has_ended: AtomicBool,
}

/// Those who submit, and those who work.
const SUBMITTERS: usize = 5;
const WORKERS: usize = 4;
/// Clients that are not connected after so long will not be.
const CONNECTED_WITHIN: Duration = Duration::from_secs(120);

impl<'a> Load<'a> {
    pub fn new(books: &'a Mutex<Books>, servers: Vec<Addresses>, manner: Manner<'a>) -> Self {
        let (ending, connected) = (Ending::default(), AtomicUsize::new(0));
        Load { books, servers, manner, ending, connected, has_ended: AtomicBool::new(false) }
    }

    /// Starts the clients of all doors that this queue's jobs come and go through.
    pub fn start<'s, 'e>(&'s self, scope: &'s Scope<'s, 'e>) {
        let submitters: [PlayedBy<'_>; SUBMITTERS] = [
            Load::submit_to_gearman,
            Load::submit_to_api,
            Load::submit_to_workq,
            Load::submit_to_lightjq,
            Load::advance_jobq,
        ];
        // The first two are those whose done jobs are kept for as long as the queue says.
        let count = if self.manner.queue == TRAVELLING { 2 } else { SUBMITTERS };
        submitters.into_iter().take(count).enumerate().for_each(|(first, client)| {
            scope.spawn(move || self.client(client, first));
        });
        self.start_workers(scope);
    }

    /// Starts those who work.
    pub fn start_workers<'s, 'e>(&'s self, scope: &'s Scope<'s, 'e>) {
        let workers: [PlayedBy<'_>; WORKERS] = [
            Load::work_for_workq,
            Load::work_for_gearman,
            Load::work_for_api,
            Load::work_for_lightjq,
        ];
        // LightJQ's has a queue of its own, which stays.
        let count = if self.manner.queue == TRAVELLING { WORKERS - 1 } else { WORKERS };
        workers.into_iter().take(count).enumerate().for_each(|(first, client)| {
            scope.spawn(move || self.client(client, first));
        });
    }

    /// A client of the only server, or of nodes of which it takes this one first.
    fn client(&self, client: PlayedBy<'a>, first: usize) {
        match self.servers[..] {
            [server] => self.ending.client_done(client(self, server)),
            _ => {
                let first = first + self.books().checks() as usize;
                self.ending.client_of_all(&self.servers, first, |node| client(self, node));
            }
        }
    }

    /// A change was acknowledged by this server.
    fn answered(&self, by: Addresses) {
        if let Some(pulse) = self.manner.pulse {
            let of = |server: &Addresses| server.http == by.http;
            self.servers.iter().position(of).into_iter().for_each(|node| pulse.answered(node));
        }
    }

    /// A client has its connection.
    fn is_connected(&self) {
        self.connected.fetch_add(1, Ordering::SeqCst);
    }

    /// Waits until all clients have one: a flood that came first would leave no room for them.
    pub fn await_connected(&self) -> Result<()> {
        let deadline = Instant::now() + CONNECTED_WITHIN;
        while self.connected.load(Ordering::SeqCst) < SUBMITTERS + WORKERS {
            ensure!(Instant::now() < deadline, "not all clients are connected");
            thread::sleep(IDLE);
        }
        Ok(())
    }

    fn goes_on(&self) -> bool {
        self.manner.until_it_ends || !self.ending.has_begun()
    }

    /// Whether a worker may find that its lease is over.
    fn leases_run_out(&self) -> bool {
        self.manner.pulse.is_some()
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        lock(self.books)
    }

    /// Submits jobs through a door until the end; `submit` answers with the server's name for one.
    fn submit(
        &self,
        at: Addresses,
        door: Door,
        mut submit: impl FnMut(u64) -> io::Result<Submitted>,
    ) -> io::Result<()> {
        self.is_connected();
        while self.goes_on() {
            if self.books().has_enough() {
                // A client that sends nothing does not notice that the server has ended.
                if self.has_ended.load(Ordering::SeqCst) {
                    return Ok(());
                }
                thread::sleep(IDLE);
                continue;
            }
            let job = self.books().submit_sent(door, None);
            match submit(job)? {
                Some(name) => {
                    self.books().submit_answered(job, name);
                    self.answered(at);
                }
                None => self.books().submit_refused(job),
            }
            thread::sleep(self.manner.pace);
        }
        Ok(())
    }

    fn submit_to_workq(&self, at: Addresses) -> io::Result<()> {
        let mut client = Client::connect(at.entrance(at.workq))?;
        self.submit(at, Door::Workq, |job| {
            let uuid = Job(UUIDS + job).to_string();
            let head = format!("add {uuid} {} {} {TTL_MS}", self.manner.queue, self.manner.ttr_ms);
            match client.send(&head, payload(job).to_string().as_bytes(), "")? {
                Answer::Done => Ok(Some(uuid)),
                answer if answer.has_no_room() => Ok(None),
                other => Err(surprise(&format!("add answered {other:?}"))),
            }
        })
    }

    fn submit_to_gearman(&self, at: Addresses) -> io::Result<()> {
        let mut client = Gearman::connect(at.entrance(at.gearman))?;
        self.submit(at, Door::Gearman, |job| {
            client.submit(self.manner.queue, payload(job).to_string().as_bytes())
        })
    }

    fn submit_to_api(&self, at: Addresses) -> io::Result<()> {
        let mut http = Http::connect(at.entrance(at.http))?;
        self.submit(at, Door::Api, |job| {
            let body = json!({ "queue": self.manner.queue, "payload": payload(job) });
            let answer = with_room(http.post("/api/v1/jobs", &body)?, 201)?;
            Ok(answer.map(|job| job["id"].to_string()))
        })
    }

    fn submit_to_lightjq(&self, at: Addresses) -> io::Result<()> {
        let mut http = Http::connect(at.entrance(at.http))?;
        self.submit(at, Door::Lightjq, |job| {
            let body = json!({
                "name": LIGHTJQ_QUEUE, "argument": payload(job), "keep_result": true,
                "timeout": self.manner.ttr_ms / 1_000,
            });
            let Some(answer) = with_room(http.post("/job", &body)?, 201)? else { return Ok(None) };
            let id = answer["job_id"].as_str().ok_or_else(|| surprise("no job_id"))?;
            Ok(Some(id.to_owned()))
        })
    }

    /// Jobs that nobody leases: their states are the work.
    fn advance_jobq(&self, at: Addresses) -> io::Result<()> {
        let mut http = Http::connect(at.entrance(at.http))?;
        self.is_connected();
        while self.goes_on() {
            let first = json!(["STEP", 0]);
            let job = self.books().submit_sent(Door::Jobq, Some(first.clone()));
            let body = json!({ "payload": payload(job), "state": first });
            let Some(answer) = with_room(http.post("/api/v0/job/create", &body)?, 200)? else {
                self.books().submit_refused(job);
                continue;
            };
            let id = answer["id"].to_string();
            self.books().submit_answered(job, id.clone());
            self.answered(at);
            for step in 1..=Dice::new(job).below(STATES_MAX) {
                let state = json!(["STEP", step]);
                self.books().state_sent(job, state.clone());
                match with_room(http.post(&format!("/api/v0/job/{id}/state"), &state)?, 200)? {
                    Some(_) => {
                        self.books().state_answered(job);
                        self.answered(at);
                    }
                    None => {
                        self.books().state_refused(job);
                        break;
                    }
                }
                thread::sleep(self.manner.pace);
            }
        }
        Ok(())
    }

    /// Works until the end: `take` answers with a job, if there is one, and what it is finished by;
    /// `finish` says whether the server acknowledged the finish.
    fn work<C, T>(
        &self,
        at: Addresses,
        mut connection: C,
        mut take: impl FnMut(&mut C) -> io::Result<Option<(u64, T)>>,
        mut finish: impl FnMut(&mut C, T) -> io::Result<bool>,
    ) -> io::Result<()> {
        self.is_connected();
        while self.goes_on() {
            let asked = self.books().work_asked();
            let Some((job, by)) = take(&mut connection)? else {
                thread::sleep(IDLE.max(self.manner.pace / 2));
                continue;
            };
            self.books().delivered(job, asked);
            self.books().finish_sent(job);
            if finish(&mut connection, by)? {
                self.books().finish_answered(job);
                self.answered(at);
            }
            thread::sleep(self.manner.pace / 2);
        }
        Ok(())
    }

    fn work_for_workq(&self, at: Addresses) -> io::Result<()> {
        self.work(
            at,
            Client::connect(at.entrance(at.workq))?,
            |client| {
                let Some(delivery) = client.lease(self.manner.queue, 20)? else { return Ok(None) };
                Ok(Some((job_of_bytes(&delivery.payload)?, delivery.id)))
            },
            |client, id| match client.send(&format!("complete {id}"), b"done", "")? {
                Answer::Done => Ok(true),
                answer if answer.has_no_room() => Ok(false),
                Answer::Duplicate if self.leases_run_out() => Ok(false),
                other => Err(surprise(&format!("complete answered {other:?}"))),
            },
        )
    }

    fn work_for_gearman(&self, at: Addresses) -> io::Result<()> {
        let mut worker = Gearman::connect(at.entrance(at.gearman))?;
        worker.can_do(self.manner.queue)?;
        self.work(
            at,
            worker,
            |worker| {
                let Some(assigned) = worker.grab()? else { return Ok(None) };
                Ok(Some((job_of_bytes(&assigned.payload)?, assigned.handle)))
            },
            // The protocol answers no finish.
            |worker, handle| worker.complete(&handle, b"done").map(|()| false),
        )
    }

    fn work_for_api(&self, at: Addresses) -> io::Result<()> {
        self.work(
            at,
            Http::connect(at.entrance(at.http))?,
            |http| {
                let answer =
                    http.post("/api/v1/lease", &json!({ "queues": [self.manner.queue] }))?;
                if answer.status == 204 {
                    return Ok(None);
                }
                let Some(leased) = with_room(answer, 200)? else { return Ok(None) };
                let job = match leased["payload_base64"].as_str() {
                    Some(text) => {
                        job_of_bytes(&BASE64.decode(text).map_err(|e| surprise(&e.to_string()))?)?
                    }
                    None => job_of(&leased["payload"])?,
                };
                Ok(Some((job, leased["lease_token"].as_str().unwrap_or_default().to_owned())))
            },
            |http, token| {
                let path = format!("/api/v1/leases/{token}/complete");
                let answer = http.post(&path, &json!({ "result": "done" }))?;
                if answer.status == CONFLICT && self.leases_run_out() {
                    return Ok(false);
                }
                with_room(answer, 204).map(|answer| answer.is_some())
            },
        )
    }

    fn work_for_lightjq(&self, at: Addresses) -> io::Result<()> {
        let mut http = Http::connect(at.entrance(at.http))?;
        let body = json!({ "name": "torture", "max_jobs": 1, "names": [LIGHTJQ_QUEUE] });
        let registered = answered(http.post("/worker", &body)?, 201)?;
        let id = registered["worker_id"].as_str().ok_or_else(|| surprise("no worker_id"))?;
        let header = format!("worker-id: {id}\r\n");
        self.work(
            at,
            http,
            |http| {
                let answer = http.ask("GET", "/worker/job?timeout=0", &header, None)?;
                let answer = self.to_known_worker(answer)?;
                if answer.status == 204 {
                    return Ok(None);
                }
                let Some(mut given) = with_room(answer, 200)? else { return Ok(None) };
                Ok(Some((job_of(&given["argument"])?, given["job_id"].take())))
            },
            |http, id| {
                let done = json!({
                    "job_id": id, "type": "success", "result": "done",
                    "finished_at": "2026-01-01T00:00:00Z",
                });
                let answer = http.ask("POST", "/done", &header, Some(&done))?;
                let answer = self.to_known_worker(answer)?;
                if answer.status == CONFLICT && self.leases_run_out() {
                    return Ok(false);
                }
                with_room(answer, 204).map(|answer| answer.is_some())
            },
        )
    }

    /// A new leader knows no LightJQ workers: each registers again, on another connection.
    fn to_known_worker(&self, answer: http::Answer) -> io::Result<http::Answer> {
        let is_unknown = answer.body["code"] == "worker_not_found";
        if is_unknown && self.manner.pulse.is_some() {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "an unknown worker"));
        }
        Ok(answer)
    }
}

/// The request does not fit the job's status.
const CONFLICT: u16 = 409;

/// The server's name for a job that it acknowledged; none: it had no room for it.
type Submitted = Option<String>;

/// The body of an answer; none if the server has no room on its disk for what was asked.
fn with_room(answer: http::Answer, status: u16) -> io::Result<Option<Value>> {
    const INSUFFICIENT_STORAGE: u16 = 507;
    if answer.status == INSUFFICIENT_STORAGE {
        return Ok(None);
    }
    answered(answer, status).map(Some)
}

pub(super) fn answered(answer: http::Answer, status: u16) -> io::Result<Value> {
    if answer.status == status {
        Ok(answer.body)
    } else {
        Err(surprise(&format!("wanted {status}, got {answer:?}")))
    }
}
