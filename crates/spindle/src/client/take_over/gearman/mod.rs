//! Jobs of gearmand, by its binary protocol, as a worker of one function after the other.
//!
//! A worker gets what is due, one job after the other, and is not told how a job was submitted. So
//! the text protocol (`admin`) is asked for that: `prioritystatus`, before and after a batch, shows
//! how many jobs of each priority were taken, and `show jobs` which of them clients wait for. Those
//! stay with gearmand, which gives them to another worker once this one resets its abilities.
//!
//! One function at a time, because releases before 2.0 give a worker nothing as long as the first of
//! its functions has only jobs that are not due.

mod admin;
mod priorities;

use std::{
    collections::{HashSet, VecDeque},
    time::Duration,
};

use anyhow::{Context, anyhow};
use bytes::Bytes;
use sha2::{Digest, Sha256};
use spindle_gearman::{
    client::Connection,
    wire::{Assignment, GrabKind, Request, Response},
};

use self::{
    admin::{Admin, Function, lost},
    priorities::Priorities,
};
use super::{
    Other, Rest, Route, Taken, Waiting,
    job::{DoorName, Job, Name, digest},
    left_there,
};
use crate::client::progress::Progress;

const PORT: u16 = 4_730;
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);
/// Jobs that are taken at once, and about how many bytes of payloads.
const BATCH_MAX: usize = 100;
const BATCH_BYTES: usize = 8 * 1024 * 1024;
/// No packet of gearmand is longer than we can hold; it has no limit of its own.
const PACKET_BYTES_MAX: usize = 1024 * 1024 * 1024;
/// How long a job that went over is kept once it is done, so that it is known in a second run.
const KEEP_MS: u64 = 3_600_000;

/// gearmand.
pub struct Gearman {
    worker: Connection,
    admin: Admin,
    queues: Vec<String>,
    /// The functions that are still to be done, the present one first; `None`: not asked for yet.
    functions: Option<VecDeque<String>>,
    foreground: Foreground,
    /// Jobs that the server here refused.
    left: u64,
    /// Jobs that clients wait for.
    awaited: u64,
    /// Jobs that are parts of what a client splits up.
    reduced: u64,
}

/// Which jobs clients wait for.
#[derive(Default)]
struct Foreground {
    handles: HashSet<Vec<u8>>,
    /// The handles are complete up to the job of this number.
    known: Option<u64>,
}

impl Gearman {
    /// Connects to HOST:PORT, or to the usual port of a host.
    pub fn connect(address: &str, queues: &[String]) -> anyhow::Result<Self> {
        let admin = Admin::connect(address)?;
        let worker = Connection::open(admin.peer()?, ANSWER_TIME_MAX, PACKET_BYTES_MAX);
        Ok(Self {
            worker: worker.with_context(|| format!("cannot connect to {address}"))?,
            admin,
            queues: queues.to_vec(),
            functions: None,
            foreground: Foreground::default(),
            left: 0,
            awaited: 0,
            reduced: 0,
        })
    }

    /// The wanted functions.
    fn functions(&mut self) -> anyhow::Result<Vec<Function>> {
        let mut functions = self.admin.functions()?;
        functions.retain(|function| self.wants(&function.name));
        Ok(functions)
    }

    /// How many jobs of each wanted function wait, by priority.
    fn priorities(&mut self) -> anyhow::Result<Priorities> {
        let mut counts = self.admin.priorities()?;
        counts.retain(|name, _| self.wants(name));
        Ok(Priorities(counts))
    }

    fn wants(&self, function: &str) -> bool {
        self.queues.is_empty() || self.queues.iter().any(|queue| queue == function)
    }

    /// The functions that are to be done, the first of which the worker can do.
    fn start(&mut self) -> anyhow::Result<VecDeque<String>> {
        let functions = self.functions()?.into_iter().filter(|function| function.total > 0);
        let functions: VecDeque<String> = functions.map(|function| function.name).collect();
        self.can_do(functions.front())?;
        Ok(functions)
    }

