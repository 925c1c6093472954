//! What a table can do besides [`JobTable`](super::JobTable) when its rows are not claimed on a
//! poll, but leased one by one: a worker keeps its leases alive by heartbeats.

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::oneshot;

use super::error::TableError;
use super::row::{Finish, RowId};

/// What the process of a job gets besides its id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Input {
    /// What it reads on its standard input.
    pub payload: Bytes,
    /// Variables of its environment.
    pub environment: Vec<(String, String)>,
}

/// A row that was leased. It is the worker's until it is finished, given back or lost; the table
/// keeps the lease alive meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leased {
    /// Its id.
    pub id: RowId,
    /// Its target.
    pub target: String,
    /// For its process.
    pub input: Input,
}

/// How far a row has come that may be another worker's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It has not ended for good.
    Open,
    /// It has ended like this.
    Ended(Finish),
    /// There is no such row any more.
    Gone,
}

/// Rows that come by themselves. The worker asks for as many as it has slots for, and never
/// claims [`Pick::Waiting`](super::Pick::Waiting).
///
/// A claim of [`Pick::Ids`](super::Pick::Ids) takes no row: an accepted one is released, so that the
/// next lease may bring it, to this worker or to another one. [`Leases::fate`] finds out how it
/// ended, wherever that was.
#[async_trait]
pub trait Leases: Send + Sync {
    /// Waits a while for a row of the target and takes it. `None`: none came, ask again.
    ///
    /// Dropping the other side of `recall` cancels the request. The table then stops
    /// waiting; a row that was on its way may still be the answer.
    ///
    /// # Errors
    /// [`TableError`].
    async fn lease(
        &self,
        target: &str,
        recall: oneshot::Receiver<()>,
    ) -> Result<Option<Leased>, TableError>;

    /// The worker has decided about a row that it leased. Until then, the row is not among
    /// [`JobTable::owned`](super::JobTable::owned); otherwise it could be given back on its way.
    fn taken(&self, id: RowId);

    /// The next row whose lease has ended against the worker's will: it was cancelled, its time
    /// passed, or another worker has it. Its end would be refused.
    async fn lost(&self) -> RowId;

    /// What has become of a row.
    ///
    /// # Errors
    /// [`TableError`].
    async fn fate(&self, id: RowId) -> Result<Fate, TableError>;

    /// What a later process of this worker needs to write the end of a row that this one holds.
    fn receipt(&self, id: RowId) -> Option<String>;

    /// Takes over a row of an earlier process, to write its end.
    fn remember(&self, id: RowId, receipt: String);
}
