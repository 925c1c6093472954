//! Payloads of leases that cannot be read: the worker gets none, and the lease is undone.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use bytes::Bytes;
use spindle_core::{JobId, Status};
use spindle_engine::{FetchError, Options};
use spindle_log::{
    Ack, Log, LogError, MemoryLog, Position, ReadError, Record, Space, StoredRecords, SubmitError,
};

use crate::harness::{Bench, START_MS, noise};

const SOUND: u8 = 0;
/// What is read has always just moved on.
const MOVING: u8 = 1;
/// The disk does not answer.
const BROKEN: u8 = 2;

/// A log whose records are there, but not to be read one by one.
#[derive(Default)]
struct Unreadable {
    log: MemoryLog,
    reads: AtomicU8,
}

impl Log for Unreadable {
    fn read_at(&self, position: Position, offset: u32, len: u32) -> Result<Bytes, ReadError> {
        match self.reads.load(Ordering::SeqCst) {
            SOUND => self.log.read_at(position, offset, len),
            MOVING => Err(ReadError::Trimmed { position, first: position.next() }),
            _ => {
                let source = Arc::new(io::Error::other("no answer"));
                Err(ReadError::Failed { file: "segment".to_owned(), source })
            }
        }
    }

    fn first(&self) -> Position {
        self.log.first()
    }

    fn next(&self) -> Position {
        self.log.next()
    }

    fn submit(&self, at: Position, record: &Record) -> Result<(), SubmitError> {
        self.log.submit(at, record)
    }

    fn next_ack(&self) -> Ack {
        self.log.next_ack()
    }

    fn read(&self, from: Position) -> Result<StoredRecords, ReadError> {
        self.log.read(from)
    }

    fn trim_before(&self, position: Position) -> Result<(), LogError> {
        self.log.trim_before(position)
    }

    fn record_bytes_max(&self) -> u32 {
        self.log.record_bytes_max()
    }

    fn is_exclusive(&self) -> bool {
        self.log.is_exclusive()
    }

    fn space(&self) -> Space {
        self.log.space()
    }

    fn room_bytes(&self) -> u64 {
        self.log.room_bytes()
    }

    fn bytes_on_disk(&self) -> u64 {
        self.log.bytes_on_disk()
    }

    fn segment_end_before(&self, from: Position) -> Option<Position> {
        self.log.segment_end_before(from)
    }

    fn bytes_between(&self, from: Position, to: Position) -> u64 {
        self.log.bytes_between(from, to)
    }
}

fn start(log: &Arc<Unreadable>) -> Bench {
    let options = Options { payload_memory_bytes: 0, ..Options::default() };
    Bench::on(log.clone(), START_MS, options)
}

/// Leases a job, and fetches its payload when reading goes like this: the worker is given none. Returns
/// whether it may ask for the next job.
fn lease_unreadable(reads: u8) -> (Bench, JobId, bool) {
    let log = Arc::<Unreadable>::default();
    let bench = start(&log);
    let id = bench.add("q", &noise(1, 3000));
    bench.commit();
    let leased = bench.lease("q").expect("it is ready");
    log.reads.store(reads, Ordering::SeqCst);
    let is_next_asked_for = match bench.engine.leases().payload(&leased) {
        Ok(none) => none.is_none(),
        Err(FetchError::Read(_)) => false,
        Err(error) => panic!("{error}"),
    };
    log.reads.store(SOUND, Ordering::SeqCst);
    bench.check_fold();
    (bench, id, is_next_asked_for)
}

#[test]
fn a_lease_whose_payload_cannot_be_read_now_is_undone_and_the_worker_gets_no_other_job() {
    let (bench, id, is_next_asked_for) = lease_unreadable(BROKEN);
    assert!(!is_next_asked_for, "it would be the same job again");
    assert_eq!((bench.status(id), bench.image(id).attempts), (Some(Status::Ready), 0));
    assert_eq!(bench.engine.observe().stats().payloads_damaged, 0);
    let again = bench.lease("q").expect("it is ready again");
    assert_eq!(bench.leased_payload(&again), noise(1, 3000));
}

#[test]
fn a_lease_whose_payload_is_never_where_it_was_is_undone_and_costs_no_attempt() {
    let (bench, id, is_next_asked_for) = lease_unreadable(MOVING);
    assert!(is_next_asked_for);
    assert_eq!((bench.status(id), bench.image(id).attempts), (Some(Status::Ready), 0));
    assert_eq!(bench.engine.observe().stats().payloads_damaged, 0);
    let again = bench.lease("q").expect("it is ready again");
    assert_eq!(bench.leased_payload(&again), noise(1, 3000));
}

#[test]
fn a_lease_of_a_job_that_went_meanwhile_has_no_payload_and_costs_no_other_job() {
    let log = Arc::<Unreadable>::default();
    let bench = start(&log);
    let id = bench.add("q", &noise(1, 3000));
    let other = bench.add("q", &noise(2, 3000));
    bench.commit();
    let leased = bench.lease("q").expect("both are ready");
    assert_eq!(leased.id, id);
    bench.delete(id);
    log.reads.store(MOVING, Ordering::SeqCst);
    assert!(matches!(bench.engine.leases().payload(&leased), Ok(None)));
    assert_eq!((bench.status(id), bench.status(other)), (None, Some(Status::Ready)));
    assert_eq!(bench.engine.observe().stats().payloads_damaged, 0);
}
