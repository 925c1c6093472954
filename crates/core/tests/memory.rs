//! What jobs cost in memory, everything included, and that no single step asks for much at once:
//! a counting allocator around a million jobs as a benchmark would submit them.

#![expect(unsafe_code, reason = "an allocator that counts has to be one")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use spindle_core::command::{Claim, Finish, Submit};
use spindle_core::job::Origin;
use spindle_core::{BytesRef, Command, Decision, Defaults, JobId, Place, State, Type, decide};

/// Bytes in use, and the largest request since it was last reset.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static LARGEST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size(), Ordering::Relaxed);
        LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is handed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MILLION: u64 = 1_000_000;
const NOW_MS: u64 = 1_700_000_000_000;
const PAYLOAD_BYTES: u32 = 256;
/// The most memory that a step may ask for at once: moving this much takes well under a
/// millisecond.
const ONE_REQUEST_MAX: usize = 64 * 1024;
/// What a waiting job may cost besides its payload: its 80 bytes, and its places in four indices.
const WAITING_BYTES_MAX: f64 = 104.0;
/// What a finished job may cost, its UUID and its places in the indices included.
const FINISHED_BYTES_MAX: f64 = 48.0;
/// How many jobs of all kinds.
const MIXED: u64 = 300_000;

struct Filling {
    state: State,
    decision: Decision,
    now_ms: u64,
    largest: usize,
}

impl Filling {
    fn new() -> Filling {
        let mut filling = Filling {
            state: State::new(42, Defaults::default()),
            decision: Decision::default(),
            now_ms: NOW_MS,
            largest: 0,
        };
        let at = Place { position: 1, offset: 8 };
        filling.run(&Command::ReserveIds { until: 4 * MILLION }, at);
        filling
    }

    fn run(&mut self, command: &Command, at: Place) {
        decide(&self.state, command, self.now_ms, &mut self.decision).expect("it is accepted");
        LARGEST.store(0, Ordering::Relaxed);
        for (nth, (event, _)) in (0u32..).zip(&self.decision.events) {
            self.state.evolve(event, Place { offset: at.offset + nth, ..at });
        }
        self.largest = self.largest.max(LARGEST.load(Ordering::Relaxed));
        self.decision.clear();
    }

    /// As Workq's clients submit: a UUID, 256 bytes, a minute to run.
    fn submit(&mut self, id: u64, queue: Bytes, ttl_ms: u64) {
        let payload = BytesRef::logged(id / 100, 64, PAYLOAD_BYTES, Type::Bytes);
        let mut submit = Submit::new(JobId(id), queue, Origin::Workq, payload);
        submit.constraints_revision = 0;
        submit.ttr_ms = Some(60_000);
        submit.ttl_ms = Some(ttl_ms);
        submit.uuid = Some(uuid(id));
        self.now_ms += u64::from(id.is_multiple_of(20));
        let at = Place { position: id / 100, offset: 8 };
        self.run(&Command::Submit(Box::new(submit)), at);
    }

    /// The job is the nth that finishes; its event comes after its result.
    fn complete(&mut self, id: u64, nth: u64, result: BytesRef) {
        let at = Place { position: 100_000 + nth / 100, offset: result.offset + result.len };
        self.now_ms += u64::from(nth.is_multiple_of(20));
        let finish = Finish {
            claim: Claim::Unfinished { id: JobId(id) },
            success: nth % 10 != 9,
            retry: false,
            result: Some(result),
            message: Bytes::new(),
            error: Bytes::new(),
            code: Bytes::new(),
            worker_finished_at: Bytes::new(),
        };
        self.run(&Command::Finish(Box::new(finish)), at);
    }

    /// A month to live, in one queue, finished in the order they came.
    fn submit_alike(&mut self, id: u64) {
        self.submit(id, Bytes::from_static(b"bench"), 2_592_000_000);
    }

    fn complete_alike(&mut self, id: u64) {
        self.complete(id, id, BytesRef::logged(id / 100, 600, 16, Type::Bytes));
    }

    /// Sixteen queues, anything between a minute and a month to live.
    fn submit_mixed(&mut self, id: u64) {
        let draw = u64::from_be_bytes(uuid(id)[..8].try_into().expect("eight of sixteen"));
        let queue = Bytes::from(format!("queue-{}", draw % 16));
        self.submit(id, queue, 60_000 + (draw >> 8) % 2_592_000_000);
    }

    /// In any order, with results of all sizes anywhere in large records.
    fn complete_mixed(&mut self, nth: u64) {
        let id = 1 + nth * 179_424_673 % MIXED;
        let (offset, len) = ((nth as u32).wrapping_mul(0x9e37_79b9) >> 9, 1 << (id % 16));
        self.complete(id, nth, BytesRef::logged(100_000 + nth / 100, offset, len, Type::Bytes));
    }
}

/// Spread like random ones, and different for every job.
fn uuid(id: u64) -> [u8; 16] {
    let mixed = (u128::from(id) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    mixed.to_be_bytes()
}

/// One test, because the count is of the whole process.
#[test]
fn waiting_and_finished_jobs_cost_little_and_no_step_asks_for_much() {
    let empty = IN_USE.load(Ordering::Relaxed);
    let per_job = |count: u64| {
        let used = IN_USE.load(Ordering::Relaxed) - empty;
        used as f64 / count as f64
    };
    let mut filling = Filling::new();
    (1..=MILLION).for_each(|id| filling.submit_alike(id));
    let waiting = per_job(MILLION);
    println!("a waiting job costs {waiting:.1} bytes besides its payload");

    (MILLION + 1..=2 * MILLION).for_each(|id| filling.submit_alike(id));
    let twice = per_job(2 * MILLION);
    println!("with two million it is {twice:.1} bytes");

    (1..=2 * MILLION).for_each(|id| filling.complete_alike(id));
    let finished = per_job(2 * MILLION);
    println!("a finished job costs {finished:.1} bytes, after as many waited");
    println!("the largest single request was {} bytes", filling.largest);

    let largest = filling.largest;
    assert_eq!(filling.state.finished_count() as u64, 2 * MILLION);
    drop(filling);

    let mut mixed = Filling::new();
    (1..=MIXED).for_each(|id| mixed.submit_mixed(id));
    (1..=MIXED).for_each(|nth| mixed.complete_mixed(nth));
    let mixed_finished = per_job(MIXED);
    println!("of all kinds and finished in any order it is {mixed_finished:.1} bytes");
    assert_eq!(mixed.state.finished_count() as u64, MIXED);
    drop(mixed);
    let left = IN_USE.load(Ordering::Relaxed) - empty;

    assert!(waiting <= WAITING_BYTES_MAX, "a waiting job costs {waiting:.1} bytes");
    assert!(twice <= WAITING_BYTES_MAX, "a waiting job of two million costs {twice:.1} bytes");
    assert!(finished <= FINISHED_BYTES_MAX, "a finished job costs {finished:.1} bytes");
    assert!(mixed_finished <= FINISHED_BYTES_MAX, "a mixed one costs {mixed_finished:.1} bytes");
    assert!(largest <= ONE_REQUEST_MAX, "one step asked for {largest} bytes");
    assert!(left < 64 * 1024, "{left} bytes were not given back");
}
