//! Submits that join the unfinished job of the same key.

#![expect(clippy::unwrap_used, reason = "only tests use this")]

use bytes::Bytes;
use spindle_core::audit::Action;
use spindle_core::command::{Claim, Command, Submit};
use spindle_core::job::{Key, Origin, Scope};
use spindle_core::{JobId, Rejection, Status};
use spindle_engine::{ConnectionId, Gate, JobRef, Joined, Refused};
use spindle_testkit::disk::SimDisk;

use crate::harness::{Bench, TakeApart, TakeApartResult, new_job, plain, somebody};

fn named(name: &'static str, foreground: bool) -> Submit {
    let mut submit = plain("q");
    submit.origin = Origin::Gearman;
    submit.foreground = foreground;
    submit.keys = vec![Key {
        namespace: Origin::Gearman as i32,
        name: Bytes::from_static(name.as_bytes()),
        scope: Scope::WhileUnfinished as i32,
    }];
    submit
}

fn ask(bench: &Bench, connection: u64, submit: Submit, payload: &[u8]) -> Joined {
    ask_gated(bench, connection, submit, payload).0
}

fn ask_gated(bench: &Bench, connection: u64, submit: Submit, payload: &[u8]) -> (Joined, Gate) {
    let caller = bench.caller(connection);
    let watcher = submit.foreground.then_some(&caller);
    bench.engine.jobs().submit_or_join(watcher, new_job(submit, payload)).split().unwrap()
}

#[test]
fn the_second_submit_joins_and_changes_neither_payload_nor_priority() {
    let bench = Bench::new();
    let first = ask(&bench, 1, named("k", false), b"first");
    let mut urgent = named("k", false);
    urgent.priority = 9;
    let (second, gate) = ask_gated(&bench, 2, urgent, b"second");
    assert_eq!((first.new, second.new, second.job), (true, false, first.job));
    assert_eq!((bench.payload(first.job), bench.image(first.job).priority), ("first".into(), 0));
    assert!(!bench.is_durable(gate));
    bench.commit();
    assert!(bench.is_durable(gate));
    let other = ask(&bench, 1, named("other", false), b"x");
    assert!(other.new);
}

#[test]
fn a_finished_job_is_not_joined() {
    let bench = Bench::new();
    let first = ask(&bench, 1, named("k", false), b"first");
    bench.finish(first.job, true, b"r").unwrap();
    let second = ask(&bench, 1, named("k", false), b"second");
    assert!(second.new && second.job != first.job);
}

#[test]
fn a_background_submit_makes_the_foreground_job_it_joins_durable() {
    let disk = SimDisk::new(1);
    let bench = Bench::on_disk(&disk);
    let (first, gate) = ask_gated(&bench, 1, named("k", true), b"payload");
    bench.commit();
    assert!(bench.is_durable(gate));
    let (joined, gate) = ask_gated(&bench, 2, named("k", false), b"ignored");
    assert_eq!((joined.job, joined.new, joined.watch), (first.job, false, None));
    assert!(!bench.is_durable(gate));
    bench.commit();
    assert!(bench.is_durable(gate));
    bench.check_fold();
    // It outlives its watcher, and the server.
    bench.engine.waits().connection_gone(ConnectionId(1), None);
    let bench = bench.restart(&disk);
    assert_eq!(bench.status(first.job), Some(Status::Ready));
    assert_eq!(bench.payload(first.job), "payload");
}

#[test]
fn a_running_foreground_job_that_nobody_waits_for_is_kept_by_a_background_submit() {
    let bench = Bench::new();
    let first = ask(&bench, 1, named("k", true), b"payload");
    let job = bench.lease("q").unwrap();
    bench.engine.waits().connection_gone(ConnectionId(1), None);
    let joined = ask(&bench, 2, named("k", false), b"ignored");
    assert_eq!(joined.job, first.job);
    let claim = Claim::Token { id: job.id, epoch: job.epoch, attempt: job.attempt };
    let cause = spindle_core::job::Cause::Released;
    bench.execute(Command::Release { claim, cause });
    assert_eq!(bench.status(first.job), Some(Status::Ready));
    bench.check_fold();
}

