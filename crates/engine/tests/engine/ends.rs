//! How jobs end, come back, and go; and what keeps them from running.

use bytes::Bytes;
use spindle_core::command::{Command, Edit};
use spindle_core::queue::QueueSettings;
use spindle_core::{JobId, Rejection, Status};
use spindle_engine::{Answer, JobRef, Refused, RetryError};
use spindle_testkit::disk::SimDisk;

use crate::harness::{Bench, TakeApart, TakeApartResult, noise, plain, somebody};

/// A finished job that is kept for an hour, and for five seconds once its result was read.
fn kept(bench: &Bench) -> JobId {
    let mut submit = plain("q");
    (submit.keep_ms, submit.keep_read_ms) = (Some(3_600_000), Some(5_000));
    let id = bench.submit(submit, b"x");
    bench.finish(id, true, b"result").expect("unfinished");
    id
}

fn read(bench: &Bench, id: JobId) {
    let keep_read_ms = bench.image(id).options().keep_read_ms.expect("as it was submitted");
    bench.execute(Command::ResultRead { id, keep_read_ms });
}

#[test]
fn a_result_that_was_read_is_kept_only_so_long() {
    let bench = Bench::new();
    let (read_soon, unread) = (kept(&bench), kept(&bench));
    bench.pass(1_000_000);
    read(&bench, read_soon);
    bench.pass(3_000);
    // Reading it again does not make it last.
    read(&bench, read_soon);
    bench.pass(1_999);
    assert_eq!(bench.result(read_soon), &b"result"[..]);
    bench.pass(1);
    assert_eq!(bench.status(read_soon), None);
    assert_eq!(bench.status(unread), Some(Status::Done));
    bench.pass(3_600_000 - 1_005_000 - 1);
    assert_eq!(bench.status(unread), Some(Status::Done));
    bench.pass(1);
    assert_eq!(bench.status(unread), None);
    assert_eq!(bench.engine.observe().stats().expired_unfinished, 0);
    bench.check_fold();
}

#[test]
fn that_a_result_was_read_is_remembered_through_restarts_and_carrying() {
    let disk = SimDisk::new(1);
    let bench = Bench::on_disk(&disk);
    let id = kept(&bench);
    read(&bench, id);
    bench.commit();
    let bench = bench.restart(&disk);
    for n in 0..400 {
        let id = bench.add("churn", &noise(n, 1000));
        bench.delete(id);
    }
    bench.compaction();
    assert!(bench.engine.trims() > 0);
    let bench = bench.restart(&disk);
    bench.pass(4_999);
    assert_eq!(bench.result(id), &b"result"[..]);
    bench.pass(1);
    assert_eq!(bench.status(id), None);
}

#[test]
fn a_dead_job_can_run_again_with_its_payload() {
    let disk = SimDisk::new(2);
    let bench = Bench::on_disk(&disk);
    let id = bench.add("q", &noise(1, 3000));
    bench.lease("q").expect("ready");
    let again =
        |bench: &Bench| bench.engine.people(&mut somebody()).retry(JobRef::Id(id), None).acked();
    let refused = again(&bench);
    assert!(matches!(refused, Err(RetryError::Refused(Refused::Rejected(Rejection::NotFinished)))));
    bench.finish(id, false, b"broken").expect("leased");
    assert_eq!(bench.status(id), Some(Status::Dead));
    bench.commit();
    let bench = bench.restart(&disk);
    let ticket = bench.wait(1, "q", 60_000);
    let gate = again(&bench).expect("dead");
    assert!(!bench.is_durable(gate));
    assert_eq!(bench.handed(), Some((ticket, id)));
    let image = bench.image(id);
    assert_eq!((image.status(), image.attempts, image.fails), (Status::Leased, 1, 0));
    bench.commit();
    let bench = bench.restart(&disk);
    assert_eq!(bench.payload(id), noise(1, 3000));
    bench.finish(id, true, b"mended").expect("leased");
    assert_eq!(bench.result(id), &b"mended"[..]);
    bench.check_fold();
}

