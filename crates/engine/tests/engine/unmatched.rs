//! A constraint that lets none of its jobs start holds from its put on, also for jobs that are not
//! matched yet; and nobody waits for ever.

use bytes::Bytes;
use spindle_core::JobId;
use spindle_engine::{ConstraintSpec, Matcher, Options, QueuePattern, RelabelStep};
use spindle_log::{Log, Space};
use spindle_testkit::disk::SimDisk;

use crate::constraints::{few, free_plan, in_queue, json, numbers, put, relabel};
use crate::harness::{Bench, START_MS, TakeApart, file_log};

/// More than two slices of matching.
const JOBS: u64 = 1_200;

/// Every third job has a paid plan, the others a free one.
fn fill(bench: &Bench, queue: &str) -> Vec<JobId> {
    let plan = |number: u64| if number.is_multiple_of(3) { "paid" } else { "free" };
    (0..JOBS)
        .map(|number| json(bench, queue, &format!(r#"{{"plan":"{}"}}"#, plan(number))))
        .collect()
}

fn no_free(queue: QueuePattern) -> ConstraintSpec {
    few(Matcher { queue, ..free_plan() }, 0)
}

fn is_paid(ids: &[JobId], id: JobId) -> bool {
    ids.iter().position(|other| *other == id).is_some_and(|at| at.is_multiple_of(3))
}

#[test]
fn none_of_the_jobs_that_were_there_starts_from_the_put_on() {
    let bench = Bench::new();
    for queue in ["a", "b", "c", "other"] {
        fill(&bench, queue);
    }
    let glob = QueuePattern::Glob(Bytes::from_static(b"[b]*"));
    put(&bench, "a", &few(in_queue("a"), 0));
    put(&bench, "b", &no_free(QueuePattern::Exact(Bytes::from_static(b"b"))));
    put(&bench, "nothing", &no_free(glob));
    put(&bench, "c", &no_free(QueuePattern::Glob(Bytes::from_static(b"c*"))));
    for queue in ["a", "b", "c"] {
        assert!(bench.lease(queue).is_none(), "{queue}");
    }
    assert!(bench.lease("other").is_some(), "no constraint takes it");
    relabel(&bench);
    assert!(bench.lease("a").is_none());
    for queue in ["b", "c"] {
        let leased = std::iter::from_fn(|| bench.lease(queue)).count() as u64;
        assert_eq!(leased, JOBS / 3, "{queue}: those that pay");
    }
    bench.check_fold();
}

#[test]
fn jobs_start_as_soon_as_they_are_matched_and_fall_under_nothing() {
    let bench = Bench::new();
    let ids = fill(&bench, "q");
    put(&bench, "free", &no_free(QueuePattern::Any));
    let ticket = bench.wait(7, "q", 60_000);
    assert_eq!(bench.handed(), None);
    assert_eq!(bench.engine.relabel_step(), RelabelStep::More);
    assert_eq!(bench.handed(), Some((ticket, ids[0])), "one waited for it");
    let early: Vec<JobId> = std::iter::from_fn(|| bench.lease("q")).map(|job| job.id).collect();
    assert!(!early.is_empty() && early.iter().all(|id| is_paid(&ids, *id) && *id < ids[512]));
    relabel(&bench);
    let late: Vec<JobId> = std::iter::from_fn(|| bench.lease("q")).map(|job| job.id).collect();
    assert!(late.iter().all(|id| is_paid(&ids, *id)));
    assert_eq!((1 + early.len() + late.len()) as u64, JOBS / 3);
}

#[test]
fn who_waits_gets_the_job_behind_an_unmatched_one_that_goes() {
    let bench = Bench::new();
    let before = json(&bench, "q", r#"{"plan":"paid"}"#);
    put(&bench, "free", &no_free(QueuePattern::Any));
    // Matched as it comes, and of the same group.
    let behind = json(&bench, "q", r#"{"plan":"paid"}"#);
    let ticket = bench.wait(7, "q", 60_000);
    assert_eq!(bench.handed(), None);
    bench.delete(before);
    assert_eq!(bench.handed(), Some((ticket, behind)));
}

#[test]
fn a_restart_in_the_middle_of_matching_lets_nobody_slip_through() {
    let disk = SimDisk::new(21);
    let bench = Bench::on_disk(&disk);
    let ids = fill(&bench, "q");
    put(&bench, "free", &no_free(QueuePattern::Any));
    assert_eq!(bench.engine.relabel_step(), RelabelStep::More);
    bench.commit();
    let bench = bench.restart(&disk);
    let mut leased = Vec::new();
    let mut drain = || leased.extend(std::iter::from_fn(|| bench.lease("q")).map(|job| job.id));
    drain();
    relabel(&bench);
    drain();
    assert_eq!(leased.len() as u64, JOBS / 3);
    assert!(leased.iter().all(|id| is_paid(&ids, *id)));
    bench.compaction();
    bench.check_fold();
}

#[test]
fn what_holds_a_job_back_says_that_it_is_still_to_be_matched() {
    let bench = Bench::new();
    let ids = fill(&bench, "q");
    put(&bench, "free", &no_free(QueuePattern::Any));
    let held = |id: JobId| {
        let image = bench.image(id);
        let held = bench.engine.jobs().now(&image).held_back;
        held.into_iter().map(|held| (held.running_max, held.unmatched)).collect::<Vec<_>>()
    };
    assert_eq!(held(ids[0]), [(Some(0), true)]);
    relabel(&bench);
    assert_eq!(held(ids[0]), []);
    assert_eq!(held(ids[1]), [(Some(0), false)]);
}

#[test]
fn a_stop_that_is_lifted_or_loosened_in_the_middle_lets_everything_go() {
    for loosened in [false, true] {
        let bench = Bench::new();
        fill(&bench, "q");
        put(&bench, "free", &no_free(QueuePattern::Any));
        let ticket = bench.wait(7, "q", 60_000);
        assert_eq!(bench.handed(), None);
        if loosened {
            put(&bench, "free", &few(free_plan(), 1));
        } else {
            bench.remove_constraint("free");
        }
        assert_eq!(bench.handed().map(|(handed, _)| handed), Some(ticket), "{loosened}");
        relabel(&bench);
        assert!(bench.lease("q").is_some());
    }
}

#[test]
fn a_stop_put_again_over_jobs_that_are_matched_holds_nobody_else_up() {
    let bench = Bench::new();
    fill(&bench, "q");
    put(&bench, "free", &few(Matcher { queue: QueuePattern::Any, ..free_plan() }, 5));
    relabel(&bench);
    put(&bench, "free", &no_free(QueuePattern::Any));
    assert!(!bench.engine.inspect(spindle_core::State::has_unmatched));
    let leased = std::iter::from_fn(|| bench.lease("q")).count() as u64;
    assert_eq!(leased, JOBS / 3);
}

#[test]
fn matching_goes_on_for_a_stop_on_a_full_disk_while_enough_of_the_reserve_is_left() {
    for compaction_bytes in [1 << 10, 64 << 10] {
        let disk = SimDisk::new(5);
        let log = file_log(&disk);
        let options = Options { compaction_bytes, ..Options::default() };
        let bench = Bench::on(log.clone(), START_MS, options);
        fill(&bench, "q");
        bench.commit();
        disk.set_capacity(Some(disk.used()));
        let noise = crate::harness::noise(1, 2_000);
        while bench
            .engine
            .jobs()
            .submit(crate::harness::new_job(crate::harness::plain("r"), &noise))
            .value()
            .is_ok()
        {
            bench.commit();
        }
        assert_eq!(log.space(), Space::ReserveOnly);
        put(&bench, "few", &few(in_queue("r"), 1));
        bench.commit();
        assert_eq!(bench.engine.relabel_step(), RelabelStep::Later, "that one can wait");
        put(&bench, "free", &no_free(QueuePattern::Exact(Bytes::from_static(b"q"))));
        bench.commit();
        assert!(bench.lease("q").is_none());
        let has_room = compaction_bytes == 1 << 10;
        let expected = if has_room { RelabelStep::More } else { RelabelStep::Later };
        assert_eq!(bench.engine.relabel_step(), expected, "{} bytes left", log.room_bytes());
        bench.commit();
        assert_eq!(bench.lease("q").is_some(), has_room);
        // Matching, however much of it is left, never takes the room of changes that make room.
        while bench.engine.relabel_step() == RelabelStep::More {
            bench.commit();
        }
        assert!(log.room_bytes() > 8 << 10, "{} bytes left", log.room_bytes());
        bench.remove_constraint("free");
        assert!(bench.lease("q").is_some());
        bench.commit();
    }
}

#[test]
fn the_core_reads_the_same_queues_out_of_a_matcher_as_the_engine() {
    let bench = Bench::new();
    for (name, queue) in [
        ("any", QueuePattern::Any),
        ("exact", QueuePattern::Exact(Bytes::from_static(b"mail"))),
        ("glob", QueuePattern::Glob(Bytes::from_static(b"m?i*"))),
    ] {
        bench.add("mail", b"");
        bench.add("bill", b"");
        put(&bench, name, &no_free(queue));
        let (mail, bill) = (bench.lease("mail").is_some(), bench.lease("bill").is_some());
        assert_eq!((mail, bill), (false, name != "any"), "{name}");
        relabel(&bench);
        assert!(numbers(&bench, bench.add("mail", b"")).is_empty(), "bytes have no fields");
        bench.remove_constraint(name);
        relabel(&bench);
    }
}
