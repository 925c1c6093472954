//! Workers: what they can do, how they sleep and are woken, and what becomes of their jobs when
//! they are lost.

use bytes::Bytes;
use spindle_core::job::Backoff;
use spindle_engine::Options;
use spindle_gearman::client::Encode;
use spindle_gearman::wire::{GrabKind, Priority, Request, Response, SubmitKind};

use crate::harness::{Bench, known, submit};

#[test]
fn a_worker_that_can_do_nothing_gets_nothing() {
    let bench = Bench::new();
    let (mut client, mut worker) = (bench.open(), bench.open());
    client.add("f", "", "x");
    assert_eq!(worker.grab(GrabKind::Plain), None);
    worker.can_do("g");
    assert_eq!(worker.grab(GrabKind::Uniq), None);
    worker.can_do("f");
    worker.cant_do("f");
    assert_eq!(worker.grab(GrabKind::All), None);
    worker.can_do("f");
    worker.send(&Request::ResetAbilities);
    assert_eq!(worker.grab(GrabKind::Plain), None);
    worker.can_do("f");
    assert!(worker.grab(GrabKind::Plain).is_some());
}

#[test]
fn a_job_under_way_stays_with_a_worker_that_can_do_it_no_more() {
    let bench = Bench::new();
    let (mut client, mut worker) = (bench.open(), bench.open());
    let handle = client.run("f", "", "x");
    worker.can_do("f");
    worker.take();
    worker.cant_do("f");
    assert_eq!(client.status(&handle), known(true));
    worker.send(&Request::ResetAbilities);
    worker.complete(&handle, "r");
    client.hears_complete(&handle, "r");
}

#[test]
fn as_many_sleepers_are_woken_as_there_are_jobs_and_each_once() {
    let bench = Bench::new();
    let mut client = bench.open();
    let mut workers = [bench.open(), bench.open(), bench.open()];
    for worker in &mut workers {
        worker.can_do("f");
        worker.send(&Request::PreSleep);
        worker.hears_nothing();
    }
    client.add("f", "", "1");
    client.add("f", "", "2");
    let [one, two, three] = &mut workers;
    assert_eq!((one.hear(), two.hear()), (Response::Noop, Response::Noop));
    one.hears_nothing();
    two.hears_nothing();
    three.hears_nothing();
    // One of them takes both.
    one.take();
    one.take();
    bench.pass(100);
    three.hears_nothing();
}

#[test]
fn the_next_sleeper_is_woken_for_a_job_that_is_left_lying() {
    let bench = Bench::new();
    let (mut client, mut one, mut two) = (bench.open(), bench.open(), bench.open());
    for worker in [&mut one, &mut two] {
        worker.can_do("f");
        worker.send(&Request::PreSleep);
    }
    client.add("f", "", "1");
    assert_eq!(one.hear(), Response::Noop);
    bench.pass(99);
    two.hears_nothing();
    bench.pass(1);
    assert_eq!(two.hear(), Response::Noop);
}

#[test]
fn a_worker_that_sleeps_beside_a_job_is_woken_at_once() {
    let bench = Bench::new();
    let (mut client, mut worker) = (bench.open(), bench.open());
    client.add("f", "", "1");
    worker.can_do("f");
    assert_eq!(worker.ask(&Request::PreSleep), Response::Noop);
    worker.take();
    worker.send(&Request::PreSleep);
    worker.hears_nothing();
    // It need not ask twice, and asking twice is no two calls.
    worker.send(&Request::PreSleep);
    client.add("f", "", "2");
    assert_eq!(worker.hear(), Response::Noop);
    worker.hears_nothing();
}

#[test]
fn a_worker_that_did_not_say_it_sleeps_hears_nothing() {
    let bench = Bench::new();
    let (mut client, mut worker) = (bench.open(), bench.open());
    worker.can_do("f");
    client.add("f", "", "1");
    worker.hears_nothing();
    worker.send(&Request::PreSleep);
    assert_eq!(worker.hear(), Response::Noop);
    worker.take();
    worker.send(&Request::PreSleep);
    // A worker that grabs is awake.
    assert_eq!(worker.grab(GrabKind::Plain), None);
    client.add("f", "", "2");
    worker.hears_nothing();
}

