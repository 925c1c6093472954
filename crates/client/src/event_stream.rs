//! The stream of events as the server sends it: empty lines separate the events.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::StatusCode;
use hyper::header::HeaderValue;
use tokio::time::timeout;

use crate::send_error::SendError;
use crate::transport::{Answer, Request, Streamed, Transport};

/// The server says something at least every quarter of a minute.
const SILENCE: Duration = Duration::from_secs(60);
/// An event is never longer.
const EVENT_BYTES_MAX: usize = 1 << 20;

/// An event as it is sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RawEvent {
    /// The position of the stream behind it, from which to go on.
    pub id: String,
    /// What it tells, as JSON. Empty: it only says where the stream stands.
    pub data: String,
}

/// The outcome of opening a stream.
#[derive(Debug)]
pub enum Opened {
    /// Events, one after the other.
    Stream(EventStream),
    /// An answer that is no stream: a refusal.
    Refused(Answer),
}

/// Events of one connection, one after the other.
#[derive(Debug)]
pub struct EventStream {
    streamed: Streamed,
    parser: Parser,
}

impl EventStream {
    /// Opens a stream at a path; behind the event `after`, if that is said.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn open(
        transport: &Transport,
        path: &str,
        after: Option<&str>,
    ) -> Result<Opened, SendError> {
        Self::open_as(transport, transport.base().authorization(), path, after).await
    }

    pub(crate) async fn open_as(
        transport: &Transport,
        token: Option<HeaderValue>,
        path: &str,
        after: Option<&str>,
    ) -> Result<Opened, SendError> {
        let mut request = Request::get(path).header("accept", "text/event-stream");
        request.headers.extend(after.map(|id| ("last-event-id", id.to_owned())));
        let streamed = transport.stream(request, token).await?;
        if streamed.response.status() == StatusCode::OK {
            return Ok(Opened::Stream(Self { streamed, parser: Parser::default() }));
        }
        transport.rest_of(streamed).await.map(Opened::Refused)
    }

    /// The next event; none at the end of the stream.
    ///
    /// # Errors
    /// The stream broke off, or nothing came for a minute.
    pub async fn next(&mut self) -> Result<Option<RawEvent>, SendError> {
        loop {
            if let Some(event) = self.parser.next().map_err(SendError::Lost)? {
                return Ok(Some(event));
            }
            let frame = timeout(SILENCE, self.streamed.response.frame()).await;
            match frame.map_err(|_| SendError::Silent(SILENCE))? {
                Some(frame) => {
                    let frame = frame.map_err(|error| SendError::of_http(&error))?;
                    self.parser.feed(&frame.into_data().unwrap_or_else(|_| Bytes::new()));
                }
                None if self.parser.is_within_a_line() => {
                    let broken = io::Error::other("the stream of events broke off");
                    return Err(SendError::Lost(broken));
                }
                // Lines that no empty line ended have not come whole.
                None => return Ok(None),
            }
        }
    }
}

/// Makes events of bytes, however they are cut.
#[derive(Debug, Default)]
struct Parser {
    bytes: Vec<u8>,
    event: RawEvent,
    is_begun: bool,
}

impl Parser {
    fn feed(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn is_within_a_line(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// The next event that is here whole.
    fn next(&mut self) -> io::Result<Option<RawEvent>> {
        let mut read = 0;
        let mut found = None;
        while found.is_none() {
            let rest = self.bytes.get(read..).unwrap_or_default();
            let Some(length) = rest.iter().position(|byte| *byte == b'\n') else { break };
            let line = String::from_utf8_lossy(rest.get(..length).unwrap_or_default()).into_owned();
            read += length + 1;
            found = self.take_line(line.trim_end_matches('\r'));
        }
        self.bytes.drain(..read);
        if found.is_none() && self.bytes.len() + self.event.data.len() > EVENT_BYTES_MAX {
            return Err(io::Error::other("an event is too long"));
        }
        Ok(found)
    }

    /// The event that this line ends.
    fn take_line(&mut self, line: &str) -> Option<RawEvent> {
        if line.is_empty() {
            let is_whole = std::mem::take(&mut self.is_begun);
            return is_whole.then(|| std::mem::take(&mut self.event));
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => value.clone_into(&mut self.event.id),
            "data" => {
                if !self.event.data.is_empty() {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            // Comments, and names that stand in the data too.
            _ => return None,
        }
        self.is_begun = true;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_stand_between_empty_lines_however_the_bytes_are_cut() {
        let text = "id: 7.0\n\n: nothing new\n\nid:8.1\r\nevent: ready\ndata: {\"a\":1}\n\nid: 9.0";
        let event = |id: &str, data: &str| RawEvent { id: id.to_owned(), data: data.to_owned() };
        for step in [1, 7, text.len()] {
            let mut parser = Parser::default();
            let mut events = Vec::new();
            for bytes in text.as_bytes().chunks(step) {
                parser.feed(bytes);
                while let Some(event) = parser.next().unwrap() {
                    events.push(event);
                }
            }
            assert_eq!(events, [event("7.0", ""), event("8.1", "{\"a\":1}")]);
            assert!(parser.is_within_a_line());
        }
    }

    #[test]
    fn a_line_without_end_is_an_error() {
        let mut parser = Parser::default();
        parser.feed(&vec![b'x'; EVENT_BYTES_MAX + 1]);
        assert!(parser.next().is_err());
    }
}
