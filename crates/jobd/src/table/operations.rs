//! What a job table does, each from the beginning of a transaction to its end, on any database.

use std::collections::HashMap;

use tracing::warn;

use super::fit::KeepOutput;
use super::row::{
    Claimed, Finish, Found, Judge, Mark, Origin, Owned, Pick, RowId, Status, Verdict, Written,
};
use super::session::{Fault, Opened, Page, Session, TextRow};
use super::statements::Sig;
use super::transaction::{IDS_MAX, Transaction};

/// Tries the rights; opening has compared the columns.
pub(super) async fn check<S: Session>(opened: &mut Opened<S>) -> Result<(), Fault> {
    let (lock, probe) = (opened.dialect.lock_ids(&[RowId(-1)]), opened.dialect.probe());
    Transaction::new(opened).rows(&lock).await?;
    opened.session.execute(&probe).await?;
    opened.session.execute("ROLLBACK").await
}

pub(super) async fn claim<S: Session>(
    opened: &mut Opened<S>,
    pick: Pick<'_>,
    mark: &Mark,
    judge: &Judge<'_>,
) -> Result<Vec<Claimed>, Fault> {
    let mut transaction = Transaction::new(opened);
    let found = match pick {
        Pick::Waiting { targets, limit } => lock_waiting(&mut transaction, targets, limit).await?,
        Pick::Ids(ids) => lock_ids(&mut transaction, ids).await?,
    };
    let claimed: Vec<Claimed> =
        found.into_iter().map(|row| Claimed { verdict: judge(&row), row }).collect();
    for (verdict, ids) in by_verdict(&claimed) {
        let (status, sig, started_s) = match verdict {
            Verdict::Leave => continue,
            Verdict::Ignore => (Status::Ignored, Sig::Keep, None),
            Verdict::Accept(origin) => (Status::Accepted, Sig::Set(mark, origin), None),
            Verdict::Start { origin, started_s } => {
                (Status::Running, Sig::Set(mark, origin), Some(started_s))
            }
        };
        transaction.set_status(&ids, &status, sig, started_s);
    }
    transaction.commit().await?;
    Ok(claimed)
}

/// What a write changes.
#[derive(Clone, Copy)]
pub(super) struct Changes<'a> {
    pub mark: &'a Mark,
    pub starts: &'a [RowId],
    pub started_s: i64,
    pub finishes: &'a [Finish],
}

pub(super) async fn write<S: Session>(
    opened: &mut Opened<S>,
    changes: Changes<'_>,
    keep: KeepOutput,
) -> Result<Written, Fault> {
    let outputs = opened.outputs;
    let Changes { mark, starts, started_s, finishes } = changes;
    let mut transaction = Transaction::new(opened);
    let ids: Vec<RowId> = starts.iter().copied().chain(finishes.iter().map(|f| f.id)).collect();
    let marked = lock_marked(&mut transaction, mark, &ids).await?;
    let here = |id: &RowId| marked.binary_search_by_key(id, |row| row.id).is_ok();
    let started: Vec<RowId> = starts.iter().copied().filter(here).collect();
    let finishes: Vec<&Finish> = finishes.iter().filter(|f| here(&f.id)).collect();
    for (finish, ids) in alike(&finishes) {
        let ending = keep.ending(finish, &outputs);
        note_what_was_cut(&ids, finish, ending.stdout.as_deref(), ending.stderr.as_deref());
        transaction.finish(&ids, &ending).await?;
    }
    transaction.set_status(&started, &Status::Running, Sig::Keep, Some(started_s));
    transaction.commit().await?;
    let finished = finishes.iter().map(|finish| finish.id).collect();
    Ok(Written { started, finished })
}

pub(super) async fn owned<S: Session>(
    opened: &mut Opened<S>,
    mark: &Mark,
) -> Result<Vec<Owned>, Fault> {
    let rows = opened.session.rows("", &opened.dialect.owned(mark)).await?;
    let mut owned = Vec::with_capacity(rows.len());
    for row in rows {
        // A collation may also match marks that differ in case.
        let Some(Marked { id, running, .. }) = Marked::read(&row, mark)? else { continue };
        let target = column(&row, 3).unwrap_or_default().to_owned();
        let started_s = column(&row, 4).and_then(|text| text.parse().ok()).filter(|at| *at != 0);
        owned.push(Owned { id, target, running, started_s });
    }
    Ok(owned)
}

pub(super) async fn give_back<S: Session>(
    opened: &mut Opened<S>,
    mark: &Mark,
    accepted: &[RowId],
    unstarted: &[RowId],
) -> Result<Vec<RowId>, Fault> {
    let mut transaction = Transaction::new(opened);
    let ids = [accepted, unstarted].concat();
    let mut marked = lock_marked(&mut transaction, mark, &ids).await?;
    let unstarted = in_order(unstarted);
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
    /// Reads it from the columns id, status, sig.
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

/// Looks for waiting rows without locking, then locks those that it found, by id. So only rows are
/// locked that are taken, however the database finds them, and several workers can share a table.
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
        let ids = transaction.waiting(Page { targets, after, limit: page }).await?;
        let Some(last) = ids.last() else { break };
        after = last.0;
        let lock = transaction.dialect().lock_waiting(&ids, missing.min(page));
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
        let lock = transaction.dialect().lock_ids(ids);
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
        let lock = transaction.dialect().lock_marks(ids);
        for row in transaction.rows(&lock).await? {
            marked.extend(Marked::read(&row, mark)?);
        }
    }
    Ok(marked)
}

/// All workers lock rows from low to high ids, so that two transactions rarely deadlock.
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

/// Groups ends that differ only in the id, as those of silent jobs mostly do: a group shares a
/// statement.
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