#[test]
fn a_sleeper_is_called_for_what_it_learns_to_do_and_not_for_what_it_unlearns() {
    let bench = Bench::new();
    let (mut client, mut worker) = (bench.open(), bench.open());
    client.add("late", "", "1");
    worker.can_do("f");
    worker.can_do("g");
    worker.send(&Request::PreSleep);
    worker.cant_do("g");
    client.add("g", "", "1");
    worker.hears_nothing();
    worker.can_do("late");
    assert_eq!(worker.hear(), Response::Noop);
    let mut idle = bench.open();
    idle.send(&Request::PreSleep);
    idle.hears_nothing();
    idle.can_do("g");
    assert_eq!(idle.hear(), Response::Noop);
}

#[test]
fn a_sleeper_and_one_who_waits_at_another_door_take_turns() {
    let bench = Bench::new();
    let (mut client, mut worker) = (bench.open(), bench.open());
    worker.can_do("f");
    worker.send(&Request::PreSleep);
    let waits = || bench.lease_foreign_waiting("f", 60_000);
    assert!(waits().is_none());
    let first = client.add("f", "", "1");
    assert_eq!(worker.hear(), Response::Noop);
    assert_eq!(bench.handed_foreign(), None);
    assert_eq!(worker.take(), first);
    let second = client.add("f", "", "2");
    assert_eq!(bench.handed_foreign(), Some(crate::harness::id_of(&second)));
}

#[test]
fn a_worker_that_is_lost_gives_its_job_back_at_the_tail_and_clients_hear_nothing() {
    let bench = Bench::new();
    let (mut client, mut admin) = (bench.open(), bench.open());
    let mut worker = bench.open();
    let first = client.run("f", "", "j1");
    let second = client.run("f", "", "j2");
    worker.can_do("f");
    assert_eq!(worker.take(), first);
    worker.progress(&first, "5", "10");
    client.hear();
    worker.close();
    client.hears_nothing();
    assert_eq!(client.status(&first), known(false));
    let line =
        |handle: &Bytes, retries: u32| format!("{}\t{retries}\t0\t0\n", handle.escape_ascii());
    assert_eq!(admin.text("show jobs"), line(&first, 1) + &line(&second, 0) + ".\n");
    let mut worker = bench.open();
    worker.can_do("f");
    assert_eq!((worker.take(), worker.take()), (second, first.clone()));
    worker.complete(&first, "at last");
    client.hears_complete(&first, "at last");
}

#[test]
fn at_the_limit_of_tries_a_lost_worker_fails_the_job() {
    let bench = Bench::with_attempts_max(2);
    let mut client = bench.open();
    let (run, added) = (client.run("f", "", "x"), client.add("f", "", "y"));
    for _ in 0..2 {
        client.hears_nothing();
        let mut worker = bench.open();
        worker.can_do("f");
        worker.take();
        worker.take();
        worker.close();
    }
    client.hears_fail(&run);
    client.hears_nothing();
    assert!(!client.status(&added).is_known);
    let mut worker = bench.open();
    worker.can_do("f");
    assert_eq!(worker.grab(GrabKind::Plain), None);
}

#[test]
fn a_job_that_takes_too_long_goes_to_the_next_and_its_worker_cannot_end_it() {
    let bench = Bench::new();
    let (mut client, mut slow, mut quick) = (bench.open(), bench.open(), bench.open());
    let handle = client.run("f", "", "x");
    slow.can_do_timeout("f", 1500);
    slow.take();
    quick.can_do("f");
    bench.pass(1499);
    assert_eq!(quick.grab(GrabKind::Plain), None);
    bench.pass(1);
    assert_eq!(quick.take(), handle);
    slow.complete(&handle, "late");
    assert_eq!(slow.hear_error().1, "Job given in work result not found");
    client.hears_nothing();
    quick.complete(&handle, "r");
    client.hears_complete(&handle, "r");
}

