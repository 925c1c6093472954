//! Deletions that can be undone.

use bytes::Bytes;
use spindle_core::audit::{Action, Actor};
use spindle_core::{JobId, Status};
use spindle_engine::{Answer, Audit, AuditFilter, JobRef};
use spindle_testkit::disk::SimDisk;

use crate::harness::{Bench, TakeApart, TakeApartResult, somebody};

const MINUTE_MS: u64 = 60_000;

fn delete(bench: &Bench, id: JobId) {
    let mut audit = somebody();
    let deleted = bench.engine.people(&mut audit).delete_for(JobRef::Id(id), MINUTE_MS);
    let deletion = deleted.value().expect("it is there").expect("it can be undone");
    assert_eq!(Some(deletion.request), audit.number(), "it is that of the entry");
}

fn undo(bench: &Bench, id: JobId) {
    bench.engine.people(&mut somebody()).undo(id).value().expect("it is deleted");
}

fn status(bench: &Bench, id: JobId) -> Option<Status> {
    bench.engine.jobs().find(JobRef::Id(id)).value().map(|(_, status)| status)
}

#[test]
fn a_deletion_and_its_undo_survive_a_kill_with_all_bytes() {
    let disk = SimDisk::new(1);
    let bench = Bench::on_disk(&disk);
    let ids: Vec<JobId> = (0..4).map(|_| bench.add("mail", b"payload")).collect();
    bench.finish(ids[2], true, b"result").unwrap();
    bench.finish(ids[3], true, b"result").unwrap();
    ids.iter().for_each(|id| delete(&bench, *id));
    bench.commit();
    let bench = bench.restart(&disk);
    undo(&bench, ids[0]);
    undo(&bench, ids[2]);
    bench.commit();
    let bench = bench.restart(&disk);
    bench.check_fold();
    bench.pass(MINUTE_MS);
    let statuses = ids.iter().map(|id| status(&bench, *id)).collect::<Vec<_>>();
    assert_eq!(statuses, [Some(Status::Ready), None, Some(Status::Done), None]);
    assert_eq!(bench.payload(ids[0]), Bytes::from_static(b"payload"));
    assert_eq!(bench.result(ids[2]), Bytes::from_static(b"result"));
}

#[test]
fn an_answer_to_either_waits_for_its_record() {
    let bench = Bench::new();
    let id = bench.add("mail", b"x");
    bench.commit();
    let mut audit = somebody();
    let deleted = bench.engine.people(&mut audit).delete_for(JobRef::Id(id), MINUTE_MS);
    assert!(!bench.is_durable(deleted.acked().unwrap()));
    bench.commit();
    let undone = bench.engine.people(&mut audit).undo(id).acked().unwrap();
    assert!(!bench.is_durable(undone));
    bench.commit();
    assert!(bench.is_durable(undone));
}

#[test]
fn that_a_finished_job_is_deleted_is_not_shown_before_it_is_on_disk() {
    let bench = Bench::new();
    let id = bench.add("mail", b"x");
    bench.finish(id, true, b"").unwrap();
    bench.commit();
    delete(&bench, id);
    let (image, gate) = bench.engine.jobs().get(JobRef::Id(id)).unwrap().both();
    assert!(image.unwrap().options().deletion.is_some());
    assert!(!bench.is_durable(gate));
}

/// Its image is older than the deletion. A crash that keeps that and not the undo would take the answer back.
#[test]
fn that_a_finished_job_is_brought_back_is_not_shown_before_it_is_on_disk() {
    let bench = Bench::new();
    let [id, other] = [0, 1].map(|_| bench.add("mail", b"x"));
    for id in [id, other] {
        bench.finish(id, true, b"").unwrap();
    }
    delete(&bench, id);
    bench.commit();
    undo(&bench, id);
    let (image, gate) = bench.engine.jobs().get(JobRef::Id(id)).unwrap().both();
    assert!(image.unwrap().options().deletion.is_none());
    assert!(!bench.is_durable(gate));
    bench.commit();
    let (_, gate) = bench.engine.jobs().get(JobRef::Id(id)).unwrap().both();
    bench.add("mail", b"of another client");
    assert!(bench.is_durable(gate));
    let (_, gate) = bench.engine.jobs().get(JobRef::Id(other)).unwrap().both();
    assert!(bench.is_durable(gate));
}

#[test]
fn a_worker_that_waits_gets_the_job_that_is_brought_back() {
    let bench = Bench::new();
    let id = bench.add("mail", b"x");
    delete(&bench, id);
    let ticket = bench.wait(1, "mail", 600_000);
    assert_eq!(bench.handed(), None);
    undo(&bench, id);
    assert_eq!(bench.handed(), Some((ticket, id)));
}

#[test]
fn who_waits_for_a_deleted_jobs_end_hears_it_when_it_is_gone() {
    let bench = Bench::new();
    let id = bench.add("mail", b"x");
    let wait = bench.engine.waits().for_result(&bench.caller(1), id, 600_000, false);
    wait.expect("not too many").expect("unfinished");
    delete(&bench, id);
    assert!(bench.answers().is_empty());
    bench.pass(MINUTE_MS);
    let answers = bench.answers();
    assert!(matches!(&answers[..], [(_, Answer::Gone(gone))] if *gone == id), "{answers:?}");
}

#[test]
fn a_purge_that_can_be_undone_goes_in_the_same_steps_under_one_number() {
    let bench = Bench::new();
    for _ in 0..600 {
        bench.add("q", b"x");
    }
    let mut audit = Audit::of_many(Actor::default(), Some(Bytes::from_static(b"q")), "");
    let mut steps = Vec::new();
    loop {
        let people = bench.engine.people(&mut audit);
        match people.empty_queue(b"q", MINUTE_MS).value().expect("is taken") {
            0 => break,
            count => steps.push(count),
        }
    }
    assert_eq!(steps, [256, 256, 88]);
    let view = bench.engine.queues().view(b"q").value().unwrap();
    assert_eq!((view.deleted, view.listing.counts[Status::Parked as usize]), (600, 600));
    let entries = bench.engine.audit().page(u64::MAX, &AuditFilter::default(), 9).value().entries;
    assert_eq!((entries.len(), entries[0].count), (1, Some(600)));
    assert_eq!((entries[0].action(), Some(entries[0].seq)), (Action::Purge, audit.number()));
    let by_it = |id: u64| {
        bench.engine.inspect(|state| state.deletion(JobId(id))).map(|deletion| deletion.request)
    };
    assert!((1..=600).all(|id| by_it(id) == audit.number()));
}
