//! A job table in memory that keeps the contract, and breaks down when a test wants it to.

use std::{
    collections::{BTreeMap, HashSet},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use async_trait::async_trait;
use parking_lot::Mutex;
use spindle_jobd::table::{
    Claimed, Finish, Found, JobTable, Judge, Mark, Owned, Pick, RowId, Status, TableError, Verdict,
    Written,
};

/// A row of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub target: String,
    pub status: Status,
    pub started_s: i64,
    pub sig: Option<String>,
    pub finish: Option<Finish>,
}

/// The table, and what is wrong with it.
#[derive(Debug, Default)]
pub struct FakeTable {
    rows: Mutex<BTreeMap<i64, Row>>,
    /// Nothing works.
    pub away: AtomicBool,
    /// For this many requests, the work is done but the answer is lost.
    pub lost_answers: AtomicUsize,
    /// Rows whose output the database refuses, and those it refuses altogether.
    pub refused_outputs: Mutex<HashSet<i64>>,
    pub refused_rows: Mutex<HashSet<i64>>,
    /// While a test holds this lock, no claim answers.
    pub claim_answers: tokio::sync::RwLock<()>,
    pub claims: AtomicUsize,
    pub writes: AtomicUsize,
}

impl FakeTable {
    pub fn insert(&self, id: i64, target: &str, status: &str) {
        let row = Row {
            target: target.to_owned(),
            status: Status::from_word(status),
            started_s: 0,
            sig: None,
            finish: None,
        };
        self.rows.lock().insert(id, row);
    }

    pub fn change(&self, id: i64, change: impl FnOnce(&mut Row)) {
        change(self.rows.lock().get_mut(&id).expect("the row is there"));
    }

    pub fn delete(&self, id: i64) {
        self.rows.lock().remove(&id);
    }

    pub fn row(&self, id: i64) -> Row {
        self.rows.lock()[&id].clone()
    }

    /// `status result code signal` of a row, as the recordings show rows.
    pub fn line(&self, id: i64) -> String {
        let row = self.row(id);
        let Some(finish) = row.finish else { return row.status.to_string() };
        let result = if finish.success { "ok" } else { "fail" };
        let code = finish.code.map_or("NULL".to_owned(), |code| code.to_string());
        let signal = finish.signal.unwrap_or_else(|| "NULL".to_owned());
        format!("{} {result} {code} {signal}", row.status)
    }

    pub fn count(&self, status: &str) -> usize {
        self.rows.lock().values().filter(|row| row.status.word() == status).count()
    }

    fn fail(&self, reason: &str) -> TableError {
        TableError::Away { table: self.describe(), reason: reason.to_owned() }
    }

    fn answer<T>(&self, value: T) -> Result<T, TableError> {
        let is_lost = self
            .lost_answers
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
            .is_ok();
        if is_lost { Err(self.fail("the answer was lost")) } else { Ok(value) }
    }

    fn is_there(&self) -> Result<(), TableError> {
        if self.away.load(Ordering::SeqCst) { Err(self.fail("away")) } else { Ok(()) }
    }

    fn take(&self, pick: Pick<'_>, mark: &Mark, judge: &Judge<'_>) -> Vec<Claimed> {
        let mut rows = self.rows.lock();
        let is_picked = |id: i64, row: &Row| match pick {
            Pick::Waiting { targets, .. } => {
                row.status == Status::Waiting && targets.contains(&row.target)
            }
            Pick::Ids(ids) => ids.contains(&RowId(id)),
        };
        let limit = match pick {
            Pick::Waiting { limit, .. } => limit as usize,
            Pick::Ids(ids) => ids.len(),
        };
        let mut claimed = Vec::new();
        for (&id, row) in rows.iter_mut().filter(|(id, row)| is_picked(**id, row)).take(limit) {
            let found =
                Found { id: RowId(id), target: row.target.clone(), status: row.status.clone() };
            let verdict = judge(&found);
            match verdict {
                Verdict::Accept(origin) => {
                    row.status = Status::Accepted;
                    row.sig = Some(mark.text(origin));
                }
                Verdict::Start { origin, started_s } => {
                    row.status = Status::Running;
                    row.sig = Some(mark.text(origin));
                    row.started_s = started_s;
                }
                Verdict::Ignore => row.status = Status::Ignored,
                Verdict::Leave => {}
            }
            claimed.push(Claimed { row: found, verdict });
        }
        claimed
    }
}

