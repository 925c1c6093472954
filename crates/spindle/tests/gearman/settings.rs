//! What the API sets for a queue holds for Gearman's jobs in it, whose protocol has no such thing;
//! and what the server's own flags say.

use bytes::Bytes;
use serde_json::{Value, json};
use spindle_gearman::wire::{GrabKind, Priority, Request, Response, Submit, SubmitKind};

use spindle_testkit::HttpRequest;

use crate::server::{Peer, Served};

fn ask(served: &Served, head: &str, body: &str) -> Value {
    let (status, body) = HttpRequest::send(served.http.as_ref().unwrap(), head, body).answer();
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

fn set(served: &Served, queue: &str, fails_max: u32, backoff_ms: u64) {
    let backoff = json!({ "base_ms": backoff_ms, "factor": 1, "cap_ms": backoff_ms, "jitter": 0 });
    let settings = json!({ "fails_max": fails_max, "backoff": backoff }).to_string();
    ask(served, &format!("PUT /api/v1/queues/{queue}/settings"), &settings);
}

fn submit(peer: &mut Peer, function: &'static str) -> Bytes {
    let kind = SubmitKind::Background(Priority::Normal);
    let [function, payload] = [function.as_bytes(), b"payload"].map(Bytes::from_static);
    peer.send(&Request::Submit(Submit { kind, function, unique: Bytes::new(), payload }));
    match peer.hear() {
        Response::JobCreated { handle } => handle,
        other => panic!("expected JOB_CREATED and got {other:?}"),
    }
}

/// Takes the job, when it is there, and fails it.
fn fail_one(worker: &mut Peer, handle: &Bytes) {
    loop {
        worker.send(&Request::Grab(GrabKind::Plain));
        match worker.hear() {
            Response::JobAssign(job) => {
                assert_eq!(job.handle, *handle);
                worker.send(&Request::WorkFail { handle: job.handle });
                return;
            }
            Response::NoJob => worker.send(&Request::PreSleep),
            // The worker was woken, or woken again while its request was being answered.
            Response::Noop => continue,
            other => panic!("expected a job and got {other:?}"),
        }
        assert_eq!(worker.hear(), Response::Noop);
    }
}

/// The job as the API tells it, once it failed so often.
fn failed(served: &Served, worker: &mut Peer, handle: &Bytes, fails: u64) -> Value {
    // When this is answered, the server has got the failure.
    worker.send(&Request::Echo { data: Bytes::from_static(b"heard") });
    assert!(matches!(worker.hear(), Response::Echo { .. }));
    let handle = std::str::from_utf8(handle).unwrap();
    let job = ask(served, &format!("GET /api/v1/jobs/{handle}"), "");
    assert_eq!(job["fails"], fails, "{job}");
    job
}

#[test]
fn a_queues_backoff_and_its_number_of_failures_hold_for_background_jobs() {
    let served = Served::with_http();
    let (mut client, mut worker) = (served.connect(), served.connect());

    // One failure of a Gearman job is final, unless its queue says otherwise.
    worker.can_do("once");
    let handle = submit(&mut client, "once");
    fail_one(&mut worker, &handle);
    assert_eq!(failed(&served, &mut worker, &handle, 1)["status"], "dead");

    set(&served, "later", 2, 3_600_000);
    worker.can_do("later");
    let handle = submit(&mut client, "later");
    fail_one(&mut worker, &handle);
    let job = failed(&served, &mut worker, &handle, 1);
    assert_eq!(job["status"], "scheduled", "{job}");
    client.send(&Request::GetStatus { handle: handle.clone() });
    let Response::Status { status, .. } = client.hear() else { panic!("asked for a status") };
    assert!(status.is_known && !status.is_running);

    // It comes back by itself after each failure, and calls the worker that sleeps.
    set(&served, "soon", 3, 20);
    worker.can_do("soon");
    let handle = submit(&mut client, "soon");
    for fails in 1..=3 {
        fail_one(&mut worker, &handle);
        let job = failed(&served, &mut worker, &handle, fails);
        assert_eq!(job["status"] == "dead", fails == 3, "{job}");
    }
}

/// What a client that has asked for nothing hears of a worker's exception.
fn heard_of_an_exception(served: &Served) -> Response {
    let (mut client, mut worker) = (served.connect(), served.connect());
    let kind = SubmitKind::Foreground(Priority::Normal);
    let [function, payload] = [&b"f"[..], b"payload"].map(Bytes::from_static);
    client.send(&Request::Submit(Submit { kind, function, unique: Bytes::new(), payload }));
    let Response::JobCreated { handle } = client.hear() else { panic!("submitted a job") };
    worker.can_do("f");
    worker.send(&Request::Grab(GrabKind::Plain));
    assert!(matches!(worker.hear(), Response::JobAssign(job) if job.handle == handle));
    worker.send(&Request::WorkException { handle, data: Bytes::from_static(b"boom") });
    client.hear()
}

#[test]
fn exceptions_reach_clients_that_never_asked_if_the_server_was_told_so() {
    let heard = heard_of_an_exception(&Served::with(&["--gearman-exceptions"]));
    assert!(matches!(&heard, Response::WorkException { data, .. } if data == "boom"), "{heard:?}");
    let heard = heard_of_an_exception(&Served::new());
    assert!(matches!(heard, Response::WorkFail { .. }), "{heard:?}");
}
