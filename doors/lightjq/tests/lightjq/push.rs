//! Bringing jobs to workers that have a server of their own.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use serde_json::{Value, json};
use spindle_access::Look;
use spindle_lightjq::wire::to_json;
use spindle_limits::{PlaceLimits, Places, Reason};
use spindle_testkit::{TokensFile, opened};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::Notify;

use crate::harness::{Bench, PATIENCE, ask, by, packed, until};

/// A worker's server, which notes what it is sent and answers as it was told.
#[derive(Clone, Default)]
struct Site {
    noted: Arc<Mutex<Noted>>,
    /// What [`Answer::Later`] waits for.
    go: Arc<Notify>,
}

#[derive(Default)]
struct Noted {
    orders: Vec<Value>,
    heads: Vec<(Uri, HeaderMap)>,
    /// By the job's name; 202 for others.
    answers: HashMap<String, Answer>,
}

#[derive(Clone, Copy)]
enum Answer {
    Status(u16),
    /// Goes away, to the address of this site.
    Elsewhere(SocketAddr),
    /// When it is said, then 202.
    Later,
    Never,
}

impl Site {
    async fn start() -> (Site, SocketAddr) {
        let site = Site::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let routes = Router::new().fallback(take_note).with_state(site.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        (site, addr)
    }

    fn answers(&self, name: &str, answer: Answer) {
        self.noted.lock().answers.insert(name.to_owned(), answer);
    }

    fn ids(&self) -> Vec<String> {
        let noted = self.noted.lock();
        noted.orders.iter().map(|order| order["id"].as_str().unwrap().to_owned()).collect()
    }

    async fn has(&self, count: usize) {
        until(|| self.noted.lock().orders.len() >= count).await;
    }
}

async fn take_note(State(site): State<Site>, uri: Uri, head: HeaderMap, body: Bytes) -> Response {
    let answer = {
        let mut noted = site.noted.lock();
        let order = to_json(&body).unwrap();
        let answer = noted.answers.get(order["name"].as_str().unwrap()).copied();
        noted.heads.push((uri, head));
        noted.orders.push(order);
        answer
    };
    match answer {
        None => StatusCode::ACCEPTED.into_response(),
        Some(Answer::Status(code)) => StatusCode::from_u16(code).unwrap().into_response(),
        Some(Answer::Elsewhere(addr)) => {
            let to = format!("http://{addr}/worker-job");
            (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, to)]).into_response()
        }
        Some(Answer::Later) => {
            site.go.notified().await;
            StatusCode::ACCEPTED.into_response()
        }
        Some(Answer::Never) => std::future::pending().await,
    }
}

async fn pushed_to(bench: &Bench, addr: SocketAddr, max_jobs: u32) -> String {
    let url = format!("http://{addr}/base/");
    bench.register(json!({ "name": "w", "max_jobs": max_jobs, "url": url })).await
}

#[tokio::test]
async fn jobs_are_posted_below_the_workers_address_and_counted_when_they_are_done() {
    let bench = Bench::new();
    let (site, addr) = Site::start().await;
    let worker = pushed_to(&bench, addr, 1).await;
    let job = json!({"name": "n", "argument": {"a": 1}, "keep_result": true});
    let id = bench.submit(job).await;
    site.has(1).await;
    let order = json!({"id": id, "job_id": id, "name": "n", "argument": {"a": 1}, "timeout": 30});
    assert_eq!(site.noted.lock().orders, [order]);
    {
        let noted = site.noted.lock();
        let (uri, head) = &noted.heads[0];
        assert_eq!(uri.path(), "/base/worker-job");
        assert_eq!(head[header::CONTENT_TYPE], "application/msgpack");
        assert_eq!(head["worker-id"], worker);
    }
    assert_eq!(bench.job(&id).await["worker_id"], json!(worker));
    bench.done(&worker, json!({"job_id": id, "type": "success", "result": 2})).await.is(204);
    assert_eq!(bench.job(&id).await["result"], 2);
}

#[tokio::test]
async fn a_worker_is_never_given_more_than_max_jobs_at_once() {
    let bench = Bench::new();
    let (site, addr) = Site::start().await;
    let worker = pushed_to(&bench, addr, 3).await;
    for _ in 0..10 {
        bench.submit_plain("n").await;
    }
    for done in 0..10 {
        site.has((done + 3).min(10)).await;
        let running = site.ids().len() - done;
        assert!(running <= 3, "{running} at once");
        let id = site.ids()[done].clone();
        bench.done(&worker, json!({"job_id": id, "type": "success"})).await.is(204);
    }
    let mut ids = site.ids();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 10, "each job once");
}

