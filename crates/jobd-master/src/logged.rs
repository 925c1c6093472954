//! Log lines about messages and the requests in them. They never have the contents.

use std::time::Instant;

use serde_json::Value;
use tracing::{Level, debug};

use crate::wire::{Malformed, Message, Request};

/// The target of log lines about commands, the same for every door.
const COMMANDS: &str = "spindle::commands";

/// Commands are shorter. Longer words are not commands, and are cut off.
const COMMAND_CHARS_MAX: usize = 32;
/// A longer name of a target is cut off.
const TARGET_CHARS_MAX: usize = 128;

/// A command for the log, at level debug, in the form that all doors have (docs/logging.md). Its line
/// is written when it is dropped.
#[derive(Debug)]
pub(crate) struct Logged {
    connection: u64,
    request: i64,
    command: String,
    /// The first target that it names: jobd's word for a queue.
    queue: String,
    began: Instant,
    outcome: &'static str,
}

impl Logged {
    /// A request has come. Nothing, if commands are not logged.
    pub(crate) fn begin(connection: u64, request: &Request) -> Option<Self> {
        tracing::enabled!(target: COMMANDS, Level::DEBUG).then(|| Self {
            connection,
            request: request.no,
            command: shown(&request.kind, COMMAND_CHARS_MAX),
            queue: shown(first_target(&request.data), TARGET_CHARS_MAX),
            began: Instant::now(),
            outcome: "unanswered",
        })
    }

    /// It is answered.
    pub(crate) fn ends(&mut self, outcome: &'static str) {
        self.outcome = outcome;
    }
}

impl Drop for Logged {
    fn drop(&mut self) {
        let Self { connection, request, command, queue, began, outcome } = self;
        let us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        debug!(
            target: COMMANDS,
            door = "jobd-master", connection, request, command, queue, outcome, us, "command"
        );
    }
}

/// A name that a peer chose, in one word of a line.
fn shown(name: &str, chars_max: usize) -> String {
    name.chars().take(chars_max).flat_map(char::escape_default).collect()
}

/// The first target in the arguments of a request, where each kind of request has them.
fn first_target(data: &Value) -> &str {
    let listed = data.get("targets").and_then(|targets| targets.get(0));
    let of_job = || data.get("jobs")?.get(0)?.get("target");
    listed.or_else(of_job).and_then(Value::as_str).unwrap_or_default()
}

/// What a message is.
pub(crate) fn kind_of(decoded: &Result<Message, Malformed>) -> &'static str {
    match decoded {
        Ok(Message::Request(_)) => "request",
        Ok(Message::Response(_)) => "response",
        Ok(Message::Ping) => "ping",
        Ok(Message::Pong) => "pong",
        Err(Malformed::Junk) => "junk",
        Err(Malformed::Answer(_)) => "malformed",
    }
}
