//! An engine on a bench: its log, its clock, and the letters it sends.

#![expect(clippy::unwrap_used, reason = "only tests use this")]

use std::sync::Arc;

use bytes::Bytes;
use spindle_core::command::{Claim, Command, Lease, Submit};
use spindle_core::job::Origin;
use spindle_core::{JobId, JobImage, Status, Type};
use spindle_engine::{
    Answer, Caller, ConnectionId, Engine, Gate, JobRef, LeaseReply, LeasedJob, Mailbox,
    ManualClock, Options, Refused, Ticket, WorkResult, fold_state,
};
use spindle_log::disk::SimDisk;
use spindle_log::{FileLog, FileLogOptions, Log, MemoryLog};
pub use spindle_testkit::new_job;
use spindle_testkit::{Letters, ManualEngine, commit_all, lease_from, submit_to};

/// When the clocks of these tests start.
pub const START_MS: u64 = 1_000_000;

/// Small segments and records, so that little is enough to fill them. Nothing runs by itself.
pub const SEGMENT_BYTES: u64 = 64 * 1024;
pub const RECORD_BYTES_MAX: u32 = 24 * 1024;

pub fn file_log(disk: &SimDisk) -> Arc<FileLog> {
    let options = FileLogOptions {
        segment_bytes: SEGMENT_BYTES,
        record_bytes_max: RECORD_BYTES_MAX,
        background: false,
        parts_of: spindle_engine::record::checked_parts,
        ..FileLogOptions::default()
    };
    Arc::new(FileLog::open(Arc::new(disk.clone()), options).unwrap())
}

pub struct Bench {
    pub engine: Engine,
    pub clock: Arc<ManualClock>,
    pub log: Arc<dyn Log>,
    pub letters: Arc<Letters>,
    pub options: Options,
}

impl Bench {
    pub fn new() -> Bench {
        Bench::on(Arc::new(MemoryLog::new()), START_MS, Options::default())
    }

    pub fn on(log: Arc<dyn Log>, now_ms: u64, options: Options) -> Bench {
        let ManualEngine { engine, clock } =
            ManualEngine::open(log.clone(), now_ms, options.clone());
        let letters = Arc::new(Letters::default());
        engine.attach(&(letters.clone() as Arc<dyn Mailbox>));
        Bench { engine, clock, log, letters, options }
    }

    /// On a simulated disk, with hardly any memory for payloads.
    pub fn on_disk(disk: &SimDisk) -> Bench {
        let options = Options { payload_memory_bytes: 0, ..Options::default() };
        Bench::on(file_log(disk), START_MS, options)
    }

    /// Ends this engine without a word, and starts the next one on the same disk.
    pub fn restart(self, disk: &SimDisk) -> Bench {
        let (now_ms, options) = (self.engine.now_ms(), self.options.clone());
        drop(self);
        Bench::on(file_log(disk), now_ms, options)
    }

    pub fn pass(&self, ms: u64) -> Option<u64> {
        self.clock.advance(ms);
        self.engine.tick_once()
    }

    pub fn commit(&self) {
        commit_all(&self.engine);
    }

    pub fn is_durable(&self, gate: Gate) -> bool {
        gate <= self.engine.durable()
    }

    pub fn add(&self, queue: &str, payload: &[u8]) -> JobId {
        self.submit(plain(queue), payload)
    }

    pub fn submit(&self, submit: Submit, payload: &[u8]) -> JobId {
        self.engine.submit(new_job(submit, payload)).unwrap().0
    }

    pub fn caller(&self, connection: u64) -> Caller {
        let mailbox = self.letters.clone() as Arc<dyn Mailbox>;
        Caller { connection: ConnectionId(connection), mailbox }
    }

    /// Leases a job that is there.
    pub fn lease(&self, queue: &str) -> Option<LeasedJob> {
        match self.engine.lease(&self.caller(1), wish(queue), 0).unwrap() {
            LeaseReply::Leased(job, _) => Some(*job),
            LeaseReply::Nothing(_) => None,
            LeaseReply::Waiting(_) => panic!("no wait was asked for"),
        }
    }

    /// Waits for a lease.
    pub fn wait(&self, connection: u64, queue: &str, wait_ms: u64) -> Ticket {
        match self.engine.lease(&self.caller(connection), wish(queue), wait_ms).unwrap() {
            LeaseReply::Waiting(ticket) => ticket,
            other => panic!("expected to wait and got {other:?}"),
        }
    }

    /// What was delivered since the last look, in order.
    pub fn answers(&self) -> Vec<(Ticket, Answer)> {
        self.letters.take().into_iter().map(|letter| (letter.ticket, letter.answer)).collect()
    }

    /// What the deliveries since the last look wait for.
    pub fn gates(&self) -> Vec<Gate> {
        self.letters.take().into_iter().map(|letter| letter.gate).collect()
    }

    /// The one job that was delivered since the last look.
    pub fn handed(&self) -> Option<(Ticket, JobId)> {
        match &self.answers()[..] {
            [] => None,
            [(ticket, Answer::Leased(job))] => Some((*ticket, job.id)),
            other => panic!("expected one lease and got {other:?}"),
        }
    }

    pub fn finish(&self, id: JobId, success: bool, result: &[u8]) -> Result<Gate, Refused> {
        let bytes = Bytes::copy_from_slice(result);
        let told = WorkResult { success, retry: true, bytes, ..WorkResult::default() };
        self.engine.finish(Claim::Unfinished { id }, told, Type::Bytes)
    }

    pub fn execute(&self, command: Command) {
        self.engine.execute(&command).unwrap();
    }

    pub fn status(&self, id: JobId) -> Option<Status> {
        self.engine.find(JobRef::Id(id)).0.map(|(_, status)| status)
    }

    pub fn image(&self, id: JobId) -> JobImage {
        self.engine.job(JobRef::Id(id)).unwrap().0.expect("the job is there")
    }

    pub fn payload(&self, id: JobId) -> Bytes {
        let place = self.image(id).payload.expect("it has a payload");
        self.engine.payload(id, &place).unwrap()
    }

    pub fn result(&self, id: JobId) -> Bytes {
        let place = self.image(id).outcome.unwrap().bytes.expect("it has a result");
        self.engine.bytes(&place).unwrap()
    }

    /// Folding the log must give the state there is.
    #[track_caller]
    pub fn check_fold(&self) {
        self.engine.tick_once();
        self.commit();
        let now_ms = self.engine.now_ms();
        let folded = fold_state(self.log.as_ref(), &self.options).unwrap().dump(now_ms);
        let live = self.engine.look(|state| state.dump(now_ms));
        if folded != live {
            let at = folded.iter().zip(&live).take_while(|(a, b)| a == b).count();
            let near = |dump: &[u8]| {
                dump[at.saturating_sub(200)..dump.len().min(at + 200)].escape_ascii().to_string()
            };
            panic!("the fold of the log is\n{}\nand the state is\n{}", near(&folded), near(&live));
        }
    }

    /// Carries and trims until the log is as small as the engine wants it, and checks the fold
    /// around every trim.
    #[track_caller]
    pub fn compaction(&self) {
        let mut trims = self.engine.trims();
        self.check_fold();
        while self.engine.compaction_step().unwrap() {
            self.commit();
            if self.engine.trims() > trims {
                trims = self.engine.trims();
                self.check_fold();
            }
        }
        self.check_fold();
    }
}

pub fn plain(queue: &str) -> Submit {
    submit_to(queue, Origin::Workq)
}

pub fn wish(queue: &str) -> Lease {
    lease_from(queue, Origin::Workq)
}

/// Bytes that are unlike those of other seeds.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}
