//! The contract between a worker and its job table.

use async_trait::async_trait;

use super::error::TableError;
use super::leases::Leases;
use super::row::{Claimed, Finish, Judge, Mark, Owned, Pick, RowId, Written};

/// A table of jobs by the specification: columns `id`, `target`, `time_started`, `time_finished`,
/// `status`, `result`, `return_code`, `sig`, `stdout`, `stderr`. Other columns are never changed,
/// no row is ever inserted or deleted.
///
/// All methods may be called at the same time from several tasks. A method that is dropped before
/// it is done MUST leave no transaction open. No method may wait without end: a connection that does
/// not answer within half a minute is [`TableError::Away`]. After `Away` the next call MUST try
/// to connect again by itself; the pauses between tries are the worker's.
#[async_trait]
pub trait JobTable: Send + Sync + std::fmt::Debug {
    /// The table for messages, without any password: `mysql jobd.jobs at 127.0.0.1:3306`.
    fn describe(&self) -> String;

    /// Connects and checks that table and columns are there. Called at start and, when that was
    /// [`TableError::Away`], before the first claim.
    ///
    /// # Errors
    /// [`TableError`].
    async fn check(&self) -> Result<(), TableError>;

    /// Finds rows, locks them, asks `judge` about each, writes the verdicts, commits: one
    /// transaction. No other claim, from whatever process, may judge the same row at the same
    /// time or see it as it was before. `judge` is called once for each row of a transaction that
    /// commits, and may be called again when a transaction is repeated inside.
    ///
    /// An accepted row gets `status = 'accepted'` and `sig = mark.text(origin)` and nothing else;
    /// a started one `status = 'running'`, the mark and `time_started`; an ignored one gets
    /// `status = 'ignored'` and nothing else.
    ///
    /// The answer has every row found, in order of id.
    ///
    /// # Errors
    /// [`TableError`]. It may have been committed: see there.
    async fn claim(
        &self,
        pick: Pick<'_>,
        mark: &Mark,
        judge: &Judge<'_>,
    ) -> Result<Vec<Claimed>, TableError>;

    /// Writes starts and finishes, in one transaction, so that many jobs share one commit.
    ///
    /// Every id of `starts` whose row carries the mark (either origin) and is `accepted` or
    /// already `running` becomes `running` with `time_started = started_s`; `result` stays NULL.
    /// Every row of `finishes` that carries the mark and is `accepted` or `running` becomes
    /// `done`, with all fields of [`Finish`]; this is idempotent, the second time the row is not
    /// among the written. An id is never in both lists.
    ///
    /// Output that a column cannot take (length, encoding, NUL) is cut or replaced, never
    /// refused.
    ///
    /// # Errors
    /// [`TableError`]. It may have been committed: the worker repeats the same write.
    async fn write(
        &self,
        mark: &Mark,
        starts: &[RowId],
        started_s: i64,
        finishes: &[Finish],
    ) -> Result<Written, TableError>;

    /// The `accepted` and `running` rows that carry the mark (either origin), in order of id.
    ///
    /// # Errors
    /// [`TableError`].
    async fn owned(&self, mark: &Mark) -> Result<Vec<Owned>, TableError>;

    /// Gives back those of `accepted` that are `accepted`, and those of `unstarted` that are
    /// `accepted` or `running`, if they carry the mark: `status` becomes `waiting` or `manual` by
    /// the origin in the mark, `sig` NULL, the `time_started` of a running one 0. Other ids are
    /// passed over. There may be thousands. Answers the ids given back, in order.
    ///
    /// It MUST wait for a transaction that has one of the rows: that may be a claim of ours whose
    /// connection was lost and whose COMMIT is still on its way.
    ///
    /// # Errors
    /// [`TableError`]. It may have been committed; repeating it is harmless.
    async fn give_back(
        &self,
        mark: &Mark,
        accepted: &[RowId],
        unstarted: &[RowId],
    ) -> Result<Vec<RowId>, TableError>;

    /// How its rows are leased, if they are. Most tables have rows that are claimed.
    fn leases(&self) -> Option<&dyn Leases> {
        None
    }
}