#[test]
fn a_cancelled_job_is_dead_and_those_who_wait_for_it_are_told() {
    let bench = Bench::new();
    for leased in [false, true] {
        let id = bench.add("q", b"x");
        if leased {
            bench.lease("q").expect("ready");
        }
        let waiting = bench.engine.waits().for_result(&bench.caller(1), id, 60_000, false);
        let ticket = waiting.expect("not too many").expect("unfinished");
        bench.execute(Command::Cancel { id });
        match &bench.answers()[..] {
            [(answered, Answer::Finished(image))] => {
                assert_eq!(*answered, ticket);
                assert_eq!(image.outcome.as_ref().expect("an outcome").code, "cancelled");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(bench.status(id), Some(Status::Dead));
        assert!(bench.lease("q").is_none());
    }
    bench.check_fold();
}

#[test]
fn a_parked_job_waits_until_it_is_released() {
    let disk = SimDisk::new(3);
    let bench = Bench::on_disk(&disk);
    let mut submit = plain("q");
    submit.parked = true;
    let parked = bench.submit(submit, b"x");
    let ready = bench.add("q", b"y");
    bench.execute(Command::Edit(Box::new(Edit {
        id: ready,
        parked: Some(true),
        ..Edit::default()
    })));
    assert!(bench.lease("q").is_none());
    bench.commit();
    let bench = bench.restart(&disk);
    let ticket = bench.wait(1, "q", 60_000);
    let release = |id| Command::Edit(Box::new(Edit { id, parked: Some(false), ..Edit::default() }));
    bench.execute(release(parked));
    assert_eq!(bench.handed(), Some((ticket, parked)));
    bench.execute(release(ready));
    assert_eq!(bench.lease("q").map(|job| job.id), Some(ready));
    bench.check_fold();
}

#[test]
fn a_paused_queue_gives_out_nothing_until_it_is_resumed() {
    let disk = SimDisk::new(4);
    let bench = Bench::on_disk(&disk);
    let set = |paused| Command::SetQueue {
        name: Bytes::from_static(b"q"),
        settings: QueueSettings { paused, ..QueueSettings::default() },
    };
    bench.execute(set(true));
    let id = bench.add("q", b"x");
    assert!(bench.lease("q").is_none());
    bench.commit();
    let bench = bench.restart(&disk);
    assert!(bench.lease("q").is_none());
    let ticket = bench.wait(1, "q", 60_000);
    bench.execute(set(false));
    assert_eq!(bench.handed(), Some((ticket, id)));
    bench.check_fold();
}

#[test]
fn an_edited_job_moves_to_its_new_place() {
    let bench = Bench::new();
    let (first, second) = (bench.add("a", b"1"), bench.add("a", b"2"));
    let ticket = bench.wait(1, "b", 60_000);
    let edit = Edit { id: second, priority: Some(5), ..Edit::default() };
    bench.execute(Command::Edit(Box::new(edit)));
    assert_eq!(bench.lease("a").map(|job| job.id), Some(second));
    let leased = Edit { id: second, priority: Some(1), ..Edit::default() };
    let refused = bench.engine.jobs().execute(&Command::Edit(Box::new(leased))).value();
    assert!(matches!(refused, Err(Refused::Rejected(Rejection::Leased))));
    let moved = Edit { id: first, queue: Some(Bytes::from_static(b"b")), ..Edit::default() };
    bench.execute(Command::Edit(Box::new(moved)));
    assert_eq!(bench.handed(), Some((ticket, first)));
    bench.check_fold();
}

#[test]
fn leases_keep_their_deadlines_through_a_restart_with_a_grace() {
    let disk = SimDisk::new(5);
    let bench = Bench::on_disk(&disk);
    let with_ttr = |ttr_ms| {
        let mut submit = plain("q");
        submit.ttr_ms = Some(ttr_ms);
        bench.submit(submit, b"x")
    };
    // Far from its deadline, near to it, and shorter than the grace.
    let jobs = [with_ttr(500_000), with_ttr(40_000), with_ttr(2_000)];
    for _ in jobs {
        bench.lease("q").expect("ready");
    }
    let bound = bench.add("bound", b"x");
    let mut wish = crate::harness::wish("bound");
    wish.bound = true;
    bench.engine.leases().take(&bench.caller(1), wish, 0).value().expect("no refusal");
    bench.pass(1_999);
    bench.clock.advance(38_000 - 1_999);
    drop(bench.engine.flush());
    let left: Vec<Option<Status>> = jobs.iter().map(|id| bench.status(*id)).collect();
    assert_eq!(left, [Some(Status::Leased), Some(Status::Leased), Some(Status::Ready)]);
    let bench = bench.restart(&disk);
    assert_eq!(bench.status(bound), Some(Status::Ready), "its connection is gone");
    let is_leased = |id| bench.status(id) == Some(Status::Leased);
    bench.pass(29_999);
    assert!(is_leased(jobs[0]) && is_leased(jobs[1]));
    bench.pass(1);
    assert!(is_leased(jobs[0]) && !is_leased(jobs[1]));
    bench.pass(500_000 - 38_000 - 30_000 - 1);
    assert!(is_leased(jobs[0]));
    bench.pass(1);
    assert!(!is_leased(jobs[0]));
    bench.check_fold();
}