#[test]
fn a_foreground_submit_watches_the_job_it_joins() {
    let bench = Bench::new();
    let first = ask(&bench, 1, named("k", false), b"first");
    let (joined, gate) = ask_gated(&bench, 2, named("k", true), b"second");
    assert_eq!(joined.job, first.job);
    assert!(joined.watch.is_some() && gate != Gate::OPEN);
    assert_eq!(bench.engine.waits().progress(JobRef::Id(first.job)).value().unwrap().waiting, 1);
    // It does not go with its watcher: it was a background job before.
    bench.engine.waits().connection_gone(ConnectionId(2), None);
    assert_eq!(bench.status(first.job), Some(Status::Ready));
}

#[test]
fn who_joins_is_not_refused_by_a_full_queue() {
    let bench = Bench::new();
    ask(&bench, 1, named("k", false), b"first");
    bench
        .engine
        .people(&mut somebody())
        .change_queue(Action::SetQueue, &Bytes::from_static(b"q"), |set| set.jobs_max = Some(1))
        .value()
        .unwrap();
    assert!(!ask(&bench, 1, named("k", false), b"again").new);
    let refused =
        bench.engine.jobs().submit_or_join(None, new_job(named("l", false), b"more")).value();
    assert!(matches!(refused, Err(Refused::Rejected(Rejection::QueueFull))), "{refused:?}");
}

#[test]
fn a_name_is_found_in_whichever_queue_has_it() {
    let bench = Bench::new();
    let add = |namespace, name: &str| {
        let mut submit = plain("q");
        let name = Bytes::copy_from_slice(name.as_bytes());
        let scope = Scope::WhileUnfinished as i32;
        submit.keys = vec![Key { namespace: namespace as i32, name, scope }];
        bench.submit(submit, b"x")
    };
    let find = |prefix: &str| {
        bench.engine.jobs().find_by_key_prefix(Origin::Gearman, prefix.as_bytes(), |_| true).value()
    };
    add(Origin::Workq, "u/of another door");
    let second = add(Origin::Gearman, "u/second");
    add(Origin::Gearman, "v/first");
    add(Origin::Lightjq, "a/first");
    assert_eq!((find("u/"), find("a/"), find("w/")), (Some(second), None, None));
    let first = add(Origin::Gearman, "u/first");
    assert_eq!(find("u/"), Some(first));
    bench.finish(first, true, b"").unwrap();
    assert_eq!(find("u/"), Some(second));
    let gate = bench.engine.jobs().find_by_key_prefix(Origin::Gearman, b"w/", |_| true).gate();
    assert!(!bench.is_durable(gate), "that there is none is true only when all this is kept");
}

#[test]
fn a_walk_over_jobs_meets_each_once() {
    let bench = Bench::new();
    let ids: Vec<JobId> = (0..1500).map(|_| bench.add("q", b"x")).collect();
    bench.finish(ids[3], true, b"").unwrap();
    let (mut met, mut from) = (Vec::new(), Some(JobId(0)));
    while let Some(next) = from {
        let (lines, further) = bench.engine.jobs().lines(next);
        assert!(lines.len() <= 512);
        met.extend(lines.iter().map(|line| line.id));
        from = further;
    }
    let unfinished: Vec<JobId> = ids.iter().copied().filter(|id| *id != ids[3]).collect();
    assert_eq!(met, unfinished);
}

#[test]
fn a_queue_is_told_by_priority_and_emptied_in_steps() {
    let bench = Bench::new();
    for (count, priority) in [(300, 5), (200, 0), (100, -7)] {
        for _ in 0..count {
            let mut submit = plain("q");
            submit.priority = priority;
            bench.submit(submit, b"x");
        }
    }
    let mut later = plain("q");
    (later.priority, later.run_at_ms) = (1, Some(u64::MAX));
    bench.submit(later, b"x");
    bench.lease("q").unwrap();
    let lines = bench.engine.queues().lines(None, 10);
    assert_eq!(lines[0].waiting, [300, 200, 100]);
    assert_eq!((lines[0].total, lines[0].leased), (601, 1));
    let mut deleted = 0;
    loop {
        let count = bench.engine.people(&mut somebody()).empty_queue(b"q", 0).value().unwrap();
        assert!(count <= 256);
        deleted += count;
        if count == 0 {
            break;
        }
    }
    assert_eq!(deleted, 600);
    assert_eq!(bench.engine.queues().line(b"q").unwrap().total, 1);
    bench.check_fold();
}
