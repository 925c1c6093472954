//! The contract of [`Log`] as a suite that every log runs.
//!
//! Every implementation of a log calls [`run`] from a test, with a function that makes fresh, empty
//! logs. Runs (segments) should be short, so that a few thousand small records close one. Each rule
//! is a function of its own; its panic message says what the log did.

use std::sync::Arc;
use std::sync::mpsc;

use bytes::Bytes;
use spindle_log::{Ack, Log, LogError, Position, ReadError, Record, Space, Stored, SubmitError};

type Make<'a> = &'a mut dyn FnMut() -> Arc<dyn Log>;

/// Bytes of a record, when a rule needs many.
const SMALL_BYTES: usize = 100;
/// A log that has not closed a run after this many small records cannot be trimmed in a test.
const RECORDS_MAX: u64 = 20_000;

/// Checks every rule, each on a log of its own.
///
/// # Panics
///
/// Panics at the first rule the log breaks.
pub fn run(make: &mut dyn FnMut() -> Arc<dyn Log>) {
    a_new_log_is_empty(make);
    records_read_back_as_submitted(make);
    only_the_next_position_is_taken(make);
    pipelined_records_are_acknowledged_in_order(make);
    nothing_is_readable_before_it_is_acknowledged(make);
    an_acknowledgement_needs_a_record(make);
    a_record_over_the_maximum_changes_nothing(make);
    slices_are_slices(make);
    reads_outside_the_log_say_where_it_is(make);
    a_trim_drops_whole_runs_and_nothing_else(make);
    trimming_everything_keeps_the_positions(make);
    a_trim_does_not_disturb_a_read(make);
    sizes_follow_what_is_kept(make);
    readers_and_the_writer_do_not_disturb_each_other(make);
    if make().in_flight_max() > 1 {
        one_thread_submits_while_another_takes_the_acknowledgements(make);
    }
}

/// Checks the further rules for a log that several can write to: `make` makes one that is fresh and
/// empty, opened by two writers.
///
/// # Panics
///
/// Panics at the first rule the log breaks.
pub fn run_shared(make: &mut dyn FnMut() -> [Arc<dyn Log>; 2]) {
    a_record_submitted_again_is_committed_or_shown(make);
    behind_a_conflict_everything_conflicts(make);
    what_stands_behind_a_record_of_ones_own_is_taken(make);
}

type MakeTwo<'a> = &'a mut dyn FnMut() -> [Arc<dyn Log>; 2];

fn record(position: u64, bytes: usize) -> Record {
    let mut text = format!("record {position} ").into_bytes();
    text.resize(bytes.max(text.len()), (position % 251) as u8);
    Record { epoch: position / 3, bytes: text.into() }
}

fn append(log: &dyn Log, record: &Record) -> Position {
    let at = log.next();
    log.submit(at, record).expect("the next position is taken");
    match log.next_ack() {
        Ack::Committed(position) => assert_eq!(position, at, "acknowledged another position"),
        other => panic!("not committed: {other:?}"),
    }
    at
}

fn append_small(log: &dyn Log, count: u64) {
    let mut left = count;
    while left > 0 {
        let batch = left.min(64);
        let first = log.next();
        for position in first.0..first.0 + batch {
            log.submit(Position(position), &record(position, SMALL_BYTES)).expect("submitted");
        }
        for position in first.0..first.0 + batch {
            assert!(matches!(log.next_ack(), Ack::Committed(Position(p)) if p == position));
        }
        left -= batch;
    }
}

/// Appends until the run that holds `from` is closed, and says where it ends.
fn close_run(log: &dyn Log, from: Position) -> Position {
    for _ in 0..RECORDS_MAX / 16 {
        if let Some(end) = log.segment_end_before(from) {
            return end;
        }
        append_small(log, 16);
    }
    panic!("no run is closed after {RECORDS_MAX} records: make logs with shorter runs");
}

fn all(log: &dyn Log, from: Position) -> Vec<Stored> {
    log.read(from).expect("readable").map(|stored| stored.expect("sound")).collect()
}

