//! [`JobTable`] on any database that has transactions: what happens in which order, and what is
//! tried again.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use tracing::{error, warn};

use super::contract::{JobTable, TableError};
use super::fit::Care;
use super::row::{
    Claimed, Finish, Found, Judge, Mark, Origin, Owned, Pick, RowId, Status, Verdict, Written,
};
use super::session::{Driver, Fault, Session, TextRow};
use super::slots::Slots;
use super::statements::Sig;
use super::transaction::{IDS_MAX, Transaction};

/// How often a transaction that was in another one's way is run again.
const CONFLICTS_MAX: u32 = 8;
/// A connection idle for longer is asked whether it still leads to a server.
const TRUSTED: Duration = Duration::from_secs(2);

/// A job table behind a driver.
pub(super) struct SqlTable<D: Driver> {
    driver: D,
    slots: Slots<D::Session>,
}

impl<D: Driver> std::fmt::Debug for SqlTable<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqlTable").field("driver", &self.driver).finish_non_exhaustive()
    }
}

/// Something to do in one session, from the beginning of a transaction to its end.
#[async_trait]
trait Work<S: Session>: Sync {
    type Out: Send;
    async fn run(&self, session: &mut S) -> Result<Self::Out, Fault>;
}

impl<D: Driver> SqlTable<D> {
    pub fn new(driver: D) -> Self {
        let slots = Slots::new(driver.sessions_max());
        Self { driver, slots }
    }

    /// Runs the work, again when another transaction was in its way.
    async fn attempt<W: Work<D::Session>>(&self, work: &W) -> Result<W::Out, TableError> {
        let mut conflicts = 0;
        loop {
            let slot = self.slots.slot().await;
            let mut session = match slot.idle() {
                Some((session, idle)) if idle < TRUSTED => session,
                Some((session, _)) => self.trusted(session).await?,
                None => self.opened().await?,
            };
            let fault = match work.run(&mut session).await {
                Ok(out) => {
                    slot.keep(session);
                    return Ok(out);
                }
                Err(fault) => fault,
            };
            if let Fault::Conflict(_) | Fault::Refused(_) = fault
                && session.execute("ROLLBACK").await.is_ok()
            {
                slot.keep(session);
            }
            match fault {
                Fault::Conflict(_) if conflicts < CONFLICTS_MAX => {
                    conflicts += 1;
                    // Whoever was in the way needs a moment to get out of it.
                    tokio::time::sleep(Duration::from_millis(5) * conflicts).await;
                }
                fault => return Err(self.told(fault)),
            }
        }
    }

    /// A session that has been idle, or a new one when its server has gone.
    async fn trusted(&self, mut session: D::Session) -> Result<D::Session, TableError> {
        match session.rows("", "SELECT 1").await {
            Ok(_) => Ok(session),
            Err(_) => {
                self.slots.clear();
                self.opened().await
            }
        }
    }

    async fn opened(&self) -> Result<D::Session, TableError> {
        self.driver.open().await.map_err(|fault| self.told(fault))
    }