    /// Says that the worker can do this function only, or none. Jobs of another function that it has
    /// wait for other workers again.
    fn can_do(&mut self, function: Option<&String>) -> anyhow::Result<()> {
        self.send(&Request::ResetAbilities)?;
        if let Some(function) = function {
            self.send(&Request::CanDo { function: Bytes::from(function.clone()) })?;
        }
        self.errors_until_now()?;
        Ok(())
    }

    /// How many errors the server has answered with to what was sent.
    fn errors_until_now(&mut self) -> anyhow::Result<u64> {
        self.send(&Request::Echo { data: Bytes::from_static(b"spindle") })?;
        let mut errors = 0;
        loop {
            match self.receive()? {
                Response::Error { .. } => errors += 1,
                Response::Echo { .. } => return Ok(errors),
                other => return Err(unexpected(&other)),
            }
        }
    }

    /// Some jobs that are due.
    fn grab(&mut self) -> anyhow::Result<Vec<Assignment>> {
        let (mut grabbed, mut bytes) = (vec![], 0);
        while grabbed.len() < BATCH_MAX && bytes < BATCH_BYTES {
            self.send(&Request::Grab(GrabKind::All))?;
            match self.receive()? {
                Response::JobAssign(job) => {
                    bytes += job.payload.len();
                    grabbed.push(job);
                }
                Response::NoJob => break,
                other => return Err(unexpected(&other)),
            }
        }
        Ok(grabbed)
    }

    /// How many clients wait for each of these jobs, as far as their uniques tell.
    fn clients(&mut self, jobs: &[Assignment]) -> anyhow::Result<Vec<u64>> {
        let mut clients = vec![0; jobs.len()];
        for (job, clients) in jobs.iter().zip(&mut clients) {
            let unique = job.unique.clone().unwrap_or_default();
            if unique.is_empty() || unique == "-" {
                continue;
            }
            self.send(&Request::GetStatusUnique { unique })?;
            match self.receive()? {
                Response::StatusUnique { clients: count, .. } => *clients = count,
                Response::Error { .. } => {}
                other => return Err(unexpected(&other)),
            }
        }
        Ok(clients)
    }

    /// Reads anew which jobs clients wait for, unless all of these are known.
    fn learn_foreground(&mut self, jobs: &[Assignment]) -> anyhow::Result<()> {
        let known = self.foreground.known;
        let is_known =
            |job: &Assignment| known.is_some_and(|known| handle_number(&job.handle) <= known);
        if jobs.iter().all(is_known) {
            return Ok(());
        }
        let jobs = self.admin.jobs()?;
        let last = jobs.iter().map(|job| handle_number(&job.handle)).max().unwrap_or(0);
        let awaited = jobs.into_iter().filter(|job| job.is_foreground);
        let handles = awaited.map(|job| job.handle).collect();
        self.foreground = Foreground { handles, known: Some(last) };
        Ok(())
    }

    /// A job that is to go over. None: it stays.
    fn described(
        &mut self,
        job: Assignment,
        clients: u64,
        grabbed: &mut Priorities,
    ) -> Option<Taken<Bytes>> {
        let priority = grabbed.next(&String::from_utf8_lossy(&job.function));
        if clients > 0 || self.foreground.handles.contains(&job.handle[..]) {
            self.awaited += 1;
            return None;
        }
        if job.reducer.is_some() {
            self.reduced += 1;
            return None;
        }
        let unique = job.unique.clone().unwrap_or_default();
        let door = DoorName {
            door: "gearman",
            number: handle_number(&job.handle),
            made: self.mark(&job, &unique),
            uuid: None,
            key: key(&job, &unique),
            keep_ms: Some(KEEP_MS),
            expires_ms: None,
        };
        Some(Taken {
            handle: job.handle.clone(),
            shown: String::from_utf8_lossy(&job.handle).into_owned(),
            job: Job {
                name: Name::Door(door),
                queue: job.function.to_vec(),
                payload: job.payload.to_vec(),
                priority,
                ..Job::default()
            },
        })
    }

    /// Distinguishes a job from those of the same number in other runs of a server and on other
    /// servers, by the process of the server and by the job's handle, function and unique.
    fn mark(&self, job: &Assignment, unique: &[u8]) -> String {
        let digest = digest(&[&job.handle, &job.function, unique]);
        format!("gearmand-{}-{}", self.admin.pid(), &digest[..16])
    }