fn check_records(log: &dyn Log, from: Position, next: Position) {
    let stored = all(log, from);
    assert_eq!(stored.len() as u64, next.0 - from.0, "read another number of records");
    for (position, stored) in (from.0..).zip(stored) {
        let expected = record(position, SMALL_BYTES);
        assert_eq!(stored.position, Position(position));
        assert_eq!(stored.epoch, expected.epoch);
        assert_eq!(stored.bytes, expected.bytes);
    }
}

fn a_new_log_is_empty(make: Make) {
    let log = make();
    assert_eq!(log.first(), log.next());
    assert!(all(&*log, log.first()).is_empty());
    assert_eq!(log.bytes_on_disk(), 0);
    assert_eq!(log.space(), Space::Ample);
    assert_eq!(log.segment_end_before(log.first()), None);
    assert!(log.record_bytes_max() > 0);
    log.trim_before(log.next()).expect("trimming nothing");
    assert_eq!(log.first(), log.next());
}

fn records_read_back_as_submitted(make: Make) {
    let log = make();
    let max = log.record_bytes_max() as usize;
    let sizes = [0, 1, 7, 8, 9, 100, 511, 512, 513, max / 2, max - 1, max, 0, 3];
    let first = log.next();
    let records: Vec<_> = (0u64..).zip(sizes).map(|(n, size)| record(n, size.min(max))).collect();
    let records: Vec<_> = records
        .into_iter()
        .zip(sizes)
        .map(|(record, size)| Record { bytes: record.bytes.slice(..size), ..record })
        .collect();
    for record in &records {
        append(&*log, record);
    }
    for from in 0..=records.len() {
        let stored = all(&*log, Position(first.0 + from as u64));
        assert_eq!(stored.len(), records.len() - from);
        for (stored, record) in stored.iter().zip(&records[from..]) {
            assert_eq!((stored.epoch, &stored.bytes), (record.epoch, &record.bytes));
        }
    }
}

fn only_the_next_position_is_taken(make: Make) {
    let log = make();
    append_small(&*log, 3);
    let end = close_run(&*log, log.first());
    log.trim_before(end).expect("trimmed");
    let next = log.next();
    let below_first = log.first().0 - 1;
    for at in [0, below_first, log.first().0, next.0 - 1, next.0 + 1, u64::MAX] {
        let refused = log.submit(Position(at), &record(at, 10));
        assert!(
            matches!(refused, Err(SubmitError::Conflict { .. })),
            "submitting at {at} while the next is {next}: {refused:?}"
        );
        assert_eq!(log.next(), next, "a refused record moved the log");
    }
    assert_eq!(append(&*log, &record(next.0, SMALL_BYTES)), next);
    check_records(&*log, log.first(), log.next());
}

fn pipelined_records_are_acknowledged_in_order(make: Make) {
    let log = make();
    let first = log.next();
    let mut answered = first;
    for round in 0u64..20 {
        for _ in 0..round {
            let at = log.next();
            log.submit(at, &record(at.0, SMALL_BYTES)).expect("submitted");
            assert_eq!(log.next(), at.next(), "next() counts what is submitted");
        }
        // Some stay unanswered until a later round.
        for _ in 0..round.saturating_sub(1) {
            assert!(matches!(log.next_ack(), Ack::Committed(p) if p == answered));
            answered = answered.next();
        }
    }
    while answered < log.next() {
        assert!(matches!(log.next_ack(), Ack::Committed(p) if p == answered));
        answered = answered.next();
    }
    check_records(&*log, first, log.next());
}

fn nothing_is_readable_before_it_is_acknowledged(make: Make) {
    let log = make();
    append_small(&*log, 2);
    let at = log.next();
    log.submit(at, &record(at.0, SMALL_BYTES)).expect("submitted");
    assert!(matches!(log.read_at(at, 0, 1), Err(ReadError::Absent { .. })));
    assert_eq!(all(&*log, log.first()).len(), 2);
    assert!(all(&*log, at).is_empty());
    assert!(matches!(log.next_ack(), Ack::Committed(p) if p == at));
    assert_eq!(log.read_at(at, 0, 6).expect("readable"), "record");
}

