//! Leases that are known by their worker's name.

use spindle_core::job::Lease;
use spindle_core::{JobId, Rejection, Status};
use spindle_engine::{JobRef, LeaseReply, Refused, WorkResult};
use spindle_log::disk::SimDisk;

use crate::harness::{Bench, wish};

fn lease(bench: &Bench, worker: &'static str) -> JobId {
    let mut wish = wish("mail");
    wish.worker = worker.into();
    match bench.engine.lease(&bench.caller(1), wish, 0) {
        Ok(LeaseReply::Leased(job, _)) => job.id,
        other => panic!("{other:?}"),
    }
}

fn is(worker: &'static str) -> impl Fn(&Lease) -> bool {
    move |lease| lease.worker == worker
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
        assert_eq!(bench.engine.claim_of(job, is(worker)).0, None, "{job} {worker}");
    }
    assert_eq!(bench.engine.still_held(&[ready, held], is("a")), [held]);
    let claim = bench.engine.claim_of(held, is("a")).0.unwrap();
    let done = WorkResult { success: true, ..WorkResult::default() };
    bench.engine.finish(claim, done, spindle_core::Type::Bytes).unwrap();
    assert_eq!(bench.engine.claim_of(held, is("a")).0, None);
}

#[test]
fn a_lost_holder_loses_its_own_leases_and_no_others() {
    let bench = Bench::new();
    let jobs = [bench.add("mail", b"1"), bench.add("mail", b"2")];
    assert_eq!([lease(&bench, "a"), lease(&bench, "b")], jobs);
    let gate = bench.engine.holder_lost(&jobs, is("a")).unwrap();
    assert!(!bench.is_durable(gate));
    assert_eq!(jobs.map(|job| bench.status(job)), [Some(Status::Ready), Some(Status::Leased)]);
    assert_eq!(bench.image(jobs[0]).attempts, 1, "the attempt counts");
    bench.commit();
    assert!(bench.is_durable(gate));
}

#[test]
fn only_a_job_that_waits_is_deleted_as_waiting() {
    let bench = Bench::new();
    let delete = |job| bench.engine.delete_waiting(JobRef::Id(job));
    let waiting = bench.add("mail", b"1");
    delete(waiting).unwrap();
    assert_eq!(bench.status(waiting), None);
    let job = bench.add("mail", b"2");
    assert_eq!(lease(&bench, "a"), job);
    assert!(matches!(delete(job), Err(Refused::Rejected(Rejection::Leased, _))));
    bench.finish(job, true, b"").unwrap();
    assert!(matches!(delete(job), Err(Refused::Rejected(Rejection::Finished, _))));
    assert!(matches!(delete(waiting), Err(Refused::Rejected(Rejection::NotFound, _))));
}
