//! What the API does for jobs that workers of other doors have, or that came through other doors:
//! progress, output, cancels, turns of a fair queue.
//!
//! The table in docs/api.md of how a worker learns that its job was cancelled has a test for each
//! row here, but for jobd's: that is `the_process_of_a_cancelled_job_is_told_to_end` in
//! `tests/jobd/leases.rs`, where its workers are.

use std::{fs, time::Duration};

use bytes::Bytes;
use serde_json::{Value, json};
use spindle_gearman::{
    client::Connection,
    wire::{GrabKind, Priority, Request, Response, Submit, SubmitKind},
};
use spindle_testkit::{HttpRequest, wait_until};
use spindle_workq::{
    client::{Client, ClientError},
    wire::{NewJob, Uuid},
};

use crate::{native::served, serve::Served};

const PATIENCE: Duration = Duration::from_secs(30);

fn all_doors() -> Served {
    served(&["--memory", "--gearman", "127.0.0.1:0"])
}

fn ask_with(served: &Served, head: &str, headers: &str, body: &Value) -> (u16, Value) {
    let headers = format!(
        "Host: localhost\r\nContent-Type: application/json\r\n\
         Accept: application/json, application/problem+json\r\n{headers}"
    );
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let (status, text) =
        HttpRequest::send_with(served.address_of("http"), head, &headers, &body).answer();
    (status, serde_json::from_str(&text).unwrap_or_default())
}

#[track_caller]
fn ask(served: &Served, head: &str, body: &Value) -> Value {
    let (status, answer) = ask_with(served, head, "", body);
    assert!((200..300).contains(&status), "{head}: {status} {answer}");
    answer
}

fn workq(served: &Served) -> Client {
    Client::connect(&*served.address_of("workq"), PATIENCE).unwrap()
}

fn gearman(served: &Served) -> Connection {
    Connection::open(&*served.address_of("gearman"), PATIENCE, 1 << 20).unwrap()
}

fn workq_job(number: u128, payload: &str) -> NewJob {
    NewJob {
        id: Uuid::from_random((number + 1).to_be_bytes()),
        name: Bytes::from_static(b"q"),
        ttr_ms: 60_000,
        ttl_ms: 3_600_000,
        priority: 0,
        attempts_max: 0,
        fails_max: 0,
        payload: Bytes::copy_from_slice(payload.as_bytes()),
    }
}

fn gearman_job(client: &mut Connection, payload: &str) {
    let [function, unique] = [&b"q"[..], b""].map(Bytes::from_static);
    let payload = Bytes::copy_from_slice(payload.as_bytes());
    let kind = SubmitKind::Background(Priority::Normal);
    client.send(&Request::Submit(Submit { kind, function, unique, payload })).unwrap();
    let answer = client.receive().unwrap();
    assert!(matches!(answer, Response::JobCreated { .. }), "{answer:?}");
}

/// A worker of the queue.
fn gearman_worker(served: &Served) -> Connection {
    let mut worker = gearman(served);
    worker.send(&Request::CanDo { function: Bytes::from_static(b"q") }).unwrap();
    worker
}

/// The handle and the payload of the job that a worker gets. It has the job as long as it stays
/// connected.
fn gearman_take(worker: &mut Connection) -> (Bytes, Bytes) {
    worker.send(&Request::Grab(GrabKind::Plain)).unwrap();
    match worker.receive().unwrap() {
        Response::JobAssign(job) => (job.handle, job.payload),
        other => panic!("expected a job and got {other:?}"),
    }
}

/// A worker that asks, with room for ten jobs: its header.
fn lightjq_worker(served: &Served) -> String {
    let worker = ask(served, "POST /worker", &json!({ "name": "w", "max_jobs": 10 }));
    format!("worker-id: {}\r\n", worker["worker_id"].as_str().unwrap())
}

fn lightjq_take(served: &Served, worker: &str) -> Value {
    let (status, job) = ask_with(served, "GET /worker/job?timeout=30", worker, &Value::Null);
    assert_eq!(status, 200, "{job}");
    job
}

fn job_1(served: &Served) -> Value {
    ask(served, "GET /api/v1/jobs/1", &Value::Null)
}