/// Two connections of the server's own are allowed: the third push waits for one, and no worker is blamed.
#[tokio::test]
async fn pushes_over_more_connections_than_there_are_places_wait_for_one() {
    let places = Places::new(PlaceLimits { total: 3, door: 2, address: 2 });
    let given = places.clone();
    let bench = Bench::with(|options| {
        options.places = given;
        // A worker would be lost at its first failure.
        options.drop_after_ms = 0;
    });
    let (site, addr) = Site::start().await;
    site.answers("slow", Answer::Later);
    let worker = pushed_to(&bench, addr, 3).await;
    bench.submit_plain("slow").await;
    bench.submit_plain("slow").await;
    site.has(2).await;
    let third = bench.submit(json!({"name": "n", "argument": {}, "max_retry": 0})).await;
    until(|| places.refusals()[0].1.count(Reason::Door) > 2).await;
    assert_eq!((site.ids().len(), places.open()), (2, vec![("lightjq-push", 2)]));
    assert!(bench.door.workers()[0].failing_since_ms.is_none());
    site.go.notify_waiters();
    site.has(3).await;
    assert_eq!(site.ids()[2], third);
    bench.done(&worker, json!({"job_id": third, "type": "success"})).await.is(204);
    assert!(places.open()[0].1 <= 2);
    drop(bench);
    until(|| places.open() == [("lightjq-push", 0)]).await;
}

#[tokio::test]
async fn a_worker_whose_token_is_gone_is_pushed_nothing_more() {
    let tokens = TokensFile::of_all_roles();
    let access = tokens.access(false);
    let given = access.clone();
    let bench = Bench::with(|options| options.access = given);
    let (site, addr) = Site::start().await;
    let register = |url: Option<String>| {
        let new = json!({ "name": "w", "max_jobs": 5, "names": ["mine.a"], "url": url });
        packed("POST", "/worker", None, &new)
    };
    let url = format!("http://{addr}/base/");
    bench.send_as("mine.work", register(Some(url))).await.is(201);
    let first = bench.submit_plain("mine.a").await;
    site.has(1).await;
    // It waits for its next job.
    bench.waits(1).await;
    tokens.write(&TokensFile::entry("new", "work", "mine.*", ""));
    assert!(matches!(access.look_again(), Look::Read(1)));
    let second = bench.submit_plain("mine.a").await;
    let new = bench.send_as("new", register(None)).await.body();
    let worker = new["worker_id"].as_str().unwrap();
    let taken = by(ask("GET", "/worker/job?timeout=60"), worker);
    assert_eq!(bench.send_as("new", taken).await.body()["id"], json!(second));
    assert_eq!(site.ids(), [first]);
}

#[tokio::test]
async fn a_worker_that_answers_404_is_not_asked_for_that_name_again_and_the_job_is_untried() {
    let bench = Bench::new();
    let (site, addr) = Site::start().await;
    site.answers("unknown", Answer::Status(404));
    pushed_to(&bench, addr, 5).await;
    let id = bench.submit_plain("unknown").await;
    site.has(1).await;
    until(|| bench.door.workers()[0].refused == ["unknown"]).await;
    until(|| bench.door.workers()[0].jobs.is_empty()).await;
    // The slot is free a moment before the lease is given back.
    bench.ready(id.parse().unwrap()).await;
    let job = bench.job(&id).await;
    assert_eq!((&job["status"], &job["retry_count"]), (&json!("queued"), &json!(0)));
    bench.submit_plain("unknown").await;
    bench.submit_plain("known").await;
    site.has(2).await;
    assert_eq!(site.noted.lock().orders[1]["name"], "known");
    // Another worker knows the name: it gets the job, and it is the first attempt.
    let other = bench.worker(1).await;
    assert_eq!(bench.take(&other).await["id"], json!(id));
    assert_eq!(bench.job(&id).await["retry_count"], 0);
    assert_eq!(site.ids().len(), 2);
}

#[tokio::test]
async fn a_job_that_a_worker_calls_malformed_has_failed() {
    let bench = Bench::new();
    let (site, addr) = Site::start().await;
    site.answers("n", Answer::Status(400));
    pushed_to(&bench, addr, 1).await;
    let id = bench.submit(json!({"name": "n", "argument": {}, "max_retry": 0})).await;
    let reply = bench.get(&format!("/job/{id}/polling?timeout=60")).await;
    assert_eq!(reply.body()["status"], "error");
    assert!(reply.body()["message"].as_str().unwrap().contains("400"));
}

