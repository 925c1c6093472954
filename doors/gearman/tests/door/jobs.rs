//! Jobs in the foreground and the background, how they end, and who may end them.

use bytes::Bytes;
use spindle_core::Status;
use spindle_engine::JobRef;
use spindle_gearman::wire::{GrabKind, JobStatus, Priority, Request, Response, SubmitKind};
use spindle_testkit::opened;

use crate::harness::{Bench, id_of, known, submit, wants_exceptions};

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

#[test]
fn a_foreground_client_hears_all_the_worker_says() {
    let bench = Bench::new();
    let (mut client, mut worker) = (bench.open(), bench.open());
    let handle = client.run("rev", "u1", "hello");
    worker.can_do("rev");
    let job = worker.grab(GrabKind::Plain).unwrap();
    assert_eq!((&job.handle, &job.payload[..]), (&handle, &b"hello"[..]));
    assert_eq!((&job.function[..], &job.unique), (&b"rev"[..], &None));
    worker.progress(&handle, "1", "10");
    let (numerator, denominator) = (bytes("1"), bytes("10"));
    let answer = Response::WorkStatus { handle: handle.clone(), numerator, denominator };
    assert_eq!(client.hear(), answer);
    let status = client.status(&handle);
    assert_eq!((status.is_running, status.numerator, status.denominator), (true, 1, 10));
    worker.data(&handle, "part");
    let answer = Response::WorkData { handle: handle.clone(), data: bytes("part") };
    assert_eq!(client.hear(), answer);
    worker.send(&Request::WorkWarning { handle: handle.clone(), data: bytes("warn") });
    let answer = Response::WorkWarning { handle: handle.clone(), data: bytes("warn") };
    assert_eq!(client.hear(), answer);
    worker.complete(&handle, "olleh");
    // What was told as data is not told again.
    client.hears_complete(&handle, "olleh");
    assert_eq!(client.status(&handle), JobStatus::default());
    client.hears_nothing();
    worker.hears_nothing();
}

#[test]
fn a_background_client_hears_only_that_the_job_is_taken_and_its_result_is_kept() {
    let bench = Bench::new();
    let (mut client, mut worker) = (bench.open(), bench.open());
    let handle = client.add("rev", "", "hello");
    assert_eq!(client.status(&handle), known(false));
    worker.can_do("rev");
    assert_eq!(worker.take(), handle);
    assert_eq!(client.status(&handle), known(true));
    worker.data(&handle, "ol");
    worker.data(&handle, "le");
    worker.complete(&handle, "h");
    client.hears_nothing();
    assert_eq!(client.status(&handle), JobStatus::default());
    assert_eq!(bench.kept_result(&handle).unwrap(), "olleh");
    bench.pass(3_599_999);
    assert!(bench.kept_result(&handle).is_some());
    bench.pass(1);
    assert!(bench.kept_result(&handle).is_none());
}

#[test]
fn a_foreground_result_is_not_kept() {
    let bench = Bench::new();
    let (mut client, mut worker) = (bench.open(), bench.open());
    let handle = client.run("f", "", "x");
    worker.can_do("f");
    worker.take();
    worker.complete(&handle, "r");
    client.hears_complete(&handle, "r");
    assert!(bench.kept_result(&handle).is_none());
}

#[test]
fn background_is_told_when_its_record_is_durable_and_foreground_at_once() {
    let bench = Bench::new();
    let mut client = bench.open();
    bench.commit();
    client.send(&submit(SubmitKind::Foreground(Priority::Normal), "f", "", "x"));
    assert!(client.heard_at_once() > 0);
    client.hear();
    client.send(&submit(SubmitKind::Background(Priority::Normal), "f", "", "x"));
    assert_eq!(client.heard_at_once(), 0);
    bench.commit();
    assert!(client.heard_at_once() > 0);
}

#[test]
fn the_end_of_a_background_job_is_told_to_who_joined_it_when_it_is_durable() {
    let bench = Bench::new();
    let (mut adder, mut client, mut worker) = (bench.open(), bench.open(), bench.open());
    let handle = adder.add("f", "k", "x");
    assert_eq!(client.run("f", "k", "y"), handle);
    worker.can_do("f");
    worker.take();
    worker.complete(&handle, "r");
    assert_eq!(client.heard_at_once(), 0);
    client.hears_complete(&handle, "r");
}

#[test]
fn work_fail_is_told_without_a_byte_behind_the_handle() {
    let bench = Bench::new();
    let (mut client, mut worker) = (bench.open(), bench.open());
    wants_exceptions(&mut client);
    let handle = client.run("f", "", "x");
    worker.can_do("f");
    worker.take();
    worker.fail(&handle);
    client.hears_fail(&handle);
    assert_eq!(client.status(&handle), JobStatus::default());
}