/// How far job 1 is, as the API shows it: two texts, as workers of Gearman write them.
#[track_caller]
fn shows_progress(served: &Served, numerator: &str, denominator: &str) {
    let job = job_1(served);
    let progress = json!({ "numerator": numerator, "denominator": denominator });
    assert_eq!((&job["status"], &job["progress"]), (&json!("leased"), &progress), "{job}");
}

#[track_caller]
fn shows_output(served: &Served, texts: &[&str]) {
    let output = ask(served, "GET /api/v1/jobs/1/output", &Value::Null);
    let pieces = output["pieces"].as_array().unwrap().iter();
    let shown: Vec<&str> = pieces.map(|piece| piece["text"].as_str().unwrap()).collect();
    assert_eq!(shown, texts, "{output}");
}

/// Says how far job 1 is and writes output of it, as its worker may through the API, and looks
/// whether that is shown.
#[track_caller]
fn takes_progress_and_output(served: &Served) {
    ask(served, "POST /api/v1/jobs/1/progress", &json!({ "numerator": 3, "denominator": 4 }));
    shows_progress(served, "3", "4");
    ask(served, "POST /api/v1/jobs/1/output", &json!({ "text": "a line\n" }));
    shows_output(served, &["a line\n"]);
}

#[track_caller]
fn cancel(served: &Served) {
    ask(served, "POST /api/v1/jobs/1/cancel", &Value::Null);
}

/// It stays cancelled, whatever its worker said afterwards.
#[track_caller]
fn is_cancelled(served: &Served) {
    let job = job_1(served);
    assert_eq!((&job["status"], &job["result"]["code"]), (&json!("dead"), &json!("cancelled")));
    assert_eq!(job["progress"], Value::Null, "{job}");
}

// ---- progress and output, and a cancel ----

#[test]
fn the_page_says_of_each_door_how_its_workers_learn_of_a_cancel() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/api.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, section) = page.split_once("#### When a job is cancelled").unwrap();
    let (section, _) = section.split_once("\n#### ").unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| ")).skip(1);
    let doors: Vec<&str> = rows.map(|row| row.split(" | ").next().unwrap()).collect();
    // Each has a test: add one before a row.
    assert_eq!(doors, ["native API", "Workq", "Gearman", "LightJQ", "Jobq", "jobd"]);
}

