//! Bodies of requests and answers, in either format.

use axum::body::Body as HttpBody;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body_util::BodyExt;
use spindle_http::{Answered, Code, Problem, accept_of, read_body, text_of, work_on_bytes};

use crate::door::LightJq;
use crate::wire::{Format, WireError, answer_format, body_format, from_json, to_json_text};

/// A request's body, as MessagePack whatever it came as.
pub(crate) struct Body(Bytes);

impl FromRequest<LightJq> for Body {
    type Rejection = Problem;

    async fn from_request(request: Request, door: &LightJq) -> Answered<Self> {
        let said = text_of(request.headers(), &header::CONTENT_TYPE).map(str::to_owned);
        let format = body_format(said.as_deref()).ok_or_else(|| {
            let said = said.as_deref().unwrap_or_default();
            let detail =
                format!("the body must be application/msgpack or application/json, not `{said}`");
            Problem::new(Code::UnsupportedType, detail)
        })?;
        let bytes = read_body(request, door.options().body).await?;
        // No MessagePack body begins in this way, because each is a map.
        if said.is_none() && bytes.trim_ascii_start().starts_with(b"{") {
            let detail = "the body says no type, and this protocol's own is MessagePack; if it is \
                          JSON, say so: Content-Type: application/json";
            return Err(Problem::new(Code::BadRequest, detail));
        }
        if format == Format::Msgpack {
            return Ok(Body(bytes));
        }
        let packed = work_on_bytes(bytes.len(), move || from_json(&bytes)).await;
        packed.map(|packed| Body(Bytes::from(packed))).map_err(malformed)
    }
}

impl Body {
    /// Reads it as a message.
    pub async fn read<T: Send + 'static>(
        self,
        decode: fn(&Bytes) -> Result<T, WireError>,
    ) -> Answered<T> {
        let Body(packed) = self;
        work_on_bytes(packed.len(), move || decode(&packed)).await.map_err(malformed)
    }
}

/// A body, or a field of it, is not what it must be.
pub(crate) fn malformed(error: WireError) -> Problem {
    let code = match error {
        WireError::BadJson(_) => Code::BadJson,
        WireError::Missing(_) | WireError::WrongType { .. } | WireError::Duplicate(_) => {
            Code::BadField
        }
        WireError::OutOfRange { .. } => Code::OutOfRange,
        _ => Code::BadRequest,
    };
    Problem::new(code, error.to_string())
}

/// The format the answer has to be in.
pub(crate) struct Wanted(pub Format);

impl FromRequestParts<LightJq> for Wanted {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &LightJq) -> Answered<Self> {
        wanted(&parts.headers).map(Wanted).ok_or_else(|| {
            let detail =
                "answers are application/msgpack or application/json; Accept takes neither";
            Problem::new(Code::NotAcceptable, detail)
        })
    }
}

fn wanted(headers: &HeaderMap) -> Option<Format> {
    let said = text_of(headers, &header::CONTENT_TYPE);
    let own = said.and_then(|said| body_format(Some(said)));
    answer_format(accept_of(headers).as_deref(), own)
}

impl Wanted {
    /// The bytes of an answer, in its format.
    pub async fn bytes(&self, packed: Vec<u8>) -> Answered<Bytes> {
        if self.0 == Format::Msgpack {
            return Ok(Bytes::from(packed));
        }
        let text = work_on_bytes(packed.len(), move || to_json_text(&packed)).await;
        text.map(Bytes::from).map_err(|error| Problem::new(Code::Unreadable, error.to_string()))
    }

    /// An answer with this body.
    pub async fn answer(&self, status: StatusCode, packed: Vec<u8>) -> Answered<Response> {
        Ok(self.with(status, HttpBody::from(self.bytes(packed).await?)))
    }

    /// An answer whose bytes are in its format already.
    pub fn with(&self, status: StatusCode, body: HttpBody) -> Response {
        let kind = HeaderValue::from_static(self.0.content_type());
        (status, [(header::CONTENT_TYPE, kind)], body).into_response()
    }
}

/// Problems are written as JSON, and converted to MessagePack for clients that speak it.
pub(crate) async fn problems_as_asked(request: Request, next: Next) -> Response {
    let format = wanted(request.headers()).unwrap_or(Format::Msgpack);
    let response = next.run(request).await;
    let kind = text_of(response.headers(), &header::CONTENT_TYPE);
    if format == Format::Json || kind != Some("application/problem+json") {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let text = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let packed = from_json(&text).unwrap_or_default();
    let kind = HeaderValue::from_static(Format::Msgpack.content_type());
    parts.headers.insert(header::CONTENT_TYPE, kind);
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, HttpBody::from(packed))
}
