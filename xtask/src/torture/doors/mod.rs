//! The torture through every door: jobs come in through all of them and are worked through all that
//! have workers, the server is killed, and what each door acknowledged must be there.
//!
//! The books are simpler than the [`accountant`](super::accountant)'s, which knows everything about
//! Workq's jobs: here a job is there or not, finished or not, and has a state.

mod books;
mod gearman;
mod http;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::client::{Answer, Client};
use super::cycles::{Torture, no_complaints};
use super::ending::Ending;
use super::job::Dice;
use super::server::{Addresses, Server};
pub(super) use books::Books;
use books::{Door, Tally};
use gearman::Gearman;
use http::Http;

/// Worked on through Workq, Gearman and the API.
const QUEUE: &str = "torture";
/// LightJQ's: its workers get MessagePack or JSON, not other doors' bytes.
const LIGHTJQ_QUEUE: &str = "torture-lightjq";
/// Longer than any run, by its wildest clock.
const TTL_MS: u64 = 30 * 86_400_000;
/// No lease runs out while the test is held up, but some do when the server makes a jump of the clock count.
const TTR_MS: u64 = 5 * 60_000;
/// Between two questions for work when there is none.
const IDLE: Duration = Duration::from_millis(2);
const STATES_MAX: u64 = 20;

impl Torture<'_> {
    /// Kills under a load through every door.
    pub(super) fn through_every_door(&self) -> Result<String> {
        let mut dice = Dice::new(self.options.seed);
        let books = Mutex::default();
        for cycle in 0..self.options.cycles {
            self.doors_cycle(&books, &mut dice, only_load, End::Lost(Server::kill))
                .with_context(|| format!("in cycle {cycle}"))?;
        }
        let did = self.finish_doors(&books, &mut dice)?;
        Ok(format!(
            "torture {}: {} kills; {did}; nothing lost",
            self.mode.name(),
            self.options.cycles
        ))
    }

    /// The last cycle of a torture through the doors, and what all of them acknowledged.
    pub(super) fn finish_doors(&self, books: &Mutex<Books>, dice: &mut Dice) -> Result<String> {
        self.doors_cycle(books, dice, only_load, End::Asked(Server::terminate))
            .context("in the cycle that ends by SIGTERM")?;
        let server = self.start(None)?;
        check(books, server.addresses(), true)?;
        server.terminate()?;

        let tally = lock(books).tally();
        let submits = Door::ALL.map(|door| (door.name(), tally.submits[door as usize]));
        for (door, count) in submits {
            ensure!(count > 0, "nothing came in through {door}: the test proves nothing of it");
        }
        ensure!(tally.finishes > 0 && tally.states > 0, "nothing was worked on: {tally:?}");
        let submits = submits.map(|(door, count)| format!("{count} through {door}")).join(", ");
        let Tally { finishes, states, doubted, refused, .. } = tally;
        Ok(format!(
            "acknowledged submits: {submits}; {refused} refused for want of room; {finishes} finishes, \
             {states} states, {doubted} finishes in doubt had happened"
        ))
    }

    /// A load through every door for as long as `meanwhile` takes, which gets the time that it should take; ended by
    /// `end`.
    pub(super) fn doors_cycle(
        &self,
        books: &Mutex<Books>,
        dice: &mut Dice,
        meanwhile: impl FnOnce(&Server, Duration) -> Result<()>,
        end: End,
    ) -> Result<()> {
        let leak_seed = dice.percent(50).then(|| dice.next());
        let server = self.start(leak_seed)?;
        check(books, server.addresses(), false)?;
        keep_for_long(server.addresses())?;
        let time = self.load_time(dice);
        let (end, until_it_ends) = match end {
            End::Lost(end) => (end, true),
            End::Asked(end) => (end, false),
        };
        let load = Load::new(books, server.addresses(), until_it_ends);
        let ended = thread::scope(|scope| {
            let clients: [PlayedBy<'_>; CLIENTS] = [
                Load::submit_to_workq,
                Load::submit_to_gearman,
                Load::submit_to_api,
                Load::submit_to_lightjq,
                Load::advance_jobq,
                Load::work_for_workq,
                Load::work_for_gearman,
                Load::work_for_api,
                Load::work_for_lightjq,
            ];
            for client in clients {
                let load = &load;
                scope.spawn(move || load.ending.client_done(client(load)));
            }
            let disturbed = load.await_connected().and_then(|()| meanwhile(&server, time));
            load.ending.begin();
            let ended = end(server);
            load.has_ended.store(true, Ordering::SeqCst);
            ended.and(disturbed)
        });
        ended?;
        load.ending.verdict()?;
        verdict(books)
    }
}

fn only_load(_: &Server, time: Duration) -> Result<()> {
    thread::sleep(time);
    Ok(())
}

