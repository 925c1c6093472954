//! [`JobTable`] on any database that has transactions: what happens in which order, and what is
//! tried again.

use std::time::Duration;

use async_trait::async_trait;
use tracing::{error, warn};

use super::contract::JobTable;
use super::error::TableError;
use super::fit::KeepOutput;
use super::operations::{self, Changes};
use super::row::{Claimed, Finish, Judge, Mark, Owned, Pick, RowId, Written};
use super::session::{Driver, Fault, Opened, Session};
use super::slots::Slots;

/// How often a transaction that was in another one's way is run again.
const CONFLICTS_MAX: u32 = 8;
/// A connection idle for longer is asked whether it still leads to a server.
const TRUSTED: Duration = Duration::from_secs(2);

/// A job table behind a driver.
pub(super) struct SqlTable<D: Driver> {
    driver: D,
    slots: Slots<Opened<D::Session>>,
}

impl<D: Driver> std::fmt::Debug for SqlTable<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqlTable").field("driver", &self.driver).finish_non_exhaustive()
    }
}

impl<D: Driver> SqlTable<D> {
    pub fn new(driver: D) -> Self {
        let slots = Slots::new(D::SESSIONS_MAX);
        Self { driver, slots }
    }

    /// Runs the work, and repeats it when another transaction was in its way.
    async fn attempt<T, W>(&self, work: impl Fn(Opened<D::Session>) -> W) -> Result<T, TableError>
    where
        W: Future<Output = (Result<T, Fault>, Opened<D::Session>)>,
    {
        let mut conflicts = 0;
        loop {
            let slot = self.slots.slot().await;
            let opened = match slot.idle() {
                Some((opened, idle)) if idle < TRUSTED => opened,
                Some((opened, _)) => self.trusted(opened).await?,
                None => self.open().await?,
            };
            let (outcome, mut opened) = work(opened).await;
            let fault = match outcome {
                Ok(out) => {
                    slot.keep(opened);
                    return Ok(out);
                }
                Err(fault) => fault,
            };
            if let Fault::Conflict(_) | Fault::Refused(_) = fault
                && opened.session.execute("ROLLBACK").await.is_ok()
            {
                slot.keep(opened);
            }
            match fault {
                Fault::Conflict(_) if conflicts < CONFLICTS_MAX => {
                    conflicts += 1;
                    // The other transaction needs a moment to end.
                    tokio::time::sleep(Duration::from_millis(5) * conflicts).await;
                }
                fault => return Err(self.error(fault)),
            }
        }
    }

    /// Checks a session that has been idle, and replaces it if its server has gone.
    async fn trusted(
        &self,
        mut opened: Opened<D::Session>,
    ) -> Result<Opened<D::Session>, TableError> {
        if opened.session.rows("", "SELECT 1").await.is_ok() {
            return Ok(opened);
        }
        self.slots.clear();
        self.open().await
    }

    async fn open(&self) -> Result<Opened<D::Session>, TableError> {
        self.driver.open().await.map_err(|fault| self.error(fault))
    }

    fn error(&self, fault: Fault) -> TableError {
        let table = self.driver.describe();
        match fault {
            Fault::Conflict(reason) | Fault::Away(reason) => {
                // What broke one connection has most likely broken all.
                self.slots.clear();
                TableError::Away { table, reason }
            }
            Fault::Schema(problem) => TableError::Schema { table, problem },
            Fault::Refused(reason) => TableError::Refused { table, reason },
        }
    }

    async fn write_with(
        &self,
        changes: Changes<'_>,
        keep: KeepOutput,
    ) -> Result<Written, TableError> {
        self.attempt(|mut opened| async move {
            (operations::write(&mut opened, changes, keep).await, opened)
        })
        .await
    }

    /// Writes rows one by one that were refused together, so that one bad row harms no other.
    async fn write_apart(&self, changes: Changes<'_>) -> Result<Written, TableError> {
        let mut written = Written::default();
        for id in changes.starts {
            let start = Changes { starts: &[*id], finishes: &[], ..changes };
            match self.write_with(start, KeepOutput::Fitting).await {
                Ok(one) => written.started.extend(one.started),
                Err(TableError::Refused { table, reason }) => {
                    error!(%id, table, reason, "the row cannot be made running; it is not started");
                }
                Err(e) => return Err(e),
            }
        }
        for finish in changes.finishes {
            let finishes = std::slice::from_ref(finish);
            let end = Changes { starts: &[], finishes, ..changes };
            written.finished.extend(self.write_somehow(end, finish.id).await?);
        }
        Ok(written)
    }

    /// Writes one end with as much of its output as the database takes.
    async fn write_somehow(&self, end: Changes<'_>, id: RowId) -> Result<Vec<RowId>, TableError> {
        for keep in KeepOutput::ALL {
            match self.write_with(end, keep).await {
                Ok(one) => return Ok(one.finished),
                Err(TableError::Refused { table, reason }) if keep != KeepOutput::Nothing => {
                    warn!(%id, table, reason, "the output is refused; less of it is tried");
                }
                Err(TableError::Refused { table, reason }) => {
                    error!(%id, table, reason, "the row cannot be made done; its result is lost");
                }
                Err(e) => return Err(e),
            }
        }
        Ok(Vec::new())
    }
}

#[async_trait]
impl<D: Driver> JobTable for SqlTable<D> {
    fn describe(&self) -> String {
        self.driver.describe()
    }

    async fn check(&self) -> Result<(), TableError> {
        // Old connections know the columns as they were.
        self.slots.clear();
        self.attempt(|mut opened| async move { (operations::check(&mut opened).await, opened) })
            .await
    }

    async fn claim(
        &self,
        pick: Pick<'_>,
        mark: &Mark,
        judge: &Judge<'_>,
    ) -> Result<Vec<Claimed>, TableError> {
        self.attempt(|mut opened| async move {
            (operations::claim(&mut opened, pick, mark, judge).await, opened)
        })
        .await
    }

    async fn write(
        &self,
        mark: &Mark,
        starts: &[RowId],
        started_s: i64,
        finishes: &[Finish],
    ) -> Result<Written, TableError> {
        let changes = Changes { mark, starts, started_s, finishes };
        match self.write_with(changes, KeepOutput::Fitting).await {
            Err(TableError::Refused { .. }) => self.write_apart(changes).await,
            outcome => outcome,
        }
    }

    async fn owned(&self, mark: &Mark) -> Result<Vec<Owned>, TableError> {
        self.attempt(
            |mut opened| async move { (operations::owned(&mut opened, mark).await, opened) },
        )
        .await
    }

    async fn give_back(
        &self,
        mark: &Mark,
        accepted: &[RowId],
        unstarted: &[RowId],
    ) -> Result<Vec<RowId>, TableError> {
        self.attempt(|mut opened| async move {
            (operations::give_back(&mut opened, mark, accepted, unstarted).await, opened)
        })
        .await
    }
}