#[test]
fn an_exception_is_told_to_those_who_asked_and_to_others_as_a_failure_never_both() {
    let bench = Bench::new();
    let (mut plain, mut keen, mut worker) = (bench.open(), bench.open(), bench.open());
    wants_exceptions(&mut keen);
    let handle = plain.run("f", "k", "x");
    assert_eq!(keen.run("f", "k", "x"), handle);
    worker.can_do("f");
    worker.take();
    worker.except(&handle, "boom");
    plain.hears_fail(&handle);
    let answer = Response::WorkException { handle: handle.clone(), data: bytes("boom") };
    assert_eq!(keen.hear(), answer);
    // Perl's worker says both; the second has nothing new.
    worker.fail(&handle);
    worker.hears_nothing();
    plain.hears_nothing();
    keen.hears_nothing();
    worker.fail(&handle);
    assert_eq!(worker.hear_error().0, "JOB_NOT_FOUND");
}

#[test]
fn a_door_with_exceptions_tells_them_to_everybody() {
    let options = spindle_gearman::Options { exceptions: true, ..Default::default() };
    let log = std::sync::Arc::new(spindle_log::MemoryLog::new());
    let bench = Bench::on(log, spindle_engine::Options::default(), options);
    let (mut plain, mut keen, mut worker) = (bench.open(), bench.open(), bench.open());
    wants_exceptions(&mut keen);
    let handle = plain.run("f", "k", "x");
    assert_eq!(keen.run("f", "k", "x"), handle);
    worker.can_do("f");
    worker.take();
    worker.except(&handle, "boom");
    worker.fail(&handle);
    let answer = Response::WorkException { handle: handle.clone(), data: bytes("boom") };
    assert_eq!((plain.hear(), keen.hear()), (answer.clone(), answer));
    plain.hears_nothing();
    worker.hears_nothing();
    // A failure without a word is still one.
    let handle = plain.run("f", "", "x");
    worker.take();
    worker.fail(&handle);
    plain.hears_fail(&handle);
}

#[test]
fn an_exception_without_a_word_is_one_all_the_same() {
    let bench = Bench::new();
    let (mut client, mut worker) = (bench.open(), bench.open());
    wants_exceptions(&mut client);
    let handle = client.run("f", "", "x");
    worker.can_do("f");
    worker.take();
    worker.except(&handle, "");
    assert_eq!(client.hear(), Response::WorkException { handle, data: Bytes::new() });
}

#[test]
fn the_exception_of_a_background_job_is_kept_as_its_result() {
    let bench = Bench::new();
    let (mut client, mut worker) = (bench.open(), bench.open());
    let handle = client.add("f", "", "x");
    worker.can_do("f");
    worker.take();
    worker.data(&handle, "piece");
    worker.except(&handle, "boom");
    assert_eq!(bench.kept_result(&handle).unwrap(), "boom");
    assert_eq!(
        opened(bench.engine.jobs().find(JobRef::Id(id_of(&handle)))).unwrap().1,
        Status::Dead
    );
}

#[test]
fn late_packets_of_a_worker_find_no_job() {
    let bench = Bench::new();
    let (mut client, mut worker) = (bench.open(), bench.open());
    let handle = client.run("f", "", "x");
    worker.can_do("f");
    worker.take();
    worker.complete(&handle, "r");
    let in_result = "Job given in work result not found";
    let in_data = "Job does not exist on server";
    let in_exception = "An exception was received for a job that does not exist";
    for (request, text) in [
        (
            Request::WorkStatus {
                handle: handle.clone(),
                numerator: bytes("1"),
                denominator: bytes("2"),
            },
            in_result,
        ),
        (Request::WorkData { handle: handle.clone(), data: bytes("x") }, in_data),
        (Request::WorkWarning { handle: handle.clone(), data: bytes("x") }, in_data),
        (Request::WorkComplete { handle: handle.clone(), result: bytes("x") }, in_result),
        (Request::WorkFail { handle: handle.clone() }, in_result),
        (Request::WorkException { handle: handle.clone(), data: bytes("x") }, in_exception),
    ] {
        worker.send(&request);
        assert_eq!(worker.hear_error(), ("JOB_NOT_FOUND".to_owned(), text.to_owned()));
    }
    client.hears_complete(&handle, "r");
    client.hears_nothing();
}