fn is_marked(row: &Row, mark: &Mark) -> bool {
    row.sig.as_ref().is_some_and(|sig| mark.origin_of(sig).is_some())
}

#[async_trait]
impl JobTable for FakeTable {
    fn describe(&self) -> String {
        "a table in memory".to_owned()
    }

    async fn check(&self) -> Result<(), TableError> {
        self.is_there()
    }

    async fn claim(
        &self,
        pick: Pick<'_>,
        mark: &Mark,
        judge: &Judge<'_>,
    ) -> Result<Vec<Claimed>, TableError> {
        self.is_there()?;
        self.claims.fetch_add(1, Ordering::SeqCst);
        let claimed = self.take(pick, mark, judge);
        drop(self.claim_answers.read().await);
        self.answer(claimed)
    }

    async fn write(
        &self,
        mark: &Mark,
        starts: &[RowId],
        started_s: i64,
        finishes: &[Finish],
    ) -> Result<Written, TableError> {
        self.is_there()?;
        self.writes.fetch_add(1, Ordering::SeqCst);
        for finish in finishes {
            let is_refused = self.refused_rows.lock().contains(&finish.id.0)
                || (self.refused_outputs.lock().contains(&finish.id.0)
                    && !finish.stdout.is_empty());
            if is_refused {
                let reason = "incorrect string value".to_owned();
                return Err(TableError::Refused { table: self.describe(), reason });
            }
        }
        let mut rows = self.rows.lock();
        let mut written = Written::default();
        for id in starts {
            let Some(row) = rows.get_mut(&id.0).filter(|row| is_marked(row, mark)) else {
                continue;
            };
            if matches!(row.status, Status::Accepted | Status::Running) {
                row.status = Status::Running;
                row.started_s = started_s;
                written.started.push(*id);
            }
        }
        for finish in finishes {
            let row = rows.get_mut(&finish.id.0).filter(|row| is_marked(row, mark));
            let Some(row) = row else { continue };
            row.status = Status::Done;
            row.sig.clone_from(&finish.signal);
            row.finish = Some(finish.clone());
            written.finished.push(finish.id);
        }
        drop(rows);
        self.answer(written)
    }

    async fn owned(&self, mark: &Mark) -> Result<Vec<Owned>, TableError> {
        self.is_there()?;
        let rows = self.rows.lock();
        let owned = rows
            .iter()
            .filter(|(_, row)| is_marked(row, mark))
            .filter(|(_, row)| matches!(row.status, Status::Accepted | Status::Running))
            .map(|(id, row)| Owned {
                id: RowId(*id),
                target: row.target.clone(),
                running: row.status == Status::Running,
                started_s: (row.started_s != 0).then_some(row.started_s),
            });
        Ok(owned.collect())
    }

    async fn give_back(
        &self,
        mark: &Mark,
        accepted: &[RowId],
        unstarted: &[RowId],
    ) -> Result<Vec<RowId>, TableError> {
        self.is_there()?;
        let mut given = Vec::new();
        for id in accepted.iter().chain(unstarted) {
            let mut rows = self.rows.lock();
            let Some(row) = rows.get_mut(&id.0) else { continue };
            let Some(origin) = row.sig.as_ref().and_then(|sig| mark.origin_of(sig)) else {
                continue;
            };
            let was_running = row.status == Status::Running && unstarted.contains(id);
            if row.status == Status::Accepted || was_running {
                row.status = match origin {
                    spindle_jobd::table::Origin::Background => Status::Waiting,
                    spindle_jobd::table::Origin::Manual => Status::Manual,
                };
                row.sig = None;
                row.started_s = if was_running { 0 } else { row.started_s };
                given.push(*id);
            }
        }
        self.answer(given)
    }
}
