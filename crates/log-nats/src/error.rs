//! Why a log could not be opened, and how failures on it are worded.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use spindle_log::{LogError, Position, ReadError};
use thiserror::Error;

/// Why the log was not opened. The message says what to do.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum OpenError {
    /// The URL is wrong.
    #[error("the URL of the log on NATS is wrong: {0}")]
    Url(String),
    /// An invalid option.
    #[error("{0}")]
    Option(String),
    /// A file of TLS.
    #[error(transparent)]
    Tls(#[from] spindle_tls::FileError),
    /// The file with the credentials.
    #[error("cannot read the credentials in {}: {source}", file.display())]
    Credentials { file: PathBuf, source: io::Error },
    /// The thread or its runtime did not start.
    #[error("cannot start the thread that talks to NATS: {0}")]
    Thread(io::Error),
    /// No server answers.
    #[error("no NATS server answers at {servers} ({reason}): start it, or correct the addresses")]
    Unreachable { servers: String, reason: String },
    /// A server answers and refuses the login.
    #[error("the NATS server at {servers} refuses this login ({reason})")]
    LoginRefused { servers: String, reason: String },
    /// The encrypted connection could not be made.
    #[error(
        "no encrypted connection to {servers} ({reason}): check who has signed the server's \
         certificate, the names in it, and whether the server asks for one of ours"
    )]
    TlsRefused { servers: String, reason: String },
    /// The server's limit on messages.
    #[error(
        "the NATS server takes messages of {has} bytes at most, and the log needs {needs}: raise \
         max_payload in its configuration"
    )]
    MaxPayload { has: usize, needs: usize },
    /// The server's version.
    #[error("the NATS server is of version {0}; the log needs 2.10 or newer")]
    Version(String),
    /// JetStream did not do what it was asked for.
    #[error("JetStream cannot {doing} the stream {stream}: {reason}")]
    JetStream { doing: &'static str, stream: String, reason: String },
    /// The stream is not one that this log would have made.
    #[error("the stream {stream} has settings that would lose or refuse records: {}", list(wrong))]
    Settings { stream: String, wrong: Vec<String> },
    /// The stream holds something else.
    #[error("the stream {stream} is no log of Spindle ({reason}): give the log another stream")]
    Foreign { stream: String, reason: String },
    /// There is no log, and none is to be made.
    #[error("there is no stream {stream}: correct the URL, whose path names the stream")]
    Absent { stream: String },
    /// A restore was begun there and has not ended.
    #[error(
        "the stream {stream} was not restored to its end: run `spindle restore` of the same backup \
         to it again, or delete the stream"
    )]
    Unfinished { stream: String },
    /// It was to be filled from a backup, and is a log already.
    #[error(
        "the stream {stream} is a log already: restore to another one, which the path of the URL \
         names, or delete the stream when no node needs it any more"
    )]
    NotEmpty { stream: String },
    /// A server answers before it has synced.
    #[error(
        "the NATS server {server} does not sync before it acknowledges, so what Spindle has \
         confirmed could be lost: set `jetstream {{ sync_interval: always }}` in its \
         configuration, or open the log with sync `os` to take that risk"
    )]
    NotSynced { server: String },
    /// It could not be found out whether a server syncs.
    #[error(
        "cannot find out whether the NATS server {server} syncs before it acknowledges ({reason}): \
         name the monitoring address of each server, or a login of the system account, or open \
         the log with sync `os` to take the risk"
    )]
    SyncUnknown { server: String, reason: String },
}

fn list(wrong: &[String]) -> String {
    wrong.join("; ")
}

/// The log can not go on.
pub(crate) fn failed(operation: &'static str, stream: &str, reason: impl Into<String>) -> LogError {
    LogError::Failed {
        operation,
        file: stream_name(stream),
        source: Arc::new(io::Error::other(reason.into())),
    }
}

/// A read that gave nothing, and may work later.
pub(crate) fn unread(stream: &str, reason: impl Into<String>) -> ReadError {
    ReadError::Failed {
        file: stream_name(stream),
        source: Arc::new(io::Error::other(reason.into())),
    }
}

/// The message of a position is not the one that was written there.
pub(crate) fn damaged(stream: &str, position: Position, reason: &'static str) -> ReadError {
    let file = format!("message {} of the stream {stream}", position.0 + 1);
    ReadError::Damaged { position, file, offset: 0, reason }
}

fn stream_name(stream: &str) -> String {
    format!("the stream {stream}")
}
