//! An engine in the hands of a test: its log, its clock, and the answers it delivers.

#![expect(clippy::unwrap_used, reason = "only tests use this")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use spindle_core::audit::Actor;
use spindle_core::command::{Claim, Command, Lease, Select, Submit};
use spindle_core::job::Origin;
use spindle_core::{BytesRef, JobId, JobImage, Policy, Requeue, Status, Type};
use spindle_engine::{
    Answer, Audit, Caller, Committed, ConnectionId, Delivery, Each, Engine, Expected, Gate, Gated,
    JobRef, LeaseReply, LeasedJob, Mailbox, NewJob, Options, Payload, Refused, StartError, Ticket,
    WorkResult, fold_state,
};
use spindle_log::{FileLog, FileLogOptions, Log, MemoryLog};
use spindle_testkit::ManualClock;
use spindle_testkit::disk::SimDisk;

/// When the clocks of these tests start.
pub const START_MS: u64 = 1_000_000;

/// A request of no particular person.
pub fn somebody() -> Audit {
    Audit::new(Actor::default())
}

/// Small segments and records, so that little is enough to fill them. Nothing runs by itself.
pub const SEGMENT_BYTES: u64 = 64 * 1024;
pub const RECORD_BYTES_MAX: u32 = 24 * 1024;

pub fn file_log(disk: &SimDisk) -> Arc<FileLog> {
    open_log(disk, &mut |_| {}).unwrap()
}

/// Opens the log on a disk, and shows its records meanwhile.
pub fn open_log(disk: &SimDisk, each: Each<'_>) -> Result<Arc<FileLog>, StartError> {
    let options = FileLogOptions {
        segment_bytes: SEGMENT_BYTES,
        record_bytes_max: RECORD_BYTES_MAX,
        background: false,
        parts_of: spindle_engine::record::checked_parts,
        ..FileLogOptions::default()
    };
    Ok(Arc::new(FileLog::open_with(Arc::new(disk.clone()), options, each)?))
}

/// What the engine says and what that waits for: tests look at it before it may leave.
pub trait TakeApart<T>: Sized {
    fn both(self) -> (T, Gate);

    fn value(self) -> T {
        self.both().0
    }
}

impl<T> TakeApart<T> for Gated<T> {
    fn both(self) -> (T, Gate) {
        let gate = self.gate();
        (self.without_waiting("a test looks at both"), gate)
    }
}

/// As [`TakeApart`], of calls that may be refused.
pub trait TakeApartResult<T, E>: TakeApart<Result<T, E>> {
    fn split(self) -> Result<(T, Gate), E> {
        let (result, gate) = self.both();
        result.map(|value| (value, gate))
    }

    /// The gate of the answer that the call was done.
    fn acked(self) -> Result<Gate, E> {
        self.split().map(|(_, gate)| gate)
    }
}

impl<T, E> TakeApartResult<T, E> for Gated<Result<T, E>> {}

/// What the engine delivers to the waiting clients.
#[derive(Default)]
pub struct Letters {
    deliveries: Mutex<Vec<Delivery>>,
    pub durable_moves: AtomicU64,
}

impl Letters {
    /// The deliveries since the last look.
    pub fn take(&self) -> Vec<(Ticket, Answer)> {
        let deliveries = std::mem::take(&mut *self.deliveries.lock().unwrap());
        deliveries.into_iter().map(|letter| (letter.ticket, letter.answer.value())).collect()
    }
}

impl Mailbox for Letters {
    fn deliver(&self, delivery: Delivery) {
        self.deliveries.lock().unwrap().push(delivery);
    }

