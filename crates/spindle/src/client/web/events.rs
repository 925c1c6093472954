//! The stream of events: what stands between two empty lines is one.

use std::{
    io::{self, BufRead, BufReader},
    time::Duration,
};

use ureq::BodyReader;

use super::http::{ApiRequest, Http};
use crate::client::session::AskError;

/// The server says something at least every quarter of a minute.
const SILENCE: Duration = Duration::from_secs(60);
/// An event is never longer.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// An event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Event {
    /// Where the stream stands with it: what to go on behind.
    pub id: String,
    /// What it tells, as JSON. Empty: it only says where the stream stands.
    pub data: String,
}

/// Events, one after the other.
pub struct EventStream<R = BufReader<BodyReader<'static>>>(R);

impl EventStream {
    /// Opens a stream at a path; behind the event `after`, if that is said.
    pub fn open(http: &Http, path: &str, after: Option<&str>) -> Result<Self, AskError> {
        let mut asking = ApiRequest::get(path);
        asking.headers.push(("Accept", "text/event-stream".to_owned()));
        asking.headers.extend(after.map(|id| ("Last-Event-ID", id.to_owned())));
        let body = http.stream(asking, SILENCE)?;
        let body = body.into_with_config().limit(u64::MAX).reader();
        Ok(Self(BufReader::new(body)))
    }
}

impl<R: BufRead> EventStream<R> {
    /// The next event; none at the end of the stream.
    pub fn next(&mut self) -> io::Result<Option<Event>> {
        let mut event = Event::default();
        let mut is_begun = false;
        let mut line = String::new();
        loop {
            line.clear();
            let mut limited = io::Read::take(&mut self.0, LINE_BYTES_MAX);
            if limited.read_line(&mut line)? == 0 {
                // What was not ended by an empty line has not come whole.
                return Ok(None);
            }
            if !line.ends_with('\n') {
                let message = "the stream of events broke off, or a line of it is too long";
                return Err(io::Error::other(message));
            }
            let text = line.trim_end_matches(['\r', '\n']);
            if text.is_empty() {
                if is_begun {
                    return Ok(Some(event));
                }
                continue;
            }
            let (field, value) = text.split_once(':').unwrap_or((text, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "id" => value.clone_into(&mut event.id),
                "data" => {
                    if !event.data.is_empty() {
                        event.data.push('\n');
                    }
                    event.data.push_str(value);
                }
                // Comments, and names that stand in the data too.
                _ => continue,
            }
            is_begun = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_stand_between_empty_lines() {
        let text = "id: 7.0\n\n: nothing new\n\nid:8.1\nevent: ready\ndata: {\"a\":1}\n\nid: 9.0";
        let mut stream = EventStream(text.as_bytes());
        let event = |id: &str, data: &str| Event { id: id.to_owned(), data: data.to_owned() };
        assert_eq!(stream.next().unwrap(), Some(event("7.0", "")));
        assert_eq!(stream.next().unwrap(), Some(event("8.1", "{\"a\":1}")));
        assert!(stream.next().is_err());
        let mut ended = EventStream("id: 1.1\ndata: x\n".as_bytes());
        assert_eq!(ended.next().unwrap(), None);
    }
}