    fn send(&mut self, request: &Request) -> anyhow::Result<()> {
        self.worker.send(request).map_err(lost)
    }

    fn receive(&mut self) -> anyhow::Result<Response> {
        self.worker.receive().map_err(lost)
    }
}

impl Other for Gearman {
    type Handle = Bytes;

    const ROUTE: Route = Route::Import;

    fn waiting(&mut self) -> anyhow::Result<Vec<Waiting>> {
        Ok(self.priorities()?.rows())
    }

    fn take(&mut self, _: &Progress) -> anyhow::Result<Vec<Taken<Bytes>>> {
        let mut functions = match self.functions.take() {
            Some(functions) => functions,
            None => self.start()?,
        };
        while !functions.is_empty() {
            let before = self.priorities()?;
            let jobs = self.grab()?;
            if jobs.is_empty() {
                functions.pop_front();
                self.can_do(functions.front())?;
                continue;
            }
            self.learn_foreground(&jobs)?;
            let clients = self.clients(&jobs)?;
            let mut grabbed = before.gone_until(&self.priorities()?);
            let jobs = jobs.into_iter().zip(clients);
            let taken: Vec<_> = jobs
                .filter_map(|(job, clients)| self.described(job, clients, &mut grabbed))
                .collect();
            if !taken.is_empty() {
                self.functions = Some(functions);
                return Ok(taken);
            }
        }
        self.functions = Some(functions);
        Ok(vec![])
    }

    fn remove(&mut self, jobs: &[Taken<Bytes>]) -> anyhow::Result<u64> {
        for job in jobs {
            self.send(&Request::WorkComplete { handle: job.handle.clone(), result: Bytes::new() })?;
        }
        self.errors_until_now()
    }

    fn leave(&mut self, jobs: Vec<Taken<Bytes>>) -> anyhow::Result<()> {
        self.left += jobs.len() as u64;
        Ok(())
    }

    fn rest(&mut self) -> anyhow::Result<Rest> {
        let functions = self.functions()?;
        let total: u64 = functions.iter().map(|function| function.total).sum();
        let at_work: u64 = functions.iter().map(|function| function.running).sum();
        let left = total.saturating_sub(at_work);
        let is_done = self.functions.as_ref().is_some_and(VecDeque::is_empty);
        let others = left.saturating_sub(self.left + self.awaited + self.reduced);
        let reasons = [
            (if is_done { others } else { 0 }, "not due yet, which gearmand gives to nobody"),
            (self.awaited, "because clients wait for the results"),
            (self.reduced, "because of their reducers"),
        ];
        let notes = reasons.iter().filter(|(jobs, _)| *jobs > 0);
        Ok(Rest {
            at_work,
            left,
            unreadable: 0,
            notes: notes.map(|(jobs, why)| left_there(why, *jobs)).collect(),
        })
    }
}

/// The key by which the Gearman door knows a job, so that a later submit there joins it: the unique
/// and the function, or what stands for the payload.
fn key(job: &Assignment, unique: &[u8]) -> Option<Vec<u8>> {
    let function = &job.function[..];
    match unique {
        b"" => None,
        b"-" if job.payload.is_empty() => None,
        b"-" => Some([&[0], function, &[0], &Sha256::digest(&job.payload)[..]].concat()),
        unique => Some([unique, &[0], function].concat()),
    }
}

/// The number at the end of a handle, such as `H:host:7`.
fn handle_number(handle: &[u8]) -> u64 {
    let digits = handle.rsplit(|byte| *byte == b':').next().unwrap_or_default();
    str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).unwrap_or(u64::MAX)
}

fn unexpected(response: &Response) -> anyhow::Error {
    match response {
        Response::Error { code, text } => anyhow!(
            "gearmand refused: {}: {}",
            String::from_utf8_lossy(code),
            String::from_utf8_lossy(text)
        ),
        other => anyhow!("that is no gearmand: it answers with {other:?}"),
    }
}
