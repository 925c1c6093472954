//! What is decided where the draft is silent, one rule a test.

use std::io::{Read, Write};

use bytes::Bytes;
use spindle_core::Status;
use spindle_core::address::from_gearman_handle;
use spindle_core::audit::Actor;
use spindle_core::job::Origin;
use spindle_engine::{Audit, Engine, JobRef, Options};
use spindle_gearman::wire::draft::{ErrorCode, JobKind, Progress, Reply, Request};
use spindle_gearman::wire::{self, Response, Submit, SubmitKind};
use spindle_testkit::opened;

use crate::client::{TestServer, create, published};

fn completed(code: u8, result: &str) -> (u32, u8, String) {
    (1, code, result.to_owned())
}

fn ready(engine: &Engine, queue: &str) -> usize {
    opened(engine.queues().get(queue.as_bytes()))
        .map_or(0, |queue| queue.counts[Status::Ready as usize])
}

fn count_jobs(engine: &Engine, queue: &str) -> usize {
    opened(engine.queues().get(queue.as_bytes())).map_or(0, |queue| queue.counts.iter().sum())
}

// ---- one job at a time ----

#[test]
fn a_worker_that_asks_while_it_has_a_job_gets_that_job_again() {
    let server = TestServer::new();
    let mut application = server.client();
    application.create(JobKind::Handle, "mail", "", "one");
    application.create(JobKind::Handle, "mail", "", "two");
    let mut worker = server.worker(&["mail"]);
    worker.takes("mail", "one");
    worker.takes("mail", "one");
    worker.complete(0, "");
    worker.takes("mail", "two");
    assert_eq!(ready(&server.engine, "mail"), 0);
}

#[test]
fn a_worker_whose_job_was_deleted_gets_another_and_cannot_finish_the_old_one() {
    let server = TestServer::new();
    let mut application = server.client();
    let handle = application.create(JobKind::Handle, "mail", "", "one");
    application.create(JobKind::Handle, "mail", "", "two");
    let mut worker = server.worker(&["mail"]);
    worker.takes("mail", "one");
    let id = from_gearman_handle(&handle).unwrap();
    opened(server.engine.people(&mut Audit::new(Actor::default())).delete(JobRef::Id(id))).unwrap();
    drop(server.engine.turn());
    worker.announce(1, 2, 0);
    worker.hears_error(ErrorCode::NoJobHeld);
    worker.takes("mail", "two");
}

#[test]
fn announcements_without_a_job_are_errors_and_the_conversation_goes_on() {
    let server = TestServer::new();
    let mut worker = server.worker(&["mail"]);
    worker.announce(1, 2, 0);
    worker.hears_error(ErrorCode::NoJobHeld);
    worker.complete(0, "");
    worker.hears_error(ErrorCode::NoJobHeld);
    server.client().create(JobKind::Handle, "mail", "", "x");
    worker.takes("mail", "x");
    worker.complete(0, "");
    worker.complete(0, "twice");
    worker.hears_error(ErrorCode::NoJobHeld);
}

// ---- abilities and sleep ----

#[test]
fn a_later_announcement_replaces_the_earlier_one() {
    let server = TestServer::new();
    let mut application = server.client();
    application.create(JobKind::Handle, "old", "", "x");
    application.create(JobKind::Handle, "new", "", "y");
    let mut worker = server.worker(&["old"]);
    worker.connect(&["new"]);
    worker.takes("new", "y");
    worker.complete(0, "");
    assert_eq!(worker.job(), None);
    worker.connect(&[]);
    assert_eq!(worker.job(), None);
}

#[test]
fn a_worker_need_not_sleep_while_there_is_work() {
    let server = TestServer::new();
    server.client().create(JobKind::Handle, "mail", "", "x");
    let mut worker = server.worker(&["mail"]);
    assert_eq!(worker.ask(&Request::WorkerSleep), Reply::Noop);
    worker.takes("mail", "x");
}

#[test]
fn a_sleeper_that_announces_something_new_is_woken_for_it() {
    let server = TestServer::new();
    server.client().create(JobKind::Handle, "resize", "", "x");
    let mut worker = server.worker(&["mail"]);
    worker.send(&Request::WorkerSleep);
    worker.hears_nothing();
    worker.connect(&["mail", "resize"]);
    assert_eq!(worker.hear(), Reply::Noop);
}

#[test]
fn only_a_worker_that_said_it_sleeps_is_woken_and_only_once() {
    let server = TestServer::new();
    let mut application = server.client();
    let mut awake = server.worker(&["mail"]);
    awake.hears_nothing();
    let mut sleeper = server.worker(&["mail"]);
    sleeper.send(&Request::WorkerSleep);
    sleeper.hears_nothing();
    application.create(JobKind::Handle, "mail", "", "1");
    application.create(JobKind::Handle, "mail", "", "2");
    assert_eq!(sleeper.hear(), Reply::Noop);
    sleeper.hears_nothing();
    awake.hears_nothing();
}

