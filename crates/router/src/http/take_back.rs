//! Leases that reach nobody go back.
//!
//! A single server undoes a lease whose answer it could not hand to the worker's connection. Here the
//! shard hands it to the router, which may find that the worker has gone, or that another shard was first.
//! If the shard has not answered yet, the router hangs up: then nothing was leased. Jobs that it has answered
//! with are released, as a worker would do it, with the rights of the client that asked.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, Method, Request, Response, StatusCode, header};
use axum::response::IntoResponse;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use serde::Deserialize;
use spindle_http::{Answered, work_on_bytes};
use tokio::runtime::Handle;
use tokio::select;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::asked::Head;
use super::place::said;
use super::shards::{Current, Missed, Shards, whole};
use crate::Shard;

/// How long a shard has to notice that nobody waits any more, and to take its jobs back.
const TAKE_BACK_TIME: Duration = Duration::from_secs(30);

/// Asks a shard for jobs.
#[derive(Clone)]
pub(super) struct Asker {
    shards: Shards,
    head: Arc<Head>,
    pub shard: Shard,
}

/// An answer that may have jobs in it.
pub(super) type Answer = Response<LeaseBody>;

impl Asker {
    pub fn new(shards: &Shards, head: &Arc<Head>, shard: Shard) -> Asker {
        Asker { shards: shards.clone(), head: Arc::clone(head), shard }
    }

    /// Asks. Dropping this, or the answer, takes the jobs back.
    pub async fn ask(&self, request: Request<Body>) -> Result<Answer, Missed> {
        let (sender, answer) = oneshot::channel();
        // A task of its own: it goes on when nobody waits for the answer any more.
        tokio::spawn(self.clone().run(request, sender));
        answer.await.unwrap_or(Err(Missed::BrokeOff(self.shard)))
    }

    async fn run(
        self,
        request: Request<Body>,
        mut sender: oneshot::Sender<Result<Answer, Missed>>,
    ) {
        let current = Current::default();
        let asking = self.shards.send_on(&current, self.shard, &self.head.peer, request);
        let mut asking = pin!(asking);
        let answered = select! {
            answered = asking.as_mut() => Some(answered),
            () = sender.closed() => None,
        };
        let answered = match answered {
            Some(answered) => answered,
            None => {
                // Without a line, nothing was sent.
                let Some(speech) = current.lock().take() else { return };
                speech.end();
                let Ok(answered) = timeout(TAKE_BACK_TIME, asking).await else { return };
                answered
            }
        };
        // If nobody receives the answer, it is dropped, which takes the jobs back.
        drop(sender.send(answered.map(|answer| LeaseBody::guard(answer, self.clone()))));
    }

    /// Releases the jobs in an answer.
    async fn take_back(self, body: Body) {
        let Ok(bytes) = whole(body, self.shard).await else { return };
        let tokens = work_on_bytes(bytes.len(), move || tokens(&bytes)).await;
        self.release(tokens).await;
    }

    async fn release(self, tokens: Vec<String>) {
        for token in tokens {
            let target = format!("/api/v1/leases/{token}/release");
            let request = self.head.other(Method::POST, &target, Bytes::new());
            match self.shards.send(self.shard, &self.head.peer, request).await {
                Ok(answer) if answer.status().is_success() => {}
                Ok(answer) => {
                    tracing::debug!(status = %answer.status(), "http: a lease is not taken back");
                }
                Err(missed) => tracing::debug!("http: a lease is not taken back: {missed:?}"),
            }
        }
    }
}

/// Spawns work that goes on without the client.
fn spawn(work: impl Future<Output = ()> + Send + 'static) {
    // Without a runtime the process ends, and leases run out.
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(async { drop(timeout(TAKE_BACK_TIME, work).await) });
    }
}

