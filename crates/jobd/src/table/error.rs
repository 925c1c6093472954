//! What can go wrong with a job table.

use thiserror::Error;

/// Why a table did not do what it was asked.
///
/// Whatever the kind, a failed [`JobTable::claim`](super::JobTable::claim) or [`JobTable::write`](super::JobTable::write) may have been committed
/// all the same (the answer of a COMMIT can get lost). The worker therefore asks
/// [`JobTable::owned`](super::JobTable::owned) after a failed claim, and repeats a failed write.
#[derive(Debug, Error)]
pub enum TableError {
    /// Not now: no connection, connection lost, deadlock, lock timeout, database starting or
    /// read-only. The same call may succeed later; the worker tries again with growing pauses.
    #[error("{table} is not available: {reason}")]
    Away {
        /// Which table, as its `describe` names it.
        table: String,
        /// The reason, from the database or the system.
        reason: String,
    },
    /// The database is there and the table is not as the specification wants it: no such table,
    /// missing columns, missing rights. A person must do something; the message says what.
    #[error("{table}: {problem}")]
    Schema {
        /// Which table, as its `describe` names it.
        table: String,
        /// What is wrong and what to do, for instance `has no column 'sig'; compare it with
        /// "jobd schema mysql"`.
        problem: String,
    },
    /// The database refused this very statement or value.
    #[error("{table} refused: {reason}")]
    Refused {
        /// Which table, as its `describe` names it.
        table: String,
        /// The reason, from the database.
        reason: String,
    },
}