#[test]
fn a_job_goes_back_when_its_worker_is_gone() {
    let server = TestServer::new();
    let mut application = server.client();
    let handle = application.create(JobKind::Handle, "mail", "", "x");
    let mut polite = server.worker(&["mail"]);
    polite.takes("mail", "x");
    polite.announce(1, 2, 9);
    polite.send(&Request::WorkerDisconnect);
    polite.is_closed();
    server.until("the job is ready again", |engine| ready(engine, "mail") == 1);
    // The worker's earlier report does not count any more.
    assert_eq!(application.status(&handle), (0, 0, 0));
    let mut rude = server.worker(&["mail"]);
    rude.takes("mail", "x");
    drop(rude);
    server.until("the job is ready again", |engine| ready(engine, "mail") == 1);
}

// ---- the three types ----

#[test]
fn only_the_type_with_a_handle_gets_one() {
    let server = TestServer::new();
    let mut application = server.client();
    assert!(!application.create(JobKind::Handle, "mail", "", "").is_empty());
    assert!(application.create(JobKind::ThrowAway, "mail", "", "").is_empty());
    assert!(application.create(JobKind::Sync, "mail", "", "").is_empty());
}

#[test]
fn a_job_to_throw_away_keeps_no_result() {
    let server = TestServer::new();
    let mut application = server.client();
    application.create(JobKind::ThrowAway, "mail", "k", "x");
    // The same job, with a handle: what the first one said about its result holds.
    let handle = application.create(JobKind::Handle, "mail", "k", "x");
    let mut worker = server.worker(&["mail"]);
    worker.takes("mail", "x");
    worker.complete(0, "a result");
    worker.hears_nothing();
    assert_eq!(application.completion(&handle), completed(0, ""));
}

#[test]
fn one_sync_job_at_a_time_and_no_questions_meanwhile() {
    let server = TestServer::new();
    let mut application = server.client();
    let handle = application.create(JobKind::Handle, "other", "", "");
    application.create(JobKind::Sync, "mail", "", "x");
    application.send(&create(JobKind::Sync, "mail", "", "y"));
    application.hears_error(ErrorCode::SyncJobOpen);
    application.send(&Request::JobStatus { handle: handle.clone() });
    application.hears_error(ErrorCode::SyncJobOpen);
    application.send(&Request::JobComplete { handle: handle.clone() });
    application.hears_error(ErrorCode::SyncJobOpen);
    // What has an answer of its own is taken.
    assert!(!application.create(JobKind::Handle, "other", "", "").is_empty());

    let mut worker = server.worker(&["mail"]);
    worker.takes("mail", "x");
    worker.complete(3, "failed");
    assert_eq!(application.hears_completion(), completed(3, "failed"));
    assert_eq!(application.status(&handle), (0, 0, 0));
    application.create(JobKind::Sync, "mail", "", "z");
    worker.takes("mail", "z");
}

#[test]
fn a_sync_job_nobody_has_started_goes_with_its_application() {
    let server = TestServer::new();
    let mut application = server.client();
    application.create(JobKind::Sync, "mail", "", "x");
    assert_eq!(ready(&server.engine, "mail"), 1);
    drop(application);
    server.until("the job is gone", |engine| ready(engine, "mail") == 0);
}

#[test]
fn a_sync_job_that_is_deleted_ends_as_failed() {
    let server = TestServer::new();
    let mut application = server.client();
    application.create(JobKind::Sync, "mail", "", "x");
    let id = server.engine.inspect(|state| state.ready_jobs(b"mail", 0).next().unwrap().id());
    server.pass(5_500);
    opened(server.engine.people(&mut Audit::new(Actor::default())).delete(JobRef::Id(id))).unwrap();
    drop(server.engine.turn());
    assert_eq!(application.hears_completion(), (5, 255, String::new()));
}

// ---- duplicate keys ----

#[test]
fn duplicate_keys_join_within_a_name_while_the_job_is_unfinished() {
    let server = TestServer::new();
    let mut application = server.client();
    let first = application.create(JobKind::Handle, "bday", "2026-11-21", "first");
    assert_eq!(application.create(JobKind::Handle, "bday", "2026-11-21", "second"), first);
    assert_ne!(application.create(JobKind::Handle, "bday", "2026-11-22", "other day"), first);
    assert_ne!(application.create(JobKind::Handle, "mail", "2026-11-21", "other name"), first);
    assert_eq!(count_jobs(&server.engine, "bday"), 2);
    let mut worker = server.worker(&["bday"]);
    worker.takes("bday", "first");
    assert_eq!(application.create(JobKind::Handle, "bday", "2026-11-21", "third"), first);
    worker.complete(0, "");
    worker.hears_nothing();
    assert_ne!(application.create(JobKind::Handle, "bday", "2026-11-21", "fourth"), first);
}

