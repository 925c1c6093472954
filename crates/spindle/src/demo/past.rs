//! The hour before the demo, because a server that has just started has nothing in its charts.
//!
//! Some thousand jobs run through an engine on the demo's folder, whose clock goes from an hour ago to
//! now in a second or two. They are real jobs in the real log, and its history is what the server
//! reads when it starts there; they are kept for a moment only, so that none is left when it does.
//! In the middle something goes wrong for some minutes, as in real life.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::{Context, anyhow};
use bytes::Bytes;
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use spindle_core::{
    BytesRef, JobId, Type,
    command::{Claim, Lease, Select, Submit},
    job::{Backoff, Origin},
};
use spindle_engine::{
    Caller, Clock, ConnectionId, Delivery, Engine, LeaseReply, LeasedJob, Mailbox, NewJob, Options,
    Payload, WorkResult, record,
};
use spindle_history::Recorder;
use spindle_log::{FileLog, FileLogOptions};

use super::business;
use crate::client::when::now_ms;

/// The history has a slot of this length, and so many in an hour.
const SLOT_MS: u64 = 10_000;
const SLOTS: u64 = 360;
/// The slots in which something goes wrong.
const TROUBLE: std::ops::Range<u64> = 205..262;
/// Queues, and how many of a hundred jobs are theirs.
const TRAFFIC: [(&str, u32); 6] = [
    ("mail", 36),
    ("thumbnails", 24),
    ("resize", 14),
    ("search-index", 12),
    ("import", 8),
    ("invoices", 6),
];

/// Lets the hour happen in a data folder on which no server runs.
pub fn spend(folder: &Path) -> anyhow::Result<()> {
    let clock = Arc::new(Hour(AtomicU64::new(now_ms().saturating_sub(SLOTS * SLOT_MS))));
    let options = FileLogOptions { parts_of: record::checked_parts, ..FileLogOptions::default() };
    let log = FileLog::open_dir(folder, options)?;
    let engine = Engine::open(Arc::new(log), clock.clone(), Options::default())?;
    let recorder = Recorder::start(&engine, Some(folder.to_owned()))?;
    let caller = Caller { connection: ConnectionId(1), mailbox: Arc::new(Nobody) };
    let mut past = Past { engine, caller, random: business::random("past", 0), unfinished: 0 };
    for slot in 0..SLOTS {
        past.let_happen(slot)?;
        clock.0.fetch_add(SLOT_MS, Ordering::Relaxed);
        past.engine.tick_once();
        recorder.history().look(&past.engine);
    }
    // Dropping the recorder writes the history.
    drop(recorder);
    past.engine.flush().context("cannot write the log")
}

/// A clock that moves when it is told to.
struct Hour(AtomicU64);

impl Clock for Hour {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn start_from(&self, _last_ms: u64) {}

    fn wall_ahead_ms(&self) -> i64 {
        0
    }

    fn accept_wall(&self) {}

    fn let_catch_up(&self, _may: bool) {}
}

/// A mailbox that ignores deliveries, because nothing is waited for.
struct Nobody;

impl Mailbox for Nobody {
    fn deliver(&self, _delivery: Delivery) {}

    fn durable_moved(&self) {}
}

/// The engine, and what comes next of the seed.
struct Past {
    engine: Engine,
    caller: Caller,
    random: ChaCha8Rng,
    /// Jobs that are not done.
    unfinished: u64,
}

impl Past {
    /// Jobs of ten seconds: most are worked at once, and some stay for the next ten.
    fn let_happen(&mut self, slot: u64) -> anyhow::Result<()> {
        let is_last = slot + 3 > SLOTS;
        let wave = 60 - (slot % 120).abs_diff(60);
        let jobs = if is_last { 0 } else { 24 + wave / 3 + self.random.random_range(0..9) };
        for number in 0..jobs {
            self.submit(slot * 100 + number)?;
        }
        let most = if TROUBLE.contains(&slot) { 60 } else { 14 };
        let left = if is_last { 0 } else { self.random.random_range(0..most) };
        while self.unfinished > left {
            let Some(job) = self.lease()? else { break };
            self.finish(&job, TROUBLE.contains(&slot))?;
        }
        // Two commits a minute: each waits for the disk, and the hour should pass in seconds.
        if slot % 3 == 2 {
            self.engine.commit_once();
        }
        Ok(())
    }

    fn submit(&mut self, number: u64) -> anyhow::Result<()> {
        let mut share = self.random.random_range(0..100);
        let queue = TRAFFIC.iter().find(|(_, of_hundred)| {
            let is_it = share < *of_hundred;
            share = share.saturating_sub(*of_hundred);
            is_it
        });
        let queue = queue.map_or("mail", |(queue, _)| *queue);
        let body = serde_json::to_vec(&business::payload(queue, number))?;
        let place = BytesRef::empty(Type::Json);
        let submit = Submit {
            keep_ms: Some(1),
            attempts_max: Some(0),
            fails_max: Some(0),
            backoff: Some(Backoff::NONE),
            ..Submit::new(JobId(0), Bytes::from_static(queue.as_bytes()), Origin::Api, place)
        };
        let job = NewJob { submit, payload: Payload::new(body, Type::Json) };
        let taken = self.engine.jobs().submit(job).without_waiting("it is made up");
        taken.map_err(|refused| anyhow!("a job of the last hour is refused: {refused:?}"))?;
        self.unfinished += 1;
        Ok(())
    }

    fn lease(&self) -> anyhow::Result<Option<Box<LeasedJob>>> {
        let lease = Lease {
            queues: TRAFFIC.iter().map(|(queue, _)| queue.as_bytes().into()).collect(),
            select: Select::ByPriority,
            holder: 1,
            bound: false,
            timeout_ms: None,
            door: Origin::Api,
            worker: Bytes::new(),
            payload_bytes_max: u32::MAX,
        };
        let reply = self.engine.leases().take(&self.caller, lease, 0);
        let reply = reply.without_waiting("it is made up");
        match reply
            .map_err(|refused| anyhow!("a lease of the last hour is refused: {refused:?}"))?
        {
            LeaseReply::Leased(job) => Ok(Some(job)),
            LeaseReply::Nothing | LeaseReply::Waiting(_) => Ok(None),
        }
    }

    /// Ends an attempt. One that failed is tried again at once.
    fn finish(&mut self, job: &LeasedJob, is_trouble: bool) -> anyhow::Result<()> {
        let number = self.random.random_range(100..900);
        let error = match &*job.queue {
            b"search-index" if is_trouble && self.random.random_ratio(2, 3) => {
                Some("connect ECONNREFUSED 10.0.3.17:9200".to_owned())
            }
            b"mail" if self.random.random_ratio(1, 40) => {
                Some(format!("451 4.7.1 greylisted, try again in {number} seconds"))
            }
            _ => None,
        };
        let result = WorkResult {
            success: error.is_none(),
            retry: true,
            error: error.clone().unwrap_or_default().into(),
            ..WorkResult::default()
        };
        let claim = Claim::Unfinished { id: job.id };
        let ended = self.engine.leases().finish(claim, result).without_waiting("it is made up");
        ended.map_err(|refused| anyhow!("an attempt of the last hour cannot end: {refused:?}"))?;
        self.unfinished -= u64::from(error.is_none());
        Ok(())
    }
}
