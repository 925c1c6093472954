//! Sleepers: which are called, when, and which sleep on.

#![expect(clippy::unwrap_used, reason = "only tests use this")]

use bytes::Bytes;
use spindle_core::command::Command;
use spindle_core::queue::QueueSettings;
use spindle_engine::{Answer, ConnectionId, SleepReply, Ticket};

use crate::harness::{Bench, plain};

fn sleep(bench: &Bench, connection: u64, queues: &[&str]) -> SleepReply {
    let queues = queues.iter().map(|name| Bytes::copy_from_slice(name.as_bytes())).collect();
    bench.engine.waits().sleep(&bench.caller(connection), queues, u32::MAX).unwrap()
}

fn asleep(bench: &Bench, connection: u64, queues: &[&str]) -> Ticket {
    match sleep(bench, connection, queues) {
        SleepReply::Asleep(ticket) => ticket,
        SleepReply::Called => panic!("expected to sleep and was called"),
    }
}

/// Who was called since the last look.
fn called(bench: &Bench) -> Vec<Ticket> {
    let called = |(ticket, answer)| match answer {
        Answer::Called => ticket,
        other => panic!("expected a call and got {other:?}"),
    };
    bench.answers().into_iter().map(called).collect()
}

fn pause(bench: &Bench, queue: &'static str, paused: bool) {
    let settings = QueueSettings { paused, ..QueueSettings::default() };
    bench.execute(Command::SetQueue { name: Bytes::from_static(queue.as_bytes()), settings });
}

#[test]
fn as_many_are_called_as_there_are_jobs_the_longest_sleeper_first() {
    let bench = Bench::new();
    let (a, b, c) =
        (asleep(&bench, 1, &["q"]), asleep(&bench, 2, &["q", "r"]), asleep(&bench, 3, &["q"]));
    bench.add("other", b"x");
    assert_eq!(called(&bench), []);
    bench.add("q", b"1");
    assert_eq!(called(&bench), [a]);
    bench.add("q", b"2");
    assert_eq!(called(&bench), [b]);
    // One came for its job: no sleeper is called for what is left.
    bench.lease("q").unwrap();
    assert_eq!(called(&bench), []);
    bench.add("q", b"3");
    assert_eq!(called(&bench), [c]);
}

#[test]
fn the_next_is_called_when_one_has_not_come_for_a_while() {
    let bench = Bench::new();
    let (a, b) = (asleep(&bench, 1, &["q"]), asleep(&bench, 2, &["q"]));
    bench.add("q", b"1");
    assert_eq!(called(&bench), [a]);
    bench.pass(99);
    assert_eq!(called(&bench), []);
    bench.pass(1);
    assert_eq!(called(&bench), [b]);
    assert_eq!(bench.pass(100), None, "nobody sleeps, nothing is due");
    assert!(bench.lease("q").is_some());
}

#[test]
fn nobody_is_called_again_for_a_job_somebody_came_for() {
    let bench = Bench::new();
    let (a, _) = (asleep(&bench, 1, &["q"]), asleep(&bench, 2, &["q"]));
    bench.add("q", b"1");
    assert_eq!(called(&bench), [a]);
    bench.lease("q").unwrap();
    bench.pass(1000);
    assert_eq!(called(&bench), []);
}

#[test]
fn one_who_would_sleep_beside_work_is_called_at_once_but_not_for_work_others_were_called_for() {
    let bench = Bench::new();
    bench.add("q", b"1");
    assert_eq!(sleep(&bench, 1, &["p", "q"]), SleepReply::Called);
    let second = asleep(&bench, 2, &["q"]);
    bench.pass(100);
    assert_eq!(called(&bench), [second]);
}

#[test]
fn a_job_whose_time_comes_calls_a_sleeper() {
    let bench = Bench::new();
    let sleeper = asleep(&bench, 1, &["q"]);
    let mut later = plain("q");
    later.run_at_ms = Some(bench.engine.now_ms() + 5000);
    bench.submit(later, b"x");
    bench.pass(4999);
    assert_eq!(called(&bench), []);
    bench.pass(1);
    assert_eq!(called(&bench), [sleeper]);
}

#[test]
fn a_job_that_cannot_be_leased_calls_nobody_until_it_can() {
    let bench = Bench::new();
    pause(&bench, "q", true);
    bench.add("q", b"1");
    let sleeper = asleep(&bench, 1, &["q"]);
    bench.add("q", b"2");
    bench.pass(1000);
    assert_eq!(called(&bench), []);
    pause(&bench, "q", false);
    assert_eq!(called(&bench), [sleeper]);
}

#[test]
fn who_has_risen_or_gone_is_not_called() {
    let bench = Bench::new();
    let (a, _) = (asleep(&bench, 1, &["q"]), asleep(&bench, 2, &["q"]));
    bench.engine.waits().cancel(&bench.caller(1), a);
    bench.engine.waits().connection_gone(ConnectionId(2), None);
    let third = asleep(&bench, 3, &["q"]);
    bench.add("q", b"1");
    assert_eq!(called(&bench), [third]);
}

#[test]
fn a_job_given_back_calls_a_sleeper() {
    let bench = Bench::new();
    let id = bench.add("q", b"1");
    bench.lease("q").unwrap();
    let sleeper = asleep(&bench, 1, &["q"]);
    let claim = spindle_core::command::Claim::Unfinished { id };
    bench.execute(Command::Release { claim, cause: spindle_core::job::Cause::Released });
    assert_eq!(called(&bench), [sleeper]);
}