#[test]
fn an_empty_key_joins_nothing() {
    let server = TestServer::new();
    let mut application = server.client();
    let first = application.create(JobKind::Handle, "mail", "", "same");
    assert_ne!(application.create(JobKind::Handle, "mail", "", "same"), first);
}

#[test]
fn everybody_who_waits_for_a_joined_job_hears_of_it() {
    let server = TestServer::new();
    let mut applications = [server.client(), server.client()];
    for application in &mut applications {
        application.create(JobKind::Sync, "mail", "k", "x");
    }
    let handle = server.client().create(JobKind::Handle, "mail", "k", "x");
    let mut worker = server.worker(&["mail"]);
    worker.takes("mail", "x");
    worker.announce(1, 4, 2);
    worker.complete(0, "once");
    for application in &mut applications {
        let progress = Progress { numerator: 1, denominator: 4, remaining_s: 2 };
        assert_eq!(application.hear(), Reply::JobStatus(progress));
        assert_eq!(application.hears_completion(), completed(0, "once"));
    }
    assert_eq!(server.client().completion(&handle), completed(0, "once"));
}

// ---- questions ----

#[test]
fn unknown_handles_are_errors_and_the_conversation_goes_on() {
    let server = TestServer::new();
    let mut application = server.client();
    for handle in ["", "nonsense", "H:localhost:999999", "H:localhost:x"] {
        let handle = Bytes::copy_from_slice(handle.as_bytes());
        application.send(&Request::JobStatus { handle: handle.clone() });
        application.hears_error(ErrorCode::UnknownJob);
        application.send(&Request::JobComplete { handle });
        application.hears_error(ErrorCode::UnknownJob);
    }
}

#[test]
fn elapsed_seconds_count_from_the_creation_and_are_never_zero() {
    let server = TestServer::new();
    let mut application = server.client();
    let mut worker = server.worker(&["mail"]);
    for (waited_ms, worked_ms, elapsed_s) in [(0, 0, 1), (400, 599, 1), (1_000, 1_000, 2)] {
        let handle = application.create(JobKind::Handle, "mail", "", "");
        server.pass(waited_ms);
        worker.takes("mail", "");
        server.pass(worked_ms);
        worker.complete(0, "");
        worker.hears_nothing();
        assert_eq!(application.completion(&handle).0, elapsed_s);
    }
}

#[test]
fn every_code_of_a_worker_is_kept_and_told() {
    let server = TestServer::new();
    let mut application = server.client();
    let mut worker = server.worker(&["mail"]);
    for code in [0, 1, 127, 128, 255] {
        let handle = application.create(JobKind::Handle, "mail", "", "");
        worker.takes("mail", "");
        worker.complete(code, "said");
        worker.hears_nothing();
        assert_eq!(application.completion(&handle), completed(code, "said"));
        let id = from_gearman_handle(&handle).unwrap();
        let image = opened(server.engine.jobs().get(JobRef::Id(id)).unwrap()).unwrap();
        let kept = if code == 0 { String::new() } else { code.to_string() };
        assert_eq!(image.outcome.unwrap().code, kept);
        assert_eq!(image.origin, Origin::GearmanDraft as i32);
    }
}

#[test]
fn results_are_kept_an_hour() {
    let server = TestServer::new();
    let mut application = server.client();
    let handle = application.create(JobKind::Handle, "mail", "", "");
    let mut worker = server.worker(&["mail"]);
    worker.takes("mail", "");
    worker.complete(0, "kept");
    worker.hears_nothing();
    server.pass(3_599_000);
    assert_eq!(application.completion(&handle), completed(0, "kept"));
    server.pass(2_000);
    application.send(&Request::JobComplete { handle });
    application.hears_error(ErrorCode::UnknownJob);
}

// ---- errors ----

#[test]
fn malformed_packets_close_the_connection_after_a_word() {
    let server = TestServer::new();
    for (bytes, code) in [
        (&b"\x01SPD\x04\0\0\0\x04mail"[..], ErrorCode::Malformed),
        (b"\x01SPD\x04\0\0\0\x08mail\0\0\0\x03", ErrorCode::Malformed),
        (b"\x01SPD\x08\0\0\0\x01x", ErrorCode::Malformed),
        (b"\x01SPD\x07\0\0\0\0", ErrorCode::UnknownType),
        (b"\x01SPD\x0E\0\0\0\0", ErrorCode::UnknownType),
        (b"\x01SPD\x09\xff\xff\xff\xff", ErrorCode::TooLong),
    ] {
        let mut client = server.client();
        client.raw(bytes);
        client.hears_error(code);
        client.is_closed();
    }
}

