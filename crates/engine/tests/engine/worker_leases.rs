//! Leases that are known by their worker's name.

use spindle_core::job::Origin;
use spindle_core::{JobId, Rejection, Status};
use spindle_engine::{JobRef, LeaseReply, Refused, WorkResult, WorkerRef};
use spindle_testkit::disk::SimDisk;

use crate::harness::{Bench, TakeApart, TakeApartResult, somebody, wish};

fn lease(bench: &Bench, worker: &'static str) -> JobId {
    let mut wish = wish("mail");
    wish.worker = worker.into();
    match bench.engine.leases().take(&bench.caller(1), wish, 0).value() {
        Ok(LeaseReply::Leased(job)) => job.id,
        other => panic!("{other:?}"),
    }
}

fn named(worker: &'static str) -> WorkerRef {
    WorkerRef { door: Origin::Workq, id: worker.into() }
}

#[test]
fn a_claim_is_told_only_to_who_holds_the_lease_also_after_a_restart() {
    let disk = SimDisk::new(1);
    let bench = Bench::on_disk(&disk);
    let (held, ready) = (bench.add("mail", b"1"), bench.add("mail", b"2"));
    assert_eq!(lease(&bench, "a"), held);
    bench.commit();
    let bench = bench.restart(&disk);
    for (job, worker) in [(held, "b"), (ready, "a"), (JobId(99), "a")] {
        assert_eq!(
            bench.engine.leases().claim_of(job, &named(worker)).value(),
            None,
            "{job} {worker}"
        );
    }
    assert_eq!(bench.engine.leases().still_held(&[ready, held], &named("a")).value(), [held]);
    let claim = bench.engine.leases().claim_of(held, &named("a")).value().unwrap();
    let done = WorkResult { success: true, ..WorkResult::default() };
    bench.engine.leases().finish(claim, done).value().unwrap();
    assert_eq!(bench.engine.leases().claim_of(held, &named("a")).value(), None);
}

#[test]
fn a_worker_is_named_by_its_door_and_the_end_of_its_name() {
    let bench = Bench::new();
    let held = bench.add("mail", b"1");
    assert_eq!(lease(&bench, "ann/7"), held);
    for (door, id, is_its) in [
        (Origin::Workq, "7", true),
        (Origin::Workq, "ann/7", true),
        (Origin::Workq, "ann", false),
        (Origin::Workq, "8", false),
        (Origin::Lightjq, "7", false),
    ] {
        let worker = WorkerRef { door, id: id.into() };
        let held_by = bench.engine.leases().still_held(&[held], &worker).value();
        assert_eq!(!held_by.is_empty(), is_its, "{door:?} {id}");
    }
}

#[test]
fn a_lost_holder_loses_its_own_leases_and_no_others() {
    let bench = Bench::new();
    let jobs = [bench.add("mail", b"1"), bench.add("mail", b"2")];
    assert_eq!([lease(&bench, "a"), lease(&bench, "b")], jobs);
    let gate = bench.engine.leases().worker_lost(&jobs, &named("a")).acked().unwrap();
    assert!(!bench.is_durable(gate));
    assert_eq!(jobs.map(|job| bench.status(job)), [Some(Status::Ready), Some(Status::Leased)]);
    assert_eq!(bench.image(jobs[0]).attempts, 1, "the attempt counts");
    bench.commit();
    assert!(bench.is_durable(gate));
}

#[test]
fn only_a_job_that_waits_is_deleted_as_waiting() {
    let bench = Bench::new();
    let delete = |job| bench.engine.people(&mut somebody()).delete_waiting(JobRef::Id(job)).value();
    let waiting = bench.add("mail", b"1");
    delete(waiting).unwrap();
    assert_eq!(bench.status(waiting), None);
    let job = bench.add("mail", b"2");
    assert_eq!(lease(&bench, "a"), job);
    assert!(matches!(delete(job), Err(Refused::Rejected(Rejection::Leased))));
    bench.finish(job, true, b"").unwrap();
    assert!(matches!(delete(job), Err(Refused::Rejected(Rejection::Finished))));
    assert!(matches!(delete(waiting), Err(Refused::Rejected(Rejection::NotFound))));
}
