//! Requests and their answers, over connections that are kept. Nothing is repeated here.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, USER_AGENT};
use hyper::{Method, Response, StatusCode};
use parking_lot::Mutex;
use tokio::time::timeout;

use crate::connect::Connection;
use crate::line::Line;
use crate::send_error::SendError;
use crate::url::BaseUrl;

/// How long an answer may take beyond what a request itself waits for.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// An answer is never longer: the largest payload, in base64, with room to spare.
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// How many connections are kept open for the next request, and for how long: for less time than until
/// the server closes them, which it might do at the moment a request leaves.
const IDLE_MAX: usize = 32;
const IDLE_AGE_MAX: Duration = Duration::from_secs(45);

/// A request of the API.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// What is done.
    pub method: Method,
    /// Where, from the first slash, with what stands behind the question mark.
    pub path: &'a str,
    /// The JSON that goes with it.
    pub body: Option<Bytes>,
    /// Other headers.
    pub headers: Vec<(&'static str, String)>,
    /// How long the server is asked to wait.
    pub wait: Duration,
}

impl<'a> Request<'a> {
    /// A request that reads.
    #[must_use]
    pub fn get(path: &'a str) -> Self {
        Self::of(Method::GET, path)
    }

    /// A request that does something.
    #[must_use]
    pub fn post(path: &'a str) -> Self {
        Self::of(Method::POST, path)
    }

    /// A request of any method.
    #[must_use]
    pub fn of(method: Method, path: &'a str) -> Self {
        Self { method, path, body: None, headers: Vec::new(), wait: Duration::ZERO }
    }

    /// With this as JSON.
    ///
    /// # Panics
    /// `body` has a map whose keys are no texts, or says that it cannot be written. For values of
    /// other programs there is [`with_json`](Self::with_json).
    #[must_use]
    pub fn with(self, body: &impl serde::Serialize) -> Self {
        self.with_json(serde_json::to_vec(body).expect("texts, numbers and JSON are JSON"))
    }

    /// With this JSON text.
    #[must_use]
    pub fn with_json(mut self, text: impl Into<Bytes>) -> Self {
        self.body = Some(text.into());
        self
    }

    /// The server is asked to wait so long.
    #[must_use]
    pub fn waiting(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// With another header.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// An answer that was read whole, whatever it says.
#[derive(Debug)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub bytes: Bytes,
}

/// An answer whose body comes bit by bit.
#[derive(Debug)]
pub(crate) struct Streamed {
    pub response: Response<Incoming>,
    /// Ends the connection with it.
    _connection: Connection,
}

/// A server's HTTP door, and the connections to it that wait for their next request.
///
/// It runs in the tokio runtime in which its first request is made.
#[derive(Debug)]
pub struct Transport {
    base: BaseUrl,
    answer_within: Duration,
    idle: Mutex<Vec<(Connection, Instant)>>,
}

impl Transport {
    /// The door at this URL. Connects with the first request.
    #[must_use]
    pub fn new(base: BaseUrl) -> Self {
        Self { base, answer_within: ANSWER_WITHIN, idle: Mutex::default() }
    }

    /// With another time for an answer than 30 s beyond what a request itself waits for.
    #[must_use]
    pub fn answering_within(mut self, time: Duration) -> Self {
        self.answer_within = time;
        self
    }

    /// Where it is.
    #[must_use]
    pub fn base(&self) -> &BaseUrl {
        &self.base
    }

    /// Sends a request and reads the whole answer. With a line, the wait can be ended by hanging up.
    ///
    /// # Errors
    /// There is no answer. A refusal is an answer, not an error.
    pub async fn send(
        &self,
        request: Request<'_>,
        line: Option<&Line>,
    ) -> Result<Answer, SendError> {
        let token = self.base.authorization();
        self.send_as(request, token, line).await
    }

