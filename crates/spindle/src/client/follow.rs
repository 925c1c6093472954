//! Following a stream of events of the server, over connections that break.

use std::{ops::ControlFlow, thread};

use super::{
    backoff::Backoff,
    native::Native,
    session::AskError,
    web::{Event, EventStream},
};
use crate::exit::{Code, Failure};

/// A stream of the server.
pub struct Followed<'a> {
    pub native: &'a Native,
    /// What errors call it.
    pub what: &'a str,
    pub path: String,
    /// Whether to connect again when it ends or breaks off.
    pub goes_on: bool,
}

impl Followed<'_> {
    /// Gives all events to `take`, until that is enough or the stream ends. A stream that broke off is
    /// resumed behind the last event that had an id.
    pub fn read(
        &self,
        mut take: impl FnMut(Event) -> anyhow::Result<ControlFlow<Code>>,
    ) -> anyhow::Result<Code> {
        let mut last: Option<String> = None;
        let mut backoff = Backoff::new();
        let mut was_connected = false;
        loop {
            let trouble = match self.native.http().events(&self.path, last.as_deref()) {
                Ok(mut stream) => {
                    (was_connected, backoff) = (true, Backoff::new());
                    match read_to_end(&mut stream, &mut last, &mut take)? {
                        End::Enough(code) => return Ok(code),
                        End::Ended if !self.goes_on => return Ok(Code::Ok),
                        End::Ended => "the server ended the stream".to_owned(),
                        End::Broken(trouble) => trouble.to_string(),
                    }
                }
                Err(error) if was_connected && error.may_pass() => error.to_string(),
                Err(error) => return Err(self.native.explain(error, self.what)),
            };
            if !self.goes_on {
                return Err(Failure::with(Code::Error, format!("{}: {trouble}", self.what)));
            }
            let pause = backoff.next();
            eprintln!("{}: {trouble}; connecting again in {pause:?}", self.what);
            thread::sleep(pause);
        }
    }
}

/// How one connection ended.
enum End {
    Enough(Code),
    Ended,
    Broken(AskError),
}

fn read_to_end(
    stream: &mut EventStream<'_>,
    last: &mut Option<String>,
    take: &mut impl FnMut(Event) -> anyhow::Result<ControlFlow<Code>>,
) -> anyhow::Result<End> {
    loop {
        let event = match stream.next() {
            Ok(Some(event)) => event,
            Ok(None) => return Ok(End::Ended),
            Err(error) => return Ok(End::Broken(error)),
        };
        let id = event.id.clone();
        if !event.data.is_empty()
            && let ControlFlow::Break(code) = take(event)?
        {
            return Ok(End::Enough(code));
        }
        if !id.is_empty() {
            *last = Some(id);
        }
    }
}
