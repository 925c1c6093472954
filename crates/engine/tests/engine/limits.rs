//! Constraints, from the command that sets them to the lease they hold back.

use bytes::Bytes;
use spindle_core::JobId;
use spindle_core::command::{Command, Matched, Submit};
use spindle_core::job::Label;
use spindle_core::queue::{Constraint, LimitScope, QueueSettings, Rate};
use spindle_core::{Defaults, Rejection, Status};
use spindle_engine::{Options, Refused};
use spindle_testkit::disk::SimDisk;

use crate::harness::{Bench, TakeApart, new_job, noise, plain};

fn constrain(bench: &Bench, rule: Constraint) -> u32 {
    bench.execute(Command::SetConstraint(rule, LimitScope::Whole));
    bench.engine.inspect(|state| state.constraints().last().expect("just set").number)
}

fn labelled(bench: &Bench, queue: &str, labels: &[(u32, u64)]) -> Submit {
    let mut submit = plain(queue);
    submit.labels = labels
        .iter()
        .map(|(constraint, value)| Label { constraint: *constraint, value: *value })
        .collect();
    submit.constraints_revision = bench.engine.inspect(|state| state.server().constraints_revision);
    submit
}

fn running_max(max: u64) -> Constraint {
    Constraint { name: Bytes::from_static(b"few"), running_max: Some(max), ..Constraint::default() }
}

fn rate(count: u64, per_ms: u64, burst: u64) -> Constraint {
    let rate = Some(Rate { count, per_ms, burst });
    Constraint { name: Bytes::from_static(b"slow"), rate, ..Constraint::default() }
}

#[test]
fn no_more_run_at_once_than_a_constraint_allows_per_value() {
    let bench = Bench::new();
    let number = constrain(&bench, running_max(2));
    let add = |queue, value| bench.submit(labelled(&bench, queue, &[(number, value)]), b"x");
    let ones = [add("a", 1), add("b", 1), add("a", 1)];
    let two = add("a", 2);
    let free = bench.add("a", b"no label");
    let leased = |queue| bench.lease(queue).map(|job| job.id);
    assert_eq!(leased("a"), Some(ones[0]));
    assert_eq!(leased("b"), Some(ones[1]));
    // Value 1 is exhausted; what stands behind it is not.
    assert_eq!(leased("a"), Some(two));
    assert_eq!(leased("a"), Some(free));
    assert_eq!(leased("a"), None);
    let ticket = bench.wait(1, "a", 60_000);
    bench.finish(two, true, b"").expect("leased");
    assert_eq!(bench.handed(), None, "that was another value");
    bench.finish(ones[1], true, b"").expect("leased");
    assert_eq!(bench.handed(), Some((ticket, ones[2])));
    bench.check_fold();
}

#[test]
fn a_rate_lets_jobs_start_when_their_tokens_come() {
    let disk = SimDisk::new(1);
    let bench = Bench::on_disk(&disk);
    let number = constrain(&bench, rate(1, 1000, 2));
    let jobs: Vec<JobId> =
        (0..5).map(|_| bench.submit(labelled(&bench, "q", &[(number, 0)]), b"x")).collect();
    assert_eq!(bench.lease("q").map(|job| job.id), Some(jobs[0]));
    assert_eq!(bench.lease("q").map(|job| job.id), Some(jobs[1]));
    assert!(bench.lease("q").is_none());
    bench.pass(999);
    assert!(bench.lease("q").is_none());
    bench.pass(1);
    assert_eq!(bench.lease("q").map(|job| job.id), Some(jobs[2]));
    // A worker that waits is handed the next one when its token comes.
    let ticket = bench.wait(1, "q", 60_000);
    assert_eq!(bench.pass(500), Some(500), "the timer knows when that is");
    bench.pass(499);
    assert_eq!(bench.handed(), None);
    bench.pass(1);
    assert_eq!(bench.handed(), Some((ticket, jobs[3])));
    // Tokens that were taken stay taken through a restart.
    bench.commit();
    let bench = bench.restart(&disk);
    assert!(bench.lease("q").is_none());
    bench.pass(1000);
    assert_eq!(bench.lease("q").map(|job| job.id), Some(jobs[4]));
    bench.check_fold();
}

#[test]
fn a_lease_under_a_constraint_waits_for_its_own_record_also_in_the_foreground() {
    let bench = Bench::new();
    let number = constrain(&bench, rate(1, 1000, 5));
    for foreground in [false, true] {
        let mut submit = labelled(&bench, "q", &[(number, 0)]);
        submit.foreground = foreground;
        bench.submit(submit, b"x");
        bench.commit();
        let gate = bench.gate_of_lease("q");
        assert!(!bench.is_durable(gate), "foreground: {foreground}");
        bench.commit();
        assert!(bench.is_durable(gate));
    }
    bench.check_fold();
}