    fn told(&self, fault: Fault) -> TableError {
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

    /// Writes one by one what was refused together, so that one bad row harms no other.
    async fn write_apart(
        &self,
        mark: &Mark,
        starts: &[RowId],
        started_s: i64,
        finishes: &[Finish],
    ) -> Result<Written, TableError> {
        let mut written = Written::default();
        for id in starts {
            let work =
                Write { mark, starts: &[*id], started_s, finishes: &[], care: Care::Columns };
            match self.attempt(&work).await {
                Ok(one) => written.started.extend(one.started),
                Err(TableError::Refused { table, reason }) => {
                    error!(%id, table, reason, "the row cannot be made running; it is not started");
                }
                Err(e) => return Err(e),
            }
        }
        for finish in finishes {
            written.finished.extend(self.write_somehow(mark, finish).await?);
        }
        Ok(written)
    }

    /// Writes one end with as much of its output as the database takes.
    async fn write_somehow(&self, mark: &Mark, finish: &Finish) -> Result<Vec<RowId>, TableError> {
        let id = finish.id;
        for care in Care::ALL {
            let finishes = std::slice::from_ref(finish);
            let work = Write { mark, starts: &[], started_s: 0, finishes, care };
            match self.attempt(&work).await {
                Ok(one) => return Ok(one.finished),
                Err(TableError::Refused { table, reason }) if care != Care::Nothing => {
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
        self.attempt(&Check).await
    }

    async fn claim(
        &self,
        pick: Pick<'_>,
        mark: &Mark,
        judge: &Judge<'_>,
    ) -> Result<Vec<Claimed>, TableError> {
        self.attempt(&Claim { pick, mark, judge }).await
    }

    async fn write(
        &self,
        mark: &Mark,
        starts: &[RowId],
        started_s: i64,
        finishes: &[Finish],
    ) -> Result<Written, TableError> {
        let together = Write { mark, starts, started_s, finishes, care: Care::Columns };
        match self.attempt(&together).await {
            Err(TableError::Refused { .. }) => {
                self.write_apart(mark, starts, started_s, finishes).await
            }
            outcome => outcome,
        }
    }

    async fn owned(&self, mark: &Mark) -> Result<Vec<Owned>, TableError> {
        self.attempt(&ReadOwned { mark }).await
    }

    async fn give_back(
        &self,
        mark: &Mark,
        accepted: &[RowId],
        unstarted: &[RowId],
    ) -> Result<Vec<RowId>, TableError> {
        self.attempt(&GiveBack { mark, accepted, unstarted }).await
    }
}

/// Opening has compared the columns; this tries the rights.
struct Check;

#[async_trait]
impl<S: Session> Work<S> for Check {
    type Out = ();

    async fn run(&self, session: &mut S) -> Result<(), Fault> {
        let (lock, probe) = (session.dialect().lock_ids(&[RowId(-1)]), session.dialect().probe());
        Transaction::new(session).rows(&lock).await?;
        session.execute(&probe).await?;
        session.execute("ROLLBACK").await
    }
}

struct Claim<'a> {
    pick: Pick<'a>,
    mark: &'a Mark,
    judge: &'a Judge<'a>,
}

#[async_trait]
impl<S: Session> Work<S> for Claim<'_> {
    type Out = Vec<Claimed>;

    async fn run(&self, session: &mut S) -> Result<Vec<Claimed>, Fault> {
        let mut transaction = Transaction::new(session);
        let found = match self.pick {
            Pick::Waiting { targets, limit } => {
                lock_waiting(&mut transaction, targets, limit).await?
            }
            Pick::Ids(ids) => lock_ids(&mut transaction, ids).await?,
        };
        let claimed: Vec<Claimed> =
            found.into_iter().map(|row| Claimed { verdict: (self.judge)(&row), row }).collect();
        for (verdict, ids) in by_verdict(&claimed) {
            let (status, sig) = match verdict {
                Verdict::Leave => continue,
                Verdict::Ignore => (Status::Ignored, Sig::Keep),
                Verdict::Accept(origin) => (Status::Accepted, Sig::Set(self.mark, origin)),
                Verdict::Start { origin, .. } => (Status::Running, Sig::Set(self.mark, origin)),
            };
            let started_s = match verdict {
                Verdict::Start { started_s, .. } => Some(started_s),
                _ => None,
            };
            transaction.set_status(&ids, &status, sig, started_s);
        }
        transaction.commit().await?;
        Ok(claimed)
    }
}

struct Write<'a> {
    mark: &'a Mark,
    starts: &'a [RowId],
    started_s: i64,
    finishes: &'a [Finish],
    care: Care,
}

#[async_trait]
impl<S: Session> Work<S> for Write<'_> {
    type Out = Written;

    async fn run(&self, session: &mut S) -> Result<Written, Fault> {
        let outlets = *session.outlets();
        let mut transaction = Transaction::new(session);
        let ids: Vec<RowId> =
            self.starts.iter().copied().chain(self.finishes.iter().map(|f| f.id)).collect();
        let marked = lock_marked(&mut transaction, self.mark, &ids).await?;
        let here = |id: &RowId| marked.binary_search_by_key(id, |row| row.id).is_ok();
        let started: Vec<RowId> = self.starts.iter().copied().filter(here).collect();
        let finishes: Vec<&Finish> = self.finishes.iter().filter(|f| here(&f.id)).collect();
        for (finish, ids) in alike(&finishes) {
            let ending = self.care.ending(finish, &outlets);
            note_what_was_cut(&ids, finish, ending.stdout.as_deref(), ending.stderr.as_deref());
            transaction.finish(&ids, &ending).await?;
        }
        transaction.set_status(&started, &Status::Running, Sig::Keep, Some(self.started_s));
        transaction.commit().await?;
        let finished = finishes.iter().map(|finish| finish.id).collect();
        Ok(Written { started, finished })
    }
}

