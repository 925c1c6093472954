//! The torture through every door: jobs come in through all of them and are worked through all that
//! have workers, the server is killed, and what each door acknowledged must be there.
//!
//! The books are simpler than the [`accountant`](super::accountant)'s, which knows everything about
//! Workq's jobs: here a job is there or not, finished or not, and has a state.

mod books;
mod gearman;
mod http;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::client::{Answer, Client};
use super::job::Dice;
use super::mode::Torture;
use super::server::{Addresses, Server};
use books::{Books, Door};
use gearman::Gearman;
use http::Http;

/// Worked on through Workq, Gearman and the API.
const QUEUE: &str = "torture";
/// LightJQ's: its workers get MessagePack or JSON, not other doors' bytes.
const LIGHTJQ_QUEUE: &str = "torture-lightjq";
/// Longer than any run.
const TTL_MS: u64 = 86_400_000;
/// Between two questions for work when there is none.
const IDLE: Duration = Duration::from_millis(2);
const STATES_MAX: u64 = 20;
const COMPLAINTS_SHOWN: usize = 15;

impl Torture<'_> {
    /// Kills under a load through every door.
    pub(super) fn through_every_door(&self) -> Result<String> {
        let mut dice = Dice::new(self.options.seed);
        let books = Mutex::default();
        for cycle in 0..self.options.cycles {
            self.doors_cycle(&books, &mut dice, Server::kill)
                .with_context(|| format!("in cycle {cycle}"))?;
        }
        self.doors_cycle(&books, &mut dice, Server::terminate)
            .context("in the cycle that ends by SIGTERM")?;
        let server = self.start(None)?;
        check(&books, server.addresses())?;
        server.terminate()?;

        let tally = lock(&books).tally();
        let submits = Door::ALL.map(|door| (door.name(), tally.submits[door as usize]));
        for (door, count) in submits {
            ensure!(count > 0, "nothing came in through {door}: the test proves nothing of it");
        }
        ensure!(tally.finishes > 0 && tally.states > 0, "nothing was worked on: {tally:?}");
        let submits = submits.map(|(door, count)| format!("{count} through {door}")).join(", ");
        Ok(format!(
            "torture {}: {} kills; acknowledged submits: {submits}; {} finishes, {} states, {} finishes in doubt \
             had happened; nothing lost",
            self.mode.name(),
            self.options.cycles,
            tally.finishes,
            tally.states,
            tally.doubted,
        ))
    }

    fn doors_cycle(
        &self,
        books: &Mutex<Books>,
        dice: &mut Dice,
        end: impl FnOnce(Server) -> Result<()>,
    ) -> Result<()> {
        let server = self.start(None)?;
        check(books, server.addresses())?;
        let longest_ms = (self.options.seconds * 1_000.0) as u64;
        let time = Duration::from_millis(longest_ms / 4 + dice.below(longest_ms.max(2) * 3 / 4));
        let load = Load {
            books,
            at: server.addresses(),
            ending: AtomicBool::new(false),
            surprises: Mutex::default(),
        };
        let ended = thread::scope(|scope| {
            let clients: [PlayedBy<'_>; 9] = [
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
                scope.spawn(move || load.until_the_end(client));
            }
            thread::sleep(time);
            load.ending.store(true, Ordering::SeqCst);
            end(server)
        });
        ended?;
        let surprises = load.surprises.into_inner().unwrap_or_else(PoisonError::into_inner);
        ensure!(surprises.is_empty(), "{}", surprises.join("\n"));
        verdict(books)
    }
}

fn lock(books: &Mutex<Books>) -> MutexGuard<'_, Books> {
    books.lock().unwrap_or_else(PoisonError::into_inner)
}

fn verdict(books: &Mutex<Books>) -> Result<()> {
    let books = lock(books);
    let complaints = books.complaints();
    if complaints.is_empty() {
        return Ok(());
    }
    let shown = complaints.iter().take(COMPLAINTS_SHOWN).cloned().collect::<Vec<_>>();
    bail!("{} complaints, the first:\n{}", complaints.len(), shown.join("\n"))
}

/// Looks at every job a door acknowledged, under the name that door gave it.
fn check(books: &Mutex<Books>, at: Addresses) -> Result<()> {
    let mut http = Http::connect(at.http)?;
    let jobs = lock(books).acknowledged();
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
    /// The server is about to end: a connection that breaks from now on is no surprise.
    ending: AtomicBool,
    surprises: Mutex<Vec<String>>,
}