#[test]
fn a_worker_of_the_api_learns_of_a_cancel_whatever_it_says_of_the_lease() {
    let served = all_doors();
    ask(&served, "POST /api/v1/jobs", &json!({ "queue": "q" }));
    let lease = ask(&served, "POST /api/v1/lease", &json!({ "queues": ["q"] }));
    let token = lease["lease_token"].as_str().unwrap();
    takes_progress_and_output(&served);
    let address = served.address_of("http");
    let follower = HttpRequest::send(&address, "GET /api/v1/jobs/1/events", "");
    cancel(&served);
    // The follower is not told to end: its stream ends with the job.
    let (status, events) = follower.answer();
    let ended = events.find("event: ended").map(|at| &events[at..]).unwrap_or_default();
    assert!(status == 200 && ended.contains(r#""status":"dead""#), "{events}");
    for (what, body) in [
        ("extend", json!({ "ttr_ms": 60_000 })),
        ("progress", json!({ "numerator": 4 })),
        ("output", json!({ "text": "more" })),
        ("complete", json!({})),
        ("fail", json!({ "message": "failed" })),
        ("release", Value::Null),
    ] {
        let head = format!("POST /api/v1/leases/{token}/{what}");
        let (status, answer) = ask_with(&served, &head, "", &body);
        assert_eq!((status, &answer["code"]), (409, &json!("lease_not_live")), "{what}: {answer}");
        assert_eq!(answer["reason"], "cancelled", "{what}: {answer}");
    }
    is_cancelled(&served);
    let feed = "GET /api/v1/events?after=oldest&follow=false";
    let (_, events) = HttpRequest::send(&address, feed, "").answer();
    assert!(events.contains("event: dead\n"), "{events}");
}

#[test]
fn a_worker_of_workq_learns_of_a_cancel_when_it_extends_or_ends_the_job() {
    let served = all_doors();
    let mut client = workq(&served);
    client.add(&workq_job(1, "x")).unwrap();
    let job = client.lease(&["q"], 0).unwrap();
    takes_progress_and_output(&served);
    client.extend(job.id, 60_000).unwrap();
    cancel(&served);
    let is = |answer: Result<(), ClientError>, words: &str| {
        assert!(matches!(&answer, Err(ClientError::Client(why)) if why == words), "{answer:?}");
    };
    is(client.extend(job.id, 60_000), "Not leased");
    is(client.complete(job.id, "done"), "Duplicate result");
    is(client.fail(job.id, "failed"), "Duplicate result");
    is_cancelled(&served);
}

#[test]
fn a_worker_of_gearman_learns_of_a_cancel_with_the_next_packet_about_the_job() {
    let served = all_doors();
    let (mut client, mut worker) = (gearman(&served), gearman_worker(&served));
    gearman_job(&mut client, "x");
    let (one, _) = gearman_take(&mut worker);
    takes_progress_and_output(&served);
    let [numerator, denominator, data] = [&b"30"[..], b"100", b"slow\n"].map(Bytes::from_static);
    let status = Request::WorkStatus { handle: one.clone(), numerator, denominator };
    let warning = Request::WorkWarning { handle: one.clone(), data: data.clone() };
    worker.send(&status).unwrap();
    worker.send(&warning).unwrap();
    // They have no answers: once the request sent after them is answered, they have come in.
    worker.send(&Request::Echo { data: data.clone() }).unwrap();
    assert_eq!(worker.receive().unwrap(), Response::Echo { data: data.clone() });
    shows_progress(&served, "30", "100");
    shows_output(&served, &["a line\n", "slow\n"]);
    cancel(&served);
    for said in [
        status,
        Request::WorkData { handle: one.clone(), data: data.clone() },
        warning,
        Request::WorkComplete { handle: one.clone(), result: data.clone() },
        Request::WorkFail { handle: one.clone() },
        Request::WorkException { handle: one, data },
    ] {
        worker.send(&said).unwrap();
        match worker.receive().unwrap() {
            Response::Error { code, .. } => assert_eq!(code, "JOB_NOT_FOUND", "{said:?}"),
            other => panic!("expected an ERROR and got {other:?}"),
        }
    }
    is_cancelled(&served);
}

#[test]
fn a_worker_of_lightjq_learns_of_a_cancel_when_it_ends_the_job_and_has_its_place_again() {
    let served = all_doors();
    let worker = lightjq_worker(&served);
    ask(&served, "POST /job", &json!({ "name": "q", "argument": {} }));
    let job = lightjq_take(&served, &worker);
    takes_progress_and_output(&served);
    cancel(&served);
    let done = json!({ "job_id": job["id"], "type": "success", "result": 1 });
    let (status, answer) = ask_with(&served, "POST /done", &worker, &done);
    assert_eq!((status, &answer["code"]), (404, &json!("job_not_found")), "{answer}");
    is_cancelled(&served);
    ask(&served, "POST /job", &json!({ "name": "q", "argument": {} }));
    assert_eq!(lightjq_take(&served, &worker)["id"], "2");
}

#[test]
fn a_client_of_jobq_learns_of_a_cancel_with_the_next_state() {
    let served = all_doors();
    ask(&served, "POST /api/v0/job/create", &json!({ "msg": "x" }));
    ask(&served, "POST /api/v0/job/1/state", &json!(["ASSIGNED"]));
    cancel(&served);
    let state = "POST /api/v0/job/1/state";
    let (status, answer) = ask_with(&served, state, "", &json!(["DONE"]));
    assert_eq!((status, &answer["code"]), (409, &json!("job_finished")), "{answer}");
    // The worker may still add to the job's log of events.
    ask(&served, "POST /api/v0/job/1/event", &json!(["stopped"]));
    is_cancelled(&served);
}

#[test]
fn a_deleted_job_is_not_there_for_its_worker() {
    let served = all_doors();
    let mut client = workq(&served);
    client.add(&workq_job(1, "x")).unwrap();
    let job = client.lease(&["q"], 0).unwrap();
    ask(&served, "POST /api/v1/jobs", &json!({ "queue": "q" }));
    let lease = ask(&served, "POST /api/v1/lease", &json!({ "queues": ["q"] }));
    ask(&served, "POST /api/v0/job/create", &json!({ "msg": "x" }));
    for id in 1..=3 {
        ask(&served, &format!("DELETE /api/v1/jobs/{id}"), &Value::Null);
    }
    for said in [client.extend(job.id, 60_000), client.complete(job.id, "done")] {
        assert!(matches!(said, Err(ClientError::NotFound)), "{said:?}");
    }
    let head = format!("POST /api/v1/leases/{}/complete", lease["lease_token"].as_str().unwrap());
    let (status, answer) = ask_with(&served, &head, "", &json!({}));
    assert_eq!((status, &answer["code"]), (410, &json!("lease_gone")), "{answer}");
    let (status, _) = ask_with(&served, "POST /api/v0/job/3/state", "", &json!(["DONE"]));
    assert_eq!(status, 404);
}

// ---- turns of a fair queue ----

/// The queue `q` is fair by a field of its jobs' payloads.
fn fair(served: &Served) {
    let settings = json!({ "fair": { "field": "/tenant" }, "bytes_type": "json" });
    ask(served, "PUT /api/v1/queues/q/settings", &settings);
}

/// Three jobs of one tenant before one of another.
const TENANTS: [&str; 4] = ["a", "a", "a", "b"];
const TURNS: [&str; 4] = ["a", "b", "a", "a"];

fn payload(tenant: &str) -> String {
    json!({ "tenant": tenant }).to_string()
}

fn tenant(payload: &[u8]) -> String {
    let payload: Value = serde_json::from_slice(payload).unwrap();
    payload["tenant"].as_str().unwrap().to_owned()
}

/// The tenants whose jobs a worker of the API gets, in order.
fn api_takes(served: &Served) -> [Value; 4] {
    TURNS.map(|_| {
        let lease = ask(served, "POST /api/v1/lease", &json!({ "queues": ["q"] }));
        lease["payload"]["tenant"].clone()
    })
}

#[test]
fn tenants_take_turns_whose_jobs_come_through_the_api() {
    let served = all_doors();
    fair(&served);
    for name in TENANTS {
        let job = json!({ "queue": "q", "payload": { "tenant": name } });
        ask(&served, "POST /api/v1/jobs", &job);
    }
    assert_eq!(api_takes(&served), TURNS);
}

#[test]
fn tenants_take_turns_whose_jobs_come_through_workq() {
    let served = all_doors();
    fair(&served);
    let mut client = workq(&served);
    for (number, name) in (0..).zip(TENANTS) {
        client.add(&workq_job(number, &payload(name))).unwrap();
    }
    assert_eq!(TURNS.map(|_| tenant(&client.lease(&["q"], 0).unwrap().payload)), TURNS);
}

#[test]
fn tenants_take_turns_whose_jobs_come_through_gearman() {
    let served = all_doors();
    fair(&served);
    let (mut client, mut worker) = (gearman(&served), gearman_worker(&served));
    TENANTS.iter().for_each(|name| gearman_job(&mut client, &payload(name)));
    assert_eq!(TURNS.map(|_| tenant(&gearman_take(&mut worker).1)), TURNS);
}

#[test]
fn a_job_of_a_lost_worker_waits_for_its_tenants_next_turn() {
    let served = all_doors();
    fair(&served);
    let mut client = gearman(&served);
    TENANTS.iter().for_each(|name| gearman_job(&mut client, &payload(name)));
    // Each of these workers disconnects before the next one comes, and its job is ready again.
    let takes_and_goes = |name: &str| {
        assert_eq!(tenant(&gearman_take(&mut gearman_worker(&served)).1), name);
        wait_until("nobody has a job", || {
            let queue = ask(&served, "GET /api/v1/queues/q", &Value::Null);
            queue["jobs"]["leased"] == 0
        });
    };
    ["a", "b", "a", "b"].iter().for_each(|name| takes_and_goes(name));
}

#[test]
fn tenants_take_turns_whose_jobs_come_through_lightjq() {
    let served = all_doors();
    // Arguments are MessagePack, and need no word about it.
    fair(&served);
    for name in TENANTS {
        ask(&served, "POST /job", &json!({ "name": "q", "argument": { "tenant": name } }));
    }
    let worker = lightjq_worker(&served);
    let taken = TURNS.map(|_| lightjq_take(&served, &worker)["argument"]["tenant"].clone());
    assert_eq!(taken, TURNS);
}

#[test]
fn tenants_take_turns_whose_jobs_come_through_jobq() {
    let served = all_doors();
    fair(&served);
    for name in TENANTS {
        ask(&served, "POST /api/v0/job/create?queue=q&ready=1", &json!({ "tenant": name }));
    }
    assert_eq!(api_takes(&served), TURNS);
}
