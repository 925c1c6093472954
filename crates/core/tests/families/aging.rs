//! Aging: waiting counts as priority.

use bytes::Bytes;
use spindle_core::command::Submit;
use spindle_core::job::Origin;
use spindle_core::queue::{AGING_MS_MAX, QueueSettings};
use spindle_core::{Command, JobId, Rejection};

use crate::harness::{Server, complete, lease_of, lease_with, submit};

const STEP_MS: u64 = 1_000;

fn set(queue: &'static str, aging_ms: Option<u64>) -> Command {
    let settings = QueueSettings { aging_ms, paused: false, ..QueueSettings::default() };
    Command::SetQueue { name: Bytes::from_static(queue.as_bytes()), settings }
}

fn aging() -> Server {
    let mut server = Server::new();
    server.given(set("q", Some(STEP_MS)));
    server
}

fn job(id: u64, priority: i64) -> Command {
    submit(id, "q", |job| job.priority = priority)
}

/// Leases until nothing is left.
fn drain(server: &mut Server, queue: &str) -> Vec<u64> {
    std::iter::from_fn(|| server.lease(queue).map(|(id, _)| id)).collect()
}

#[test]
fn each_waiting_time_counts_as_one_step_of_priority() {
    let mut server = aging();
    server.given(job(1, 0));
    server.pass(2 * STEP_MS + 500);
    // It has waited for two steps and a half by now.
    server.given(job(2, 2));
    server.given(job(3, 3));
    server.given(job(4, -1));
    assert_eq!(drain(&mut server, "q"), [3, 1, 2, 4]);
}

#[test]
fn no_priority_is_too_far_away_and_equals_go_by_age() {
    let mut server = aging();
    for (id, priority) in [(1, i64::MIN), (2, i64::MAX), (3, 0), (4, i64::MAX), (5, i64::MIN)] {
        server.given(job(id, priority));
    }
    assert_eq!(drain(&mut server, "q"), [2, 4, 3, 1, 5]);
}

#[test]
fn a_job_waits_from_when_it_was_to_run() {
    let mut server = aging();
    let run_at_ms = Some(server.now_ms + 10 * STEP_MS);
    server.given(submit(1, "q", |job: &mut Submit| job.run_at_ms = run_at_ms));
    server.pass(8 * STEP_MS);
    server.given(job(2, 0));
    server.pass(3 * STEP_MS);
    assert_eq!(drain(&mut server, "q"), [2, 1]);
}

/// A job whose workers die must not come first for ever.
#[test]
fn a_job_that_goes_to_the_tail_begins_to_wait_there() {
    let mut server = aging();
    server.given(job(1, 0));
    let by_gearman = lease_with(&["q"], |lease| {
        (lease.door, lease.bound) = (Origin::Gearman, true);
    });
    server.given(by_gearman);
    server.pass(3 * STEP_MS);
    server.given(job(2, 0));
    server.pass(STEP_MS);
    server.given(Command::HolderGone { holder: 1 });
    server.pass(60_000);
    assert_eq!(server.lease("q").map(|(id, _)| id), Some(2));
    assert_eq!(server.lease("q").map(|(id, _)| id), Some(1));
}

#[test]
fn a_retried_job_begins_to_wait_anew() {
    let mut server = aging();
    server.given(job(1, 0));
    let (_, claim) = server.lease("q").expect("it is ready");
    server.given(complete(claim));
    server.pass(5 * STEP_MS);
    server.given(job(2, 0));
    server.pass(STEP_MS);
    let image = Box::new(server.finished(1));
    server.given(Command::Retry { image, payload: None });
    assert_eq!(drain(&mut server, "q"), [2, 1]);
}

#[test]
fn aging_outlives_a_restart() {
    let mut server = aging();
    server.given(job(1, 0));
    server.pass(2 * STEP_MS);
    server.given(job(2, 1));
    server.restart();
    assert_eq!(drain(&mut server, "q"), [1, 2]);
}

#[test]
fn among_queues_the_priority_of_the_next_jobs_counts() {
    let mut server = aging();
    server.given(job(1, 0));
    server.pass(50 * STEP_MS);
    server.given(submit(2, "plain", |job| job.priority = 1));
    let leased = server.given(lease_of(&["q", "plain"]));
    assert!(format!("{leased:?}").contains("id: 2,"), "{leased:?}");
}

#[test]
fn a_step_is_between_a_millisecond_and_a_year() {
    let mut server = Server::new();
    for aging_ms in [0, AGING_MS_MAX + 1] {
        assert_eq!(server.refused(set("q", Some(aging_ms))), Rejection::OutOfRange("aging"));
    }
    server.given(set("q", Some(AGING_MS_MAX)));
}

/// Two jobs a step, the later one of higher priority.
fn many(server: &mut Server, jobs: u64) {
    for id in 1..=jobs {
        server.given(job(id, (id % 7).cast_signed()));
        server.pass(STEP_MS / 2);
    }
}

#[test]
fn jobs_that_are_there_follow_in_bounded_steps_and_none_is_lost_meanwhile() {
    const JOBS: u64 = 2_000;
    let mut server = Server::new();
    many(&mut server, JOBS);
    let mut aged = aging();
    many(&mut aged, JOBS);

    server.given(set("q", Some(STEP_MS)));
    assert!(server.state.is_rebasing(), "one step is not enough");
    let mut seen = vec![server.lease("q").expect("no job waits for the others to follow").0];
    server.given(job(JOBS + 1, 9));
    // Aging is turned off and on again while jobs are being reordered.
    server.given(set("q", None));
    server.given(set("q", Some(STEP_MS)));
    let listed: Vec<u64> = server.state.ready_jobs(b"q", 0).map(|job| job.id().0).collect();
    assert_eq!(listed.len() as u64, JOBS);
    let mut steps = 0;
    while server.state.is_rebasing() {
        server.state.rebase();
        seen.extend(server.lease("q").map(|(id, _)| id));
        steps += 1;
    }
    assert!((3..=8).contains(&steps), "{steps} steps");

    let rest = drain(&mut server, "q");
    let left = |id: &u64| !seen.contains(id) && *id <= JOBS;
    let expected: Vec<u64> = drain(&mut aged, "q").into_iter().filter(left).collect();
    let ours: Vec<u64> = rest.iter().copied().filter(left).collect();
    assert_eq!(ours, expected, "as if it had always been set");
    let mut all = [seen, rest].concat();
    all.sort_unstable();
    assert!(all.iter().copied().eq(1..=JOBS + 1), "each job once");
}

#[test]
fn where_a_job_stands_follows_the_setting() {
    let mut server = aging();
    many(&mut server, 40);
    let listed: Vec<JobId> = server.state.ready_jobs(b"q", 0).map(|job| job.id()).collect();
    for (at, id) in listed.iter().enumerate() {
        let before = server.state.ready_before(*id).expect("it is ready");
        assert_eq!((before.count, before.at_least), (at, false));
    }
    assert_eq!(drain(&mut server, "q"), listed.iter().map(|id| id.0).collect::<Vec<_>>());
}