    fn durable_moved(&self) {
        self.durable_moves.fetch_add(1, Ordering::SeqCst);
    }
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
        Bench::with(Options::default())
    }

    pub fn with(options: Options) -> Bench {
        Bench::on(Arc::new(MemoryLog::new()), START_MS, options)
    }

    pub fn on(log: Arc<dyn Log>, now_ms: u64, options: Options) -> Bench {
        Bench::opened(now_ms, options, |options, clock| {
            let engine = Engine::open(log.clone(), clock, options).unwrap();
            (engine, log)
        })
    }

    /// Folds the log on a disk while it is opened.
    fn folded(disk: &SimDisk, now_ms: u64, options: Options) -> Bench {
        Bench::opened(now_ms, options, |options, clock| {
            let mut opened = None;
            let open = |each: Each<'_>| {
                let log: Arc<dyn Log> = open_log(disk, each)?;
                opened = Some(log.clone());
                Ok(log)
            };
            let engine = Engine::open_with(clock, options, open).unwrap();
            (engine, opened.unwrap())
        })
    }

    fn opened(
        now_ms: u64,
        mut options: Options,
        open: impl FnOnce(Options, Arc<ManualClock>) -> (Engine, Arc<dyn Log>),
    ) -> Bench {
        let kept = Policy { keep_ms: None, ..Policy::ONCE };
        let lost_last = Policy { on_lost_lease: Requeue::ToTail, ..Policy::ONCE };
        let declared = [(Origin::Workq, kept), (Origin::Gearman, lost_last)];
        options.defaults.policies = declared.into_iter().collect();
        let clock = Arc::new(ManualClock::new(now_ms));
        let (engine, log) = open(options.clone(), clock.clone());
        let letters = Arc::new(Letters::default());
        engine.attach(&(letters.clone() as Arc<dyn Mailbox>));
        Bench { engine, clock, log, letters, options }
    }

    /// On a simulated disk, with hardly any memory for payloads.
    pub fn on_disk(disk: &SimDisk) -> Bench {
        let options = Options { payload_memory_bytes: 0, ..Options::default() };
        Bench::folded(disk, START_MS, options)
    }

    /// Ends this engine without an orderly stop, and starts the next one on the same disk.
    pub fn restart(self, disk: &SimDisk) -> Bench {
        let (now_ms, options) = (self.engine.now_ms(), self.options.clone());
        drop(self);
        Bench::folded(disk, now_ms, options)
    }

    pub fn pass(&self, ms: u64) -> Option<u64> {
        self.clock.advance(ms);
        self.engine.tick_once()
    }

    pub fn commit(&self) {
        while self.engine.commit_once() == Committed::Some {}
    }

    pub fn is_durable(&self, gate: Gate) -> bool {
        gate <= self.engine.durable()
    }

    pub fn add(&self, queue: &str, payload: &[u8]) -> JobId {
        self.submit(plain(queue), payload)
    }

    pub fn submit(&self, submit: Submit, payload: &[u8]) -> JobId {
        self.engine.jobs().submit(new_job(submit, payload)).value().unwrap()
    }

    pub fn caller(&self, connection: u64) -> Caller {
        let mailbox = self.letters.clone() as Arc<dyn Mailbox>;
        Caller { connection: ConnectionId(connection), mailbox }
    }

    pub fn delete(&self, id: JobId) {
        self.engine
            .people(&mut somebody())
            .delete(JobRef::Id(id))
            .value()
            .expect("the job is there");
    }

    /// Leases a job that is there.
    pub fn lease(&self, queue: &str) -> Option<LeasedJob> {
        match self.engine.leases().take(&self.caller(1), wish(queue), 0).value().unwrap() {
            LeaseReply::Leased(job) => Some(*job),
            LeaseReply::Nothing => None,
            LeaseReply::Waiting(_) => panic!("no wait was asked for"),
        }
    }

    /// The payload of a job that was leased, which is sound.
    pub fn leased_payload(&self, job: &LeasedJob) -> Bytes {
        self.engine.leases().payload(job).expect("readable").expect("sound")
    }

    /// Leases a job that is there. Returns what the answer waits for.
    #[track_caller]
    pub fn gate_of_lease(&self, queue: &str) -> Gate {
        let (reply, gate) =
            self.engine.leases().take(&self.caller(1), wish(queue), 0).split().unwrap();
        assert!(matches!(reply, LeaseReply::Leased(_)), "{reply:?}");
        gate
    }

    /// Waits for a lease.
    pub fn wait(&self, connection: u64, queue: &str, wait_ms: u64) -> Ticket {
        match self
            .engine
            .leases()
            .take(&self.caller(connection), wish(queue), wait_ms)
            .value()
            .unwrap()
        {
            LeaseReply::Waiting(ticket) => ticket,
            other => panic!("expected to wait and got {other:?}"),
        }
    }

    /// What was delivered since the last look, in order.
    pub fn answers(&self) -> Vec<(Ticket, Answer)> {
        self.letters.take()
    }

    /// What the deliveries since the last look wait for.
    pub fn gates(&self) -> Vec<Gate> {
        let deliveries = std::mem::take(&mut *self.letters.deliveries.lock().unwrap());
        deliveries.into_iter().map(|letter| letter.answer.gate()).collect()
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
        let result = bytes(result);
        let result = WorkResult { success, retry: true, result, ..WorkResult::default() };
        self.engine.leases().finish(Claim::Unfinished { id }, result).acked()
    }

    /// A worker says that its job failed, and why.
    pub fn fail(&self, id: JobId, error: &str) -> Result<Gate, Refused> {
        let error = Bytes::copy_from_slice(error.as_bytes());
        let result = WorkResult { retry: true, error, ..WorkResult::default() };
        self.engine.leases().finish(Claim::Unfinished { id }, result).acked()
    }

    /// Removes a constraint that is there.
    pub fn remove_constraint(&self, name: &str) {
        let mut person = somebody();
        let removed = self.engine.people(&mut person).remove_constraint(name, Expected::Any);
        removed.value().expect("it is there");
    }

    /// Runs a finished job again, with its payload or a new one.
    pub fn retry(&self, id: JobId, payload: Option<Payload>) {
        let mut person = somebody();
        self.engine.people(&mut person).retry(JobRef::Id(id), payload).value().expect("it is done");
    }

    pub fn execute(&self, command: Command) {
        self.engine.jobs().execute(&command).value().unwrap();
    }

    pub fn status(&self, id: JobId) -> Option<Status> {
        self.engine.jobs().find(JobRef::Id(id)).value().map(|(_, status)| status)
    }

    pub fn image(&self, id: JobId) -> JobImage {
        self.engine.jobs().get(JobRef::Id(id)).unwrap().value().expect("the job is there")
    }

    pub fn payload(&self, id: JobId) -> Bytes {
        let place = self.image(id).payload.expect("it has a payload");
        self.engine.jobs().payload(id, &place).unwrap()
    }

    pub fn result(&self, id: JobId) -> Bytes {
        let place = self.image(id).outcome.unwrap().bytes.expect("it has a result");
        self.engine.jobs().bytes(&place).unwrap()
    }

    /// Folding the log must give the state there is.
    #[track_caller]
    pub fn check_fold(&self) {
        self.engine.tick_once();
        self.commit();
        let now_ms = self.engine.now_ms();
        let folded = fold_state(self.log.as_ref(), &self.options).unwrap().dump(now_ms);
        let live = self.engine.inspect(|state| state.dump(now_ms));
        if folded != live {
            let at = folded.iter().zip(&live).take_while(|(a, b)| a == b).count();
            let near = |dump: &[u8]| {
                dump[at.saturating_sub(200)..dump.len().min(at + 200)].escape_ascii().to_string()
            };
            panic!("the fold of the log is\n{}\nand the state is\n{}", near(&folded), near(&live));
        }
    }

    /// Compacts and trims until the log is as small as the engine wants it, and checks the fold
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
    let queue = Bytes::copy_from_slice(queue.as_bytes());
    Submit::new(JobId(0), queue, Origin::Workq, BytesRef::empty(Type::Bytes))
}

pub fn bytes(payload: &[u8]) -> Payload {
    Payload::new(payload.to_vec(), Type::Bytes)
}

pub fn new_job(submit: Submit, payload: &[u8]) -> NewJob {
    NewJob { submit, payload: bytes(payload) }
}

pub fn wish(queue: &str) -> Lease {
    Lease {
        queues: vec![Bytes::copy_from_slice(queue.as_bytes())],
        select: Select::ByPriority,
        holder: 1,
        bound: false,
        timeout_ms: None,
        door: Origin::Workq,
        worker: Bytes::new(),
        payload_bytes_max: u32::MAX,
    }
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