fn an_acknowledgement_needs_a_record(make: Make) {
    let log = make();
    assert!(matches!(log.next_ack(), Ack::Fatal(LogError::NothingSubmitted)));
    append_small(&*log, 2);
    assert!(matches!(log.next_ack(), Ack::Fatal(LogError::NothingSubmitted)));
    append_small(&*log, 1);
}

fn a_record_over_the_maximum_changes_nothing(make: Make) {
    let log = make();
    append_small(&*log, 1);
    let max = log.record_bytes_max();
    let next = log.next();
    let bytes = Bytes::from(vec![1; max as usize + 1]);
    let refused = log.submit(next, &Record { epoch: 1, bytes });
    assert!(
        matches!(refused, Err(SubmitError::TooLarge { bytes, max: m })
            if bytes == u64::from(max) + 1 && m == max),
        "{refused:?}"
    );
    assert_eq!(log.next(), next);
    append_small(&*log, 1);
    check_records(&*log, log.first(), log.next());
}

fn slices_are_slices(make: Make) {
    let log = make();
    append_small(&*log, 5);
    for position in (log.first().0..log.next().0).map(Position) {
        let whole = record(position.0, SMALL_BYTES).bytes;
        for (offset, len) in [(0, 100), (0, 0), (100, 0), (1, 1), (50, 50), (99, 1)] {
            let slice = log.read_at(position, offset, len).expect("inside the record");
            assert_eq!(slice, whole.slice(offset as usize..(offset + len) as usize));
        }
        for (offset, len) in [(0, 101), (100, 1), (101, 0), (u32::MAX, u32::MAX)] {
            let outside = log.read_at(position, offset, len);
            assert!(
                matches!(outside, Err(ReadError::OutOfRange { bytes: 100, .. })),
                "{len} bytes at {offset}: {outside:?}"
            );
        }
    }
}

fn reads_outside_the_log_say_where_it_is(make: Make) {
    let log = make();
    append_small(&*log, 5);
    let next = log.next();
    assert!(all(&*log, next).is_empty(), "reading from the end is reading nothing");
    for above in [next.next(), Position(u64::MAX)] {
        assert!(matches!(log.read(above).err(), Some(ReadError::Absent { .. })));
    }
    for absent in [next, next.next(), Position(u64::MAX)] {
        assert!(matches!(log.read_at(absent, 0, 0), Err(ReadError::Absent { .. })));
    }
    let end = close_run(&*log, log.first());
    log.trim_before(end).expect("trimmed");
    for below in [Position(0), Position(end.0 - 1)] {
        assert!(
            matches!(log.read(below).err(), Some(ReadError::Trimmed { first, .. }) if first == end)
        );
        let slice = log.read_at(below, 0, 0);
        assert!(matches!(slice, Err(ReadError::Trimmed { first, .. }) if first == end));
    }
}

fn a_trim_drops_whole_runs_and_nothing_else(make: Make) {
    let log = make();
    let start = log.first();
    let end = close_run(&*log, start);
    let second_end = close_run(&*log, end);
    let next = log.next();
    log.trim_before(start).expect("trimming nothing");
    assert_eq!(log.first(), start);
    log.trim_before(Position(end.0 - 1)).expect("trimmed");
    assert!(log.first().0 < end.0, "a trim below a record dropped it");
    check_records(&*log, Position(end.0 - 1), next);
    log.trim_before(end).expect("trimmed");
    assert_eq!(log.first(), end, "a trim to the end of a run drops it");
    check_records(&*log, end, next);
    log.trim_before(start).expect("trimming what is gone");
    assert_eq!(log.first(), end, "first() decreased");
    log.trim_before(second_end).expect("trimmed");
    assert_eq!(log.first(), second_end);
    assert_eq!(log.next(), next, "a trim moved next()");
    check_records(&*log, second_end, next);
}

