//! Group commit: what goes into a record, what waits for it, and what a failing disk stops.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use spindle_core::audit::Action;
use spindle_core::{JobId, Rejection, Status};
use spindle_engine::{
    Answer, Committed, Committer, Failure, Gate, JobRef, Options, Refused, WorkResult,
};
use spindle_log::MemoryLog;
use spindle_testkit::disk::{Fault, Operation, SimDisk};

use crate::harness::{
    Bench, START_MS, TakeApart, TakeApartResult, file_log, new_job, noise, plain, somebody,
};

#[test]
fn all_calls_between_two_commits_are_one_record() {
    let bench = Bench::new();
    let before = bench.log.next();
    let jobs: Vec<JobId> = (0..100).map(|_| bench.add("q", b"payload")).collect();
    for _ in 0..50 {
        bench.lease("q").expect("there are jobs");
    }
    for id in &jobs[..25] {
        bench.finish(*id, true, b"result").expect("unfinished");
    }
    bench.delete(jobs[99]);
    assert_eq!(bench.log.next(), before, "nothing is written before the commit");
    assert_eq!(bench.engine.commit_once(), Committed::Some);
    assert_eq!(bench.log.next(), before.next());
    assert_eq!(bench.engine.commit_once(), Committed::Nothing);
    bench.check_fold();
}

#[test]
fn who_ends_a_turn_may_commit_it_where_that_is_quick() {
    let bench = Bench::new();
    assert!(!bench.engine.end_turn(), "nothing is decided");
    let submit = || bench.engine.jobs().submit(new_job(plain("q"), b"x")).split().expect("taken").1;
    let (_, last) = (submit(), submit());
    assert!(bench.engine.end_turn());
    assert!(!bench.is_durable(last), "only told");
    let moves = bench.letters.durable_moves.load(Ordering::SeqCst);
    bench.engine.commit();
    assert!(bench.is_durable(last), "all of the turn is one record");
    assert_eq!(bench.letters.durable_moves.load(Ordering::SeqCst), moves + 1);
    assert!(!bench.engine.end_turn());
    assert!(bench.engine.sync_time() > Duration::ZERO);
    bench.check_fold();
}

#[test]
fn a_large_batch_is_left_to_the_log_thread() {
    let bench = Bench::new();
    let large = bench.engine.jobs().submit(new_job(plain("q"), &noise(1, 1 << 20)));
    let (_, gate) = large.split().expect("taken");
    assert!(bench.engine.end_turn());
    bench.engine.commit_if_quick();
    assert!(!bench.is_durable(gate), "whoever serves connections is not held up");
    bench.commit();
    assert!(bench.is_durable(gate));
}

#[test]
fn every_answer_waits_for_the_record_it_tells_of() {
    let bench = Bench::new();
    let (id, submitted) =
        bench.engine.jobs().submit(new_job(plain("q"), b"x")).split().expect("taken");
    let (found, seen) = bench.engine.jobs().find(JobRef::Id(id)).both();
    assert_eq!(found, Some((id, Status::Ready)));
    let leased = bench.gate_of_lease("q");
    for gate in [submitted, seen, leased] {
        assert!(!bench.is_durable(gate));
    }
    assert_eq!(bench.engine.commit_once(), Committed::Some);
    for gate in [submitted, seen, leased] {
        assert!(bench.is_durable(gate));
    }
    let finished = bench.finish(id, true, b"").expect("unfinished");
    let finish = bench.engine.jobs().finish_unfinished(JobRef::Id(id), WorkResult::default());
    let (refused, again) = finish.both();
    assert_eq!(refused, Err(Refused::Rejected(Rejection::Finished)));
    let (image, read) = bench.engine.jobs().get(JobRef::Id(id)).expect("readable").both();
    assert_eq!(image.map(|image| image.status()), Some(Status::Done));
    for gate in [finished, again, read] {
        assert!(!bench.is_durable(gate));
    }
    bench.commit();
    let deleted =
        bench.engine.people(&mut somebody()).delete(JobRef::Id(id)).acked().expect("there");
    let (gone, denied) = bench.engine.jobs().find(JobRef::Id(id)).both();
    assert!(gone.is_none() && !bench.is_durable(deleted) && !bench.is_durable(denied));
    bench.commit();
    assert!(bench.is_durable(deleted) && bench.is_durable(denied));
}

