//! Reading a request's body: whole, in time, and not too much of it.

use std::time::Duration;

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, header};
use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use thiserror::Error;
use tokio::time::timeout;

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
    /// It has more bytes than it may: 413.
    #[error("a body has at most {bytes_max} bytes")]
    TooLarge {
        /// So many are taken.
        bytes_max: usize,
    },
    /// It was too slow: 408.
    #[error("the body did not come within {} s", .time.as_secs_f64())]
    TimedOut {
        /// So long it was waited for.
        time: Duration,
    },
    /// The connection ended in it, or its chunks are malformed: 400.
    #[error("the body broke off: {0}")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// The body of a request. One that says beforehand that it is too large is not read.
pub async fn read_body(request: Request, limits: BodyLimits) -> Result<Bytes, BodyError> {
    let BodyLimits { bytes_max, time } = limits;
    let announced = text_of(request.headers(), &header::CONTENT_LENGTH);
    let announced = announced.and_then(|text| text.parse::<u64>().ok());
    if announced.is_some_and(|len| len > bytes_max as u64) {
        return Err(BodyError::TooLarge { bytes_max });
    }
    let body = whole(Limited::new(request.into_body(), bytes_max), announced.unwrap_or(0));
    match timeout(time, body).await.map_err(|_| BodyError::TimedOut { time })? {
        Ok(body) => Ok(body),
        Err(error) if error.is::<LengthLimitError>() => Err(BodyError::TooLarge { bytes_max }),
        Err(error) => Err(BodyError::Broken(error)),
    }
}

/// All data of a body, each piece copied as it comes: a large body is never copied at once. One
/// that comes in one piece is not copied at all.
async fn whole<B: Body<Data = Bytes> + Unpin>(
    mut body: B,
    announced: u64,
) -> Result<Bytes, B::Error> {
    let mut first = None;
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await.transpose()? {
        let Ok(piece) = frame.into_data() else { continue };
        if first.is_none() && all.is_empty() {
            first = Some(piece);
            continue;
        }
        if let Some(first) = first.take() {
            // What is announced is no more than may come: pages nobody writes to cost nothing.
            all.reserve(usize::try_from(announced).unwrap_or(0).max(first.len() + piece.len()));
            all.extend_from_slice(&first);
        }
        all.extend_from_slice(&piece);
    }
    Ok(first.unwrap_or_else(|| all.freeze()))
}

/// A header that is text; none that is not there or is no text.
pub fn text_of<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}
