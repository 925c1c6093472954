//! What a database must be able to do so that [`SqlTable`](super::sql::SqlTable) can fulfil the
//! contract on it. `SqlTable` has the rules; a driver only runs statements.

use std::time::Duration;

use async_trait::async_trait;
use tokio::time::timeout;

use super::fit::{Ending, OutputColumns};
use super::row::RowId;

/// Why a statement did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// Another transaction was in the way; this one is to be rolled back and run again.
    Conflict(String),
    /// The connection is of no use any more, or there is none.
    Away(String),
    /// Something that a person must correct.
    Schema(String),
    /// The database refused this very statement or value.
    Refused(String),
}

/// A server that takes longer for an answer is away.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Waits for an answer, at most [`ANSWER_MAX`].
pub(super) async fn answered<T, E: Into<Fault>>(
    answer: impl Future<Output = Result<T, E>>,
) -> Result<T, Fault> {
    match timeout(ANSWER_MAX, answer).await {
        Ok(answer) => answer.map_err(E::into),
        Err(_) => Err(Fault::Away(format!("no answer for {} seconds", ANSWER_MAX.as_secs()))),
    }
}

/// One row of an answer, as text.
pub(super) type TextRow = Vec<Option<String>>;

/// Where the sessions of a table come from.
#[async_trait]
pub(super) trait Driver: Send + Sync + std::fmt::Debug + 'static {
    /// A connection.
    type Session: Session;

    /// How many sessions may be open at the same time.
    const SESSIONS_MAX: usize;

    /// The table for messages, without any password.
    fn describe(&self) -> String;

    /// Connects and checks the columns.
    async fn open(&self) -> Result<Opened<Self::Session>, Fault>;
}

/// A session, and what it found out about its table.
#[derive(Debug)]
pub(super) struct Opened<S> {
    pub session: S,
    pub dialect: Dialect,
    /// What the columns for output can take.
    pub outputs: OutputColumns,
}

/// A connection to the table's database. One that is dropped takes its open transaction with it.
#[async_trait]
pub(super) trait Session: Send + 'static {
    /// Runs statements without parameters, with `;` between them, to the first that fails.
    async fn execute(&mut self, sql: &str) -> Result<(), Fault>;

    /// Runs a query without parameters, after other statements, if there are any.
    async fn rows(&mut self, first: &str, query: &str) -> Result<Vec<TextRow>, Fault>;

    /// The lowest ids of a page of waiting rows. It locks nothing, and may be asked before a
    /// transaction begins.
    async fn waiting(&mut self, dialect: &Dialect, page: Page<'_>) -> Result<Vec<RowId>, Fault>;

    /// Makes these rows `done`, whatever was printed: [`Dialect::done`] with parameters.
    async fn finish(
        &mut self,
        dialect: &Dialect,
        ids: &[RowId],
        ending: &Ending<'_>,
    ) -> Result<(), Fault>;
}

/// At most `limit` rows that wait for one of the targets, with ids above `after`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Page<'a> {
    pub targets: &'a [String],
    pub after: i64,
    pub limit: u32,
}

/// The parts of a statement in which databases differ.
#[derive(Debug, Clone)]
pub(super) struct Dialect {
    /// The quoted name of the table.
    pub table: String,
    /// What follows the name so that rows are found, and therefore locked, by their id.
    pub by_id: &'static str,
    /// How the target is read without padding.
    pub target: &'static str,
    /// Whether a row that is found by its id waits. Where the database has no hints, this keeps it
    /// from finding rows by their status instead.
    pub is_waiting: &'static str,
    /// The statement that begins a transaction.
    pub begin: &'static str,
    /// What makes a query lock its rows.
    pub lock: &'static str,
    /// What makes a query lock its rows and pass over those that others have locked.
    pub lock_free_ones: &'static str,
}
