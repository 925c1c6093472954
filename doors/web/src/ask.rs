//! Asking the native API, inside the process, on behalf of the person who looks at a page.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::request::Builder;
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use spindle_access::Login;
use spindle_engine::Peer;
use spindle_http::{Code, Problem, Visitor};
use tower::ServiceExt;

/// The longest answer that is read: a job with its payload in base64, and some.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Asks the API as a given visitor. The API checks roles and queues; the request was already
/// counted.
#[derive(Clone)]
pub(crate) struct Ask {
    pub api: Router,
    pub login: Login,
    /// The connection that the visitor uses.
    pub peer: Option<Peer>,
}

/// What the API refused, and why.
#[derive(Deserialize, Debug)]
pub(crate) struct Fault {
    status: u16,
    pub code: String,
    title: String,
    pub detail: String,
}

impl Fault {
    pub fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

impl From<Problem> for Fault {
    fn from(problem: Problem) -> Fault {
        let Problem { code, detail, .. } = problem;
        Fault {
            status: code.status().as_u16(),
            code: code.as_str().to_owned(),
            title: code.title().to_owned(),
            detail,
        }
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let Fault { status, code, title, detail } = &self;
        let body = json!({ "status": status, "code": code, "title": title, "detail": detail });
        let kind = [(header::CONTENT_TYPE, "application/problem+json")];
        (self.status(), kind, body.to_string()).into_response()
    }
}

/// The condition for putting something.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Match<'a> {
    /// What was read with this entity tag.
    Tag(&'a str),
    /// Nothing.
    Nothing,
}

/// The result of a page.
pub(crate) type Asked<T> = Result<T, Fault>;

impl Ask {
    /// Reads something.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Asked<T> {
        read(&self.send(Method::GET, path, None).await?)
    }

    /// Changes something, and reads what it is then.
    pub async fn post<T: DeserializeOwned>(&self, path: &str, body: &Value) -> Asked<T> {
        read(&self.send(Method::POST, path, Some(body)).await?)
    }

    /// Deletes something, and reads what the API answers about it; `None` if it is gone for good.
    pub async fn delete<T: DeserializeOwned>(&self, path: &str) -> Asked<Option<T>> {
        let body = self.send(Method::DELETE, path, None).await?;
        if body.is_empty() { Ok(None) } else { read(&body).map(Some) }
    }

    /// Reads something, with its entity tag.
    pub async fn get_tagged<T: DeserializeOwned>(&self, path: &str) -> Asked<(T, String)> {
        let (headers, body) = self.answer(Request::get(path), None).await?;
        let tag = headers.get(header::ETAG).and_then(|tag| tag.to_str().ok());
        Ok((read(&body)?, tag.unwrap_or_default().to_owned()))
    }

    /// Puts something, if the condition holds.
    pub async fn put(&self, path: &str, body: &Value, matching: Match<'_>) -> Asked<()> {
        let request = match matching {
            Match::Tag(tag) => Request::put(path).header(header::IF_MATCH, tag),
            Match::Nothing => Request::put(path).header(header::IF_NONE_MATCH, "*"),
        };
        self.answer(request, Some(body)).await.map(drop)
    }

    /// What something would be if it was put.
    pub async fn preview<T: DeserializeOwned>(&self, path: &str, body: &Value) -> Asked<T> {
        read(&self.send(Method::PUT, &format!("{path}?dry_run=true"), Some(body)).await?)
    }

    /// Removes something that is still as it was read, as its tag says.
    pub async fn remove(&self, path: &str, tag: &str) -> Asked<()> {
        let request = Request::delete(path).header(header::IF_MATCH, tag);
        self.answer(request, None).await.map(drop)
    }

    /// An answer with its bytes as they are.
    pub async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Asked<Bytes> {
        Ok(self.answer(Request::builder().method(method).uri(path), body).await?.1)
    }

    async fn answer(
        &self,
        mut request: Builder,
        body: Option<&Value>,
    ) -> Asked<(HeaderMap, Bytes)> {
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        request = request.header(header::ACCEPT, "application/json");
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        let mut request = request
            .body(body)
            .map_err(|_| Problem::out_of_range("that is longer than an address may be"))?;
        request.extensions_mut().insert(Visitor(self.login.clone()));
        if let Some(peer) = self.peer.clone() {
            request.extensions_mut().insert(peer);
        }
        let response = match self.api.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let (head, body) = response.into_parts();
        let body = to_bytes(body, ANSWER_BYTES_MAX).await.map_err(|_| {
            Problem::new(Code::TooLarge, "the answer is too large for a page; ask the API")
        })?;
        if head.status.is_success() { Ok((head.headers, body)) } else { Err(read::<Fault>(&body)?) }
    }
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Asked<T> {
    serde_json::from_slice(body).map_err(|error| {
        let detail = format!("the API's answer is not what the page expects: {error}");
        Problem::new(Code::Unreadable, detail).into()
    })
}

/// A segment of a path.
pub(crate) fn segment(name: &[u8]) -> String {
    percent_encode(name, NON_ALPHANUMERIC).to_string()
}