#[test]
fn what_is_durable_already_waits_for_nothing() {
    let bench = Bench::new();
    let id = bench.add("q", b"x");
    bench.commit();
    bench.add("other", b"x");
    let (_, seen) = bench.engine.jobs().find(JobRef::Id(id)).both();
    assert!(bench.is_durable(seen), "another job's record is none of its business");
    let leased = bench.gate_of_lease("q");
    assert!(bench.is_durable(leased), "the lease reveals the submit, and that is durable");
}

#[test]
fn a_lease_whose_attempt_must_count_waits_for_its_own_record() {
    let bench = Bench::new();
    let mut submit = plain("q");
    submit.attempts_max = Some(2);
    bench.submit(submit, b"x");
    bench.commit();
    let leased = bench.gate_of_lease("q");
    assert!(!bench.is_durable(leased));
    bench.commit();
    assert!(bench.is_durable(leased));
}

#[test]
fn a_durable_lease_waits_for_its_own_record_and_a_foreground_one_for_nothing() {
    let bench = Bench::with(Options { durable_leases: true, ..Options::default() });
    bench.add("q", b"x");
    bench.commit();
    let leased = bench.gate_of_lease("q");
    assert!(!bench.is_durable(leased));
    bench.commit();
    assert!(bench.is_durable(leased));
    // A client that waits for a job that has long been durable, too.
    let pause = |paused| {
        let name = Bytes::from_static(b"w");
        let mut audit = somebody();
        let people = bench.engine.people(&mut audit);
        let set = people.change_queue(Action::Pause, &name, |queue| queue.paused = paused);
        set.acked().expect("set");
    };
    pause(true);
    bench.add("w", b"x");
    bench.wait(7, "w", 10_000);
    bench.commit();
    pause(false);
    let gates = bench.gates();
    assert!(matches!(&gates[..], [gate] if !bench.is_durable(*gate)), "{gates:?}");
    bench.commit();
    assert!(bench.is_durable(gates[0]));
    let mut foreground = plain("f");
    foreground.foreground = true;
    bench.engine.jobs().submit(new_job(foreground, b"x")).acked().expect("taken");
    let leased = bench.gate_of_lease("f");
    assert!(bench.is_durable(leased), "it is in no record");
}

#[test]
fn too_much_that_is_not_durable_keeps_callers_waiting_for_room() {
    let mut options = Options { undurable_bytes_max: 10_000, ..Default::default() };
    options.payload_memory_bytes = 0;
    let log = Arc::new(MemoryLog::new());
    let bench = Bench::on(log, START_MS, options);
    let mut taken = 0;
    while bench.engine.has_room() {
        bench.add("q", &noise(taken, 1000));
        taken += 1;
    }
    assert!((9..=11).contains(&taken), "{taken}");
    let ticket = bench.engine.wait_for_room(&bench.caller(7), 0).unwrap().expect("there is none");
    assert!(bench.answers().is_empty());
    bench.commit();
    let answers = bench.answers();
    assert!(matches!(&answers[..], [(t, Answer::Room)] if *t == ticket));
    assert!(bench.engine.has_room());
    bench.add("q", b"");
}

/// An engine with this limit, and one job with a payload of this length, not durable yet.
fn one_undurable(undurable_bytes_max: usize, payload_bytes: usize) -> Bench {
    let bench = Bench::with(Options { undurable_bytes_max, ..Options::default() });
    bench.add("q", &noise(1, payload_bytes));
    bench
}

#[test]
fn there_is_room_up_to_the_limit_and_none_a_byte_beyond_it() {
    let limit = one_undurable(usize::MAX, 1000).engine.observe().gauges().undurable_bytes;
    assert!(limit > 1000);
    let at_it = one_undurable(limit, 1000);
    assert!(at_it.engine.has_room());
    assert_eq!(at_it.engine.wait_for_room(&at_it.caller(7), 0), Ok(None));
    let over_it = one_undurable(limit, 1001);
    assert!(!over_it.engine.has_room());
    let ticket =
        over_it.engine.wait_for_room(&over_it.caller(7), 0).unwrap().expect("there is none");
    // A caller that does not ask is served: the limit is for those that ask.
    over_it.add("q", b"x");
    over_it.commit();
    assert!(at_it.answers().is_empty());
    let answers = over_it.answers();
    assert!(matches!(&answers[..], [(t, Answer::Room)] if *t == ticket), "{answers:?}");
    assert_eq!(over_it.engine.wait_for_room(&over_it.caller(7), 0), Ok(None));
    over_it.commit();
    assert!(over_it.answers().is_empty(), "once is enough");
}

