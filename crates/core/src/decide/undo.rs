//! Deletions that can be undone, and their undo. When the time for that is over, the job goes as one
//! does whose TTL or retention ends (`tick.rs`).

use crate::decide::finish::lose;
use crate::decide::{Context, Decided, flows, hold, refuse_if};
use crate::event::{Deleted, Event, Undeleted};
use crate::job::{Cause, Deletion, JobId, Key, Status, UNDO_MS_MAX};
use crate::rejection::Rejection;

pub(super) fn delete_later(cx: &mut Context<'_>, id: JobId, request: u64, undo_ms: u64) -> Decided {
    refuse_if(request == 0, Rejection::OutOfRange("request"))?;
    refuse_if(!(1..=UNDO_MS_MAX).contains(&undo_ms), Rejection::OutOfRange("undo_ms"))?;
    if cx.state.is_foreground(id) {
        // It is in no log, and lives only as long as somebody waits for it.
        return hold::delete(cx, id, Cause::Deleted);
    }
    let status = cx.state.status(id).ok_or(Rejection::NotFound)?;
    cx.check_not_deleted(id)?;
    let deletion = Deletion {
        gone_ms: cx.now_ms.saturating_add(undo_ms),
        request,
        was_parked: status == Status::Parked,
    };
    cx.emit(Event::Deleted(Deleted { id: id.0, at_ms: cx.now_ms, deletion }), true);
    Ok(())
}

pub(super) fn undelete(cx: &mut Context<'_>, id: JobId) -> Decided {
    let deletion = match cx.state.deletion(id) {
        Some(deletion) => deletion,
        None if cx.state.status(id).is_some() => return Err(Rejection::NotDeleted),
        None => return Err(Rejection::NotFound),
    };
    check_names(cx, id)?;
    let logged = !cx.state.faults().undo_not_logged;
    let Some(number) = cx.state.find_live(id) else {
        cx.emit(Event::Undeleted(Undeleted { id: id.0, ..Undeleted::default() }), logged);
        return Ok(());
    };
    let job = cx.state.live_job(number);
    if cx.state.tries(number).is_last_attempt(job.attempts()) {
        // The deletion ended its last one.
        lose(cx, number, Cause::Limit);
        return Ok(());
    }
    if let Some(id) = job.after().map(|after| after.cancelled_by).filter(|id| *id > 0) {
        // What it waited for ended meanwhile, and was not done.
        flows::cancel(cx, number, JobId(id));
        return Ok(());
    }
    let run_at_ms = job.run_at_ms().filter(|run_at| *run_at > cx.now_ms);
    let status = job.waiting(deletion.was_parked, run_at_ms.is_some());
    let order =
        if status == Status::Ready && job.order() == 0 { cx.next_order() } else { job.order() };
    let undeleted = Undeleted { id: id.0, status: status as i32, run_at_ms, order };
    cx.emit(Event::Undeleted(undeleted), logged);
    Ok(())
}

/// The job's names were free while it was deleted. A job that has taken one of them since keeps it:
/// two jobs with one unique key must not run.
fn check_names(cx: &Context<'_>, id: JobId) -> Decided {
    let (uuid, keys) = cx.state.names_of(id);
    let by_uuid = uuid.and_then(|uuid| cx.state.job_by_uuid(&uuid));
    let by_key = |key: &Key| cx.state.job_by_key(key);
    match by_uuid.or_else(|| keys.iter().find_map(by_key)) {
        Some(holder) => Err(Rejection::KeyTaken(holder.id())),
        None => Ok(()),
    }
}
