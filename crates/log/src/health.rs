//! The health of the servers that keep a shared log.

use std::time::Instant;

/// The last report that a process has of the servers that keep a shared log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LogHealth {
    /// The one that takes appends first, then the others.
    pub servers: Vec<LogServer>,
    /// When that was heard; none if it never was.
    pub heard: Option<Instant>,
    /// Why nothing was heard since.
    pub wrong: Option<String>,
}

/// A server that keeps a shared log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogServer {
    /// What its administrators call it, as far as it can be known.
    pub name: String,
    /// What it does.
    pub role: LogServerRole,
    /// Whether it has what is committed.
    pub state: LogServerState,
    /// Whether it is one of those that a commit waits for; none where this may not be known.
    pub is_synchronous: Option<bool>,
    /// How much it has still to sync.
    pub lag: Option<LogLag>,
}

/// What a server does for a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogServerRole {
    /// It takes appends: the leader of a stream, a primary.
    Leader,
    /// It has a copy.
    Replica,
}

/// Whether a server has what is committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogServerState {
    /// It takes what comes as it comes.
    Current,
    /// It catches up.
    Behind,
    /// It is not heard.
    Away,
    /// This process may not know.
    Unknown,
}

/// How much a server has still to sync.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogLag {
    /// Of the server's own log.
    Bytes(u64),
    /// Entries of the server's own log, of which an append is one.
    Entries(u64),
}

impl LogHealth {
    /// The servers have been heard of, now.
    pub fn hear(&mut self, servers: Vec<LogServer>) {
        *self = LogHealth { servers, heard: Some(Instant::now()), wrong: None };
    }

    /// They were asked, and this is why there was no answer.
    pub fn miss(&mut self, wrong: impl ToString) {
        self.wrong = Some(wrong.to_string());
    }
}

impl LogServerRole {
    /// The word for people.
    pub fn word(self) -> &'static str {
        match self {
            LogServerRole::Leader => "leader",
            LogServerRole::Replica => "replica",
        }
    }
}

impl LogServerState {
    /// The word for people.
    pub fn word(self) -> &'static str {
        match self {
            LogServerState::Current => "current",
            LogServerState::Behind => "behind",
            LogServerState::Away => "away",
            LogServerState::Unknown => "unknown",
        }
    }
}