#[test]
fn nobody_but_the_leasing_connection_ends_a_job() {
    let bench = Bench::new();
    let (mut client, mut worker, mut thief) = (bench.open(), bench.open(), bench.open());
    let handle = client.run("f", "", "x");
    worker.can_do("f");
    thief.can_do("f");
    worker.take();
    thief.complete(&handle, "stolen");
    assert_eq!(thief.hear_error().0, "JOB_NOT_FOUND");
    thief.data(&handle, "stolen");
    assert_eq!(thief.hear_error().1, "Job does not exist on server");
    client.hears_nothing();
    worker.complete(&handle, "mine");
    client.hears_complete(&handle, "mine");
}

#[test]
fn two_jobs_at_once_on_one_connection_end_in_any_order() {
    let bench = Bench::new();
    let (mut client, mut worker) = (bench.open(), bench.open());
    let (first, second) = (client.run("f", "", "1"), client.run("f", "", "2"));
    worker.can_do("f");
    assert_eq!((worker.take(), worker.take()), (first.clone(), second.clone()));
    worker.complete(&second, "two");
    worker.complete(&first, "one");
    client.hears_complete(&second, "two");
    client.hears_complete(&first, "one");
}

#[test]
fn a_client_that_goes_takes_its_unstarted_job_along_and_a_running_one_runs_on() {
    let bench = Bench::new();
    let (client, mut worker, mut admin) = (bench.open(), bench.open(), bench.open());
    let mut client = client;
    client.run("f", "", "unstarted");
    client.close();
    worker.can_do("f");
    assert_eq!(worker.grab(GrabKind::Plain), None);
    let mut client = bench.open();
    let handle = client.run("f", "", "running");
    worker.take();
    client.close();
    assert_eq!(admin.text("status"), "f\t1\t1\t1\n.\n");
    worker.progress(&handle, "1", "2");
    worker.hears_nothing();
    let line = format!("{}\t0\t1\t0\n.\n", handle.escape_ascii());
    assert_eq!(admin.text("show jobs"), line);
    worker.complete(&handle, "x");
    worker.hears_nothing();
    assert_eq!(admin.text("status"), "f\t0\t0\t1\n.\n");
}

#[test]
fn a_running_job_whose_clients_went_is_not_given_out_again() {
    let bench = Bench::new();
    let (mut client, mut worker) = (bench.open(), bench.open());
    client.run("f", "", "x");
    worker.can_do("f");
    worker.take();
    client.close();
    worker.close();
    let mut worker = bench.open();
    worker.can_do("f");
    assert_eq!(worker.grab(GrabKind::Plain), None);
}

#[test]
fn a_job_with_an_epoch_runs_then_and_not_before() {
    let bench = Bench::new();
    let (mut client, mut worker) = (bench.open(), bench.open());
    worker.can_do("f");
    let at_s = crate::harness::START_MS / 1000 + 3;
    let handle = client.submit(SubmitKind::Epoch { at_s }, "f", "", "x");
    assert_eq!(client.status(&handle), known(false));
    assert_eq!(worker.grab(GrabKind::Plain), None);
    bench.pass(2999);
    assert_eq!(worker.grab(GrabKind::Plain), None);
    worker.send(&Request::PreSleep);
    worker.hears_nothing();
    bench.pass(1);
    assert_eq!(worker.hear(), Response::Noop);
    assert_eq!(worker.take(), handle);
}

#[test]
fn an_epoch_in_the_past_or_in_no_number_is_now_and_one_beyond_time_never_comes() {
    let bench = Bench::new();
    let (mut client, mut worker) = (bench.open(), bench.open());
    for (count, epoch) in ["1", "0", "abc", "-5", "", "99999999999999999999"].iter().enumerate() {
        let data = format!("ep\0\0{epoch}\0{count}");
        client.raw([&b"\0REQ\0\0\0\x24\0\0\0"[..], &[data.len() as u8], data.as_bytes()].concat());
        assert!(matches!(client.hear(), Response::JobCreated { .. }), "{epoch}");
    }
    worker.can_do("ep");
    for count in 0..5 {
        assert_eq!(worker.take_payload(), count.to_string());
    }
    assert_eq!(worker.grab(GrabKind::Plain), None);
    bench.pass(u64::from(u32::MAX));
    assert_eq!(worker.grab(GrabKind::Plain), None);
}

#[test]
fn a_scheduled_job_runs_once_at_the_next_minute_that_matches() {
    let bench = Bench::new();
    let (mut client, mut worker) = (bench.open(), bench.open());
    worker.can_do("f");
    // It is Monday, 01:50:51; Monday is 0.
    let data = b"f\0\x0052\x001\0\0\x000\0x";
    client.raw([&b"\0REQ\0\0\0\x23\0\0\0"[..], &[data.len() as u8], data].concat());
    assert!(matches!(client.hear(), Response::JobCreated { .. }));
    bench.pass(68_999);
    assert_eq!(worker.grab(GrabKind::Plain), None);
    bench.pass(1);
    let handle = worker.take();
    worker.complete(&handle, "");
    bench.pass(8 * 24 * 3_600_000);
    assert_eq!(worker.grab(GrabKind::Plain), None);
}

