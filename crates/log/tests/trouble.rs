//! Full disks, failing disks, slow disks; and what an append costs on a good one.

mod common;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use spindle_log::{
    Ack, FileLog, FileLogOptions, Log, LogError, Position, Space, SubmitError, SyncPolicy,
    disk::{Disk, DiskFile, FolderLock, LockError},
};
use spindle_testkit::disk::{Fault, Operation, SimDisk};

use common::{append, append_numbered, check_numbered, numbered, open, segments, small, with_sync};

const SEGMENT_BYTES: u64 = 4096;

#[test]
fn a_batch_costs_one_write_and_one_sync() {
    let disk = SimDisk::new(1);
    let log = FileLog::open(
        Arc::new(disk.clone()),
        FileLogOptions { segment_bytes: 1024 * 1024, ..small() },
    )
    .expect("an empty folder");
    append_numbered(&log, 1, 100);
    for batch in 1..50 {
        let before = disk.operations();
        for _ in 0..batch {
            let at = log.next();
            log.submit(at, &numbered(at, 100)).expect("submitted");
        }
        for _ in 0..batch {
            assert!(matches!(log.next_ack(), Ack::Committed(_)));
        }
        assert_eq!(disk.operations() - before, 2, "for {batch} records");
    }
}

fn check_poisoned(log: &FileLog, disk: &SimDisk) {
    let before = disk.operations();
    let refused = log.submit(log.next(), &numbered(Position(0), 10));
    assert!(matches!(refused, Err(SubmitError::Poisoned(LogError::Failed { .. }))));
    assert!(matches!(log.next_ack(), Ack::Fatal(LogError::Failed { .. })));
    assert!(log.trim_before(Position(2)).is_err());
    assert!(log.sync().is_err());
    assert_eq!(disk.operations(), before, "something was tried again on a failed disk");
    assert_eq!(log.read_at(Position(0), 0, 2).expect("reads go on"), "0:");
}

#[test]
fn a_failed_sync_or_write_stops_the_log_for_good() {
    for operation in [Operation::Sync, Operation::Write] {
        let disk = SimDisk::new(7);
        let log = open(&disk);
        append_numbered(&log, 3, 100);
        disk.fail(operation, 0, Fault::InputOutput);
        for _ in 0..2 {
            let at = log.next();
            log.submit(at, &numbered(at, 100)).expect("submitted");
        }
        let Ack::Fatal(error) = log.next_ack() else { panic!("acknowledged after {operation:?}") };
        assert!(error.to_string().contains(&segments(&disk)[0]), "{error}");
        check_poisoned(&log, &disk);
        drop(log);
        disk.crash();
        let log = open(&disk);
        assert!(log.next() >= Position(3), "what was acknowledged before is there");
    }
}

#[test]
fn a_failed_step_to_the_next_segment_stops_the_log_for_good() {
    for operation in [Operation::Rename, Operation::SyncFolder, Operation::Write, Operation::Sync] {
        let disk = SimDisk::new(7);
        let log = open(&disk);
        append_numbered(&log, 3, 1000);
        let at = log.next();
        log.submit(at, &numbered(at, 1000)).expect("submitted");
        disk.fail(operation, 0, Fault::InputOutput);
        assert!(matches!(log.next_ack(), Ack::Fatal(_)), "{operation:?}");
        check_poisoned(&log, &disk);
        drop(log);
        disk.crash();
        let log = open(&disk);
        assert_eq!(log.next(), Position(3), "{operation:?}");
        append_numbered(&log, 8, 1000);
        check_numbered(&log, 0, 11, 1000);
    }
}

#[test]
fn a_failed_interval_sync_stops_the_log_for_good() {
    let disk = SimDisk::new(7);
    let options = with_sync(SyncPolicy::Interval(Duration::ZERO));
    let log = FileLog::open(Arc::new(disk.clone()), options).expect("an empty folder");
    append_numbered(&log, 3, 100);
    assert_eq!(log.synced_upto(), Position(0));
    log.maintain();
    assert_eq!(log.synced_upto(), Position(3));
    append_numbered(&log, 1, 100);
    disk.fail(Operation::Sync, 0, Fault::InputOutput);
    log.maintain();
    check_poisoned(&log, &disk);
}

