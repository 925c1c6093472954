//! Why a job is where it is: one look, all of it of the same moment.

use bytes::Bytes;
use spindle_core::audit::Action;
use spindle_core::command::Claim;
use spindle_core::job::Origin;
use spindle_core::{JobId, ReadyBefore, Status};
use spindle_engine::{Engine, Explanation, JobRef, News, Progress};
use spindle_testkit::disk::SimDisk;

use crate::constraints::{few, in_queue, put, relabel};
use crate::harness::{Bench, TakeApart, TakeApartResult, plain, somebody};

fn explained(engine: &Engine, id: JobId) -> Option<Explanation> {
    engine.jobs().explain(JobRef::Id(id)).expect("readable").value()
}

fn pause(bench: &Bench, queue: &'static [u8]) {
    let mut person = somebody();
    let people = bench.engine.people(&mut person);
    let paused = people.change_queue(Action::Pause, &Bytes::from_static(queue), |settings| {
        settings.paused = true;
    });
    paused.value().expect("it is there");
}

#[test]
fn one_look_has_the_line_the_limits_and_who_waits() {
    let bench = Bench::new();
    let urgent = bench.add("mail", b"");
    let ids: Vec<JobId> = (0..600).map(|_| bench.add("mail", b"")).collect();
    let last = explained(&bench.engine, ids[599]).unwrap();
    assert_eq!(last.before, Some(ReadyBefore { count: 600, at_least: false }));
    assert_eq!((last.waiting_leases, last.has_sleepers), (0, false));
    assert!(!last.now.is_queue_paused && last.now.held_back.is_empty());
    put(&bench, "one", &few(in_queue("mail"), 1));
    relabel(&bench);
    assert_eq!(bench.lease("mail").unwrap().id, urgent);
    pause(&bench, b"mail");
    bench.wait(7, "mail", 60_000);
    let last = explained(&bench.engine, ids[599]).unwrap();
    assert_eq!(last.before, Some(ReadyBefore { count: 599, at_least: false }));
    assert_eq!((last.waiting_leases, last.now.is_queue_paused), (1, true));
    assert_eq!(last.now.held_back[0].constraint, "one");
    let leased = explained(&bench.engine, urgent).unwrap();
    assert_eq!((leased.image.status(), leased.before), (Status::Leased, None));
    assert_eq!(explained(&bench.engine, JobId(9_999)), None);
}

#[test]
fn it_waits_for_all_that_it_reveals() {
    let bench = Bench::new();
    let id = bench.add("mail", b"");
    bench.commit();
    let gate = || bench.engine.jobs().explain(JobRef::Id(id)).unwrap().gate();
    assert!(bench.is_durable(gate()));
    pause(&bench, b"mail");
    assert!(!bench.is_durable(gate()), "the pause may be lost");
    bench.commit();
    assert!(bench.is_durable(gate()));
}

#[test]
fn a_finished_job_is_explained_from_the_log_and_what_becomes_of_it_too() {
    let disk = SimDisk::new(1);
    let bench = Bench::on_disk(&disk);
    let id = bench.submit(plain("mail"), b"");
    bench.lease("mail").unwrap();
    bench.finish(id, false, b"").unwrap();
    bench.commit();
    let dead = explained(&bench.engine, id).unwrap();
    assert_eq!((dead.image.status(), dead.before), (Status::Dead, None));
    assert_eq!(dead.image, bench.image(id));
    bench.retry(id, None);
    let again = explained(&bench.engine, id).unwrap();
    let next = ReadyBefore { count: 0, at_least: false };
    assert_eq!((again.image.status(), again.before), (Status::Ready, Some(next)));
}

#[test]
fn a_holder_says_how_far_it_is_until_its_lease_ends() {
    let bench = Bench::new();
    let mut submit = plain("mail");
    submit.origin = Origin::Gearman;
    let id = bench.submit(submit, b"");
    bench.lease("mail").unwrap();
    let said = |id| bench.engine.jobs().now(&bench.image(id)).progress;
    assert_eq!(said(id), None);
    let (numerator, denominator) = (Bytes::from_static(b"3"), Bytes::from_static(b"8"));
    let news = News::Progress {
        numerator: numerator.clone(),
        denominator: denominator.clone(),
        remaining_s: 9,
    };
    bench.engine.leases().report(Claim::Unfinished { id }, news).acked().unwrap();
    assert_eq!(said(id), Some(Progress { numerator, denominator, remaining_s: 9 }));
    bench.finish(id, true, b"").unwrap();
    assert_eq!(said(id), None);
}