struct ReadOwned<'a> {
    mark: &'a Mark,
}

#[async_trait]
impl<S: Session> Work<S> for ReadOwned<'_> {
    type Out = Vec<Owned>;

    async fn run(&self, session: &mut S) -> Result<Vec<Owned>, Fault> {
        let query = session.dialect().owned(self.mark);
        let rows = session.rows("", &query).await?;
        let mut owned = Vec::with_capacity(rows.len());
        for row in rows {
            // A collation may find more than the mark: letters of another case.
            if let Some(marked) = Marked::read(&row, self.mark)? {
                let target = column(&row, 3).unwrap_or_default().to_owned();
                let started_s = column(&row, 4).and_then(|text| text.parse().ok());
                let started_s = started_s.filter(|at| *at != 0);
                owned.push(Owned { id: marked.id, target, running: marked.running, started_s });
            }
        }
        Ok(owned)
    }
}

struct GiveBack<'a> {
    mark: &'a Mark,
    accepted: &'a [RowId],
    unstarted: &'a [RowId],
}

#[async_trait]
impl<S: Session> Work<S> for GiveBack<'_> {
    type Out = Vec<RowId>;

    async fn run(&self, session: &mut S) -> Result<Vec<RowId>, Fault> {
        let mut transaction = Transaction::new(session);
        let ids = [self.accepted, self.unstarted].concat();
        let mut marked = lock_marked(&mut transaction, self.mark, &ids).await?;
        let unstarted = in_order(self.unstarted);
        marked.retain(|row| !row.running || unstarted.binary_search(&row.id).is_ok());
        for (origin, status) in
            [(Origin::Background, Status::Waiting), (Origin::Manual, Status::Manual)]
        {
            for (was_running, started_s) in [(false, None), (true, Some(0))] {
                let is_it = |row: &&Marked| row.origin == origin && row.running == was_running;
                let ids: Vec<RowId> = marked.iter().filter(is_it).map(|row| row.id).collect();
                transaction.set_status(&ids, &status, Sig::Clear, started_s);
            }
        }
        transaction.commit().await?;
        Ok(marked.iter().map(|row| row.id).collect())
    }
}

/// The rows of each verdict, in the order in which the verdicts first came.
fn by_verdict(claimed: &[Claimed]) -> Vec<(Verdict, Vec<RowId>)> {
    let mut groups: Vec<(Verdict, Vec<RowId>)> = Vec::new();
    for Claimed { row, verdict } in claimed {
        match groups.iter_mut().find(|(of, _)| of == verdict) {
            Some((_, ids)) => ids.push(row.id),
            None => groups.push((*verdict, vec![row.id])),
        }
    }
    groups
}

/// An accepted or running row with the mark.
struct Marked {
    id: RowId,
    running: bool,
    origin: Origin,
}

impl Marked {
    /// From id, status, sig.
    fn read(row: &TextRow, mark: &Mark) -> Result<Option<Self>, Fault> {
        let running = match column(row, 1) {
            Some("running") => true,
            Some("accepted") => false,
            _ => return Ok(None),
        };
        let origin = column(row, 2).and_then(|sig| mark.origin_of(sig));
        let id = row_id(row)?;
        Ok(origin.map(|origin| Self { id, running, origin }))
    }
}

/// Looks for waiting rows without locking, then locks what it found by id. So no more rows are
/// locked than are taken, however the database finds them, and several workers share a table.
async fn lock_waiting<S: Session>(
    transaction: &mut Transaction<'_, S>,
    targets: &[String],
    limit: u32,
) -> Result<Vec<Found>, Fault> {
    // The lowest ids may all be locked by other workers: look further until there are no more.
    let page = limit.min(u32::try_from(IDS_MAX).expect("it is 500"));
    let mut found = Vec::new();
    let mut after = i64::MIN;
    let mut missing = limit;
    while missing > 0 {
        let ids = transaction.session.waiting(targets, after, page).await?;
        let Some(last) = ids.last() else { break };
        after = last.0;
        let lock = transaction.session.dialect().lock_waiting(&ids, missing.min(page));
        found.extend(found_rows(&transaction.rows(&lock).await?)?);
        missing = limit.saturating_sub(u32::try_from(found.len()).unwrap_or(u32::MAX));
        if ids.len() < page as usize {
            break;
        }
    }
    found.sort_by_key(|row| row.id);
    Ok(found)
}