/// What ends a cycle.
pub(super) enum End {
    /// The server is lost while its clients go on.
    Lost(fn(Server) -> Result<()>),
    /// The server ends in order, when its clients have stopped.
    Asked(fn(Server) -> Result<()>),
}

fn lock(books: &Mutex<Books>) -> MutexGuard<'_, Books> {
    books.lock().unwrap_or_else(PoisonError::into_inner)
}

fn verdict(books: &Mutex<Books>) -> Result<()> {
    no_complaints(lock(books).complaints())
}

/// Done jobs are there to be found until the run ends, however the clock jumps.
fn keep_for_long(at: Addresses) -> Result<()> {
    let mut http = Http::connect(at.http)?;
    let settings = json!({ "keep_ms": TTL_MS, "ttr_default_ms": TTR_MS });
    for queue in [QUEUE, LIGHTJQ_QUEUE] {
        let path = format!("/api/v1/queues/{queue}/settings");
        answered(http.ask("PUT", &path, "", Some(&settings))?, 200)?;
    }
    Ok(())
}

/// Looks at jobs that a door acknowledged, under the name that door gave them; the last time at all of them.
fn check(books: &Mutex<Books>, at: Addresses, is_last: bool) -> Result<()> {
    let mut http = Http::connect(at.http)?;
    let jobs = lock(books).due_for_check(is_last);
    for (job, door, name) in jobs {
        let answer = http.get(&format!("/api/v1/jobs/{name}"))?;
        let status = match answer.status {
            200 => Some(text(&answer.body, "status")?),
            404 => None,
            _ => bail!("{} job {name}: {answer:?}", door.name()),
        };
        if door == Door::Jobq {
            let answer = http.get(&format!("/api/v0/job/{name}"))?;
            lock(books).observed_state(job, &answer.body["state"]);
            if status.is_some() {
                continue;
            }
        }
        lock(books).observed(job, status.as_deref());
    }
    verdict(books)
}

/// What a job carries, so that whoever gets it knows which it is.
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

fn text(body: &Value, field: &str) -> Result<String> {
    let text = body[field].as_str().with_context(|| format!("no {field} in {body}"))?;
    Ok(text.to_owned())
}

fn surprise(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

/// A client of some door.
type PlayedBy<'a> = fn(&Load<'a>) -> io::Result<()>;

/// The clients of one cycle.
struct Load<'a> {
    books: &'a Mutex<Books>,
    at: Addresses,
    ending: Ending,
    /// The clients go on until their connections break.
    until_it_ends: bool,
    /// How many clients are connected.
    connected: AtomicUsize,
    /// The server is gone.
    has_ended: AtomicBool,
}

const CLIENTS: usize = 9;
/// Clients that are not connected after so long will not be.
const CONNECTED_WITHIN: Duration = Duration::from_secs(120);

impl<'a> Load<'a> {
    fn new(books: &'a Mutex<Books>, at: Addresses, until_it_ends: bool) -> Self {
        let (ending, connected) = (Ending::default(), AtomicUsize::new(0));
        Load { books, at, ending, until_it_ends, connected, has_ended: AtomicBool::new(false) }
    }

    /// A client has its connection.
    fn is_connected(&self) {
        self.connected.fetch_add(1, Ordering::SeqCst);
    }

    /// Waits until all have: a flood that came before would leave no place for them.
    fn await_connected(&self) -> Result<()> {
        let deadline = Instant::now() + CONNECTED_WITHIN;
        while self.connected.load(Ordering::SeqCst) < CLIENTS {
            ensure!(Instant::now() < deadline, "not all clients are connected");
            thread::sleep(IDLE);
        }
        Ok(())
    }

    fn goes_on(&self) -> bool {
        self.until_it_ends || !self.ending.has_begun()
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        lock(self.books)
    }

    /// Submits jobs through a door until the end; `submit` answers with the server's name for one.
    fn submit(
        &self,
        door: Door,
        mut submit: impl FnMut(u64) -> io::Result<Submitted>,
    ) -> io::Result<()> {
        self.is_connected();
        while self.goes_on() {
            if self.books().has_enough() {
                // Whoever asks nothing does not see the server end.
                if self.has_ended.load(Ordering::SeqCst) {
                    return Ok(());
                }
                thread::sleep(IDLE);
                continue;
            }
            let job = self.books().submit_sent(door, None);
            match submit(job)? {
                Some(name) => self.books().submit_answered(job, name),
                None => self.books().submit_refused(job),
            }
        }
        Ok(())
    }

    fn submit_to_workq(&self) -> io::Result<()> {
        let mut client = Client::connect(self.at.workq)?;
        self.submit(Door::Workq, |job| {
            let uuid = super::job::Job(job).to_string();
            let head = format!("add {uuid} {QUEUE} {TTR_MS} {TTL_MS}");
            match client.send(&head, payload(job).to_string().as_bytes(), "")? {
                Answer::Done => Ok(Some(uuid)),
                answer if answer.has_no_room() => Ok(None),
                other => Err(surprise(&format!("add answered {other:?}"))),
            }
        })
    }

