//! Whose turn it is when some clients submit large payloads and others small ones.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use spindle_engine::{Answer, Committed, Options, Ticket};
use spindle_log::Log;
use spindle_testkit::HeldLog;

use crate::harness::{Bench, START_MS, noise};

const LARGE_BYTES: usize = 64 * 1024 + 1;
/// Other changes count as gone when none was committed in this time.
const OTHERS_MS: u64 = 100;

/// An engine whose commits a test holds back.
fn bench() -> (Bench, Arc<HeldLog>) {
    let log = Arc::new(HeldLog::default());
    let bench = Bench::on(log.clone(), START_MS, Options::default());
    // The start is a commit, too.
    bench.clock.advance(OTHERS_MS + 1);
    (bench, log)
}

/// Asks for room for a large change, as doors do before they make one.
#[track_caller]
fn ask(bench: &Bench) -> Option<Ticket> {
    bench.engine.wait_for_room(&bench.caller(7), LARGE_BYTES).expect("nothing is full")
}

#[track_caller]
fn submit_large(bench: &Bench) {
    assert_eq!(ask(bench), None, "it is its turn");
    bench.add("large", &noise(1, LARGE_BYTES));
}

/// Commits what is decided, which takes this long by the engine's clock.
fn commit_in(bench: &Bench, log: &HeldLog, ms: u64) {
    let next = log.next();
    log.hold(true);
    thread::scope(|scope| {
        let committing = scope.spawn(|| bench.engine.commit_once());
        while log.next() == next {
            thread::yield_now();
        }
        bench.clock.advance(ms);
        log.hold(false);
        assert_eq!(committing.join().expect("no panic"), Committed::Some);
    });
}

#[track_caller]
fn is_answered(bench: &Bench, ticket: Ticket) {
    let answers = bench.answers();
    assert!(matches!(&answers[..], [(t, Answer::Room)] if *t == ticket), "{answers:?}");
}

#[test]
fn what_was_decided_beside_a_large_change_is_committed_before_the_next() {
    let (bench, _) = bench();
    submit_large(&bench);
    bench.commit();
    bench.add("small", b"decided since");
    assert!(bench.engine.has_room(), "small changes do not wait");
    let ticket = ask(&bench).expect("others come first");
    bench.commit();
    is_answered(&bench, ticket);
    submit_large(&bench);
}

#[test]
fn large_changes_follow_each_other_while_nobody_else_has_any() {
    let (bench, log) = bench();
    for _ in 0..3 {
        submit_large(&bench);
        commit_in(&bench, &log, 50);
    }
}

#[test]
fn while_there_are_others_large_changes_rest_for_as_long_as_one_took() {
    let (bench, log) = bench();
    bench.add("small", b"of another client");
    bench.commit();
    submit_large(&bench);
    commit_in(&bench, &log, 20);
    let ticket = ask(&bench).expect("the log rests from large changes");
    assert!(bench.engine.has_room(), "and from no others");
    bench.pass(19);
    assert!(bench.answers().is_empty(), "a millisecond is left");
    bench.pass(1);
    is_answered(&bench, ticket);
    submit_large(&bench);
}

#[test]
fn nobody_rests_for_others_that_are_gone_or_longer_than_a_tenth_of_a_second() {
    let (gone, log) = bench();
    gone.add("small", b"long ago");
    gone.commit();
    gone.clock.advance(OTHERS_MS - 19);
    submit_large(&gone);
    commit_in(&gone, &log, 20);
    submit_large(&gone);

    let (slow, log) = bench();
    slow.add("small", b"of another client");
    slow.commit();
    submit_large(&slow);
    commit_in(&slow, &log, 1_000);
    // Small ones go on, so there are others again.
    slow.add("small", b"of another client");
    slow.commit();
    assert!(ask(&slow).is_some(), "a rest");
    slow.pass(100);
    assert_eq!(slow.answers().len(), 1);
    submit_large(&slow);
}

/// A caller that asks for room has no turn whose end would tell the timer.
#[test]
fn the_timer_ends_a_rest_that_nobody_else_tells_it_of() {
    const PATIENCE: Duration = Duration::from_secs(120);
    let log = Arc::new(HeldLog::default());
    let bench = Bench::on(log.clone(), START_MS, Options::default());
    bench.engine.spawn(|failure| panic!("the log failed: {failure}")).expect("threads");
    let next = log.next();
    log.hold(true);
    {
        let _turn = bench.engine.turn();
        submit_large(&bench);
    }
    while log.next() == next {
        thread::yield_now();
    }
    bench.clock.advance(20);
    log.hold(false);
    while bench.engine.observe().gauges().undurable_bytes > 0 {
        thread::yield_now();
    }
    let ticket = ask(&bench).expect("the log rests, the start was a commit of others");
    bench.clock.advance(20);
    let began = Instant::now();
    let answers = loop {
        let answers = bench.answers();
        if !answers.is_empty() {
            break answers;
        }
        assert!(began.elapsed() < PATIENCE, "nobody was answered");
        thread::sleep(Duration::from_millis(1));
    };
    assert!(matches!(&answers[..], [(t, Answer::Room)] if *t == ticket), "{answers:?}");
}