async fn lock_ids<S: Session>(
    transaction: &mut Transaction<'_, S>,
    ids: &[RowId],
) -> Result<Vec<Found>, Fault> {
    let mut found = Vec::new();
    for ids in in_order(ids).chunks(IDS_MAX) {
        let lock = transaction.session.dialect().lock_ids(ids);
        found.extend(found_rows(&transaction.rows(&lock).await?)?);
    }
    Ok(found)
}

/// In order of id.
async fn lock_marked<S: Session>(
    transaction: &mut Transaction<'_, S>,
    mark: &Mark,
    ids: &[RowId],
) -> Result<Vec<Marked>, Fault> {
    let mut marked = Vec::new();
    for ids in in_order(ids).chunks(IDS_MAX) {
        let lock = transaction.session.dialect().lock_marks(ids);
        for row in transaction.rows(&lock).await? {
            marked.extend(Marked::read(&row, mark)?);
        }
    }
    Ok(marked)
}

/// Everybody locks from low to high, so that two transactions rarely wait for each other.
fn in_order(ids: &[RowId]) -> Vec<RowId> {
    let mut ids = ids.to_vec();
    ids.sort_unstable();
    ids.dedup();
    ids
}

fn found_rows(rows: &[TextRow]) -> Result<Vec<Found>, Fault> {
    let found = |row: &TextRow| {
        let status = Status::from_word(column(row, 1).unwrap_or_default());
        let target = column(row, 2).unwrap_or_default().to_owned();
        Ok(Found { id: row_id(row)?, target, status })
    };
    rows.iter().map(found).collect()
}

fn row_id(row: &TextRow) -> Result<RowId, Fault> {
    let id = column(row, 0).unwrap_or_default();
    let number = id.parse().map_err(|_| Fault::Refused(format!("{id:?} is no usable id")))?;
    Ok(RowId(number))
}

fn column(row: &TextRow, index: usize) -> Option<&str> {
    row.get(index)?.as_deref()
}

/// Ends that differ in nothing but the id share a statement: silent jobs mostly do.
fn alike<'a>(finishes: &[&'a Finish]) -> Vec<(&'a Finish, Vec<RowId>)> {
    let mut places = HashMap::with_capacity(finishes.len());
    let mut groups: Vec<(&Finish, Vec<RowId>)> = Vec::new();
    for finish in finishes {
        let Finish { id, finished_s, success, code, signal, stdout, stderr } = *finish;
        let place = *places
            .entry((finished_s, success, code, signal, stdout, stderr))
            .or_insert(groups.len());
        match groups.get_mut(place) {
            Some((_, ids)) => ids.push(*id),
            None => groups.push((finish, vec![*id])),
        }
    }
    groups
}

fn note_what_was_cut(ids: &[RowId], finish: &Finish, stdout: Option<&str>, stderr: Option<&str>) {
    for (name, said, kept) in
        [("stdout", &finish.stdout, stdout), ("stderr", &finish.stderr, stderr)]
    {
        let kept = kept.unwrap_or_default();
        if kept != said {
            let (said_bytes, kept_bytes) = (said.len(), kept.len());
            warn!(?ids, said_bytes, kept_bytes, "column {name} does not take all of the output");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finish(id: i64, code: u8, stdout: &str) -> Finish {
        Finish {
            id: RowId(id),
            finished_s: 1,
            success: code == 0,
            code: Some(code),
            signal: None,
            stdout: stdout.to_owned(),
            stderr: String::new(),
        }
    }

    #[test]
    fn only_equal_ends_share_a_statement() {
        let finishes = [
            finish(1, 0, ""),
            finish(2, 1, ""),
            finish(3, 0, ""),
            finish(4, 0, "x"),
            finish(5, 1, ""),
        ];
        let groups = alike(&finishes.iter().collect::<Vec<_>>());
        let ids: Vec<Vec<i64>> =
            groups.iter().map(|(_, ids)| ids.iter().map(|id| id.0).collect()).collect();
        assert_eq!(ids, [vec![1, 3], vec![2, 5], vec![4]]);
        assert_eq!(groups[2].0.stdout, "x");
    }

    #[test]
    fn ids_are_locked_in_order_and_once() {
        let ids = [3, 1, 2, 3].map(RowId);
        assert_eq!(in_order(&ids), [1, 2, 3].map(RowId));
    }
}