#[test]
fn a_timeout_below_a_second_is_a_second_and_none_is_none() {
    let bench = Bench::new();
    let (mut client, mut other) = (bench.open(), bench.open());
    let (mut short, mut endless) = (bench.open(), bench.open());
    client.add("short", "", "x");
    client.add("none", "", "x");
    short.can_do_timeout("short", 500);
    endless.can_do_timeout("none", 0);
    short.take();
    endless.take();
    other.can_do("short");
    other.can_do("none");
    bench.pass(999);
    assert_eq!(other.grab(GrabKind::Plain), None);
    bench.pass(1);
    assert_eq!(other.grab(GrabKind::Plain).unwrap().function, "short");
    bench.pass(1_000_000_000);
    assert_eq!(other.grab(GrabKind::Plain), None);
}

#[test]
fn a_worker_has_one_timer_that_of_the_job_it_grabbed_last() {
    let bench = Bench::new();
    let (mut client, mut worker, mut other) = (bench.open(), bench.open(), bench.open());
    worker.can_do_timeout("f", 1000);
    worker.can_do_timeout("g", 2000);
    worker.can_do("endless");
    let handles = ["f", "g"].map(|function| {
        let handle = client.run(function, "", "x");
        assert_eq!(worker.take(), handle);
        handle
    });
    other.can_do("f");
    other.can_do("g");
    bench.pass(2000);
    assert_eq!(other.take(), handles[1]);
    bench.pass(1_000_000);
    assert_eq!(other.grab(GrabKind::Plain), None);
    worker.complete(&handles[0], "late, and in time");
    client.hears_complete(&handles[0], "late, and in time");
    // One without a timeout ends the timer as well.
    let timed = client.run("f", "", "x");
    assert_eq!(worker.take(), timed);
    client.run("endless", "", "x");
    worker.take();
    bench.pass(1_000_000);
    worker.complete(&timed, "done");
    client.hears_complete(&timed, "done");
    worker.hears_nothing();
}

/// As libgearman's worker does that grabs a job ahead: it holds one, asks for another, and sleeps.
#[test]
fn a_worker_that_sleeps_beside_its_job_has_all_the_time_for_it_and_is_not_woken_for_it() {
    let bench = Bench::new();
    let (mut client, mut worker, mut other) = (bench.open(), bench.open(), bench.open());
    worker.can_do_timeout("f", 1000);
    worker.can_do_timeout("g", 2000);
    let handles = [client.run("f", "", "x"), client.run("g", "", "y"), client.add("f", "", "z")];
    handles.iter().for_each(|_| drop(worker.take()));
    bench.pass(900);
    assert_eq!(worker.grab(GrabKind::Plain), None);
    worker.send(&Request::PreSleep);
    other.can_do("f");
    other.can_do("g");
    bench.pass(1_000_000);
    worker.hears_nothing();
    assert_eq!(other.grab(GrabKind::Plain), None);
    for handle in &handles {
        worker.complete(handle, "done");
    }
    client.hears_complete(&handles[0], "done");
    client.hears_complete(&handles[1], "done");
    worker.hears_nothing();
    // The next one has its time again.
    let next = client.run("f", "", "x");
    assert_eq!(worker.hear(), Response::Noop);
    assert_eq!(worker.take(), next);
    bench.pass(1000);
    assert_eq!(other.take(), next);
}

/// libgearman's worker is one answer behind once a job has run out of time: it always holds the next
/// job already while it does one.
#[test]
fn a_worker_that_grabs_ahead_does_each_job_once_if_each_takes_less_than_the_time() {
    let bench = Bench::new();
    let (mut client, mut worker) = (bench.open(), bench.open());
    let handles: Vec<Bytes> = (0..5).map(|_| client.run("f", "", "x")).collect();
    worker.can_do_timeout("f", 1000);
    assert_eq!(worker.take(), handles[0]);
    for (now, next) in handles.iter().zip(&handles[1..]) {
        assert_eq!(worker.take(), *next);
        bench.pass(900);
        worker.complete(now, "done");
        client.hears_complete(now, "done");
    }
    assert_eq!(worker.grab(GrabKind::Plain), None);
    worker.send(&Request::PreSleep);
    bench.pass(900);
    worker.complete(&handles[4], "done");
    client.hears_complete(&handles[4], "done");
    worker.hears_nothing();
}

