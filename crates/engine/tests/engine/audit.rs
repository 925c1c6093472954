//! What people did: found in the log, carried on when the log is compacted, bounded.

use bytes::Bytes;
use spindle_core::audit::{Action, Actor, ActorKind, AuditEntry};
use spindle_core::job::Origin;
use spindle_core::queue::LimitScope;
use spindle_core::{Defaults, JobId};
use spindle_engine::{Audit, AuditFilter, Expected, JobRef, Options};
use spindle_matching::{ConstraintSpec, Matcher};
use spindle_testkit::disk::SimDisk;

use crate::harness::{Bench, TakeApart, TakeApartResult, noise, somebody};

fn ops() -> Actor {
    Actor::new(ActorKind::Token, "ops", "192.0.2.7", Origin::Api)
}

fn entries(bench: &Bench) -> Vec<AuditEntry> {
    bench.engine.audit().page(u64::MAX, &AuditFilter::default(), usize::MAX).value().entries
}

#[test]
fn a_purge_in_many_steps_is_one_entry_whose_count_is_exact_after_each() {
    let disk = SimDisk::new(1);
    let bench = Bench::on_disk(&disk);
    let jobs = 600;
    for _ in 0..jobs {
        bench.add("q", b"x");
    }
    let mut audit = Audit::of_many(ops(), Some(Bytes::from_static(b"q")), "");
    let mut purged = 0;
    while purged < 512 {
        let count = bench.engine.people(&mut audit).empty_queue(b"q", 0).value().expect("is taken");
        purged += count;
        let all = entries(&bench);
        assert_eq!((all.len(), all[0].count), (1, Some(purged as u64)));
    }
    bench.commit();
    let bench = bench.restart(&disk);
    let all = entries(&bench);
    assert_eq!((all.len(), all[0].count, all[0].action()), (1, Some(512), Action::Purge));
    let left = bench.engine.queues().get(b"q").value().map_or(0, |queue| queue.counts[1]);
    assert_eq!(left + 512, jobs, "what is counted is what is gone");
}

#[test]
fn an_answer_to_a_person_waits_for_the_record_with_both() {
    let bench = Bench::new();
    let id = bench.add("q", b"x");
    bench.commit();
    let gate = bench.engine.people(&mut Audit::new(ops())).cancel(id).acked().expect("is there");
    assert!(!bench.is_durable(gate));
    let (page, seen) = bench.engine.audit().page(9, &AuditFilter::default(), 1).both();
    assert!(page.entries.len() == 1 && !bench.is_durable(seen), "nobody sees it before");
    bench.commit();
    assert!(bench.is_durable(gate) && bench.is_durable(seen));
}

#[test]
fn entries_survive_the_log_they_were_written_to() {
    let disk = SimDisk::new(2);
    let bench = Bench::on_disk(&disk);
    for number in 0..300 {
        let id = bench.add("q", b"x");
        bench.engine.people(&mut Audit::new(ops())).delete(JobRef::Id(id)).value().expect("there");
        if number % 50 == 0 {
            bench.commit();
        }
    }
    let written = entries(&bench);
    assert_eq!(written.len(), 300);
    let first = bench.log.first();
    let mut most = 0;
    for round in 0..12 {
        // These are not ended by a person, so they leave no entry.
        for n in 0..60 {
            let id = bench.add("churn", &noise(round * 60 + n, 1000));
            bench.finish(id, true, b"").expect("unfinished");
            bench.execute(spindle_core::Command::Delete {
                id,
                cause: spindle_core::job::Cause::Deleted,
            });
        }
        bench.compaction();
        most = bench.log.bytes_on_disk().max(most);
    }
    assert!(bench.log.first() > first && bench.engine.trims() > 1, "the first records are gone");
    assert!(most < 1_000_000, "{most}");
    let bench = bench.restart(&disk);
    assert_eq!(entries(&bench), written);
}

#[test]
fn a_list_goes_on_where_one_hold_of_the_lock_has_ended() {
    let options = Options {
        defaults: Defaults { audit_entries_max: 2_500, ..Defaults::default() },
        ..Options::default()
    };
    let bench = Bench::with(options);
    for _ in 0..2_501 {
        bench.engine.people(&mut Audit::new(ops())).accept_clock().value().expect("is taken");
    }
    let nobody = AuditFilter { who: Some("nobody".to_owned()), ..AuditFilter::default() };
    let page = bench.engine.audit().page(u64::MAX, &nobody, 10).value();
    assert_eq!((page.entries.len(), page.next), (0, Some(1_502)), "a thousand were looked at");
    let page = bench.engine.audit().page(502, &nobody, 10).value();
    assert_eq!((page.entries.len(), page.next), (0, None));
    let all = AuditFilter::default();
    let page = bench.engine.audit().page(12, &all, 10).value();
    assert_eq!((page.entries.len(), page.next), (10, None), "the oldest one is gone");
    let page = bench.engine.audit().page(12, &all, 9).value();
    assert_eq!((page.entries.len(), page.next), (9, Some(3)));
}

#[test]
fn what_is_refused_or_changes_nothing_leaves_no_entry() {
    let bench = Bench::new();
    let id = bench.add("q", b"x");
    bench.lease("q").expect("it is ready");
    let none = JobId(999);
    let person = || somebody();
    assert!(bench.engine.people(&mut person()).cancel(none).value().is_err());
    assert!(bench.engine.people(&mut person()).extend(none, 5).value().is_err());
    assert!(bench.engine.people(&mut person()).delete(JobRef::Id(none)).value().is_err());
    assert!(bench.engine.people(&mut person()).delete_waiting(JobRef::Id(id)).value().is_err());
    assert!(bench.engine.people(&mut person()).retry(JobRef::Id(id), None).value().is_err());
    assert!(
        bench.engine.people(&mut person()).remove_constraint("c", Expected::Any).value().is_err()
    );
    let queue = Bytes::from_static(b"q");
    bench
        .engine
        .people(&mut person())
        .change_queue(Action::Resume, &queue, |_| {})
        .value()
        .unwrap();
    assert_eq!(entries(&bench), []);
    let spec = ConstraintSpec { matcher: Matcher::default(), rate: None, running_max: Some(1) };
    for _ in 0..2 {
        let mut person = person();
        let people = bench.engine.people(&mut person);
        people
            .put_constraint("c", &spec, LimitScope::Whole, Expected::Any)
            .value()
            .expect("is taken");
    }
    assert_eq!(entries(&bench).len(), 1, "the second one was there already");
}
