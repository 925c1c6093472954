//! Jobq's door on a test bench: its engine, its clock, its log, and requests to it.

use std::ops::Deref;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use serde_json::Value;
use spindle_core::job::Origin;
use spindle_jobq::{Jobq, Options};
use spindle_testkit::{HeldLog, HttpDoor};

/// When the clocks of these tests start.
pub const START_MS: u64 = HttpDoor::START_MS;

/// The same in the seconds that events have.
pub const START_S: &str = "1767323045";

/// The door, and the parts that all HTTP doors have on a bench.
pub struct Bench {
    pub door: Jobq,
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
        Bench::with(Options::default())
    }

    pub fn with(options: Options) -> Bench {
        Bench::on(Arc::default(), START_MS, options)
    }

    fn on(log: Arc<HeldLog>, now_ms: u64, options: Options) -> Bench {
        let open = |engine| {
            let door = Jobq::new(engine, options).unwrap();
            let routes = door.router();
            (door, routes)
        };
        let mut engine_options =
            spindle_engine::Options { copied: Some(Origin::Jobq), ..Default::default() };
        engine_options.defaults.policies = [spindle_jobq::policy()].into_iter().collect();
        let (http, door) = HttpDoor::open(log, now_ms, engine_options, open);
        Bench { door, http }
    }

    /// Another server on the same log.
    pub fn restarted(self) -> Bench {
        self.engine.stop();
        Bench::on(Arc::clone(&self.log), self.engine.now_ms(), Options::default())
    }

    pub async fn send(&self, method: Method, path: &str, body: impl Into<Body>) -> Reply {
        Reply(self.http.send(request(method, path, body)).await)
    }

    /// A request with a token.
    pub async fn send_as(&self, token: &str, method: Method, path: &str, body: &str) -> Reply {
        Reply(self.http.send_as(token, request(method, path, body.to_owned())).await)
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

fn request(method: Method, path: &str, body: impl Into<Body>) -> Request<Body> {
    Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, "localhost:7420")
        // What curl's --data says the body is.
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(body.into())
        .unwrap()
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
    #[track_caller]
    pub fn json(&self) -> Value {
        assert_eq!(self.headers[header::CONTENT_TYPE], "application/json", "{self:?}");
        self.0.json()
    }

    /// It is an error in the form every error of this door has.
    #[track_caller]
    pub fn is_refused(&self, status: u16, code: &str) {
        let error = self.json();
        let found = (self.status.as_u16(), error["code"].as_str());
        assert_eq!(found, (status, Some(code)), "{error}");
        assert_eq!(error["status"], status);
        assert!(!error["message"].as_str().unwrap().is_empty());
    }
}