    fn submit_to_gearman(&self) -> io::Result<()> {
        let mut client = Gearman::connect(self.at.gearman)?;
        self.submit(Door::Gearman, |job| client.submit(QUEUE, payload(job).to_string().as_bytes()))
    }

    fn submit_to_api(&self) -> io::Result<()> {
        let mut http = Http::connect(self.at.http)?;
        self.submit(Door::Api, |job| {
            let body = json!({ "queue": QUEUE, "payload": payload(job) });
            let answer = with_room(http.post("/api/v1/jobs", &body)?, 201)?;
            Ok(answer.map(|job| job["id"].to_string()))
        })
    }

    fn submit_to_lightjq(&self) -> io::Result<()> {
        let mut http = Http::connect(self.at.http)?;
        self.submit(Door::Lightjq, |job| {
            let body = json!({
                "name": LIGHTJQ_QUEUE, "argument": payload(job), "keep_result": true,
                "timeout": TTR_MS / 1_000,
            });
            let Some(answer) = with_room(http.post("/job", &body)?, 201)? else { return Ok(None) };
            let id = answer["job_id"].as_str().ok_or_else(|| surprise("no job_id"))?;
            Ok(Some(id.to_owned()))
        })
    }

    /// Jobs that nobody leases: their states are the work.
    fn advance_jobq(&self) -> io::Result<()> {
        let mut http = Http::connect(self.at.http)?;
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
            for step in 1..=Dice::new(job).below(STATES_MAX) {
                let state = json!(["STEP", step]);
                self.books().state_sent(job, state.clone());
                match with_room(http.post(&format!("/api/v0/job/{id}/state"), &state)?, 200)? {
                    Some(_) => self.books().state_answered(job),
                    None => {
                        self.books().state_refused(job);
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Works until the end: `take` answers with a job, if there is one, and what it is finished by;
    /// `finish` says whether the server acknowledged the finish.
    fn work<C, T>(
        &self,
        mut connection: C,
        mut take: impl FnMut(&mut C) -> io::Result<Option<(u64, T)>>,
        mut finish: impl FnMut(&mut C, T) -> io::Result<bool>,
    ) -> io::Result<()> {
        self.is_connected();
        while self.goes_on() {
            let Some((job, by)) = take(&mut connection)? else {
                thread::sleep(IDLE);
                continue;
            };
            self.books().delivered(job);
            self.books().finish_sent(job);
            if finish(&mut connection, by)? {
                self.books().finish_answered(job);
            }
        }
        Ok(())
    }

    fn work_for_workq(&self) -> io::Result<()> {
        self.work(
            Client::connect(self.at.workq)?,
            |client| {
                let Some(delivery) = client.lease(QUEUE, 20)? else { return Ok(None) };
                Ok(Some((job_of_bytes(&delivery.payload)?, delivery.id)))
            },
            |client, id| match client.send(&format!("complete {id}"), b"done", "")? {
                Answer::Done => Ok(true),
                answer if answer.has_no_room() => Ok(false),
                other => Err(surprise(&format!("complete answered {other:?}"))),
            },
        )
    }

    fn work_for_gearman(&self) -> io::Result<()> {
        let mut worker = Gearman::connect(self.at.gearman)?;
        worker.can_do(QUEUE)?;
        self.work(
            worker,
            |worker| {
                let Some(assigned) = worker.grab()? else { return Ok(None) };
                Ok(Some((job_of_bytes(&assigned.payload)?, assigned.handle)))
            },
            // The protocol answers no finish.
            |worker, handle| worker.complete(&handle, b"done").map(|()| false),
        )
    }

    fn work_for_api(&self) -> io::Result<()> {
        self.work(
            Http::connect(self.at.http)?,
            |http| {
                let answer = http.post("/api/v1/lease", &json!({ "queues": [QUEUE] }))?;
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
                with_room(answer, 204).map(|answer| answer.is_some())
            },
        )
    }

    fn work_for_lightjq(&self) -> io::Result<()> {
        let mut http = Http::connect(self.at.http)?;
        let body = json!({ "name": "torture", "max_jobs": 1, "names": [LIGHTJQ_QUEUE] });
        let registered = answered(http.post("/worker", &body)?, 201)?;
        let id = registered["worker_id"].as_str().ok_or_else(|| surprise("no worker_id"))?;
        let header = format!("worker-id: {id}\r\n");
        self.work(
            http,
            |http| {
                let answer = http.ask("GET", "/worker/job?timeout=0", &header, None)?;
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
                with_room(answer, 204).map(|answer| answer.is_some())
            },
        )
    }
}

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

fn answered(answer: http::Answer, status: u16) -> io::Result<Value> {
    if answer.status == status {
        Ok(answer.body)
    } else {
        Err(surprise(&format!("wanted {status}, got {answer:?}")))
    }
}
