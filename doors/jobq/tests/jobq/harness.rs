//! A door on a bench: its engine, its clock, its log, and requests to it.

use std::sync::{Arc, Condvar, Mutex};

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use bytes::Bytes;
use http_body_util::BodyExt;
use serde_json::Value;
use spindle_engine::{Engine, ManualClock};
use spindle_http::{Names, site};
use spindle_jobq::{Jobq, Options};
use spindle_log::{
    Ack, Log, LogError, MemoryLog, Position, ReadError, Record, Space, StoredRecords, SubmitError,
};
use tower::ServiceExt;

/// When the clocks of these tests start: 2026-01-02T03:04:05.678Z.
pub const START_MS: u64 = 1_767_323_045_678;

/// The same in the seconds events tell.
pub const START_S: &str = "1767323045";

pub struct Bench {
    pub engine: Engine,
    pub clock: Arc<ManualClock>,
    pub log: Arc<HeldLog>,
    pub door: Jobq,
    pub router: Router,
}

impl Bench {
    pub fn new() -> Bench {
        Bench::with(Options::default())
    }

    pub fn with(options: Options) -> Bench {
        let clock = Arc::new(ManualClock::new(START_MS));
        Bench::on(Arc::default(), clock, options)
    }

    fn on(log: Arc<HeldLog>, clock: Arc<ManualClock>, options: Options) -> Bench {
        let engine_options = spindle_engine::Options::default();
        let engine = Engine::open(log.clone(), clock.clone(), engine_options).unwrap();
        engine.spawn(|failure| panic!("the log failed: {failure}")).unwrap();
        let door = Jobq::new(engine.clone(), options).unwrap();
        let router = site(door.router(), Names::new("127.0.0.1".parse().unwrap()));
        Bench { engine, clock, log, door, router }
    }

    /// Another server on the same log.
    pub fn restarted(self) -> Bench {
        self.engine.stop();
        Bench::on(Arc::clone(&self.log), Arc::clone(&self.clock), Options::default())
    }

    /// Lets time pass, and happen what is due by then.
    pub fn pass(&self, ms: u64) {
        self.clock.advance(ms);
        self.engine.tick_once();
        self.engine.nudge();
    }

    pub async fn send(&self, method: Method, path: &str, body: impl Into<Body>) -> Reply {
        // What curl's --data says the body is.
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "localhost:7420")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(body.into())
            .unwrap();
        Reply::of(self.router.clone().oneshot(request).await.unwrap()).await
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.send(Method::GET, path, Body::empty()).await
    }

    pub async fn post(&self, path: &str, body: &str) -> Reply {
        self.send(Method::POST, path, body.to_owned()).await
    }

    /// A request that has to be answered with 200.
    #[track_caller]
    pub fn ok(&self, path: &str, body: &str) -> impl Future<Output = Value> {
        let place = std::panic::Location::caller();
        async move {
            let reply = self.post(path, body).await;
            assert_eq!(reply.status, StatusCode::OK, "{place}: {path} {body}: {}", reply.text());
            reply.json()
        }
    }

    /// Creates a job, and gives its number.
    pub async fn create(&self, body: &str) -> u64 {
        self.ok("/api/v0/job/create", body).await["id"].as_u64().unwrap()
    }

    /// A job as it is shown.
    pub async fn job(&self, id: u64) -> Value {
        let reply = self.get(&format!("/api/v0/job/{id}")).await;
        assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());
        reply.json()
    }

    /// The numbers of the jobs that match a query.
    pub async fn matches(&self, query: &str) -> Vec<u64> {
        let found = self.ok("/api/v0/job", &format!("{{\"query\": {query}}}")).await;
        found["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_u64().unwrap()).collect()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.log.hold(false);
        self.engine.stop();
    }
}

#[derive(Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Reply {
    async fn of(response: axum::response::Response) -> Reply {
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Reply { status: parts.status, headers: parts.headers, body }
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        assert_eq!(self.headers[header::CONTENT_TYPE], "application/json", "{self:?}");
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    /// It is an error in the form every error of this door has.
    #[track_caller]
    pub fn is_refused(&self, status: u16, code: &str) {
        let told = self.json();
        assert_eq!((self.status.as_u16(), told["code"].as_str()), (status, Some(code)), "{told}");
        assert_eq!(told["status"], status);
        assert!(!told["message"].as_str().unwrap().is_empty());
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
        *self.held.lock().unwrap() = held;
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
        drop(self.let_go.wait_while(self.held.lock().unwrap(), |held| *held).unwrap());
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
