//! Sending requests to shards.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, Request, Response, header};
use axum::response::IntoResponse;
use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use parking_lot::Mutex;
use spindle_engine::Peer;
use spindle_http::{Code, Problem};

use super::idle::{Idle, Whose};
use super::line::{Line, Speech};
use crate::{Reach, Shard};

/// The most of an answer that is read to join it with others.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The shards' HTTP doors.
#[derive(Clone)]
pub(super) struct Shards {
    reach: Arc<dyn Reach>,
    idle: Idle,
}

/// Why a shard gave no answer.
#[derive(Debug)]
pub(super) enum Missed {
    /// It has not got the request.
    Unreached(Shard, io::Error),
    /// The connection ended, and it is not known whether the shard carried out the request.
    BrokeOff(Shard),
    /// The client's body broke off.
    Body(String),
}

impl From<Missed> for Problem {
    fn from(missed: Missed) -> Problem {
        match missed {
            Missed::Unreached(shard, why) => {
                let detail = format!(
                    "shard {shard} cannot be reached, and has not got the request: try again ({why})"
                );
                Problem::new(Code::ShardUnavailable, detail).with("shard", shard.0)
            }
            Missed::BrokeOff(shard) => {
                let detail = format!(
                    "the connection to shard {shard} ended before its answer: what was asked for may \
                     have been done, or not"
                );
                Problem::new(Code::ShardBrokeOff, detail).with("shard", shard.0)
            }
            Missed::Body(why) => {
                Problem::new(Code::BadRequest, format!("the body broke off: {why}"))
            }
        }
    }
}

/// The line that a request is under way on: the holder can hang up.
pub(super) type Current = Mutex<Option<Speech>>;

impl Shards {
    pub fn new(reach: Arc<dyn Reach>) -> Shards {
        Shards { reach, idle: Idle::default() }
    }

    /// Sends a request, and gives the answer as soon as its head is there. Dropping either hangs up.
    pub async fn send(
        &self,
        shard: Shard,
        peer: &Peer,
        request: Request<Body>,
    ) -> Result<Response<Body>, Missed> {
        self.send_on(&Current::default(), shard, peer, request).await
    }

    /// As [`Shards::send`]; `current` has the line while the request is under way.
    pub async fn send_on(
        &self,
        current: &Current,
        shard: Shard,
        peer: &Peer,
        mut request: Request<Body>,
    ) -> Result<Response<Body>, Missed> {
        let whose = Whose::new(shard, peer);
        if let Some(mut line) = self.idle.take(&whose) {
            *current.lock() = Some(line.speech.clone());
            match line.sender.try_send_request(request).await {
                Ok(response) => return Ok(self.answer(whose, line, response)),
                Err(mut error) => match error.take_message() {
                    // The door had closed the line: no byte of the request has left.
                    Some(unsent) => {
                        *current.lock() = None;
                        request = unsent;
                    }
                    None => return Err(missed(shard, error.error())),
                },
            }
        }
        let unreached = |error| Missed::Unreached(shard, error);
        let stream = self.reach.reach(shard, DOOR, peer).await.map_err(unreached)?;
        let mut line = Line::open(stream).await.map_err(unreached)?;
        *current.lock() = Some(line.speech.clone());
        match line.sender.try_send_request(request).await {
            Ok(response) => Ok(self.answer(whose, line, response)),
            Err(error) if error.message().is_some() => {
                Err(unreached(io::Error::other(error.into_error())))
            }
            Err(error) => Err(missed(shard, error.error())),
        }
    }

    fn answer(&self, whose: Whose, line: Line, response: Response<Incoming>) -> Response<Body> {
        let (mut head, incoming) = response.into_parts();
        let of_connection = connection_words(&head.headers);
        remove_hop_by_hop(&mut head.headers, &of_connection);
        let mut body = ShardBody { incoming, line: Some(line), idle: self.idle.clone(), whose };
        body.give_back_at_end();
        Response::from_parts(head, Body::new(body))
    }
}

/// The door's name in settings.
const DOOR: &str = "http";

fn missed(shard: Shard, error: &hyper::Error) -> Missed {
    match error.is_user() {
        true => Missed::Body(error.to_string()),
        false => Missed::BrokeOff(shard),
    }
}

/// All of an answer's body, to be joined with others.
pub(super) async fn whole(body: Body, shard: Shard) -> Result<Bytes, Problem> {
    let read = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    read.map(http_body_util::Collected::to_bytes).map_err(|error| {
        if error.is::<http_body_util::LengthLimitError>() {
            let detail =
                format!("shard {shard} answers with more than can be joined: ask for less");
            Problem::new(Code::Overloaded, detail).with("shard", shard.0)
        } else {
            Missed::BrokeOff(shard).into()
        }
    })
}

/// An answer's body. When it has come to its end, its line is free for another request.
struct ShardBody {
    incoming: Incoming,
    line: Option<Line>,
    idle: Idle,
    whose: Whose,
}

impl ShardBody {
    fn give_back_at_end(&mut self) {
        if self.incoming.is_end_stream() {
            self.give_back();
        }
    }

    fn give_back(&mut self) {
        if let Some(line) = self.line.take() {
            self.idle.put(&self.whose, line);
        }
    }
}

impl http_body::Body for ShardBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.incoming).poll_frame(context);
        match &polled {
            Poll::Ready(None) => self.give_back(),
            Poll::Ready(Some(Ok(_))) => self.give_back_at_end(),
            Poll::Ready(Some(Err(_))) | Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

/// The headers that `Connection` names: they are about this connection, too.
pub(super) fn connection_words(headers: &HeaderMap) -> Vec<HeaderName> {
    let values = headers.get_all(header::CONNECTION).iter();
    let words = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    words.filter_map(|word| HeaderName::from_bytes(word.trim_ascii()).ok()).collect()
}

/// Takes out what is about one connection only (RFC 9110, 7.6.1).
pub(super) fn remove_hop_by_hop(headers: &mut HeaderMap, of_connection: &[HeaderName]) {
    const HOP_BY_HOP: [HeaderName; 6] = [
        header::CONNECTION,
        HeaderName::from_static("keep-alive"),
        HeaderName::from_static("proxy-connection"),
        header::TE,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
    ];
    for name in HOP_BY_HOP.iter().chain(of_connection) {
        // These belong to the request itself, even if a client lists them in `Connection`.
        if *name != header::HOST && *name != header::CONTENT_LENGTH {
            headers.remove(name);
        }
    }
}

/// Why a request is answered by the router itself.
#[derive(Debug)]
pub(super) enum Refusal {
    /// It is refused, or a shard is missing.
    Problem(Problem),
    /// A shard's answer, which is the answer to the whole request.
    Answer(Box<Response<Body>>),
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Refusal {
        Refusal::Problem(problem)
    }
}

impl From<Missed> for Refusal {
    fn from(missed: Missed) -> Refusal {
        Refusal::Problem(missed.into())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response<Body> {
        match self {
            Refusal::Problem(problem) => problem.into_response(),
            Refusal::Answer(answer) => *answer,
        }
    }
}