    /// The same with another token.
    pub(crate) async fn send_as(
        &self,
        request: Request<'_>,
        token: Option<HeaderValue>,
        line: Option<&Line>,
    ) -> Result<Answer, SendError> {
        let limit = request.wait + self.answer_within;
        let mut connection = self.connection(limit).await?;
        if let Some(line) = line {
            line.carries(connection.socket.clone());
        }
        let answered = timeout(limit, self.converse(&mut connection, request, token)).await;
        let answer = answered.map_err(|_| SendError::Silent(limit))??;
        self.keep(connection);
        Ok(answer)
    }

    /// Sends a request and reads the head of its answer. The body has no end, mostly.
    pub(crate) async fn stream(
        &self,
        request: Request<'_>,
        token: Option<HeaderValue>,
    ) -> Result<Streamed, SendError> {
        let limit = self.answer_within;
        let mut connection = self.connection(limit).await?;
        let answered = timeout(limit, self.ask(&mut connection, request, token)).await;
        let response = answered.map_err(|_| SendError::Silent(limit))??;
        Ok(Streamed { response, _connection: connection })
    }

    /// An answer of which only the head is there.
    pub(crate) async fn rest_of(&self, streamed: Streamed) -> Result<Answer, SendError> {
        let limit = self.answer_within;
        let whole = timeout(limit, whole(streamed.response)).await;
        whole.map_err(|_| SendError::Silent(limit))?
    }

    async fn converse(
        &self,
        connection: &mut Connection,
        request: Request<'_>,
        token: Option<HeaderValue>,
    ) -> Result<Answer, SendError> {
        whole(self.ask(connection, request, token).await?).await
    }

    async fn ask(
        &self,
        connection: &mut Connection,
        request: Request<'_>,
        token: Option<HeaderValue>,
    ) -> Result<Response<Incoming>, SendError> {
        let request = self.http_request(request, token)?;
        let answered = connection.sender.send_request(request).await;
        answered.map_err(|error| SendError::of_http(&error))
    }

    fn http_request(
        &self,
        request: Request<'_>,
        token: Option<HeaderValue>,
    ) -> Result<hyper::Request<Full<Bytes>>, SendError> {
        let mut built = hyper::Request::builder()
            .method(request.method)
            .uri(format!("{}{}", self.base.prefix(), request.path))
            .header(HOST, self.base.authority())
            .header(USER_AGENT, concat!("spindle/", env!("CARGO_PKG_VERSION")));
        if request.body.is_some() {
            built = built.header(CONTENT_TYPE, "application/json");
        }
        if let Some(token) = token {
            built = built.header(AUTHORIZATION, token);
        }
        for (name, value) in request.headers {
            built = built.header(name, value);
        }
        let built = built.body(Full::new(request.body.unwrap_or_default()));
        built.map_err(|error| SendError::Unwritable(error.to_string()))
    }

    async fn connection(&self, limit: Duration) -> Result<Connection, SendError> {
        loop {
            let Some((mut kept, since)) = self.idle.lock().pop() else { break };
            if since.elapsed() < IDLE_AGE_MAX && kept.is_open().await {
                return Ok(kept);
            }
        }
        let late = |_| SendError::Connect(std::io::ErrorKind::TimedOut.into());
        timeout(limit, Connection::open(&self.base)).await.map_err(late)?
    }

    fn keep(&self, connection: Connection) {
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_MAX {
            idle.push((connection, Instant::now()));
        }
    }
}

async fn whole(response: Response<Incoming>) -> Result<Answer, SendError> {
    let (head, body) = response.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    let bytes = body.map_err(|error| match error.downcast::<hyper::Error>() {
        Ok(error) => SendError::of_http(&error),
        Err(other) if other.is::<LengthLimitError>() => SendError::TooLong(ANSWER_BYTES_MAX),
        Err(other) => SendError::Lost(std::io::Error::other(other)),
    })?;
    Ok(Answer { status: head.status, headers: head.headers, bytes: bytes.to_bytes() })
}