impl Load<'_> {
    /// A client fails when the server ends, and must not before.
    fn until_the_end(&self, client: impl FnOnce(&Self) -> io::Result<()>) {
        let Err(error) = client(self) else { return };
        let expected =
            self.ending.load(Ordering::SeqCst) && error.kind() != io::ErrorKind::InvalidData;
        if !expected {
            let mut surprises = self.surprises.lock().unwrap_or_else(PoisonError::into_inner);
            surprises.push(format!("a client before the end: {error}"));
        }
    }

    fn goes_on(&self) -> bool {
        !self.ending.load(Ordering::SeqCst)
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        lock(self.books)
    }

    fn submit_to_workq(&self) -> io::Result<()> {
        let mut client = Client::connect(self.at.workq)?;
        while self.goes_on() {
            let job = self.books().submit_sent(Door::Workq, None);
            let uuid = super::job::Job(job).to_string();
            let head = format!("add {uuid} {QUEUE} 60000 {TTL_MS}");
            match client.send(&head, payload(job).to_string().as_bytes(), "")? {
                Answer::Done => self.books().submit_answered(job, uuid),
                other => return Err(surprise(&format!("add answered {other:?}"))),
            }
        }
        Ok(())
    }

    fn submit_to_gearman(&self) -> io::Result<()> {
        let mut client = Gearman::connect(self.at.gearman)?;
        while self.goes_on() {
            let job = self.books().submit_sent(Door::Gearman, None);
            let handle = client.submit(QUEUE, payload(job).to_string().as_bytes())?;
            self.books().submit_answered(job, handle);
        }
        Ok(())
    }

    fn submit_to_api(&self) -> io::Result<()> {
        let mut http = Http::connect(self.at.http)?;
        while self.goes_on() {
            let job = self.books().submit_sent(Door::Api, None);
            let body = json!({ "queue": QUEUE, "payload": payload(job) });
            let answer = answered(http.post("/api/v1/jobs", &body)?, 201)?;
            self.books().submit_answered(job, answer["id"].to_string());
        }
        Ok(())
    }

    fn submit_to_lightjq(&self) -> io::Result<()> {
        let mut http = Http::connect(self.at.http)?;
        while self.goes_on() {
            let job = self.books().submit_sent(Door::Lightjq, None);
            let body =
                json!({ "name": LIGHTJQ_QUEUE, "argument": payload(job), "keep_result": true });
            let answer = answered(http.post("/job", &body)?, 201)?;
            let id = answer["job_id"].as_str().ok_or_else(|| surprise("no job_id"))?;
            self.books().submit_answered(job, id.to_owned());
        }
        Ok(())
    }

    /// Jobs that nobody leases: their states are the work.
    fn advance_jobq(&self) -> io::Result<()> {
        let mut http = Http::connect(self.at.http)?;
        while self.goes_on() {
            let first = json!(["STEP", 0]);
            let job = self.books().submit_sent(Door::Jobq, Some(first.clone()));
            let body = json!({ "payload": payload(job), "state": first });
            let answer = answered(http.post("/api/v0/job/create", &body)?, 200)?;
            let id = answer["id"].to_string();
            self.books().submit_answered(job, id.clone());
            for step in 1..=Dice::new(job).below(STATES_MAX) {
                let state = json!(["STEP", step]);
                self.books().state_sent(job, state.clone());
                answered(http.post(&format!("/api/v0/job/{id}/state"), &state)?, 200)?;
                self.books().state_answered(job);
            }
        }
        Ok(())
    }

    fn work_for_workq(&self) -> io::Result<()> {
        let mut client = Client::connect(self.at.workq)?;
        while self.goes_on() {
            let Some(delivery) = client.lease(QUEUE, 20)? else { continue };
            let job = job_of_bytes(&delivery.payload)?;
            self.books().delivered(job);
            self.books().finish_sent(job);
            match client.send(&format!("complete {}", delivery.id), b"done", "")? {
                Answer::Done => self.books().finish_answered(job),
                other => return Err(surprise(&format!("complete answered {other:?}"))),
            }
        }
        Ok(())
    }

    fn work_for_gearman(&self) -> io::Result<()> {
        let mut worker = Gearman::connect(self.at.gearman)?;
        worker.can_do(QUEUE)?;
        while self.goes_on() {
            let Some(assigned) = worker.grab()? else {
                thread::sleep(IDLE);
                continue;
            };
            let job = job_of_bytes(&assigned.payload)?;
            self.books().delivered(job);
            self.books().finish_sent(job);
            worker.complete(&assigned.handle, b"done")?;
        }
        Ok(())
    }

    fn work_for_api(&self) -> io::Result<()> {
        let mut http = Http::connect(self.at.http)?;
        while self.goes_on() {
            let answer = http.post("/api/v1/lease", &json!({ "queues": [QUEUE] }))?;
            if answer.status == 204 {
                thread::sleep(IDLE);
                continue;
            }
            let leased = answered(answer, 200)?;
            let job = match leased["payload_base64"].as_str() {
                Some(text) => {
                    job_of_bytes(&BASE64.decode(text).map_err(|e| surprise(&e.to_string()))?)?
                }
                None => job_of(&leased["payload"])?,
            };
            self.books().delivered(job);
            let token = leased["lease_token"].as_str().unwrap_or_default();
            self.books().finish_sent(job);
            let path = format!("/api/v1/leases/{token}/complete");
            answered(http.post(&path, &json!({ "result": "done" }))?, 204)?;
            self.books().finish_answered(job);
        }
        Ok(())
    }

    fn work_for_lightjq(&self) -> io::Result<()> {
        let mut http = Http::connect(self.at.http)?;
        let body = json!({ "name": "torture", "max_jobs": 1, "names": [LIGHTJQ_QUEUE] });
        let registered = answered(http.post("/worker", &body)?, 201)?;
        let id = registered["worker_id"].as_str().ok_or_else(|| surprise("no worker_id"))?;
        let header = format!("worker-id: {id}\r\n");
        while self.goes_on() {
            let answer = http.ask("GET", "/worker/job?timeout=0", &header, None)?;
            if answer.status == 204 {
                thread::sleep(IDLE);
                continue;
            }
            let given = answered(answer, 200)?;
            let job = job_of(&given["argument"])?;
            self.books().delivered(job);
            self.books().finish_sent(job);
            let done = json!({
                "job_id": given["job_id"], "type": "success", "result": "done",
                "finished_at": "2026-01-01T00:00:00Z",
            });
            answered(http.ask("POST", "/done", &header, Some(&done))?, 204)?;
            self.books().finish_answered(job);
        }
        Ok(())
    }
}

fn answered(answer: http::Answer, status: u16) -> io::Result<Value> {
    if answer.status == status {
        Ok(answer.body)
    } else {
        Err(surprise(&format!("wanted {status}, got {answer:?}")))
    }
}
