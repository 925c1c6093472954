//! The API on a test bench: its engine, its clock, its log, and requests to it.

use std::ops::Deref;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use serde_json::Value;
use spindle_api::{Api, Options};
use spindle_testkit::HttpDoor;
pub use spindle_testkit::{PATIENCE, wait_until_async as until};

/// The API, and the parts that all HTTP doors have on a bench.
pub struct Bench {
    pub api: Api,
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
        Bench::with(|_| {}, spindle_engine::Options::default())
    }

    pub fn with(
        change: impl FnOnce(&mut Options),
        engine_options: spindle_engine::Options,
    ) -> Bench {
        let mut options = Options { host: "box".to_owned(), ..Options::default() };
        change(&mut options);
        let open = |engine| {
            let api = Api::new(engine, options);
            let routes = api.router();
            (api, routes)
        };
        let (http, api) = HttpDoor::open(Arc::default(), HttpDoor::START_MS, engine_options, open);
        Bench { api, http }
    }

    pub async fn send(&self, request: Request<Body>) -> Reply {
        Reply(self.http.send(request).await)
    }

    /// A request without a body.
    pub async fn call(&self, method: Method, path: &str) -> Reply {
        self.send(request(method, path).body(Body::empty()).unwrap()).await
    }

    /// A request with a token.
    pub async fn call_as(&self, token: &str, request: Request<Body>) -> Reply {
        Reply(self.http.send_as(token, request).await)
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

/// An answer of the API.
#[derive(Debug)]
pub struct Reply(spindle_testkit::Reply);

impl Deref for Reply {
    type Target = spindle_testkit::Reply;

    fn deref(&self) -> &spindle_testkit::Reply {
        &self.0
    }
}

impl Reply {
    pub async fn of(response: axum::response::Response) -> Reply {
        Reply(spindle_testkit::Reply::of(response).await)
    }

    /// It is a problem with this code, and in the form every problem has.
    #[track_caller]
    pub fn is_problem(&self, status: u16, code: &str) {
        assert_eq!(self.header("content-type"), "application/problem+json", "{self:?}");
        let problem = self.json();
        let found = (self.status.as_u16(), problem["code"].as_str());
        assert_eq!(found, (status, Some(code)), "{problem}");
        assert_eq!(problem["status"], status);
        assert_eq!(problem["type"], format!("urn:spindle:problem:{code}"));
        assert!(!problem["title"].as_str().unwrap().is_empty());
        assert!(!problem["detail"].as_str().unwrap().is_empty());
    }
}
