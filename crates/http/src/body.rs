//! Reading a request's body: whole, in time, and not too much of it.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, header};
use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame};
use http_body_util::{LengthLimitError, Limited};
use thiserror::Error;
use tokio::time::timeout;

use crate::held::Held;

/// What a body must keep to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BodyLimits {
    /// Most bytes of it.
    pub bytes_max: usize,
    /// It comes whole within this time, or not at all.
    pub time: Duration,
}

impl Default for BodyLimits {
    fn default() -> BodyLimits {
        BodyLimits { bytes_max: 16 << 20, time: Duration::from_secs(60) }
    }
}

/// Why there is no body.
#[derive(Debug, Error)]
pub enum BodyError {
    /// It has more bytes than allowed: 413.
    #[error("a body has at most {bytes_max} bytes")]
    TooLarge {
        /// The most that are taken.
        bytes_max: usize,
    },
    /// It was too slow: 408.
    #[error("the body did not come within {} s", .time.as_secs_f64())]
    TimedOut {
        /// How long it was waited for.
        time: Duration,
    },
    /// The bodies of all clients took too much memory, and this one the most: 503.
    #[error("the server receives too much at once, and this request was the largest: try again")]
    TooMuch,
    /// The connection ended in it, or its chunks are malformed: 400.
    #[error("the body broke off: {0}")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// The body of a request. A body whose announced length is too large is not read.
pub async fn read_body(request: Request, limits: BodyLimits) -> Result<Bytes, BodyError> {
    let BodyLimits { bytes_max, time } = limits;
    let announced = text_of(request.headers(), &header::CONTENT_LENGTH);
    let announced = announced.and_then(|text| text.parse::<u64>().ok());
    if announced.is_some_and(|len| len > bytes_max as u64) {
        return Err(BodyError::TooLarge { bytes_max });
    }
    let held = request.extensions().get::<Held>().cloned();
    let body = Limited::new(request.into_body(), bytes_max);
    let body = whole(body, announced.unwrap_or(0), held.as_ref());
    match timeout(time, body).await.map_err(|_| BodyError::TimedOut { time })? {
        Err(BodyError::Broken(error)) if error.is::<LengthLimitError>() => {
            Err(BodyError::TooLarge { bytes_max })
        }
        body => body.map(|body| match held {
            Some(held) => held.counted(body),
            None => body,
        }),
    }
}

/// All data of a body, each piece copied as it comes: a large body is never copied in one go. A body
/// that comes in one piece is not copied at all.
async fn whole<B: Receivable>(
    mut body: B,
    announced: u64,
    held: Option<&Held>,
) -> Result<Bytes, BodyError> {
    let mut first = None;
    let mut all = BytesMut::new();
    while let Some(frame) = next_frame(&mut body, held).await? {
        let Ok(piece) = frame.into_data() else { continue };
        if first.is_none() && all.is_empty() {
            first = Some(piece);
            continue;
        }
        if let Some(first) = first.take() {
            // The announced length is within the limit, and memory pages that nobody writes to cost nothing.
            all.reserve(usize::try_from(announced).unwrap_or(0).max(first.len() + piece.len()));
            all.extend_from_slice(&first);
        }
        all.extend_from_slice(&piece);
        if let Some(held) = held {
            held.receives(all.capacity());
        }
    }
    Ok(first.unwrap_or_else(|| all.freeze()))
}

/// The next frame, or an error if the connection has to go: this is polled then too, as whenever
/// something happens to the connection.
async fn next_frame<B: Receivable>(
    body: &mut B,
    held: Option<&Held>,
) -> Result<Option<Frame<Bytes>>, BodyError> {
    let frame = poll_fn(|context| {
        if held.is_some_and(Held::receives_too_much) {
            return Poll::Ready(Some(Err(BodyError::TooMuch)));
        }
        let frame = Pin::new(&mut *body).poll_frame(context);
        frame.map(|frame| frame.map(|frame| frame.map_err(BodyError::Broken)))
    });
    frame.await.transpose()
}

/// A body as a connection brings it.
trait Receivable: Body<Data = Bytes, Error = Box<dyn std::error::Error + Send + Sync>> + Unpin {}

impl<B> Receivable for B where
    B: Body<Data = Bytes, Error = Box<dyn std::error::Error + Send + Sync>> + Unpin
{
}

/// A header as text; none if it is missing or is no text.
pub fn text_of<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}