#[tokio::test]
async fn a_worker_that_cannot_take_a_job_now_is_asked_again_and_the_job_keeps_its_tries() {
    let bench = Bench::new();
    let (site, addr) = Site::start().await;
    site.answers("n", Answer::Status(503));
    let worker = pushed_to(&bench, addr, 1).await;
    let id = bench.submit(json!({"name": "n", "argument": {}, "max_retry": 0})).await;
    site.has(3).await;
    assert!(bench.door.workers()[0].failing_since_ms.is_some());
    site.noted.lock().answers.clear();
    until(|| bench.door.workers()[0].failing_since_ms.is_none()).await;
    bench.done(&worker, json!({"job_id": id, "type": "success"})).await.is(204);
    assert_eq!(bench.job(&id).await["status"], "done");
}

#[tokio::test]
async fn a_worker_that_nobody_can_reach_is_dropped_after_half_a_minute_and_its_jobs_go_back() {
    let bench = Bench::new();
    let (site, addr) = Site::start().await;
    let worker = pushed_to(&bench, addr, 2).await;
    let held = bench.submit(json!({"name": "n", "argument": {}, "timeout": 3600})).await;
    site.has(1).await;
    until(|| bench.door.workers()[0].jobs.len() == 1).await;
    site.answers("m", Answer::Status(500));
    let other = bench.submit(json!({"name": "m", "argument": {}, "timeout": 3600})).await;
    until(|| bench.door.workers()[0].failing_since_ms.is_some()).await;
    bench.pass(29_999);
    assert_eq!(bench.job(&held).await["status"], "running");
    bench.pass(1);
    until(|| bench.door.workers().is_empty()).await;
    // What it had goes back at once, not when its hour is over.
    until(|| status(&bench, &held) == spindle_core::Status::Scheduled).await;
    assert_eq!(bench.job(&held).await["retry_count"], 0);
    bench.done(&worker, json!({"job_id": held, "type": "success"})).await.is(404);
    let pulling = bench.worker(2).await;
    assert_eq!(bench.take(&pulling).await["id"], json!(other));
    bench.pass(1_000);
    assert_eq!(bench.take(&pulling).await["id"], json!(held));
}

#[tokio::test]
async fn where_nobody_listens_a_job_is_not_tried() {
    let bench = Bench::new();
    // Bound and not listened on: nobody else gets the port meanwhile.
    let silent = TcpSocket::new_v4().unwrap();
    silent.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = silent.local_addr().unwrap();
    pushed_to(&bench, addr, 1).await;
    // Its lease must not end with the time that passes: a push may be under way then.
    let job = json!({"name": "n", "argument": {}, "max_retry": 0, "timeout": 600});
    let id = bench.submit(job).await;
    until(|| bench.door.workers()[0].failing_since_ms.is_some()).await;
    bench.pass(30_000);
    until(|| bench.door.workers().is_empty()).await;
    until(|| status(&bench, &id) == spindle_core::Status::Ready).await;
    let job = bench.job(&id).await;
    assert_eq!((&job["status"], &job["retry_count"]), (&json!("queued"), &json!(0)));
}

#[tokio::test]
async fn a_worker_that_does_not_answer_may_have_the_job_so_that_was_an_attempt() {
    let bench = Bench::with(|options| options.push_time = Duration::from_millis(20));
    let (site, addr) = Site::start().await;
    site.answers("n", Answer::Never);
    pushed_to(&bench, addr, 1).await;
    let id = bench.submit(json!({"name": "n", "argument": {}, "max_retry": 0})).await;
    site.has(1).await;
    until(|| status(&bench, &id).is_finished()).await;
    let job = bench.job(&id).await;
    let message = "1 of 1 attempts: the last worker was lost";
    assert_eq!((&job["status"], &job["message"]), (&json!("error"), &json!(message)));
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let bench = Bench::new();
    let (site, addr) = Site::start().await;
    let (elsewhere, there) = Site::start().await;
    site.answers("n", Answer::Elsewhere(there));
    pushed_to(&bench, addr, 1).await;
    bench.submit_plain("n").await;
    site.has(2).await;
    assert!(bench.door.workers()[0].failing_since_ms.is_some());
    assert_eq!(elsewhere.ids().len(), 0);
}

#[tokio::test]
async fn only_the_callers_own_address_is_pushed_to_unless_all_are_allowed() {
    let body = json!({"name": "w", "max_jobs": 1, "url": "http://10.1.2.3:80"});
    let bench = Bench::new();
    bench.post("/worker", body.clone()).await.is_problem(403, "url_not_own");
    let mut stranger = packed("POST", "/worker", None, &body);
    stranger.extensions_mut().clear();
    bench.send(stranger).await.is_problem(403, "url_not_own");
    let bench = Bench::with(|options| options.allow_urls = true);
    bench.post("/worker", body).await.is(201);
}