/// The tokens of leases that an answer hands out.
fn tokens(bytes: &[u8]) -> Vec<String> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Leases {
        lease_token: Option<String>,
        jobs: Vec<Leases>,
        lease: Option<Box<Leases>>,
    }
    fn all(leases: Leases, tokens: &mut Vec<String>) {
        let Leases { lease_token, jobs, lease } = leases;
        tokens.extend(lease_token);
        let nested = jobs.into_iter().chain(lease.map(|lease| *lease));
        nested.for_each(|leases| all(leases, tokens));
    }
    let mut tokens = Vec::new();
    if let Some(leases) = said::<Leases>(bytes) {
        all(leases, &mut tokens);
    }
    tokens
}

/// The body of an answer. If the client's connection takes nothing of it, its jobs go back.
pub(super) struct LeaseBody {
    body: Option<Body>,
    /// Takes the jobs back; none if there are no jobs.
    asker: Option<Asker>,
}

impl LeaseBody {
    fn guard(answer: Response<Body>, asker: Asker) -> Answer {
        let may_lease = answer.status() == StatusCode::OK;
        answer.map(|body| LeaseBody { body: Some(body), asker: may_lease.then_some(asker) })
    }

    /// Reads it; the jobs in it go back when the guard or this future is dropped.
    pub async fn read(self) -> Answered<(Bytes, Guard)> {
        let (sender, read) = oneshot::channel();
        tokio::spawn(async move { drop(sender.send(self.read_here().await)) });
        read.await.unwrap_or_else(|_| Ok((Bytes::new(), Guard::default())))
    }

    async fn read_here(mut self) -> Answered<(Bytes, Guard)> {
        let (Some(asker), Some(body)) = (self.asker.take(), self.body.take()) else {
            return Ok((Bytes::new(), Guard::default()));
        };
        let bytes = whole(body, asker.shard).await?;
        let read = bytes.clone();
        let tokens = work_on_bytes(bytes.len(), move || tokens(&read)).await;
        Ok((bytes, Guard { asker: Some(asker), tokens }))
    }
}

impl Drop for LeaseBody {
    fn drop(&mut self) {
        if let (Some(asker), Some(body)) = (self.asker.take(), self.body.take()) {
            spawn(asker.take_back(body));
        }
    }
}

impl http_body::Body for LeaseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Some(body) = self.body.as_mut() else { return Poll::Ready(None) };
        let polled = Pin::new(body).poll_frame(context);
        if polled.is_ready() {
            // The connection has the first of it.
            self.asker = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or(SizeHint::with_exact(0), Body::size_hint)
    }
}

/// Jobs of a joined answer, which go back when this is dropped.
#[derive(Default)]
pub(super) struct Guard {
    asker: Option<Asker>,
    tokens: Vec<String>,
}

impl Guard {
    /// The connection has them.
    fn done(mut self) {
        self.asker = None;
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(asker) = self.asker.take() {
            spawn(asker.release(std::mem::take(&mut self.tokens)));
        }
    }
}

/// An answer in JSON with jobs in it. If the connection takes nothing of it, they go back.
pub(super) fn guarded(text: Vec<u8>, guards: Vec<Guard>) -> Response<Body> {
    let kind = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    (kind, Body::new(Joined { bytes: Some(text.into()), guards })).into_response()
}

struct Joined {
    bytes: Option<Bytes>,
    guards: Vec<Guard>,
}

impl http_body::Body for Joined {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::convert::Infallible>>> {
        self.guards.drain(..).for_each(Guard::done);
        Poll::Ready(self.bytes.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_found_in_every_form_of_an_answer() {
        for (text, expected) in [
            (r#"{"id":1,"lease_token":"a","payload":{"lease_token":"no"}}"#, &["a"][..]),
            (r#"{"jobs":[{"lease_token":"a"},{"lease_token":"b"}]}"#, &["a", "b"]),
            (r#"{"taken":1,"answers":[],"lease":{"jobs":[{"lease_token":"a"}]}}"#, &["a"]),
            (r#"{"lease":{"problem":{}}}"#, &[]),
            ("", &[]),
            ("[]", &[]),
        ] {
            assert_eq!(tokens(text.as_bytes()), expected, "{text}");
        }
    }
}
