//! A door on a bench: its engine, its clock, its log, and requests to it.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{HeaderMap, Request, StatusCode, header};
use bytes::Bytes;
use http_body_util::BodyExt;
use parking_lot::{Condvar, Mutex};
use serde_json::{Value, json};
use spindle_core::JobId;
use spindle_core::job::Status;
use spindle_engine::{Caller, ConnectionId, Delivery, Engine, Mailbox, ManualClock, Which};
use spindle_http::{Names, site};
use spindle_lightjq::wire::{from_json, to_json};
use spindle_lightjq::{LightJq, Options};
use spindle_log::{
    Ack, Log, LogError, MemoryLog, Position, ReadError, Record, Space, StoredRecords, SubmitError,
};
use tower::ServiceExt;

/// When the clocks of these tests start.
pub const START_MS: u64 = 1_767_323_045_678;

/// How long a test waits for something that must come.
pub const PATIENCE: Duration = Duration::from_secs(120);

pub struct Bench {
    pub engine: Engine,
    pub clock: Arc<ManualClock>,
    pub log: Arc<HeldLog>,
    pub door: LightJq,
    pub router: Router,
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
        let clock = Arc::new(ManualClock::new(START_MS));
        let engine = Engine::open(log.clone(), clock.clone(), Default::default()).unwrap();
        engine.spawn(|failure| panic!("the log failed: {failure}")).unwrap();
        let mut options = Options {
            sweep_every: Duration::from_millis(5),
            pause_min: Duration::from_millis(5),
            pause_max: Duration::from_millis(20),
            ..Options::default()
        };
        change(&mut options);
        let door = LightJq::new(engine.clone(), options);
        let router = site(door.router(), Names::new("127.0.0.1".parse().unwrap()));
        Bench { engine, clock, log, door, router }
    }

    /// Lets time pass, and happen what is due by then.
    pub fn pass(&self, ms: u64) {
        self.clock.advance(ms);
        self.engine.tick_once();
        self.engine.nudge();
    }

    pub async fn send(&self, request: Request<Body>) -> Reply {
        Reply::of(self.router.clone().oneshot(request).await.unwrap()).await
    }

    /// Waits until a job is ready for whoever comes.
    pub async fn ready(&self, id: u64) {
        until(|| {
            let (image, _) = self.engine.job(Which::Id(JobId(id))).unwrap();
            image.is_some_and(|image| image.status() == Status::Ready)
        })
        .await;
    }

    /// Sends a request, and hangs up after so many steps of what is done for it.
    pub async fn hang_up_after(&self, request: Request<Body>, steps: usize) {
        let mut asked = pin!(self.router.clone().oneshot(request));
        for _ in 0..steps {
            if asked.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                return;
            }
            tokio::task::yield_now().await;
        }
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
        reply.told()["job_id"].as_str().unwrap().to_owned()
    }

    /// A job that is like every other.
    pub async fn submit_plain(&self, name: &str) -> String {
        self.submit(json!({ "name": name, "argument": {} })).await
    }

    pub async fn job(&self, id: &str) -> Value {
        let reply = self.get(&format!("/job/{id}")).await;
        assert_eq!(reply.status, StatusCode::OK, "{reply:?}");
        reply.told()
    }

    /// Registers a worker, and gives its id.
    pub async fn register(&self, body: Value) -> String {
        let reply = self.post("/worker", body).await;
        assert_eq!(reply.status, StatusCode::CREATED, "{reply:?}");
        reply.told()["worker_id"].as_str().unwrap().to_owned()
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
        reply.told()
    }

    pub async fn done(&self, worker: &str, body: Value) -> Reply {
        self.send(packed("POST", "/done", Some(worker), &body)).await
    }

    /// The engine numbers all waits: this one takes a number, and is over at once.
    pub fn next_ticket(&self) -> u64 {
        struct Deaf;
        impl Mailbox for Deaf {
            fn deliver(&self, _: Delivery) {}
            fn durable_moved(&self) {}
        }
        let caller = Caller { connection: ConnectionId(7), mailbox: Arc::new(Deaf) };
        self.engine.wait_for_room(&caller).0
    }

    /// Waits until so many clients wait for the engine.
    pub async fn waits(&self, count: usize) {
        until(|| self.engine.gauges().waits == count).await;
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.log.hold(false);
        self.door.stop();
        self.engine.stop();
    }
}

/// Waits for something that must come.
pub async fn until(mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("it never came");
}

/// A request without a body, from this machine.
pub fn ask(method: &str, path: &str) -> Request<Body> {
    let peer: SocketAddr = "127.0.0.1:40000".parse().unwrap();
    Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, "localhost:7420")
        .extension(ConnectInfo(peer))
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

#[derive(Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Reply {
    pub async fn of(response: axum::response::Response) -> Reply {
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Reply { status: parts.status, headers: parts.headers, body }
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// What it says, whichever of the two formats it is in.
    #[track_caller]
    pub fn told(&self) -> Value {
        match self.header("content-type") {
            "application/msgpack" => to_json(&self.body).unwrap(),
            "application/json" | "application/problem+json" => {
                serde_json::from_slice(&self.body).unwrap()
            }
            other => panic!("{other:?}: {self:?}"),
        }
    }

    /// It is a problem with this code.
    #[track_caller]
    pub fn is_problem(&self, status: u16, code: &str) {
        let told = self.told();
        assert_eq!((self.status.as_u16(), told["code"].as_str()), (status, Some(code)), "{told}");
        assert!(!told["detail"].as_str().unwrap().is_empty());
    }

    #[track_caller]
    pub fn is(&self, status: u16) {
        assert_eq!(self.status.as_u16(), status, "{self:?}");
    }
}

/// A log in memory whose commits can be held back.
#[derive(Default)]
pub struct HeldLog {
    log: MemoryLog,
    held: Mutex<bool>,
    let_go: Condvar,
}

impl HeldLog {
    pub fn hold(&self, held: bool) {
        *self.held.lock() = held;
        self.let_go.notify_all();
    }
}

impl Log for HeldLog {
    fn first(&self) -> Position {
        self.log.first()
    }

    fn next(&self) -> Position {
        self.log.next()
    }

    fn submit(&self, at: Position, record: &Record) -> Result<(), SubmitError> {
        self.log.submit(at, record)
    }

    fn next_ack(&self) -> Ack {
        let mut held = self.held.lock();
        while *held {
            self.let_go.wait(&mut held);
        }
        self.log.next_ack()
    }

    fn read(&self, from: Position) -> Result<StoredRecords, ReadError> {
        self.log.read(from)
    }

    fn read_at(&self, position: Position, offset: u32, len: u32) -> Result<Bytes, ReadError> {
        self.log.read_at(position, offset, len)
    }

    fn trim_before(&self, position: Position) -> Result<(), LogError> {
        self.log.trim_before(position)
    }

    fn record_bytes_max(&self) -> u32 {
        self.log.record_bytes_max()
    }

    fn is_exclusive(&self) -> bool {
        self.log.is_exclusive()
    }

    fn space(&self) -> Space {
        self.log.space()
    }

    fn room_bytes(&self) -> u64 {
        self.log.room_bytes()
    }

    fn bytes_on_disk(&self) -> u64 {
        self.log.bytes_on_disk()
    }

    fn segment_end_before(&self, from: Position) -> Option<Position> {
        self.log.segment_end_before(from)
    }

    fn bytes_between(&self, from: Position, to: Position) -> u64 {
        self.log.bytes_between(from, to)
    }
}