#[tokio::test]
async fn a_worker_that_starts_anew_at_its_address_replaces_itself_unless_it_says_its_id() {
    let bench = Bench::new();
    let (site, addr) = Site::start().await;
    let first = pushed_to(&bench, addr, 1).await;
    let id = bench.submit_plain("n").await;
    site.has(1).await;
    // It renews its registration: nothing changes.
    let body = json!({"name": "w", "max_jobs": 1, "url": format!("http://{addr}/base")});
    let again = bench.send(packed("POST", "/worker", Some(&first), &body)).await;
    assert_eq!(again.body()["worker_id"], json!(first));
    assert_eq!(bench.job(&id).await["status"], "running");
    // It has lost its memory: what it had goes back.
    let second = pushed_to(&bench, addr, 1).await;
    assert_ne!(first, second);
    assert_eq!(bench.job(&id).await["status"], "retrying");
    bench.pass(1_000);
    site.has(2).await;
    assert_eq!(bench.job(&id).await["worker_id"], json!(second));
    bench.next(&first, "0").await.is_problem(404, "worker_not_found");
}

#[tokio::test]
async fn a_worker_may_ask_for_jobs_as_well_and_who_leaves_is_pushed_to_no_more() {
    let bench = Bench::new();
    let (site, addr) = Site::start().await;
    let worker = pushed_to(&bench, addr, 1).await;
    bench.submit_plain("n").await;
    site.has(1).await;
    bench.next(&worker, "0").await.is(204);
    bench.send(by(ask("DELETE", "/worker"), &worker)).await.is(204);
    let id = bench.submit_plain("n").await;
    let other = bench.worker(1).await;
    assert_eq!(bench.take(&other).await["id"], json!(id));
    assert_eq!(site.ids().len(), 1);
}

fn status(bench: &Bench, id: &str) -> spindle_core::Status {
    drop(bench.engine.turn());
    let id = spindle_core::JobId(id.parse().unwrap());
    opened(bench.engine.jobs().find(spindle_engine::JobRef::Id(id))).unwrap().1
}

#[tokio::test]
async fn a_slow_worker_holds_up_no_other() {
    let bench = Bench::new();
    let (slow, slow_addr) = Site::start().await;
    let (quick, quick_addr) = Site::start().await;
    slow.answers("n", Answer::Never);
    pushed_to(&bench, slow_addr, 1).await;
    bench.submit_plain("n").await;
    slow.has(1).await;
    let worker = pushed_to(&bench, quick_addr, 2).await;
    for count in 1..=20 {
        let id = bench.submit_plain("n").await;
        tokio::time::timeout(PATIENCE, quick.has(count)).await.unwrap();
        bench.done(&worker, json!({"job_id": id, "type": "success"})).await.is(204);
    }
    assert_eq!(slow.ids().len(), 1);
}

/// In a header: bodies are as they were for those who know nothing of it.
#[tokio::test]
async fn the_trace_of_a_submit_comes_with_the_job_in_a_header() {
    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let bench = Bench::new();
    let submit = async |name: &str, trace: Option<&'static str>| {
        let body = json!({ "name": name, "argument": {} });
        let mut request = packed("POST", "/job", None, &body);
        if let Some(trace) = trace {
            request.headers_mut().insert("traceparent", trace.parse().unwrap());
        }
        bench.send(request).await.is(201);
    };
    let (site, addr) = Site::start().await;
    let pushed = bench.register(
        json!({"name": "w", "max_jobs": 9, "names": ["push"], "url": format!("http://{addr}")}),
    );
    pushed.await;
    submit("push", Some(TRACE)).await;
    site.has(1).await;
    submit("push", None).await;
    site.has(2).await;
    let traces: Vec<_> = {
        let noted = site.noted.lock();
        noted.heads.iter().map(|(_, head)| head.get("traceparent").cloned()).collect()
    };
    assert_eq!(traces, [Some(TRACE.parse().unwrap()), None]);
    let asks = bench.register(json!({"name": "w", "max_jobs": 9, "names": ["ask"]})).await;
    submit("ask", Some(TRACE)).await;
    assert_eq!(bench.next(&asks, "60").await.header("traceparent"), TRACE);
    submit("ask", None).await;
    assert_eq!(bench.next(&asks, "60").await.header("traceparent"), "");
}
