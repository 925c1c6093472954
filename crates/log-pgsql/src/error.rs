//! What can go wrong, and what it means.

use std::error::Error as _;
use std::io;
use std::sync::Arc;

use spindle_log::{LogError, ReadError};
use spindle_tls::client::ClientFiles;
use thiserror::Error;
use tokio_postgres::error::{Severity, SqlState};

/// Why a log cannot be opened, or not gone on with.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum OpenError {
    /// The URL is wrong.
    #[error("the URL of the log in PostgreSQL is wrong: {0}")]
    Url(String),
    /// A file of TLS cannot be used.
    #[error("{0}")]
    Files(String),
    /// No server of the URL can be used: each one's reason.
    #[error("no PostgreSQL server can be used for the log: {0}")]
    Unreachable(String),
    /// The encrypted connection could not be made.
    #[error(
        "no encrypted connection to PostgreSQL at {server}: {reason} (sslmode says whether to \
         encrypt and to check, sslrootcert names the file of the authority that vouches for it)"
    )]
    Tls { server: String, reason: String },
    /// The server refuses the login.
    #[error(
        "PostgreSQL at {server} does not let the log in: {reason} (check user, password and \
         database in the URL, and pg_hba.conf)"
    )]
    Login { server: String, reason: String },
    /// The server's settings do not keep committed records safe.
    #[error("PostgreSQL at {server} would lose acknowledged records: {setting}; {advice}")]
    Unsafe { server: String, setting: String, advice: String },
    /// The server is too old.
    #[error("PostgreSQL at {server} is version {version}: the log needs 12 or later")]
    TooOld { server: String, version: i32 },
    /// What is in the schema is not a log.
    #[error(
        "schema {schema} is not a log of Spindle: {reason} (name another one with ?schema=... in the \
         URL)"
    )]
    Foreign { schema: String, reason: String },
    /// There is no log, and none is to be made.
    #[error(
        "there is no log in schema {schema}: correct the URL, or name the schema with ?schema=..."
    )]
    Absent { schema: String },
    /// A restore was begun there and has not ended.
    #[error(
        "the log in schema {schema} was not restored to its end: run `spindle restore` of the same \
         backup to it again, or drop the schema"
    )]
    Unfinished { schema: String },
    /// It was to be filled from a backup, and is a log already.
    #[error(
        "schema {schema} has a log already: restore to another one with ?schema=... in the URL, or \
         drop the schema when no node needs it any more"
    )]
    NotEmpty { schema: String },
    /// A later version of Spindle made the log.
    #[error(
        "the log in schema {schema} has format {format}, and this version of Spindle knows {known} \
         at most: use a newer one"
    )]
    Newer { schema: String, format: i32, known: i32 },
    /// Something is missing in the log.
    #[error(
        "the log in schema {schema} is damaged: {reason} (restore the database from a backup; \
         nothing was changed)"
    )]
    Damaged { schema: String, reason: String },
    /// The server has lost records that were committed.
    #[error(
        "the log in schema {schema} has lost committed records: {reason} (was a standby promoted \
         that had not received everything? synchronous_standby_names keeps that from happening; \
         start this node anew to go on with what is left)"
    )]
    Lost { schema: String, reason: String },
    /// The server refused something else.
    #[error("PostgreSQL refused the log: {0}")]
    Refused(String),
    /// No thread could be started.
    #[error("cannot start the thread of the log: {0}")]
    Thread(Arc<io::Error>),
}

/// Why something on the server did not come to its end.
#[derive(Debug)]
pub(crate) enum Fault {
    /// Not done, and it may be done later: no server, no room, a transaction in the way.
    Away(String),
    /// The connection was lost meanwhile: done or not done.
    InDoubt(String),
    /// A position is taken.
    Taken,
    /// A table is not there.
    NoTable(String),
    /// For good.
    Final(OpenError),
}

impl Fault {
    pub fn text(&self) -> String {
        match self {
            Self::Away(reason) | Self::InDoubt(reason) | Self::NoTable(reason) => reason.clone(),
            Self::Taken => "a position is taken".to_owned(),
            Self::Final(error) => error.to_string(),
        }
    }
}

impl From<OpenError> for Fault {
    fn from(error: OpenError) -> Self {
        Self::Final(error)
    }
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Self {
        let reason = reason_of(&error);
        let Some(answer) = error.as_db_error() else { return Self::InDoubt(reason) };
        // After anything worse than an error the session is gone, and a commit may have been made.
        if answer.parsed_severity() != Some(Severity::Error) {
            return Self::InDoubt(reason);
        }
        match *answer.code() {
            SqlState::UNIQUE_VIOLATION => Self::Taken,
            SqlState::UNDEFINED_TABLE | SqlState::INVALID_SCHEMA_NAME => Self::NoTable(reason),
            _ => Self::Away(reason),
        }
    }
}

impl From<Fault> for OpenError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Final(error) => error,
            other => Self::Refused(other.text()),
        }
    }
}

/// What the server or the driver says; the driver's own message only says where it happened.
pub(crate) fn reason_of(error: &tokio_postgres::Error) -> String {
    if let Some(answer) = error.as_db_error() {
        return format!("{} ({})", answer.message(), answer.code().code());
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}

/// The TLS settings of a client, or what is wrong with the files.
pub(crate) fn tls_config(
    files: &ClientFiles,
) -> Result<tokio_postgres_rustls::MakeRustlsConnect, OpenError> {
    let config = files.config().map_err(|error| OpenError::Files(error.to_string()))?;
    Ok(tokio_postgres_rustls::MakeRustlsConnect::new(config))
}

/// The log named `log` cannot go on.
pub(crate) fn log_error(log: &str, reason: impl ToString) -> LogError {
    let source = Arc::new(io::Error::other(reason.to_string()));
    LogError::Failed { operation: "go on with", file: log.to_owned(), source }
}

/// The log named `log` could not be read now.
pub(crate) fn read_error(log: &str, kind: io::ErrorKind, reason: impl ToString) -> ReadError {
    let source = Arc::new(io::Error::new(kind, reason.to_string()));
    ReadError::Failed { file: log.to_owned(), source }
}
