//! A transaction whose statements are sent together where no answer is needed in between: on a
//! server, every answer costs as much as a small statement.

use super::fit::Ending;
use super::row::{RowId, Status};
use super::session::{Dialect, Fault, Opened, Page, Session, TextRow};
use super::statements::Sig;

/// The most ids in one statement. Above 1,000 MariaDB reads a list as a table of its own and may
/// walk, and lock, everything to compare.
pub(super) const IDS_MAX: usize = 500;

/// An open transaction. One that is dropped is not committed; its session rolls it back.
pub(super) struct Transaction<'a, S> {
    opened: &'a mut Opened<S>,
    /// Statements to be sent with the next query, or with the commit.
    unsent: Vec<String>,
    is_open: bool,
}

impl<'a, S: Session> Transaction<'a, S> {
    /// Begins with the first statement.
    pub fn new(opened: &'a mut Opened<S>) -> Self {
        Self { opened, unsent: Vec::new(), is_open: false }
    }

    pub fn dialect(&self) -> &Dialect {
        &self.opened.dialect
    }

    /// As [`Session::waiting`]: reads without locks, before the transaction or in it.
    pub async fn waiting(&mut self, page: Page<'_>) -> Result<Vec<RowId>, Fault> {
        let Opened { session, dialect, .. } = &mut *self.opened;
        session.waiting(dialect, page).await
    }

    fn open(&mut self) {
        if !std::mem::replace(&mut self.is_open, true) {
            self.unsent.push(self.dialect().begin.to_owned());
        }
    }

    fn push(&mut self, statement: String) {
        self.open();
        self.unsent.push(statement);
    }

    fn take_unsent(&mut self) -> String {
        std::mem::take(&mut self.unsent).join("; ")
    }

    /// Runs a query, after the changes so far.
    pub async fn rows(&mut self, query: &str) -> Result<Vec<TextRow>, Fault> {
        self.open();
        let first = self.take_unsent();
        self.opened.session.rows(&first, query).await
    }

    /// Changes the status of rows that are locked, and `time_started` if it is given.
    pub fn set_status(
        &mut self,
        ids: &[RowId],
        status: &Status,
        sig: Sig<'_>,
        started_s: Option<i64>,
    ) {
        for ids in ids.chunks(IDS_MAX) {
            self.push(self.dialect().set_status(ids, status, sig, started_s));
        }
    }

    /// Makes rows that are locked `done`.
    pub async fn finish(&mut self, ids: &[RowId], ending: &Ending<'_>) -> Result<(), Fault> {
        for ids in ids.chunks(IDS_MAX) {
            if let Some(statement) = self.dialect().finish(ids, ending) {
                self.push(statement);
                continue;
            }
            self.open();
            if !self.unsent.is_empty() {
                let statements = self.take_unsent();
                self.opened.session.execute(&statements).await?;
            }
            let Opened { session, dialect, .. } = &mut *self.opened;
            session.finish(dialect, ids, ending).await?;
        }
        Ok(())
    }

    /// Commits. An error leaves the transaction open.
    pub async fn commit(mut self) -> Result<(), Fault> {
        if !self.is_open {
            return Ok(());
        }
        self.push("COMMIT".to_owned());
        let statements = self.take_unsent();
        self.opened.session.execute(&statements).await
    }
}