fn trimming_everything_keeps_the_positions(make: Make) {
    let log = make();
    for _ in 0..3 {
        close_run(&*log, log.first());
        let next = log.next();
        for far in [next, Position(next.0 + 1000), Position(u64::MAX)] {
            log.trim_before(far).expect("trimmed");
            assert_eq!(log.next(), next, "trimming everything moved next()");
            assert!(log.first() <= next);
        }
        assert_eq!(log.segment_end_before(log.first()), None, "a closed run was kept");
        assert_eq!(append(&*log, &record(next.0, SMALL_BYTES)), next);
        check_records(&*log, log.first(), log.next());
    }
}

fn a_trim_does_not_disturb_a_read(make: Make) {
    let log = make();
    let end = close_run(&*log, log.first());
    let end = close_run(&*log, end);
    let (first, next) = (log.first(), log.next());
    let mut reader = log.read(first).expect("readable");
    assert!(reader.next().is_some());
    log.trim_before(end).expect("trimmed");
    // New records may take the place of the dropped ones on disk.
    for _ in 0..3 {
        close_run(&*log, log.first());
        log.trim_before(log.next()).expect("trimmed");
    }
    let mut position = first;
    for stored in reader {
        position = position.next();
        let stored = stored.expect("still readable");
        let expected = record(position.0, SMALL_BYTES);
        assert_eq!((stored.position, stored.bytes), (position, expected.bytes));
    }
    assert_eq!(position.next(), next, "the reader saw another end");
}

fn sizes_follow_what_is_kept(make: Make) {
    let log = make();
    let start = log.first();
    append_small(&*log, 10);
    assert!(log.bytes_on_disk() >= 10 * SMALL_BYTES as u64);
    let end = close_run(&*log, start);
    let (first, next) = (log.first(), log.next());
    let before = log.bytes_on_disk();
    let run = log.bytes_between(first, end);
    assert!(run >= (end.0 - first.0) * SMALL_BYTES as u64, "a run weighs less than its records");
    assert!(log.bytes_between(first, next) >= run);
    assert!(log.bytes_between(first, next) <= before);
    assert_eq!(log.bytes_between(first, first), 0);
    assert_eq!(log.bytes_between(next, Position(u64::MAX)), 0);
    log.trim_before(end).expect("trimmed");
    assert_eq!(log.bytes_on_disk(), before - run, "a trim gives back what the run weighed");
}

fn readers_and_the_writer_do_not_disturb_each_other(make: Make) {
    let log = make();
    append_small(&*log, 1);
    let total = 2_000;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut seen = log.next();
                while seen.0 < total {
                    let (first, next) = (log.first(), log.next());
                    assert!(next >= seen, "next() decreased");
                    assert!(first <= next, "first() passed next()");
                    seen = next;
                    match log.read(first) {
                        Ok(stored) => {
                            for stored in stored.take(50) {
                                let stored = stored.expect("sound");
                                let expected = record(stored.position.0, SMALL_BYTES).bytes;
                                assert_eq!(stored.bytes, expected);
                            }
                        }
                        Err(ReadError::Trimmed { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        while log.next().0 < total {
            append_small(&*log, 37);
            if let Some(end) = log.segment_end_before(log.first()) {
                log.trim_before(end).expect("trimmed");
            }
        }
    });
}

fn one_thread_submits_while_another_takes_the_acknowledgements(make: Make) {
    const TOTAL: u64 = 500;
    let log = make();
    let (first, places) = (log.next(), log.in_flight_max());
    assert_eq!(make().in_flight_max(), places, "another log says another number");
    // The thread that takes an answer gives the place back, so there are never more records on
    // their way.
    let (submitted, waits) = mpsc::channel();
    let (gives_back, free) = mpsc::channel();
    (0..places).for_each(|_| gives_back.send(()).expect("this thread takes them"));
    let log = &*log;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for at in (first.0..first.0 + TOTAL).map(Position) {
                free.recv().expect("answers are taken");
                log.submit(at, &record(at.0, SMALL_BYTES)).expect("submitted");
                assert_eq!(log.next(), at.next(), "next() counts what is submitted");
                submitted.send(at).expect("answers are taken");
            }
        });
        for at in waits {
            let ack = log.next_ack();
            assert!(matches!(ack, Ack::Committed(p) if p == at), "{ack:?} for {at}");
            assert_eq!(log.read_at(at, 0, 6).expect("readable"), "record");
            gives_back.send(()).ok();
        }
    });
    check_records(log, first, Position(first.0 + TOTAL));
    assert!(matches!(log.next_ack(), Ack::Fatal(LogError::NothingSubmitted)));
}