#[test]
fn a_peer_that_has_lost_its_place_is_closed_without_a_word() {
    let server = TestServer::new();
    let mut client = server.client();
    client.raw(b"\x01SPD\x06\0\0\0\0");
    assert_eq!(client.hear(), Reply::Noop);
    client.raw(b"\0REQ\0\0\0\x10\0\0\0\0");
    client.is_closed();
    let mut client = server.client();
    client.raw(b"\x01XXX");
    client.is_closed();
}

#[test]
fn a_result_over_the_limit_fails_the_job() {
    let server = TestServer::with(Options { payload_bytes_max: 100, ..Options::default() });
    let mut application = server.client();
    application.send(&create(JobKind::Handle, "mail", "", &"x".repeat(101)));
    application.hears_error(ErrorCode::Refused);
    let handle = application.create(JobKind::Handle, "mail", "", &"x".repeat(100));
    let mut worker = server.worker(&["mail"]);
    worker.takes("mail", &"x".repeat(100));
    worker.complete(0, &"y".repeat(101));
    worker.hears_error(ErrorCode::Refused);
    assert_eq!(application.completion(&handle), completed(255, ""));
}

// ---- beside the published protocol ----

#[test]
fn a_job_of_the_published_protocol_is_worked_by_a_worker_of_the_draft() {
    let server = TestServer::new();
    let submit = wire::Request::Submit(Submit {
        kind: SubmitKind::Background(wire::Priority::Normal),
        function: Bytes::from_static(b"mail"),
        unique: Bytes::new(),
        payload: Bytes::from_static(b"x"),
    });
    let created = published(&server, &[submit], 1);
    let [Response::JobCreated { handle }] = &created[..] else { panic!("{created:?}") };
    let mut worker = server.worker(&["mail"]);
    worker.takes("mail", "x");
    worker.complete(0, "done");
    worker.hears_nothing();
    assert_eq!(server.client().completion(handle), completed(0, "done"));
}

#[test]
fn a_job_of_the_draft_is_worked_by_a_worker_of_the_published_protocol() {
    let server = TestServer::new();
    let mut application = server.client();
    application.create(JobKind::Sync, "mail", "", "x");
    let id = server.engine.inspect(|state| state.ready_jobs(b"mail", 0).next().unwrap().id());
    let handle = Bytes::from(format!("H:localhost:{id}"));
    let work = [
        wire::Request::CanDo { function: Bytes::from_static(b"mail") },
        wire::Request::Grab(wire::GrabKind::Plain),
        wire::Request::WorkStatus {
            handle: handle.clone(),
            numerator: Bytes::from_static(b"3"),
            denominator: Bytes::from_static(b"99999999999"),
        },
        wire::Request::WorkData { handle: handle.clone(), data: Bytes::from_static(b"in ") },
        wire::Request::WorkWarning { handle: handle.clone(), data: Bytes::from_static(b"!") },
        wire::Request::WorkComplete { handle, result: Bytes::from_static(b"pieces") },
        wire::Request::Echo { data: Bytes::new() },
    ];
    published(&server, &work, 2);
    let progress = Progress { numerator: 3, denominator: u32::MAX, remaining_s: 0 };
    assert_eq!(application.hear(), Reply::JobStatus(progress));
    // The draft has no packet for pieces: they are in the result.
    assert_eq!(application.hears_completion(), completed(0, "in pieces"));
}

#[test]
fn a_failure_of_another_protocol_has_code_255() {
    let server = TestServer::new();
    let mut application = server.client();
    let handle = application.create(JobKind::Handle, "mail", "", "x");
    let work = [
        wire::Request::CanDo { function: Bytes::from_static(b"mail") },
        wire::Request::Grab(wire::GrabKind::Plain),
        wire::Request::WorkException { handle: handle.clone(), data: Bytes::from_static(b"boom") },
        wire::Request::Echo { data: Bytes::new() },
    ];
    published(&server, &work, 2);
    assert_eq!(application.completion(&handle), completed(255, "boom"));
}

#[test]
fn workers_of_the_draft_are_counted_in_the_text_commands() {
    let server = TestServer::new();
    let mut worker = server.worker(&["mail"]);
    worker.hears_nothing();
    let mut stream = server.connect();
    stream.write_all(b"status\n").unwrap();
    let mut heard = Vec::new();
    let mut buffer = [0; 256];
    while !heard.ends_with(b".\n") {
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0);
        heard.extend_from_slice(&buffer[..count]);
    }
    assert_eq!(heard.escape_ascii().to_string(), "mail\\t0\\t0\\t1\\n.\\n");
}