#[test]
fn a_large_change_waits_until_little_else_is_undurable_and_a_small_one_does_not() {
    const SMALL_BYTES_MAX: usize = 64 * 1024;
    let behind = one_undurable(usize::MAX, 1000).engine.observe().gauges().undurable_bytes;
    let at_it = one_undurable(behind * 8, 1000);
    assert_eq!(at_it.engine.wait_for_room(&at_it.caller(7), SMALL_BYTES_MAX + 1), Ok(None));
    let over_it = one_undurable(behind * 8, 1001);
    assert_eq!(over_it.engine.wait_for_room(&over_it.caller(7), SMALL_BYTES_MAX), Ok(None));
    let wait = || over_it.engine.wait_for_room(&over_it.caller(7), SMALL_BYTES_MAX + 1).unwrap();
    let ticket = wait().expect("it is not its turn");
    assert!(over_it.answers().is_empty());
    over_it.commit();
    let answers = over_it.answers();
    assert!(matches!(&answers[..], [(t, Answer::Room)] if *t == ticket), "{answers:?}");
    assert_eq!(wait(), None);
}

#[test]
fn who_lets_others_go_first_is_answered_at_once_room_or_not() {
    for limit in [usize::MAX, 0] {
        let bench = one_undurable(limit, 1000);
        assert_eq!(bench.engine.has_room(), limit > 0);
        let ticket = bench.engine.waits().after_others(&bench.caller(7));
        let answers = bench.answers();
        assert!(matches!(&answers[..], [(t, Answer::Room)] if *t == ticket), "{answers:?}");
        bench.commit();
        assert!(bench.answers().is_empty(), "once is enough");
    }
}

#[test]
fn who_waits_for_a_time_is_answered_then_and_not_before() {
    let bench = Bench::new();
    let ticket = bench.engine.waits().after(&bench.caller(7), Duration::from_micros(1500));
    bench.pass(1);
    assert!(bench.answers().is_empty());
    bench.pass(1);
    let answers = bench.answers();
    assert!(matches!(&answers[..], [(t, Answer::Room)] if *t == ticket), "{answers:?}");
    let gone = bench.engine.waits().after(&bench.caller(7), Duration::from_secs(1));
    bench.engine.waits().cancel(&bench.caller(7), gone);
    bench.pass(2000);
    assert!(bench.answers().is_empty());
}

