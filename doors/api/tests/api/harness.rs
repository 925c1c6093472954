//! An API on a bench: its engine, its clock, its log, and requests to it.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use bytes::Bytes;
use http_body_util::BodyExt;
use parking_lot::{Condvar, Mutex};
use serde_json::Value;
use spindle_api::{Api, Options};
use spindle_core::JobId;
use spindle_core::job::Status;
use spindle_engine::{Engine, ManualClock, Which};
use spindle_http::{Names, site};
use spindle_log::{
    Ack, Log, LogError, MemoryLog, Position, ReadError, Record, Space, StoredRecords, SubmitError,
};
use tower::ServiceExt;

/// When the clocks of these tests start: 2026-01-02T03:04:05.678Z.
pub const START_MS: u64 = 1_767_323_045_678;

/// How long a test waits for something that must come.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Bench {
    pub engine: Engine,
    pub clock: Arc<ManualClock>,
    pub log: Arc<HeldLog>,
    pub api: Api,
    pub router: Router,
}

impl Bench {
    pub fn new() -> Bench {
        Bench::with(|_| {}, spindle_engine::Options::default())
    }

    pub fn with(change: impl FnOnce(&mut Options), options: spindle_engine::Options) -> Bench {
        let clock = Arc::new(ManualClock::new(START_MS));
        let log = Arc::new(HeldLog::default());
        let engine = Engine::open(log.clone(), clock.clone(), options).unwrap();
        engine.spawn(|failure| panic!("the log failed: {failure}")).unwrap();
        let mut options = Options { host: "box".to_owned(), ..Options::default() };
        change(&mut options);
        let api = Api::new(engine.clone(), options);
        let names = Names::new("127.0.0.1".parse().unwrap());
        let router = site(api.router(), names);
        Bench { engine, clock, log, api, router }
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

    /// A request without a body.
    pub async fn call(&self, method: Method, path: &str) -> Reply {
        self.send(request(method, path).body(Body::empty()).unwrap()).await
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.call(Method::GET, path).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Reply {
        self.send(json(Method::POST, path, &body)).await
    }

    /// Submits a job, and gives its number.
    pub async fn submit(&self, body: Value) -> u64 {
        let reply = self.post("/api/v1/jobs", body).await;
        assert_eq!(reply.status, StatusCode::CREATED, "{}", reply.text());
        reply.json()["id"].as_u64().unwrap()
    }

    /// Leases a job that is there.
    pub async fn lease(&self, queue: &str) -> Value {
        let reply = self.post("/api/v1/lease", serde_json::json!({ "queues": [queue] })).await;
        assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());
        reply.json()
    }

    /// Waits until so many clients wait for the engine.
    pub async fn waits(&self, count: usize) {
        until(|| self.engine.gauges().waits == count).await;
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.log.hold(false);
        self.engine.stop();
    }
}

/// Waits for something that must come.
pub async fn until(mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("it never came");
}

pub fn request(method: Method, path: &str) -> axum::http::request::Builder {
    Request::builder().method(method).uri(path).header(header::HOST, "localhost:7420")
}

pub fn json(method: Method, path: &str, body: &Value) -> Request<Body> {
    request(method, path)
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(body.to_string()))
        .unwrap()
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

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    /// It is a problem with this code, and in the form every problem has.
    #[track_caller]
    pub fn is_problem(&self, status: u16, code: &str) {
        assert_eq!(self.header("content-type"), "application/problem+json", "{self:?}");
        let told = self.json();
        assert_eq!((self.status.as_u16(), told["code"].as_str()), (status, Some(code)), "{told}");
        assert_eq!(told["status"], status);
        assert_eq!(told["type"], format!("urn:spindle:problem:{code}"));
        assert!(!told["title"].as_str().unwrap().is_empty());
        assert!(!told["detail"].as_str().unwrap().is_empty());
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// A log in memory whose commits can be held back.
#[derive(Default)]
pub struct HeldLog {
    log: MemoryLog,
    held: Mutex<bool>,
    let_go: Condvar,
    full: Mutex<bool>,
}

impl HeldLog {
    pub fn hold(&self, held: bool) {
        *self.held.lock() = held;
        self.let_go.notify_all();
    }

    /// Says that the disk is full.
    pub fn fill(&self, full: bool) {
        *self.full.lock() = full;
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
        if *self.full.lock() { Space::ReserveOnly } else { self.log.space() }
    }

    fn room_bytes(&self) -> u64 {
        if *self.full.lock() { 1 << 20 } else { self.log.room_bytes() }
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

impl Bench {
    /// Only the status: for answers without end.
    pub async fn router_status(&self, request: Request<Body>) -> u16 {
        self.router.clone().oneshot(request).await.unwrap().status().as_u16()
    }
}
