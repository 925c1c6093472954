//! Time: leases and waits end on time, schedules come due, nothing is late by more than a tick.

use spindle_core::Status;
use spindle_core::command::{Claim, Command, Extend};
use spindle_core::job::OnDead;
use spindle_engine::{Answer, ConnectionId, JobRef, LeaseReply, Refused};

use crate::harness::{Bench, START_MS, TakeApart, TakeApartResult, new_job, plain, somebody, wish};

#[test]
fn a_lease_ends_at_its_deadline_and_the_timer_knows_when_that_is() {
    let bench = Bench::new();
    assert_eq!(bench.engine.tick_once(), None);
    let mut submit = plain("q");
    submit.ttr_ms = Some(500);
    let id = bench.submit(submit, b"x");
    let leased = bench.lease("q").expect("ready");
    assert_eq!((leased.length_ms, leased.attempt), (Some(500), 1));
    assert_eq!(bench.pass(100), Some(400));
    assert_eq!(bench.pass(399), Some(1));
    assert_eq!(bench.status(id), Some(Status::Leased));
    assert_eq!(bench.pass(1), None);
    assert_eq!(bench.status(id), Some(Status::Ready));
    let again = bench.lease("q").expect("ready again");
    assert_eq!(again.attempt, 2);
    bench.check_fold();
}

#[test]
fn an_old_token_finishes_nothing_once_the_lease_has_ended() {
    let bench = Bench::new();
    let mut submit = plain("q");
    submit.ttr_ms = Some(500);
    let id = bench.submit(submit, b"x");
    let old = bench.lease("q").expect("ready");
    bench.pass(500);
    let new = bench.lease("q").expect("ready");
    let token = |epoch, attempt| Claim::Token { id, epoch, attempt };
    let finish = |claim| {
        let result = spindle_engine::WorkResult { success: true, ..Default::default() };
        bench.engine.leases().finish(claim, result).value().is_ok()
    };
    assert!(!finish(token(old.epoch, old.attempt)));
    assert!(!finish(token(new.epoch + 1, new.attempt)));
    assert!(finish(token(new.epoch, new.attempt)));
    assert_eq!(bench.status(id), Some(Status::Done));
}

#[test]
fn what_is_due_has_happened_before_any_call_however_late_the_timer() {
    let bench = Bench::new();
    let mut submit = plain("q");
    submit.ttr_ms = Some(500);
    submit.ttl_ms = Some(2000);
    let id = bench.submit(submit, b"x");
    bench.lease("q").expect("ready");
    bench.clock.advance(700);
    // Nobody ticked.
    assert_eq!(bench.lease("q").expect("its lease has ended").id, id);
    bench.clock.advance(2000);
    assert!(bench.finish(id, true, b"").is_err(), "its TTL has passed");
    assert_eq!(bench.status(id), None);
    assert_eq!(bench.engine.observe().stats().expired_unfinished, 1);
    bench.check_fold();
}

#[test]
fn an_extended_lease_ends_later() {
    let bench = Bench::new();
    let mut submit = plain("q");
    submit.ttr_ms = Some(500);
    let id = bench.submit(submit, b"x");
    bench.lease("q").expect("ready");
    bench.pass(400);
    let extend = Extend { claim: Claim::Unfinished { id }, ttr_ms: 1000 };
    bench.execute(Command::Extend(extend));
    assert_eq!(bench.pass(999), Some(1));
    assert_eq!(bench.status(id), Some(Status::Leased));
    bench.pass(1);
    assert_eq!(bench.status(id), Some(Status::Ready));
}

#[test]
fn waits_end_on_time_each_at_its_own() {
    let bench = Bench::new();
    let id = bench.add("q", b"x");
    let short = bench.wait(1, "empty", 100);
    let long = bench.wait(2, "empty", 300);
    let result = bench.engine.waits().for_result(&bench.caller(3), id, 200, false);
    let result = result.expect("not too many").expect("unfinished");
    assert_eq!(bench.pass(99), Some(1));
    assert!(bench.answers().is_empty());
    for (ms, ticket, next) in [(1, short, Some(100)), (100, result, Some(100)), (100, long, None)] {
        assert_eq!(bench.pass(ms), next);
        let answers = bench.answers();
        assert!(
            matches!(&answers[..], [(ended, Answer::TimedOut)] if *ended == ticket),
            "{answers:?}"
        );
    }
}

#[test]
fn a_scheduled_job_is_handed_out_when_its_time_comes() {
    let bench = Bench::new();
    let ticket = bench.wait(1, "q", 60_000);
    let mut submit = plain("q");
    submit.run_at_ms = Some(START_MS + 1500);
    let id = bench.submit(submit, b"x");
    assert_eq!(bench.pass(1499), Some(1));
    assert_eq!(bench.status(id), Some(Status::Scheduled));
    bench.pass(1);
    assert_eq!(bench.handed(), Some((ticket, id)));
    bench.check_fold();
}

#[test]
fn the_longest_waiter_gets_the_job_and_those_who_went_get_none() {
    let bench = Bench::new();
    let tickets: Vec<_> = (1..=4).map(|connection| bench.wait(connection, "q", 60_000)).collect();
    bench.engine.waits().connection_gone(ConnectionId(1), Some(tickets[0]));
    bench.engine.waits().cancel(&bench.caller(3), tickets[2]);
    let (first, second) = (bench.add("q", b"1"), bench.add("q", b"2"));
    let handed: Vec<_> = bench
        .answers()
        .into_iter()
        .map(|(ticket, answer)| match answer {
            Answer::Leased(job) => (ticket, job.id),
            other => panic!("no lease: {other:?}"),
        })
        .collect();
    assert_eq!(handed, [(tickets[1], first), (tickets[3], second)]);
    let third = bench.add("q", b"3");
    assert!(bench.answers().is_empty());
    assert_eq!(bench.status(third), Some(Status::Ready));
}

