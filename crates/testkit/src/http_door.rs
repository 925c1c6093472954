//! An HTTP door without sockets: requests are given to its routes directly.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use http_body_util::BodyExt;
use serde_json::Value;
use spindle_core::{JobId, Status};
use spindle_engine::{Engine, JobRef, Options};
use spindle_http::{Names, Site};
use tower::ServiceExt;

use crate::{HeldLog, ManualClock, ManualEngine, PATIENCE, opened, spawn};

/// One HTTP door behind the guard that all of them share, and the engine behind it, whose threads
/// run and whose clock stands still. Dropping it lets go of the log and stops the engine.
pub struct HttpDoor {
    /// The engine behind the door.
    pub engine: Engine,
    /// Its clock.
    pub clock: Arc<ManualClock>,
    /// Its log.
    pub log: Arc<HeldLog>,
    /// What answers requests.
    pub site: Site,
}

impl HttpDoor {
    /// When these tests start, in milliseconds since 1970: 2026-01-02T03:04:05.678Z.
    pub const START_MS: u64 = 1_767_323_045_678;

    /// The door whose routes `open` makes at an engine on this log, which may have been used
    /// before; what else `open` returns comes back beside it.
    pub fn open<D>(
        log: Arc<HeldLog>,
        now_ms: u64,
        options: Options,
        open: impl FnOnce(Engine) -> (D, Router),
    ) -> (HttpDoor, D) {
        let ManualEngine { engine, clock } = ManualEngine::open(log.clone(), now_ms, options);
        spawn(&engine);
        let (door, routes) = open(engine.clone());
        let site = Site::new(routes, Names::new("127.0.0.1".parse().unwrap()));
        (HttpDoor { engine, clock, log, site }, door)
    }

    /// Lets time pass, and runs what is due by then.
    pub fn pass(&self, ms: u64) {
        self.clock.advance(ms);
        self.engine.tick_once();
        drop(self.engine.turn());
    }

    /// Sends a request; its answer, once all of its body is there.
    pub async fn send(&self, request: Request<Body>) -> Reply {
        Reply::of(self.begin(request).await).await
    }

    /// Sends a request with a token.
    pub async fn send_as(&self, token: &str, mut request: Request<Body>) -> Reply {
        let value = format!("Bearer {token}").try_into().unwrap();
        request.headers_mut().insert(header::AUTHORIZATION, value);
        self.send(request).await
    }

    /// Sends a request; its answer as soon as its head is there, for bodies without end.
    pub async fn begin(&self, request: Request<Body>) -> Response {
        self.site.clone().oneshot(request).await.unwrap()
    }

    /// Sends a request, and hangs up after `steps` polls of its handling.
    pub async fn hang_up_after(&self, request: Request<Body>, steps: usize) {
        let mut asked = pin!(self.site.clone().oneshot(request));
        for _ in 0..steps {
            if asked.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Waits until a job is ready to be leased.
    pub async fn ready(&self, id: u64) {
        wait_until_async(|| {
            let image = opened(self.engine.jobs().get(JobRef::Id(JobId(id))).unwrap());
            image.is_some_and(|image| image.status() == Status::Ready)
        })
        .await;
    }

    /// Waits until so many clients wait for the engine.
    pub async fn waits(&self, count: usize) {
        wait_until_async(|| self.engine.observe().gauges().waits == count).await;
    }
}

impl Drop for HttpDoor {
    fn drop(&mut self) {
        self.log.hold(false);
        self.engine.stop();
    }
}

/// Waits until `condition` holds, and lets other tasks work meanwhile; panics when it does not
/// within [`PATIENCE`].
pub async fn wait_until_async(mut condition: impl FnMut() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("it never came");
}

/// Does work as a serving thread would. Returns the result, and how many other threads its runtime
/// has started for it.
pub fn on_serving_thread<T>(work: impl Future<Output = T>) -> (T, usize) {
    let others = Arc::<AtomicUsize>::default();
    let started = Arc::clone(&others);
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.on_thread_start(move || {
        started.fetch_add(1, Ordering::SeqCst);
    });
    let done = builder.enable_all().build().unwrap().block_on(work);
    (done, others.load(Ordering::SeqCst))
}

/// A whole answer.
#[derive(Debug)]
pub struct Reply {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

impl Reply {
    /// Reads an answer to its end.
    pub async fn of(response: Response) -> Reply {
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Reply { status: parts.status, headers: parts.headers, body }
    }

    /// A header that is text; an empty one when it is missing.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The body, as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// The body, which must be JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    /// Asserts the status.
    #[track_caller]
    pub fn is(&self, status: u16) {
        assert_eq!(self.status.as_u16(), status, "{self:?}");
    }
}