#[test]
fn the_end_of_every_turn_wakes_the_log_thread() {
    let bench = Bench::new();
    bench.engine.spawn(|failure| panic!("{failure}")).expect("threads");
    // It sleeps when it has written all there is: now and then that is before the next turn begins.
    for round in 0..100 {
        let gate = {
            let _turn = bench.engine.turn();
            bench.engine.jobs().submit(new_job(plain("q"), b"x")).acked().expect("taken")
        };
        let deadline = Instant::now() + Duration::from_secs(20);
        while !bench.is_durable(gate) {
            assert!(Instant::now() < deadline, "the log thread sleeps on in round {round}");
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }
    bench.engine.stop();
}

fn check_stopped(operation: Operation) {
    let disk = SimDisk::new(3);
    let bench = Bench::on_disk(&disk);
    let (kept, _) =
        bench.engine.jobs().submit(new_job(plain("q"), b"kept")).split().expect("taken");
    bench.commit();
    let durable = bench.engine.durable();
    let (lost, gate) =
        bench.engine.jobs().submit(new_job(plain("q"), b"lost")).split().expect("taken");
    disk.fail(operation, 0, Fault::InputOutput);
    assert_eq!(bench.engine.commit_once(), Committed::Failed);
    assert!(matches!(bench.engine.failure(), Some(Failure::Log(_))));
    // Nothing that waited for it may leave, now or later.
    for _ in 0..3 {
        bench.engine.jobs().submit(new_job(plain("q"), b"more")).value().ok();
        assert_ne!(bench.engine.commit_once(), Committed::Some);
        assert_eq!(bench.engine.durable(), durable);
        assert!(!bench.is_durable(gate));
    }
    let bench = {
        drop(bench);
        disk.crash();
        Bench::on_disk(&disk)
    };
    assert_eq!(bench.payload(kept), &b"kept"[..]);
    // A failed sync may have saved its data all the same; no client was answered either way.
    assert!(matches!(bench.status(lost), None | Some(Status::Ready)));
    bench.check_fold();
}

#[test]
fn after_a_failed_write_or_sync_nothing_leaves_any_more() {
    check_stopped(Operation::Sync);
    check_stopped(Operation::Write);
}

#[test]
fn a_failure_is_reported_once_whichever_threads_meet_it() {
    let disk = SimDisk::new(4);
    let bench = Bench::on_disk(&disk);
    let reports = Arc::new(AtomicU64::new(0));
    let counted = reports.clone();
    let count = move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
    };
    bench.engine.spawn(count).expect("threads");
    disk.fail(Operation::Sync, 0, Fault::InputOutput);
    let durable = bench.engine.durable();
    let (_, gate) =
        bench.engine.jobs().submit(new_job(plain("q"), b"lost")).split().expect("taken");
    drop(bench.engine.turn());
    let deadline = Instant::now() + Duration::from_secs(20);
    while reports.load(Ordering::SeqCst) == 0 {
        assert!(Instant::now() < deadline, "the failure was never reported");
        std::thread::park_timeout(Duration::from_millis(1));
    }
    assert!(bench.letters.durable_moves.load(Ordering::SeqCst) > 0, "reactors are woken");
    bench.engine.jobs().submit(new_job(plain("q"), b"more")).value().ok();
    bench.engine.commit_once();
    bench.engine.stop();
    assert_eq!(reports.load(Ordering::SeqCst), 1);
    assert_eq!(bench.engine.durable(), durable);
    assert!(gate > durable);
}

#[test]
fn on_a_full_disk_submits_are_refused_and_what_frees_space_goes_on() {
    let disk = SimDisk::new(5);
    let options = Options { payload_memory_bytes: 0, ..Default::default() };
    let log = file_log(&disk);
    let bench = Bench::on(log.clone(), START_MS, options);
    log.maintain();
    disk.set_capacity(Some(disk.used() + 2 * crate::harness::SEGMENT_BYTES));
    let mut jobs = Vec::new();
    let refused = loop {
        match bench
            .engine
            .jobs()
            .submit(new_job(plain("q"), &noise(jobs.len() as u64, 4000)))
            .value()
        {
            Ok(id) => jobs.push(id),
            Err(refused) => break refused,
        }
        assert_ne!(bench.engine.commit_once(), Committed::Failed);
        log.maintain();
        assert!(jobs.len() < 1000, "the disk is never full");
    };
    assert_eq!(refused, Refused::DiskFull);
    for (at, id) in jobs.iter().enumerate() {
        if at % 2 == 0 {
            bench.finish(*id, true, b"ok").expect("finishes go on");
        }
        bench
            .engine
            .people(&mut somebody())
            .delete(JobRef::Id(*id))
            .value()
            .expect("deletes go on");
        assert_eq!(bench.engine.commit_once(), Committed::Some);
    }
    bench.compaction();
    disk.set_capacity(None);
    log.maintain();
    bench.add("q", b"room again");
    bench.check_fold();
}

#[test]
fn a_gate_is_never_beyond_the_record_that_will_be_written() {
    let bench = Bench::new();
    for round in 0..50u64 {
        let (_, gate) = bench
            .engine
            .jobs()
            .submit(new_job(plain("q"), &noise(round, 10)))
            .split()
            .expect("taken");
        assert_eq!(gate, Gate(bench.log.next().0 + 1));
        let (_, nothing) = bench.engine.jobs().find(JobRef::Id(JobId(1 << 40))).both();
        assert_eq!(nothing, gate);
        bench.commit();
        assert_eq!(bench.engine.durable(), gate);
    }
}