#[test]
fn a_bound_lease_ends_with_its_connection() {
    let bench = Bench::new();
    let id = bench.add("q", b"x");
    let mut bound = wish("q");
    (bound.bound, bound.holder) = (true, 5);
    let reply = bench.engine.leases().take(&bench.caller(5), bound, 0).value().expect("no refusal");
    assert!(matches!(reply, LeaseReply::Leased(..)));
    bench.engine.waits().connection_gone(ConnectionId(4), None);
    assert_eq!(bench.status(id), Some(Status::Leased));
    bench.engine.waits().connection_gone(ConnectionId(5), None);
    assert_eq!(bench.status(id), Some(Status::Ready));
    bench.check_fold();
}

#[test]
fn a_wait_for_a_start_counts_again_when_the_lease_is_undone() {
    let bench = Bench::new();
    let mut submit = plain("q");
    submit.foreground = true;
    let ticket =
        bench.engine.jobs().submit_and_wait(&bench.caller(1), new_job(submit, b"x"), 300).value();
    let ticket = ticket.expect("taken");
    bench.pass(100);
    let leased = bench.lease("q").expect("ready");
    // While it is leased only the lease's own end counts.
    bench.pass(1000);
    assert!(bench.answers().is_empty());
    let lease = spindle_engine::LeaseRef { job: leased.id, attempt: leased.attempt };
    bench.engine.leases().undo(lease);
    bench.engine.tick_once();
    let answers = bench.answers();
    assert!(matches!(&answers[..], [(ended, Answer::TimedOut)] if *ended == ticket), "{answers:?}");
    assert_eq!(bench.engine.jobs().find(JobRef::Id(leased.id)).value(), None);
}

#[test]
fn the_end_of_a_foreground_job_waits_for_no_record() {
    let bench = Bench::new();
    for ending in ["finish", "delete"] {
        let mut submit = plain("q");
        submit.foreground = true;
        bench
            .engine
            .jobs()
            .submit_and_wait(&bench.caller(1), new_job(submit, b"x"), 60_000)
            .value()
            .expect("taken");
        let leased = bench.lease("q").expect("ready");
        let gate = if ending == "finish" {
            bench.finish(leased.id, true, b"").expect("leased")
        } else {
            bench
                .engine
                .people(&mut somebody())
                .delete(JobRef::Id(leased.id))
                .acked()
                .expect("there")
        };
        // That a person deleted it is in the log, whatever it was.
        assert_eq!(bench.is_durable(gate), ending == "finish", "{ending}");
        for gate in bench.gates() {
            assert!(bench.is_durable(gate), "{ending}");
        }
    }
}

#[test]
fn an_engine_that_stops_leases_nothing_more_and_tells_those_who_wait() {
    let bench = Bench::new();
    let ticket = bench.wait(1, "q", 60_000);
    bench.engine.stop_leasing();
    let answers = bench.answers();
    assert!(matches!(&answers[..], [(ended, Answer::TimedOut)] if *ended == ticket));
    assert!(bench.lease("q").is_none());
    // What is logged outlives the server; what lives in memory would be lost.
    let id = bench.add("q", b"x");
    assert_eq!(bench.status(id), Some(Status::Ready));
    let mut foreground = plain("q");
    foreground.foreground = true;
    let refused = bench
        .engine
        .jobs()
        .submit_and_wait(&bench.caller(1), new_job(foreground, b"x"), 1_000)
        .value();
    assert!(matches!(refused, Err(Refused::Stopping)));
}

#[test]
fn a_foreground_job_that_somebody_waits_for_again_outlives_its_lease() {
    for waits_again in [true, false] {
        let bench = Bench::new();
        let mut submit = plain("q");
        submit.foreground = true;
        submit.ttr_ms = Some(1_000);
        bench
            .engine
            .jobs()
            .submit_and_wait(&bench.caller(1), new_job(submit, b"x"), 60_000)
            .value()
            .expect("room");
        let job = bench.lease("q").expect("it is ready");
        bench.engine.waits().connection_gone(ConnectionId(1), None);
        if waits_again {
            let wait = bench.engine.waits().for_result(&bench.caller(2), job.id, 60_000, false);
            assert!(wait.expect("room").is_some());
        }
        bench.pass(1_001);
        let status = bench.status(job.id);
        assert_eq!(status.is_some(), waits_again, "{status:?}");
    }
}

#[test]
fn a_worker_who_waits_gets_the_best_of_all_that_one_instant_lets_go() {
    let bench = Bench::new();
    let mut blocker = plain("other");
    (blocker.ttr_ms, blocker.attempts_max) = (Some(500), Some(1));
    let blocker = bench.submit(blocker, b"dies");
    bench.lease("other").expect("ready");
    let mut scheduled = plain("q");
    scheduled.run_at_ms = Some(START_MS + 500);
    bench.submit(scheduled, b"is due then");
    let mut urgent = plain("q");
    (urgent.priority, urgent.after, urgent.on_dead) = (1, vec![blocker], OnDead::Run);
    let urgent = bench.submit(urgent, b"waits for the end of another");
    let ticket = bench.wait(7, "q", 10_000);
    bench.pass(500);
    assert_eq!(bench.status(blocker), Some(Status::Dead));
    assert_eq!(bench.handed(), Some((ticket, urgent)));
}