#[test]
fn a_trim_syncs_first_whatever_the_policy() {
    let disk = SimDisk::new(7);
    let log = FileLog::open(Arc::new(disk.clone()), with_sync(SyncPolicy::Os)).expect("a folder");
    append_numbered(&log, 10, 1000);
    let end = log.segment_end_before(log.first()).expect("closed");
    assert!(log.synced_upto() < log.next());
    log.trim_before(end).expect("trimmed");
    assert_eq!(log.synced_upto(), log.next());
    disk.crash();
    let first = end.0;
    check_numbered(&open(&disk), first, 10, 1000);
}

/// Fills the log until it refuses a record.
fn fill(log: &FileLog) {
    for _ in 0..1000 {
        let at = log.next();
        match log.submit(at, &numbered(at, 100)) {
            Ok(()) => assert!(matches!(log.next_ack(), Ack::Committed(_))),
            Err(SubmitError::Full) => return,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("a disk of a few segments took a thousand records");
}

#[test]
fn a_full_disk_leaves_the_reserve_then_refuses_and_recovers() {
    let disk = SimDisk::new(1);
    let log = open(&disk);
    disk.set_capacity(Some(disk.used() + SEGMENT_BYTES + 100));
    while log.space() == Space::Ample {
        append_numbered(&log, 1, 100);
    }
    let reserve_from = log.next();
    fill(&log);
    let reserve = log.bytes_between(reserve_from, log.next());
    assert!(reserve > SEGMENT_BYTES / 2, "the reserve was {reserve} bytes");
    assert!(matches!(log.submit(log.next(), &numbered(log.next(), 100)), Err(SubmitError::Full)));
    assert_eq!(log.space(), Space::ReserveOnly);
    let next = log.next();
    disk.set_capacity(None);
    log.maintain();
    assert_eq!(log.space(), Space::Ample);
    append_numbered(&log, 100, 100);
    drop(log);
    check_numbered(&open(&disk), 0, next.0 + 100, 100);
}

/// A process without free file descriptors has not filled the disk, but what is left of the log is a reserve, too.
#[test]
fn a_log_that_cannot_prepare_a_segment_for_another_reason_than_room_cannot_grow() {
    let disk = SimDisk::new(1);
    let log = open(&disk);
    for attempt in 0..5 {
        disk.fail(Operation::Create, attempt, Fault::InputOutput);
    }
    while log.space() == Space::Ample {
        append_numbered(&log, 1, 100);
    }
    assert_eq!(log.space(), Space::CannotGrow);
    let begun = log.next();
    let mut refused = 0;
    while log.next() < Position(200) {
        let at = log.next();
        match log.submit(at, &numbered(at, 100)) {
            Ok(()) => assert!(matches!(log.next_ack(), Ack::Committed(_))),
            Err(SubmitError::Full) => {
                let reserve = log.bytes_between(begun, at);
                assert!(reserve > SEGMENT_BYTES / 2, "the reserve was {reserve} bytes");
                assert_eq!(log.space(), Space::CannotGrow);
                refused += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    // One attempt for each record refused, after the one at which the reserve began; the sixth prepares a segment.
    assert_eq!((refused, log.space()), (4, Space::Ample));
    drop(log);
    check_numbered(&open(&disk), 0, 200, 100);
}

#[test]
fn a_trim_gives_a_segment_to_a_log_that_cannot_prepare_one() {
    let disk = SimDisk::new(1);
    let log = open(&disk);
    append_numbered(&log, 100, 100);
    for attempt in 0..1000 {
        disk.fail(Operation::Create, attempt, Fault::InputOutput);
    }
    fill(&log);
    let next = log.next();
    assert_eq!(log.space(), Space::CannotGrow);
    log.trim_before(log.segment_end_before(log.first()).expect("closed")).expect("trimmed");
    assert_eq!(log.space(), Space::Ample);
    append_numbered(&log, 5, 100);
    assert_eq!((log.next().0, log.space()), (next.0 + 5, Space::CannotGrow));
}

#[test]
fn a_trim_makes_room_on_a_full_disk() {
    let disk = SimDisk::new(1);
    let log = open(&disk);
    append_numbered(&log, 100, 100);
    disk.set_capacity(Some(disk.used()));
    fill(&log);
    let next = log.next();
    log.trim_before(log.segment_end_before(log.first()).expect("closed")).expect("trimmed");
    assert_eq!(log.space(), Space::Ample);
    append_numbered(&log, 5, 100);
    assert_eq!(log.next().0, next.0 + 5);
}

#[test]
fn the_thread_that_prepares_segments_notices_when_there_is_room_again() {
    let disk = SimDisk::new(1);
    let options = FileLogOptions { background: true, ..small() };
    let log = FileLog::open(Arc::new(disk.clone()), options).expect("an empty folder");
    // Space for all that a segment needs, but not for another one.
    append_numbered(&log, 50, 100);
    disk.set_capacity(Some(disk.used() + 1000));
    fill(&log);
    assert_eq!(log.space(), Space::ReserveOnly);
    disk.set_capacity(None);
    let deadline = Instant::now() + Duration::from_secs(20);
    while log.space() != Space::Ample {
        assert!(Instant::now() < deadline, "still no room");
        thread::yield_now();
    }
    append_numbered(&log, 50, 100);
}

#[test]
fn the_disk_is_known_to_be_full_again_once_a_trimmed_segment_is_used_up() {
    let disk = SimDisk::new(1);
    let options = FileLogOptions { background: true, ..small() };
    let log = FileLog::open(Arc::new(disk.clone()), options).expect("an empty folder");
    append_numbered(&log, 100, 100);
    disk.set_capacity(Some(disk.used()));
    fill(&log);
    let started = Instant::now();
    log.trim_before(log.segment_end_before(log.first()).expect("closed")).expect("trimmed");
    assert_eq!(log.space(), Space::Ample);
    fill(&log);
    while log.space() == Space::Ample {
        assert!(started.elapsed() < Duration::from_millis(500), "nobody looks at the disk");
        thread::yield_now();
    }
}

#[test]
fn a_disk_without_room_for_a_first_segment_is_refused() {
    let disk = SimDisk::new(1);
    disk.set_capacity(Some(1000));
    let error = common::try_open(&disk).err().expect("no room");
    assert!(error.to_string().contains("room"), "{error}");
    disk.set_capacity(None);
    append_numbered(&open(&disk), 3, 10);
}

#[test]
fn trimmed_segments_are_used_again_and_the_disk_stays_small() {
    let disk = SimDisk::new(1);
    let log = open(&disk);
    let mut creates = 0;
    for round in 0..300 {
        append_numbered(&log, 9, 400);
        if let Some(end) = log.segment_end_before(log.first()) {
            log.trim_before(end).expect("trimmed");
        }
        assert!(disk.used() <= 5 * SEGMENT_BYTES + 16, "{} bytes in round {round}", disk.used());
        creates = disk.names().len();
    }
    assert!(creates <= 6);
    let (first, next) = (log.first(), log.next());
    assert_eq!(next, Position(2700));
    drop(log);
    disk.crash();
    check_numbered(&open(&disk), first.0, next.0, 400);
}

#[test]
fn threads_end_with_the_log_and_sync_what_was_written() {
    let disk = SimDisk::new(3);
    for round in 0..20 {
        let sync = SyncPolicy::Interval(Duration::from_secs(3600));
        let options = FileLogOptions { background: true, ..with_sync(sync) };
        let log = FileLog::open(Arc::new(disk.clone()), options).expect("a sound folder");
        append_numbered(&log, 10, 100);
        drop(log);
        disk.crash();
        check_numbered(&open(&disk), 0, (round + 1) * 10, 100);
    }
}

/// A disk whose syncs wait for leave, once they are told to.
struct SlowDisk {
    disk: SimDisk,
    gate: Arc<Gate>,
}

struct Gate {
    /// For syncs.
    closed: AtomicBool,
    /// For the room of new files.
    claims_closed: AtomicBool,
    entered: mpsc::SyncSender<()>,
    leave: Mutex<mpsc::Receiver<()>>,
}

impl Gate {
    /// An open gate, the end that tells that a thread came while it was closed, and the end that
    /// lets it go.
    fn new() -> (Arc<Gate>, mpsc::Receiver<()>, mpsc::Sender<()>) {
        let (entered, at_the_gate) = mpsc::sync_channel(1);
        let (let_go, leave) = mpsc::channel();
        let (closed, claims_closed) = (AtomicBool::new(false), AtomicBool::new(false));
        let gate = Gate { closed, claims_closed, entered, leave: Mutex::new(leave) };
        (Arc::new(gate), at_the_gate, let_go)
    }

    fn pass(&self, closed: &AtomicBool) {
        if closed.load(Ordering::SeqCst) {
            self.entered.send(()).expect("the test waits");
            self.leave.lock().recv().expect("the test lets it go");
        }
    }
}

struct SlowFile {
    file: Arc<dyn DiskFile>,
    gate: Arc<Gate>,
}

impl DiskFile for SlowFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_at(bytes, offset)
    }
    fn claim(&self, len: u64) -> io::Result<bool> {
        self.gate.pass(&self.gate.claims_closed);
        self.file.claim(len)
    }
    fn sync(&self) -> io::Result<()> {
        self.gate.pass(&self.gate.closed);
        self.file.sync()
    }
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
}

impl SlowDisk {
    fn slow(&self, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(SlowFile { file, gate: self.gate.clone() })
    }
}

impl Disk for SlowDisk {
    fn folder(&self) -> String {
        self.disk.folder()
    }
    fn lock(&self) -> Result<FolderLock, LockError> {
        self.disk.lock()
    }
    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }
    fn list_aside(&self, folder: &str) -> io::Result<Vec<String>> {
        self.disk.list_aside(folder)
    }
    fn open(&self, name: &str, write: bool) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.open(name, write).map(|file| self.slow(file))
    }
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.create(name).map(|file| self.slow(file))
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn move_aside(&self, from: &str, folder: &str, to: &str) -> io::Result<()> {
        self.disk.move_aside(from, folder, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }
    fn sync_folder(&self) -> io::Result<()> {
        self.disk.sync_folder()
    }
    fn salt(&self) -> u32 {
        self.disk.salt()
    }
}

#[test]
fn nobody_waits_for_a_sync_but_its_acknowledgement() {
    let (gate, at_the_gate, let_go) = Gate::new();
    let disk = SlowDisk { disk: SimDisk::new(1), gate: gate.clone() };
    let log = FileLog::open(Arc::new(disk), small()).expect("an empty folder");
    append_numbered(&log, 60, 100);
    gate.closed.store(true, Ordering::SeqCst);
    let at = log.next();
    log.submit(at, &numbered(at, 100)).expect("submitted");
    thread::scope(|scope| {
        let answer = scope.spawn(|| log.next_ack());
        at_the_gate.recv_timeout(Duration::from_secs(20)).expect("the sync has begun");
        // All of these would hang here if they waited.
        assert_eq!(log.read_at(Position(3), 0, 2).expect("readable"), "3:");
        assert_eq!(log.read(Position(0)).expect("readable").count(), 60);
        assert_eq!((log.first(), log.next()), (Position(0), at.next()));
        assert!(log.segment_end_before(Position(0)).is_some());
        assert!(log.bytes_on_disk() > 0 && log.bytes_between(Position(0), at) > 0);
        assert_eq!(log.space(), Space::Ample);
        assert!(log.read_at(at, 0, 1).is_err(), "readable before it is durable");
        log.submit(at.next(), &numbered(at.next(), 100)).expect("submitted meanwhile");
        gate.closed.store(false, Ordering::SeqCst);
        let_go.send(()).expect("it waits");
        assert!(matches!(answer.join().expect("no panic"), Ack::Committed(p) if p == at));
    });
    assert!(matches!(log.next_ack(), Ack::Committed(p) if p == at.next()));
    append(&log, &numbered(log.next(), 100));
}

/// However long it takes to find out that the disk is full, half of the last segment is left then.
#[test]
fn nothing_uses_the_reserve_up_before_it_is_known_to_be_one() {
    let (gate, at_the_gate, let_go) = Gate::new();
    let sim = SimDisk::new(1);
    let disk = SlowDisk { disk: sim.clone(), gate: gate.clone() };
    let options = FileLogOptions { background: true, ..small() };
    let log = FileLog::open(Arc::new(disk), options).expect("an empty folder");
    append_numbered(&log, 60, 100);
    gate.claims_closed.store(true, Ordering::SeqCst);
    thread::scope(|scope| {
        scope.spawn(|| {
            while log.space() == Space::Ample {
                let at = log.next();
                match log.submit(at, &numbered(at, 100)) {
                    Ok(()) => assert!(matches!(log.next_ack(), Ack::Committed(_))),
                    Err(error) => assert!(matches!(error, SubmitError::Full), "{error}"),
                }
            }
        });
        at_the_gate.recv_timeout(Duration::from_secs(20)).expect("another segment is prepared");
        // Until nothing moves any more.
        let mut next = log.next();
        loop {
            thread::sleep(Duration::from_millis(100));
            if log.next() == next {
                break;
            }
            next = log.next();
        }
        sim.set_capacity(Some(sim.used()));
        gate.claims_closed.store(false, Ordering::SeqCst);
        let_go.send(()).expect("it waits");
    });
    assert_eq!(log.space(), Space::ReserveOnly);
    let room = log.room_bytes();
    assert!((SEGMENT_BYTES / 4..SEGMENT_BYTES).contains(&room), "{room} bytes are left");
}
