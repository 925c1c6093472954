//! Requests to the native API, and its answers, for commands: they wait for each.

use std::sync::OnceLock;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use spindle_client::{
    Answer, BaseUrl, Line, Opened, RawEvent, Request, SendError, Transport, encoded,
    http::HeaderMap,
};
use tokio::runtime::{Builder, Runtime};

use super::trouble;
use crate::client::session::AskError;

/// A server's HTTP door.
#[derive(Debug)]
pub struct Http {
    transport: Transport,
    line: Line,
    /// What the client library runs in: it works while a command waits, on the command's thread.
    runtime: OnceLock<Runtime>,
}

/// An answer that is a success.
pub struct Success {
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub bytes: Vec<u8>,
}

impl Success {
    /// Its body as JSON.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, AskError> {
        let read = serde_json::from_slice(&self.bytes);
        read.map_err(|error| trouble::no_json(&error, &self.bytes))
    }
}

impl Http {
    /// The door at this URL; `line` learns of the connections to it.
    pub fn new(base: &BaseUrl, line: &Line) -> Self {
        let transport = Transport::new(base.clone());
        Self { transport, line: line.clone(), runtime: OnceLock::new() }
    }

    /// Asks and reads the answer's JSON.
    pub fn ask<T: DeserializeOwned>(&self, asking: Request<'_>) -> Result<T, AskError> {
        self.answer_in_full(asking)?.json()
    }

    /// Asks and reads the answer's JSON; none if there is no content.
    pub fn ask_for_any<T: DeserializeOwned>(
        &self,
        asking: Request<'_>,
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
            let answer = self.answer_in_full(Request::get(&format!("{path}{cursor}")))?;
            let mut page: Map<String, Value> = answer.json()?;
            let items = serde_json::from_value(page.remove(name).unwrap_or_default());
            let items: Vec<T> = items.map_err(|error| trouble::no_json(&error, &answer.bytes))?;
            items.into_iter().for_each(&mut take);
            let Some(next) = page.get("next_cursor").and_then(Value::as_str) else { return Ok(()) };
            cursor = format!("{mark}cursor={}", encoded(next));
        }
    }

    /// Asks, and reads the answer's bytes if all is well.
    pub fn answer(&self, asking: Request<'_>) -> Result<Vec<u8>, AskError> {
        Ok(self.answer_in_full(asking)?.bytes)
    }

    /// Asks, and reads the answer if all is well.
    pub fn answer_in_full(&self, asking: Request<'_>) -> Result<Success, AskError> {
        let answer = self.wait_for(self.transport.send(asking, Some(&self.line)))?;
        if answer.status.is_success() {
            return Ok(Success { headers: answer.headers, bytes: answer.bytes.into() });
        }
        Err(self.refusal(&answer))
    }

    /// Opens a stream of events at a path; behind the event `after`, if that is said.
    pub fn events(&self, path: &str, after: Option<&str>) -> Result<EventStream<'_>, AskError> {
        let opening = spindle_client::EventStream::open(&self.transport, path, after);
        match self.wait_for(opening)? {
            Opened::Stream(stream) => Ok(EventStream { http: self, stream }),
            Opened::Refused(answer) => Err(self.refusal(&answer)),
        }
    }

    fn refusal(&self, answer: &Answer) -> AskError {
        let Answer { status, headers, bytes } = answer;
        trouble::refusal(*status, headers, bytes, self.transport.base())
    }

    fn wait_for<T>(
        &self,
        asked: impl Future<Output = Result<T, SendError>>,
    ) -> Result<T, AskError> {
        let answered = self.runtime()?.block_on(asked);
        answered.map_err(|error| trouble::of(error, self.transport.base()))
    }

    fn runtime(&self) -> Result<&Runtime, AskError> {
        if let Some(runtime) = self.runtime.get() {
            return Ok(runtime);
        }
        let made = Builder::new_current_thread().enable_all().build()?;
        Ok(self.runtime.get_or_init(|| made))
    }
}

/// Events, one after the other.
pub struct EventStream<'a> {
    http: &'a Http,
    stream: spindle_client::EventStream,
}

impl EventStream<'_> {
    /// Waits for the next event; none at the end of the stream.
    pub fn next(&mut self) -> Result<Option<RawEvent>, AskError> {
        self.http.wait_for(self.stream.next())
    }
}
