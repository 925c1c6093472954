//! LightJQ's door on a test bench: its engine, its clock, its log, and requests to it.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use serde_json::{Value, json};
use spindle_engine::Peer;
use spindle_lightjq::wire::{from_json, to_json};
use spindle_lightjq::{LightJq, Options};
use spindle_testkit::{HeldLog, HttpDoor, caller};
pub use spindle_testkit::{PATIENCE, wait_until_async as until};

/// When the clocks of these tests start.
pub const START_MS: u64 = HttpDoor::START_MS;

/// The door, and the parts that all HTTP doors have on a bench.
pub struct Bench {
    pub door: LightJq,
    http: HttpDoor,
}

impl Deref for Bench {
    type Target = HttpDoor;

    fn deref(&self) -> &HttpDoor {
        &self.http
    }
}

impl Bench {
    pub fn new() -> Bench {
        Bench::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut Options)) -> Bench {
        Bench::on(Arc::default(), change)
    }

    /// A server on a log that may have been used before.
    pub fn on(log: Arc<HeldLog>, change: impl FnOnce(&mut Options)) -> Bench {
        let mut options = Options {
            sweep_every: Duration::from_millis(5),
            pause_min: Duration::from_millis(5),
            pause_max: Duration::from_millis(20),
            ..Options::default()
        };
        change(&mut options);
        let open = |engine| {
            let door = LightJq::new(engine, options);
            let routes = door.router();
            (door, routes)
        };
        let mut engine_options = spindle_engine::Options::default();
        engine_options.defaults.policies = [spindle_lightjq::policy()].into_iter().collect();
        let (http, door) = HttpDoor::open(log, START_MS, engine_options, open);
        Bench { door, http }
    }

    pub async fn send(&self, request: Request<Body>) -> Reply {
        Reply(self.http.send(request).await)
    }

    /// A request with a token.
    pub async fn send_as(&self, token: &str, request: Request<Body>) -> Reply {
        Reply(self.http.send_as(token, request).await)
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.send(ask("GET", path)).await
    }

    pub async fn delete(&self, path: &str) -> Reply {
        self.send(ask("DELETE", path)).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Reply {
        self.send(packed("POST", path, None, &body)).await
    }

    /// Submits a job, and gives its number.
    pub async fn submit(&self, body: Value) -> String {
        let reply = self.post("/job", body).await;
        assert_eq!(reply.status, StatusCode::CREATED, "{reply:?}");
        reply.body()["job_id"].as_str().unwrap().to_owned()
    }

    /// A job that is like every other.
    pub async fn submit_plain(&self, name: &str) -> String {
        self.submit(json!({ "name": name, "argument": {} })).await
    }

    pub async fn job(&self, id: &str) -> Value {
        let reply = self.get(&format!("/job/{id}")).await;
        assert_eq!(reply.status, StatusCode::OK, "{reply:?}");
        reply.body()
    }

    /// Registers a worker, and gives its id.
    pub async fn register(&self, body: Value) -> String {
        let reply = self.post("/worker", body).await;
        assert_eq!(reply.status, StatusCode::CREATED, "{reply:?}");
        reply.body()["worker_id"].as_str().unwrap().to_owned()
    }

    /// A worker that asks for everything.
    pub async fn worker(&self, max_jobs: u32) -> String {
        self.register(json!({ "name": "w", "max_jobs": max_jobs })).await
    }

    pub async fn next(&self, worker: &str, timeout: &str) -> Reply {
        self.send(by(ask("GET", &format!("/worker/job?timeout={timeout}")), worker)).await
    }

    /// A job that must be there for a worker.
    pub async fn take(&self, worker: &str) -> Value {
        let reply = self.next(worker, "60").await;
        assert_eq!(reply.status, StatusCode::OK, "{reply:?}");
        reply.body()
    }

    pub async fn done(&self, worker: &str, body: Value) -> Reply {
        self.send(packed("POST", "/done", Some(worker), &body)).await
    }

    /// The engine numbers all waits: this one takes a number, and is over at once.
    pub fn next_ticket(&self) -> u64 {
        self.engine.waits().after_others(&caller(7)).0
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.log.hold(false);
        self.door.stop();
    }
}

/// A request without a body, from this machine.
pub fn ask(method: &str, path: &str) -> Request<Body> {
    let peer = Peer::plain(([127, 0, 0, 1], 40000).into());
    Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, "localhost:7420")
        .extension(peer)
        .body(Body::empty())
        .unwrap()
}

pub fn by(mut request: Request<Body>, worker: &str) -> Request<Body> {
    request.headers_mut().insert("worker-id", worker.parse().unwrap());
    request
}

/// A request with a body of a type.
pub fn with(method: &str, path: &str, kind: &'static str, body: impl Into<Body>) -> Request<Body> {
    let (mut parts, _) = ask(method, path).into_parts();
    parts.headers.insert(header::CONTENT_TYPE, kind.parse().unwrap());
    Request::from_parts(parts, body.into())
}

/// A request with a body in MessagePack.
pub fn packed(method: &str, path: &str, worker: Option<&str>, body: &Value) -> Request<Body> {
    let body = from_json(body.to_string().as_bytes()).unwrap();
    let request = with(method, path, "application/msgpack", body);
    match worker {
        Some(worker) => by(request, worker),
        None => request,
    }
}

/// An answer of this door.
#[derive(Debug)]
pub struct Reply(spindle_testkit::Reply);

impl Deref for Reply {
    type Target = spindle_testkit::Reply;

    fn deref(&self) -> &spindle_testkit::Reply {
        &self.0
    }
}

impl Reply {
    /// What it says, whichever of the two formats it is in.
    #[track_caller]
    pub fn body(&self) -> Value {
        match self.header("content-type") {
            "application/msgpack" => to_json(&self.body).unwrap(),
            "application/json" | "application/problem+json" => self.json(),
            other => panic!("{other:?}: {self:?}"),
        }
    }

    /// It is a problem with this code.
    #[track_caller]
    pub fn is_problem(&self, status: u16, code: &str) {
        let answer = self.body();
        assert_eq!(
            (self.status.as_u16(), answer["code"].as_str()),
            (status, Some(code)),
            "{answer}"
        );
        assert!(!answer["detail"].as_str().unwrap().is_empty());
    }
}
