//! Requests to the native API, its answers and its problems.

use std::{
    io::{self, ErrorKind},
    time::Duration,
};

use serde::{Deserialize, de::DeserializeOwned};
use ureq::{
    Agent, Body,
    http::{Method, Request, Response, header},
    unversioned::resolver::DefaultResolver,
};

use super::dial::Dial;
use crate::client::{line::Line, session::AskError};

/// How long an answer may take beyond what a request itself waits for.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// An answer is never longer: the largest payload, in base64, with room to spare.
const ANSWER_BYTES_MAX: u64 = 256 << 20;
/// So much of an answer that is none of ours is shown.
const SHOWN_LETTERS: usize = 80;

/// A server's HTTP door.
#[derive(Debug)]
pub struct Http {
    agent: Agent,
    authority: String,
}

/// A request.
#[derive(Debug)]
pub struct Asking<'a> {
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

impl<'a> Asking<'a> {
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

/// An error's body, RFC 9457.
#[derive(Deserialize)]
struct Problem {
    code: String,
    #[serde(default)]
    title: String,
    #[serde(default)]
    detail: String,
}

impl Http {
    /// The door at this address, spoken to through connections that `line` tells of.
    pub fn new(authority: &str, line: &Line) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .max_idle_connections(1)
            .max_idle_connections_per_host(1)
            .user_agent(concat!("spindle/", env!("CARGO_PKG_VERSION")))
            .build();
        let agent = Agent::with_parts(config, Dial(line.clone()), DefaultResolver::default());
        Self { agent, authority: authority.to_owned() }
    }

    /// Asks and reads the answer's JSON.
    pub fn ask<T: DeserializeOwned>(&self, asking: Asking<'_>) -> Result<T, AskError> {
        let bytes = self.answer(asking)?;
        serde_json::from_slice(&bytes).map_err(|error| strange(&error.to_string(), &bytes))
    }

    /// Asks and reads the answer's JSON; none if there is no content.
    pub fn ask_for_any<T: DeserializeOwned>(
        &self,
        asking: Asking<'_>,
    ) -> Result<Option<T>, AskError> {
        let bytes = self.answer(asking)?;
        if bytes.is_empty() {
            return Ok(None);
        }
        let read = serde_json::from_slice(&bytes);
        read.map(Some).map_err(|error| strange(&error.to_string(), &bytes))
    }

    /// Asks, and reads the answer's bytes if all is well.
    pub fn answer(&self, asking: Asking<'_>) -> Result<Vec<u8>, AskError> {
        let limit = asking.wait + ANSWER_WITHIN;
        let response = self.send(asking, Some(limit), None)?;
        let status = response.status().as_u16();
        let mut body = response.into_body();
        let read = body.with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
        let bytes = read.map_err(ask_error)?;
        if (200..300).contains(&status) { Ok(bytes) } else { Err(problem(status, &bytes)) }
    }

    /// Asks for a body without end; each part of it comes within `silence`.
    pub fn stream(&self, asking: Asking<'_>, silence: Duration) -> Result<Body, AskError> {
        let response = self.send(asking, None, Some(silence))?;
        let status = response.status().as_u16();
        let mut body = response.into_body();
        if status == 200 {
            return Ok(body);
        }
        let bytes = body.with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
        Err(problem(status, &bytes.map_err(ask_error)?))
    }

    fn send(
        &self,
        asking: Asking<'_>,
        limit: Option<Duration>,
        silence: Option<Duration>,
    ) -> Result<Response<Body>, AskError> {
        let sends_body = asking.body.is_some() || asking.method == Method::POST;
        let mut request = Request::builder()
            .method(asking.method)
            .uri(format!("http://{}{}", self.authority, asking.path));
        if asking.body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
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
        sent.map_err(ask_error)
    }
}

/// `127.0.0.1:7420` of `http://127.0.0.1:7420`.
pub fn authority(url: &str) -> Result<&str, String> {
    let rest = url.strip_prefix("http://").unwrap_or(url).trim_end_matches('/');
    let (_, port) = rest.rsplit_once(':').unwrap_or_default();
    if port.parse::<u16>().is_err() || rest.contains(['/', '?', '#', '@', ' ']) {
        return Err(format!("`{url}` will not do: write it as http://127.0.0.1:7420"));
    }
    Ok(rest)
}

fn problem(status: u16, bytes: &[u8]) -> AskError {
    let Ok(Problem { code, title, detail }) = serde_json::from_slice(bytes) else {
        return strange(&format!("status {status}"), bytes);
    };
    let text = if detail.is_empty() { title } else { detail };
    match (status, code.as_str()) {
        (404 | 410, _) if code != "not_found" => AskError::NotFound,
        (409, "lease_not_live") => AskError::LeaseEnded,
        (408, _) => AskError::TimedOut,
        (429, "queue_full") => AskError::Refused { text, code: Some(code) },
        (429 | 500.., _) => AskError::Failed(text),
        _ => AskError::Refused { text, code: Some(code) },
    }
}

fn strange(what: &str, bytes: &[u8]) -> AskError {
    let shown: String = String::from_utf8_lossy(bytes)
        .chars()
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .take(SHOWN_LETTERS)
        .collect();
    AskError::Strange(format!("the answer is none of a Spindle ({what}): {shown}"))
}

fn ask_error(error: ureq::Error) -> AskError {
    match error {
        ureq::Error::Io(error) => AskError::Io(error),
        ureq::Error::Timeout(_) => AskError::Io(ErrorKind::TimedOut.into()),
        ureq::Error::Protocol(error) => {
            AskError::Strange(format!("what came back is no HTTP: {error}"))
        }
        other => AskError::Io(io::Error::other(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_with_and_without_their_scheme() {
        for url in ["http://127.0.0.1:7420", "http://127.0.0.1:7420/", "127.0.0.1:7420"] {
            assert_eq!(authority(url).unwrap(), "127.0.0.1:7420");
        }
        assert_eq!(authority("http://[::1]:1").unwrap(), "[::1]:1");
        for url in ["", "http://", "https://127.0.0.1:7420/x", "localhost", "http://a:b"] {
            assert!(authority(url).is_err(), "{url}");
        }
    }

    #[test]
    fn a_problem_is_told_in_the_servers_words() {
        let body = br#"{"type":"urn:x","title":"T","status":409,"code":"job_leased","detail":"D"}"#;
        let AskError::Refused { text, code } = problem(409, body) else { panic!() };
        assert_eq!((text.as_str(), code.as_deref()), ("D", Some("job_leased")));
        let busy = br#"{"code":"busy","title":"Too much"}"#;
        assert!(matches!(problem(503, busy), AskError::Failed(text) if text == "Too much"));
        assert!(matches!(problem(404, b"<html>"), AskError::Strange(_)));
    }
}
