//! Requests to the native API, and its answers.

use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use ureq::{
    Agent, Body,
    http::{HeaderMap, Method, Request, Response, StatusCode, header},
    unversioned::transport::{Connector, RustlsConnector},
};

use super::{
    base::BaseUrl,
    dial::{Dial, Lookup},
    trouble,
};
use crate::client::{line::Line, session::AskError};

/// How long an answer may take beyond what a request itself waits for.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// An answer is never longer: the largest payload, in base64, with room to spare.
const ANSWER_BYTES_MAX: u64 = 256 << 20;
/// A server's HTTP door.
#[derive(Debug)]
pub struct Http {
    agent: Agent,
    base: BaseUrl,
}

/// An answer that was read whole.
pub struct Answer {
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub bytes: Vec<u8>,
}

/// A request.
#[derive(Debug)]
pub struct ApiRequest<'a> {
    /// What is done.
    pub method: Method,
    /// Where, from the first slash, with what stands behind the question mark.
    pub path: &'a str,
    /// The JSON that goes with it.
    pub body: Option<Vec<u8>>,
    /// Other headers.
    pub headers: Vec<(&'static str, String)>,
    /// So long the server is asked to wait.
    pub wait: Duration,
}

impl<'a> ApiRequest<'a> {
    /// A request that reads.
    pub fn get(path: &'a str) -> Self {
        Self::of(Method::GET, path)
    }

    /// A request that does something.
    pub fn post(path: &'a str) -> Self {
        Self::of(Method::POST, path)
    }

    /// A request of any method.
    pub fn of(method: Method, path: &'a str) -> Self {
        Self { method, path, body: None, headers: Vec::new(), wait: Duration::ZERO }
    }

    /// With this JSON.
    pub fn with(mut self, body: &impl serde::Serialize) -> Self {
        self.body = Some(serde_json::to_vec(body).expect("texts, numbers and JSON are JSON"));
        self
    }

    /// The server is asked to wait so long.
    pub fn waiting(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }
}

impl Answer {
    /// Its body as JSON.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, AskError> {
        let read = serde_json::from_slice(&self.bytes);
        read.map_err(|error| trouble::no_json(&error, &self.bytes))
    }
}

impl Http {
    /// The door at this URL, spoken to through connections that `line` tells of.
    pub fn new(base: &BaseUrl, line: &Line) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .max_idle_connections(1)
            .max_idle_connections_per_host(1)
            .user_agent(concat!("spindle/", env!("CARGO_PKG_VERSION")))
            .tls_config(base.tls())
            .build();
        let connector = Dial(line.clone()).chain(RustlsConnector::default());
        let agent = Agent::with_parts(config, connector, Lookup::default());
        Self { agent, base: base.clone() }
    }

    /// Asks and reads the answer's JSON.
    pub fn ask<T: DeserializeOwned>(&self, asking: ApiRequest<'_>) -> Result<T, AskError> {
        self.answer_in_full(asking)?.json()
    }

    /// Asks and reads the answer's JSON; none if there is no content.
    pub fn ask_for_any<T: DeserializeOwned>(
        &self,
        asking: ApiRequest<'_>,
    ) -> Result<Option<T>, AskError> {
        let answer = self.answer_in_full(asking)?;
        if answer.bytes.is_empty() { Ok(None) } else { answer.json().map(Some) }
    }

    /// Reads a list, page by page, and gives each item to `take`. `name` is the field of a page
    /// that holds its items.
    pub fn for_each<T: DeserializeOwned>(
        &self,
        path: &str,
        name: &str,
        mut take: impl FnMut(T),
    ) -> Result<(), AskError> {
        let mark = if path.contains('?') { '&' } else { '?' };
        let mut cursor = String::new();
        loop {
            let answer = self.answer_in_full(ApiRequest::get(&format!("{path}{cursor}")))?;
            let mut page: Map<String, Value> = answer.json()?;
            let items = serde_json::from_value(page.remove(name).unwrap_or_default());
            let items: Vec<T> = items.map_err(|error| trouble::no_json(&error, &answer.bytes))?;
            items.into_iter().for_each(&mut take);
            let Some(next) = page.get("next_cursor").and_then(Value::as_str) else { return Ok(()) };
            cursor = format!("{mark}cursor={}", encoded(next));
        }
    }

    /// Asks, and reads the answer's bytes if all is well.
    pub fn answer(&self, asking: ApiRequest<'_>) -> Result<Vec<u8>, AskError> {
        Ok(self.answer_in_full(asking)?.bytes)
    }

    /// Asks, and reads the answer if all is well.
    pub fn answer_in_full(&self, asking: ApiRequest<'_>) -> Result<Answer, AskError> {
        let limit = asking.wait + ANSWER_WITHIN;
        let response = self.send(asking, Some(limit), None)?;
        let (head, mut body) = response.into_parts();
        let read = body.with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
        let bytes = read.map_err(|error| trouble::of(error, &self.base))?;
        if head.status.is_success() {
            return Ok(Answer { headers: head.headers, bytes });
        }
        Err(trouble::refusal(head.status, &head.headers, &bytes, &self.base))
    }

    /// Asks for a body without end; each part of it comes within `silence`.
    pub fn stream(&self, asking: ApiRequest<'_>, silence: Duration) -> Result<Body, AskError> {
        let response = self.send(asking, None, Some(silence))?;
        let (head, mut body) = response.into_parts();
        if head.status == StatusCode::OK {
            return Ok(body);
        }
        let read = body.with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
        let bytes = read.map_err(|error| trouble::of(error, &self.base))?;
        Err(trouble::refusal(head.status, &head.headers, &bytes, &self.base))
    }

    fn send(
        &self,
        asking: ApiRequest<'_>,
        limit: Option<Duration>,
        silence: Option<Duration>,
    ) -> Result<Response<Body>, AskError> {
        let sends_body = asking.body.is_some() || asking.method == Method::POST;
        let mut request =
            Request::builder().method(asking.method).uri(format!("{}{}", self.base, asking.path));
        if asking.body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        if let Some(who) = self.base.authorization() {
            request = request.header(header::AUTHORIZATION, who);
        }
        for (name, value) in asking.headers {
            request = request.header(name, value);
        }
        let bad = |error: ureq::http::Error| AskError::refused(error.to_string());
        let sent = if sends_body {
            let request = request.body(asking.body.unwrap_or_default()).map_err(bad)?;
            let request = self.agent.configure_request(request).timeout_global(limit);
            self.agent.run(request.timeout_per_read(silence).build())
        } else {
            let request = request.body(()).map_err(bad)?;
            let request = self.agent.configure_request(request).timeout_global(limit);
            self.agent.run(request.timeout_per_read(silence).build())
        };
        sent.map_err(|error| trouble::of(error, &self.base))
    }
}

/// A text within a path or behind its question mark.
pub fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}