#[test]
fn a_worker_that_would_sleep_beside_work_has_no_more_time_for_what_it_holds() {
    let bench = Bench::new();
    let (mut client, mut worker, mut other) = (bench.open(), bench.open(), bench.open());
    worker.can_do_timeout("f", 1000);
    let (held, _) = (client.run("f", "", "x"), client.run("f", "", "y"));
    assert_eq!(worker.take(), held);
    worker.send(&Request::PreSleep);
    assert_eq!(worker.hear(), Response::Noop);
    bench.pass(1000);
    other.can_do("f");
    assert_ne!(other.take(), held);
    assert_eq!(other.take(), held);
}

#[test]
fn the_time_a_jobs_submitter_gave_it_goes_on_while_its_worker_sleeps() {
    let bench = Bench::new();
    let (mut worker, mut other) = (bench.open(), bench.open());
    let mut submit = bench.foreign("f");
    submit.ttr_ms = Some(5000);
    submit.backoff = Some(Backoff::NONE);
    bench.submit_foreign(submit, "x");
    worker.can_do_timeout("f", 1000);
    worker.take();
    worker.send(&Request::PreSleep);
    other.can_do("f");
    bench.pass(4999);
    assert_eq!(other.grab(GrabKind::Plain), None);
    bench.pass(1);
    other.take();
}

#[test]
fn a_log_that_is_behind_delays_a_sleepers_timers_and_calls_it_once() {
    let bench = Bench::with(Options { undurable_bytes_max: 4096, ..Options::default() });
    let (mut client, mut worker, mut other) = (bench.open(), bench.open(), bench.open());
    worker.can_do_timeout("f", 1000);
    let held = client.add("f", "", "x");
    assert_eq!(worker.take(), held);
    client.raw(packets_of(5000));
    worker.send(&Request::PreSleep);
    assert_eq!(worker.flow, spindle_engine::Flow::Wait);
    client.hear();
    worker.hears_nothing();
    bench.pass(5000);
    other.can_do("f");
    assert_eq!(other.grab(GrabKind::Plain), None);
    client.add("f", "", "y");
    assert_eq!(worker.hear(), Response::Noop);
    worker.hears_nothing();
}

/// A job of another function that fills the log's room.
fn packets_of(bytes: usize) -> bytes::BytesMut {
    let payload = "x".repeat(bytes);
    let kind = SubmitKind::Background(Priority::Normal);
    let mut packet = bytes::BytesMut::new();
    submit(kind, "fill", "", &payload).encode(&mut packet);
    packet
}

#[test]
fn running_out_of_time_counts_as_a_try() {
    let bench = Bench::with_attempts_max(1);
    let (mut client, mut worker) = (bench.open(), bench.open());
    let handle = client.run("f", "", "x");
    worker.can_do_timeout("f", 1000);
    worker.take();
    bench.pass(1000);
    client.hears_fail(&handle);
}

#[test]
fn a_job_whose_assignment_never_left_counts_no_try() {
    let bench = Bench::with_attempts_max(1);
    let (mut client, mut worker) = (bench.open(), bench.open());
    client.add("f", "", "x");
    worker.can_do("f");
    worker.send(&Request::Grab(GrabKind::Plain));
    worker.close();
    let mut worker = bench.open();
    worker.can_do("f");
    assert!(worker.grab(GrabKind::Plain).is_some());
}

#[test]
fn all_yours_is_taken_without_a_word() {
    let bench = Bench::new();
    let mut worker = bench.open();
    worker.send(&Request::AllYours);
    worker.hears_nothing();
    let data = Bytes::from_static(b"alive?");
    assert_eq!(worker.ask(&Request::Echo { data: data.clone() }), Response::Echo { data });
}

#[test]
fn what_a_worker_calls_itself_stands_in_the_history_of_its_jobs() {
    let bench = Bench::new();
    let (mut client, mut worker) = (bench.open(), bench.open());
    let handle = client.add("f", "", "x");
    worker.send(&Request::SetClientId { id: Bytes::from_static(b"cook 1") });
    worker.can_do("f");
    worker.take();
    worker.complete(&handle, "");
    bench.commit();
    let which = spindle_engine::JobRef::Id(crate::harness::id_of(&handle));
    let image = bench.engine.jobs().get(which).ok().and_then(spindle_testkit::opened);
    let history = image.map(|image| image.history).unwrap_or_default();
    assert_eq!(history.iter().map(|tried| &tried.worker[..]).collect::<Vec<_>>(), [b"cook 1"]);
}