#[test]
fn labels_made_for_an_older_set_of_constraints_are_refused() {
    let bench = Bench::new();
    let number = constrain(&bench, running_max(1));
    let stale = labelled(&bench, "q", &[(number, 1)]);
    constrain(&bench, running_max(5));
    let refused = bench.engine.jobs().submit(new_job(stale, b"x")).value().map(|_| ());
    assert!(matches!(refused, Err(Refused::Rejected(Rejection::StaleConstraints))));
    bench.submit(labelled(&bench, "q", &[(number, 1)]), b"x");
}

#[test]
fn changing_relabelling_and_removing_let_go_of_what_was_held_back() {
    let bench = Bench::new();
    let number = constrain(&bench, running_max(1));
    let jobs: Vec<JobId> =
        (0..4).map(|_| bench.submit(labelled(&bench, "q", &[(number, 1)]), b"x")).collect();
    assert_eq!(bench.lease("q").map(|job| job.id), Some(jobs[0]));
    let first = bench.wait(1, "q", 60_000);
    let matched = Matched { labels: Vec::new(), constraints_revision: 1 };
    bench.execute(Command::Relabel { id: jobs[2], revision: None, matched });
    assert_eq!(bench.handed(), Some((first, jobs[2])));
    let second = bench.wait(2, "q", 60_000);
    bench.execute(Command::SetConstraint(
        Constraint { number, ..running_max(2) },
        LimitScope::Whole,
    ));
    assert_eq!(bench.handed(), Some((second, jobs[1])));
    let third = bench.wait(3, "q", 60_000);
    assert_eq!(bench.handed(), None);
    bench.execute(Command::RemoveConstraint { number });
    assert_eq!(bench.handed(), Some((third, jobs[3])));
    bench.check_fold();
}

#[test]
fn many_values_under_a_rate_are_carried_and_none_starts_twice() {
    let disk = SimDisk::new(2);
    let bench = Bench::on_disk(&disk);
    let number = constrain(&bench, rate(1, 1_000_000, 1));
    const VALUES: u64 = 700;
    for value in 0..VALUES {
        for _ in 0..2 {
            bench.submit(labelled(&bench, "q", &[(number, value)]), b"x");
        }
    }
    let mut started = 0;
    while bench.lease("q").is_some() {
        started += 1;
    }
    assert_eq!(started, VALUES);
    for n in 0..400 {
        let id = bench.add("churn", &noise(n, 1000));
        bench.delete(id);
    }
    bench.compaction();
    assert!(bench.engine.trims() > 0);
    let bench = bench.restart(&disk);
    assert!(bench.lease("q").is_none(), "every bucket is as empty as it was");
    let queue = bench.engine.queues().get(b"q").value().expect("it has jobs");
    assert_eq!(queue.counts[Status::Ready as usize] as u64, VALUES);
    bench.check_fold();
}

#[test]
fn finished_jobs_that_a_cap_drops_are_counted_by_the_cap() {
    let defaults = Defaults { finished_max: 5, finished_bytes_max: 20_000, ..Defaults::default() };
    let options = Options { defaults, ..Options::default() };
    let bench = Bench::with(options);
    let done = |queue, count, bytes| {
        for _ in 0..count {
            let id = bench.add(queue, b"");
            bench.finish(id, true, &noise(1, bytes)).expect("unfinished");
            bench.pass(1_000);
        }
        let stats = bench.engine.observe().stats();
        let by_cap =
            [stats.finished_over_queue, stats.finished_over_count, stats.finished_over_bytes];
        assert_eq!(stats.finished_dropped, by_cap.iter().sum::<u64>());
        by_cap
    };
    let name = Bytes::from_static(b"few");
    let settings = QueueSettings { finished_max: Some(1), ..QueueSettings::default() };
    bench.execute(Command::SetQueue { name, settings });
    assert_eq!(done("few", 4, 10), [3, 0, 0]);
    assert_eq!(done("many", 6, 10), [3, 2, 0]);
    assert_eq!(bench.engine.observe().gauges().finished, 5);
    assert_eq!(done("many", 2, 9_000), [3, 4, 0]);
    assert!(bench.engine.observe().gauges().finished_bytes > 18_000);
    let [_, _, over_bytes] = done("many", 2, 9_000);
    assert!(over_bytes > 0);
    assert!(bench.engine.observe().gauges().finished_bytes <= 20_000);
    bench.check_fold();
}