/// The record that a conflict shows, or that was committed after all.
fn shown(ack: Ack, at: Position, own: &Record) -> Record {
    match ack {
        Ack::Committed(position) if position == at => own.clone(),
        Ack::Conflict { at: position, stored: Some(stored) } if position == at => stored,
        other => panic!("{other:?} for {at}, where a record stands"),
    }
}

fn submit_from(log: &dyn Log, at: Position, records: &[Record]) {
    for (at, record) in (at.0..).map(Position).zip(records) {
        log.submit(at, record).expect("it is the next position, as far as this writer knows");
    }
}

fn a_record_submitted_again_is_committed_or_shown(make: MakeTwo) {
    let [one, other] = make();
    let at = one.next();
    let records: Vec<Record> = (0..3).map(|n| record(at.0 + n, SMALL_BYTES)).collect();
    for record in &records {
        append(&*one, record);
    }
    // As a writer whose answers were lost would do.
    submit_from(&*other, at, &records);
    for (at, record) in (at.0..).map(Position).zip(&records) {
        let stored = shown(other.next_ack(), at, record);
        assert_eq!((stored.epoch, &stored.bytes), (record.epoch, &record.bytes));
    }
    assert_eq!(all(&*one, at).len(), records.len(), "they are there twice");
}

fn behind_a_conflict_everything_conflicts(make: MakeTwo) {
    for stored in 1..4 {
        let [one, other] = make();
        let at = one.next();
        let theirs: Vec<Record> = (0..stored).map(|n| record(at.0 + n, SMALL_BYTES)).collect();
        for record in &theirs {
            append(&*one, record);
        }
        let ours: Vec<Record> = (0..3).map(|n| record(at.0 + 100 + n, SMALL_BYTES)).collect();
        submit_from(&*other, at, &ours);
        for n in 0..3 {
            let ack = other.next_ack();
            let is_right = match &ack {
                Ack::Conflict { at: position, stored } => {
                    *position == Position(at.0 + n)
                        && stored
                            .as_ref()
                            .is_none_or(|stored| stored.bytes != ours[n as usize].bytes)
                }
                _ => false,
            };
            assert!(is_right, "{ack:?} for {n} where {stored} records of another writer stand");
        }
        // The other writer has no records where this one goes on.
        append(&*one, &record(at.0 + stored, SMALL_BYTES));
        assert_eq!(all(&*one, at).len() as u64, stored + 1, "a refused record is in the log");
    }
}

fn what_stands_behind_a_record_of_ones_own_is_taken(make: MakeTwo) {
    let [one, other] = make();
    let at = one.next();
    let records: Vec<Record> = (0..4).map(|n| record(at.0 + n, SMALL_BYTES)).collect();
    for record in &records[..2] {
        append(&*one, record);
    }
    submit_from(&*other, at, &records);
    for (n, record) in (0..).zip(&records) {
        let at = Position(at.0 + n);
        let stored = shown(other.next_ack(), at, record);
        assert_eq!((stored.epoch, &stored.bytes), (record.epoch, &record.bytes), "at {at}");
    }
    check_records(&*other, at, Position(at.0 + 4));
}