#[test]
fn a_schedule_that_never_matches_is_refused() {
    let bench = Bench::new();
    let mut client = bench.open();
    for fields in ["0\0\x000\x0030\x002\0", "60\0\0\0\0", "x\0\0\0\0"] {
        let data = format!("f\0\0{fields}\0x");
        client.raw([&b"\0REQ\0\0\0\x23\0\0\0"[..], &[data.len() as u8], data.as_bytes()].concat());
        assert_eq!(client.hear_error().0, "INVALID_PACKET", "{fields:?}");
    }
}

#[test]
fn a_reduce_job_shows_its_reducer_to_those_who_ask_for_all() {
    let bench = Bench::new();
    let (mut client, mut worker) = (bench.open(), bench.open());
    worker.can_do("red");
    let reduce = |is_background| SubmitKind::Reduce {
        reducer: bytes("reducer-fn"),
        aggregator: bytes("agg"),
        is_background,
    };
    let handle = client.submit(reduce(false), "red", "ru", "data");
    let job = worker.grab(GrabKind::All).unwrap();
    assert_eq!((job.unique, job.reducer), (Some(bytes("ru")), Some(bytes("reducer-fn"))));
    worker.complete(&handle, "ok");
    client.hears_complete(&handle, "ok");
    for kind in [GrabKind::Uniq, GrabKind::Plain] {
        let handle = client.submit(reduce(true), "red", "ru", "data");
        let job = worker.grab(kind).unwrap();
        assert_eq!((job.handle, job.reducer), (handle.clone(), None));
        worker.complete(&handle, "ok");
    }
    client.hears_nothing();
    client.add("red", "u", "data");
    let job = worker.grab(GrabKind::All).unwrap();
    assert_eq!((job.unique, job.reducer), (Some(bytes("u")), None));
}

#[test]
fn high_goes_before_normal_before_low_and_age_decides_among_equals() {
    let bench = Bench::new();
    let (mut client, mut worker) = (bench.open(), bench.open());
    for (payload, priority) in [
        ("n1", Priority::Normal),
        ("l1", Priority::Low),
        ("h1", Priority::High),
        ("n2", Priority::Normal),
        ("l2", Priority::Low),
        ("h2", Priority::High),
    ] {
        client.submit(SubmitKind::Background(priority), "f", "", payload);
    }
    worker.can_do("f");
    let taken: Vec<String> = (0..6).map(|_| worker.take_payload()).collect();
    assert_eq!(taken, ["h1", "h2", "n1", "n2", "l1", "l2"]);
}

#[test]
fn priority_counts_across_functions_and_equals_take_turns() {
    let bench = Bench::new();
    let (mut client, mut worker) = (bench.open(), bench.open());
    for (function, payload, priority) in [
        ("pr", "a-low", Priority::Low),
        ("pr2", "b-high", Priority::High),
        ("pr", "a-norm", Priority::Normal),
        ("pr2", "b-norm", Priority::Normal),
        ("pr", "a-norm2", Priority::Normal),
        ("pr2", "b-norm2", Priority::Normal),
    ] {
        client.submit(SubmitKind::Background(priority), function, "", payload);
    }
    worker.can_do("pr");
    worker.can_do("pr2");
    let taken: Vec<String> = (0..6).map(|_| worker.take_payload()).collect();
    assert_eq!(taken, ["b-high", "a-norm", "b-norm", "a-norm2", "b-norm2", "a-low"]);
}

#[test]
fn requests_may_follow_each_other_without_waiting_for_answers() {
    let bench = Bench::new();
    let (mut client, mut worker) = (bench.open(), bench.open());
    for payload in 0..50 {
        let payload = payload.to_string();
        client.send(&submit(SubmitKind::Foreground(Priority::Normal), "f", "", &payload));
        client.send(&submit(SubmitKind::Background(Priority::Normal), "f", "", &payload));
    }
    client.send(&Request::Echo { data: bytes("end") });
    for _ in 0..100 {
        assert!(matches!(client.hear(), Response::JobCreated { .. }));
    }
    assert_eq!(client.hear(), Response::Echo { data: bytes("end") });
    worker.can_do("f");
    let handle = worker.take();
    worker.complete(&handle, "r");
    client.hears_complete(&handle, "r");
}
