//! A log in PostgreSQL, for nodes that share it.
//!
//! [`PgsqlLog`] keeps the contract of [`spindle_log::Log`] and [`spindle_log::SharedLog`]. The
//! database decides who may append and says when a record is safe; this crate only asks it.
//!
//! # Tables
//!
//! The first process that opens a log makes these in a schema of its own (`spindle`):
//!
//! ```text
//!   head         one row: what this is, format, id of the log, first kept position
//!   runs         one row for each run: number, first, until (null: the open one), bytes
//!   records      empty: what the tables of runs are made like
//!   records_0    position | epoch | bytes           positions first..until of run 0
//!   records_1    position | epoch | bytes           ...
//! ```
//!
//! A *run* is a partition: a table with the records of a range of positions. It is closed when it
//! has [`run_records`](PgsqlLogOptions::run_records) records or
//! [`run_bytes`](PgsqlLogOptions::run_bytes) bytes, and a trim drops whole runs. The table of the
//! next one is made ahead of need.
//!
//! # Appending
//!
//! [`submit`](spindle_log::Log::submit) puts a record into a queue. One task (the `writer` module)
//! takes all records that wait, and appends them in one statement, in one transaction; meanwhile
//! the next ones gather. The statement inserts nothing unless the record before the first one
//! stands in the open run and none of the positions is taken: the primary key decides between two
//! writers, and a shared lock on the row of the run keeps the run open meanwhile. So a position is
//! given once, and there are no gaps.
//!
//! The server's settings decide what a commit promises: `synchronous_commit`, and
//! `synchronous_standby_names` if a standby is waited for. `off` is refused.
//!
//! | what comes of the statement | answer |
//! |---|---|
//! | committed | Committed |
//! | nothing inserted, one's own records stand there | Committed, after a confirmation |
//! | nothing inserted, somebody else's record stands there | Conflict, it and all behind it |
//! | the connection was lost, or the wait for the standby was cancelled | Unknown, it and all behind it |
//! | refused by the server for now (no space, no connections), or the server is away | tried again; Unknown after [`answer_within`](PgsqlLogOptions::answer_within) |
//! | the tables are gone, or the log is shorter than it was | Fatal |
//!
//! This crate never cuts a wait for the standby short: there are no timeouts on the server's side
//! or the client's, and no cancel requests. As long as the server waits,
//! [`next_ack`](spindle_log::Log::next_ack) waits.
//!
//! # What may be read
//!
//! A row that can be seen is not always safe: after a wait for the standby was cancelled, or the
//! primary has restarted, transactions are visible that no standby has. So a position counts as
//! committed when a transaction that began *after* it was seen has been committed with the server's
//! full wait: then everything before that transaction in the WAL is as safe.
//!
//! - The writer learns this from its own commits, and tells the others: after each commit it notifies
//!   them of the end (the `signal` module).
//! - A process that hears nothing looks every 100 ms, and when there is something new, makes a *confirmation*: an
//!   update of the head row. [`refresh`](spindle_log::SharedLog::refresh), `open`, and records that are found to stand
//!   there already take one too.
//!
//! # Trims and readers
//!
//! A trim moves `head.first` first, durably. Then the tables of the runs below are dropped by a task
//! (the `sweep` module), but not those that a reader still needs: a reader of more than one portion holds an advisory
//! lock with the number of the oldest run that it needs. Tables that cannot be dropped now are dropped later.
//!
//! # Connections
//!
//! A log has four connections (writer, queries, notifications, one for tables), and one for each
//! reader of many records. They must reach the server itself or a proxy that keeps sessions apart, not
//! one that shares them between transactions. Several hosts in the URL are tried in order, and the
//! first that is a primary is taken, so that a fail-over is followed. The operator (or Patroni) must ensure that there
//! is only one primary.

mod connect;
mod core;
mod cursor;
mod error;
mod health;
mod log;
mod options;
mod queries;
mod runs;
mod schema;
mod session;
mod signal;
mod state;
mod sweep;
mod writer;

pub use error::OpenError;
pub use log::PgsqlLog;
pub use options::PgsqlLogOptions;
