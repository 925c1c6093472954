//! What is sent, how it is signed, what is tried again.

use std::{
    fs,
    process::{Command, Stdio},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use serde_json::json;
use spindle_core::audit::{Action, Actor};
use spindle_core::{command::Command::Release, job::Cause};
use spindle_engine::{Audit, WorkResult};
use spindle_testkit::opened;
use spindle_webhook::{Authorities, Options, SIGNATURE_HEADER};

use crate::receiver::{
    Post, Receiver, SECRET, cancelled, dead, lease, memory, options, start, submit,
};

#[test]
fn a_dead_job_is_told_with_what_its_worker_said() {
    let engine = memory();
    let receiver = Receiver::start(|_| 204);
    let hooks = start(&engine, &receiver, "dead", &options());
    cancelled(&engine, "mail");
    let id = dead(&engine, "mail", "no such address");
    let post = receiver.next();
    assert_eq!(post.head[0], "POST /hook?token=hidden HTTP/1.1");
    assert_eq!(post.header("content-type"), "application/json");
    assert_eq!(post.header("spindle-event"), "job_dead");
    let answer = post.json();
    assert_eq!((&answer["event"], &answer["server"]), (&json!("job_dead"), &json!("box")));
    let job = &answer["job"];
    assert_eq!((&job["id"], &job["queue"]), (&json!(id.0), &json!("mail")));
    assert_eq!((&job["message"], &job["code"]), (&json!("no such address"), &json!("E42")));
    assert_eq!((&job["attempts"], &job["fails"]), (&json!(1), &json!(1)));
    assert!(answer["at"].as_str().unwrap().ends_with('Z'), "{answer}");
    assert!(receiver.is_quiet(), "a cancelled job is no alarm");
    drop(hooks);
    engine.stop();
}

#[test]
fn a_job_that_loses_its_workers_is_told_with_why_it_is_dead() {
    let engine = memory();
    let receiver = Receiver::start(|_| 204);
    let hooks = start(&engine, &receiver, "dead", &options());
    let mail = Bytes::from_static(b"mail");
    opened(engine.people(&mut Audit::new(Actor::default())).change_queue(
        Action::SetQueue,
        &mail,
        |queue| queue.attempts_max = Some(1),
    ))
    .unwrap();
    submit(&engine, "mail");
    let claim = lease(&engine, "mail");
    opened(engine.jobs().execute(&Release { claim, cause: Cause::HolderGone })).unwrap();
    drop(engine.turn());
    let job = receiver.next().json()["job"].clone();
    assert_eq!((&job["code"], &job["fails"]), (&json!("worker_lost"), &json!(0)));
    assert_eq!(job["message"], "1 of 1 attempts: the last worker was lost");
    drop(hooks);
    engine.stop();
}

#[test]
fn what_a_worker_says_is_cut_between_letters_and_told_whatever_its_code() {
    let engine = memory();
    let receiver = Receiver::start(|_| 204);
    let hooks = start(&engine, &receiver, "dead", &options());
    submit(&engine, "mail");
    let claim = lease(&engine, "mail");
    let error = format!("x{}", "\u{e9}".repeat(600));
    let result = WorkResult {
        code: Bytes::from_static(b"cancelled"),
        error: Bytes::from(error.clone()),
        ..WorkResult::default()
    };
    opened(engine.leases().finish(claim, result)).unwrap();
    drop(engine.turn());
    let job = receiver.next().json()["job"].clone();
    assert_eq!((&job["code"], &job["error"]), (&json!("cancelled"), &json!(error[..1023])));
    drop(hooks);
    engine.stop();
}

#[test]
fn a_receiver_over_tls_is_told_when_its_certificate_is_vouched_for() {
    let engine = memory();
    let (receiver, certificate) = Receiver::start_encrypted(|_| 204);
    let authorities = vouched_for_by(&certificate);
    let hooks = start(&engine, &receiver, "dead", &Options { authorities, ..options() });
    dead(&engine, "mail", "no such address");
    let post = receiver.next();
    assert_eq!(post.head[0], "POST /hook?token=hidden HTTP/1.1");
    assert_eq!(post.json()["job"]["message"], "no such address");
    drop(hooks);
    engine.stop();
}

#[test]
fn a_receiver_whose_certificate_nobody_vouches_for_is_told_nothing() {
    let engine = memory();
    let (receiver, _) = Receiver::start_encrypted(|_| 204);
    let (_, other) = Receiver::start_encrypted(|_| 204);
    for authorities in [Authorities::default(), vouched_for_by(&other)] {
        let hooks = start(&engine, &receiver, "dead", &Options { authorities, ..options() });
        dead(&engine, "mail", "no such address");
        assert!(receiver.is_quiet());
        drop(hooks);
    }
    engine.stop();
}

/// Only the authorities in this text of PEM.
fn vouched_for_by(pem: &str) -> Authorities {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(&file, pem).unwrap();
    Authorities::read(file.path()).unwrap()
}

/// The signature by another program, from what the page of webhooks says.
fn signature(time: &str, body: &[u8]) -> String {
    let mut openssl = Command::new("openssl")
        .args(["dgst", "-sha256", "-hmac", std::str::from_utf8(SECRET).unwrap()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = openssl.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, &[time.as_bytes(), b".", body].concat()).unwrap();
    drop(stdin);
    let output = openssl.wait_with_output().unwrap();
    String::from_utf8(output.stdout).unwrap().split_whitespace().last().unwrap().to_owned()
}

fn signed_at(post: &Post) -> u64 {
    let (time, answer) = post.header(SIGNATURE_HEADER).split_once(",v1=").unwrap();
    let time = time.strip_prefix("t=").unwrap();
    assert_eq!(answer, signature(time, &post.body));
    time.parse().unwrap()
}

#[test]
fn a_delivery_is_signed_with_the_time_it_is_sent() {
    let engine = memory();
    let receiver = Receiver::start(|_| 200);
    let hooks = start(&engine, &receiver, "", &options());
    dead(&engine, "q", "x");
    let post = receiver.next();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    assert!(now.abs_diff(signed_at(&post)) < 60);
    assert!(!post.head.concat().contains("a secret"));
    drop(hooks);
    engine.stop();
}

#[test]
fn what_fails_is_tried_again_in_order_until_it_is_taken() {
    let engine = memory();
    // An error, no answer, too many, and then all is well.
    let receiver = Receiver::start(|number| [500, 0, 429].get(number).copied().unwrap_or(200));
    let hooks = start(&engine, &receiver, "dead", &options());
    dead(&engine, "q", "first");
    dead(&engine, "q", "second");
    let posts: Vec<Post> = (0..5).map(|_| receiver.next()).collect();
    let messages: Vec<_> = posts.iter().map(|post| post.json()["job"]["message"].clone()).collect();
    assert_eq!(messages, ["first", "first", "first", "first", "second"]);
    let ids: Vec<_> = posts.iter().map(|post| post.json()["id"].clone()).collect();
    assert!(ids[..4].iter().all(|id| *id == ids[0]) && ids[4] != ids[0], "{ids:?}");
    assert!(receiver.is_quiet());
    drop(hooks);
    engine.stop();
}

#[test]
fn what_is_refused_or_redirected_is_not_told_again() {
    let engine = memory();
    let receiver = Receiver::start(|number| [302, 404].get(number).copied().unwrap_or(200));
    let hooks = start(&engine, &receiver, "dead", &options());
    for message in ["redirected", "refused", "taken"] {
        dead(&engine, "q", message);
    }
    for message in ["redirected", "refused", "taken"] {
        let post = receiver.next();
        assert_eq!(post.json()["job"]["message"], message);
        assert!(post.head[0].starts_with("POST /hook"), "{}", post.head[0]);
    }
    assert!(receiver.is_quiet());
    drop(hooks);
    engine.stop();
}

#[test]
fn only_the_queues_a_hook_is_about_are_told() {
    let engine = memory();
    let receiver = Receiver::start(|_| 200);
    let hooks = start(&engine, &receiver, "dead queue=mail* queue=sms", &options());
    for queue in ["other", "mailing", "sms", "xmail"] {
        dead(&engine, queue, queue);
    }
    assert_eq!(receiver.next().json()["job"]["queue"], "mailing");
    assert_eq!(receiver.next().json()["job"]["queue"], "sms");
    assert!(receiver.is_quiet());
    drop(hooks);
    engine.stop();
}

#[test]
fn a_queue_that_needs_somebody_is_told_once_and_so_is_its_end() {
    let engine = memory();
    let receiver = Receiver::start(|_| 200);
    let hooks = start(&engine, &receiver, "older=1s no-worker=1s queue=slow", &options());
    submit(&engine, "slow");
    submit(&engine, "fast");
    let mut begins: Vec<Post> = vec![receiver.next(), receiver.next()];
    begins.sort_by_key(|post| post.header("spindle-event").to_owned());
    for (post, event) in begins.iter().zip(["queue_no_worker", "queue_older"]) {
        let answer = post.json();
        assert_eq!((&answer["event"], &answer["state"]), (&json!(event), &json!("begins")));
        assert_eq!((&answer["queue"], &answer["ready"]), (&json!("slow"), &json!(1)));
        assert_eq!(answer["threshold_s"], 1);
        assert!(answer["next_ready_age_ms"].as_u64().unwrap() >= 1_000, "{answer}");
    }
    assert!(receiver.is_quiet(), "it is reported once");
    let claim = lease(&engine, "slow");
    let ends = [receiver.next().json(), receiver.next().json()];
    assert!(ends.iter().all(|answer| answer["state"] == "ends"), "{ends:?}");
    let done = WorkResult { success: true, ..WorkResult::default() };
    opened(engine.leases().finish(claim, done)).unwrap();
    assert!(receiver.is_quiet());
    drop(hooks);
    engine.stop();
}

#[test]
fn a_receiver_that_never_answers_holds_up_neither_the_engine_nor_the_end() {
    let engine = memory();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let hook = format!("http://{}/ dead", silent.local_addr().unwrap()).parse().unwrap();
    let options = Options { answer_within: Duration::from_secs(3_600), ..options() };
    let secret = spindle_webhook::Secret::new(SECRET).unwrap();
    let hooks = spindle_webhook::Webhooks::start(&engine, vec![hook], &secret, &options).unwrap();
    dead(&engine, "q", "x");
    let (_held, _) = silent.accept().unwrap();
    for _ in 0..100 {
        dead(&engine, "q", "y");
    }
    let begun = Instant::now();
    drop(hooks);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    engine.stop();
}
