//! What people do to jobs: retry, edit, park, delete.

use crate::command::Edit;
use crate::decide::limits::{check_matched, emit_relabelled};
use crate::decide::room::{self, Newcomer};
use crate::decide::{Context, Decided, check_queue, flows, refuse_if};
use crate::event::{Edited, Event, Gone, ResultRead};
use crate::job::{Cause, JobId, JobImage, Status};
use crate::payload::BytesRef;
use crate::rejection::Rejection;
use crate::state::Found;

pub(super) fn retry(cx: &mut Context<'_>, image: &JobImage, payload: &Option<BytesRef>) -> Decided {
    let id = JobId(image.id);
    refuse_if(cx.state.find_finished(id).is_none(), cx.not_finished(id))?;
    cx.check_not_deleted(id)?;
    refuse_if(image.payload.is_none() && payload.is_none(), Rejection::PayloadDamaged)?;
    refuse_if(cx.state.has_no_room_for(&image.options().labels), Rejection::TooManyValues)?;
    let payload = payload.clone().or_else(|| image.payload.clone());
    let newcomer = Newcomer {
        queue: &image.queue,
        priority: image.priority,
        payload_bytes: payload.as_ref().map_or(0, |payload| payload.len),
        replaces: &[],
    };
    room::check(cx.state, &newcomer)?;

    let mut retried = JobImage {
        status: Status::Ready as i32,
        order: cx.next_order(),
        attempts: 0,
        fails: 0,
        payload,
        finished_ms: None,
        kept_until_ms: None,
        lease: None,
        revision: image.revision.wrapping_add(1),
        ..image.clone()
    };
    let queue = cx.state.queue(&image.queue);
    if queue.is_some_and(|queue| queue.settings().aging_ms.is_some()) {
        // The job goes to the tail, so its wait begins now.
        retried.options_mut().waits_since_ms = Some(cx.now_ms);
    }
    if let Some(options) = retried.options.as_mut() {
        options.run_at_ms = None;
        options.deletion = None;
        // A younger job may have taken a unique key meanwhile, and keeps it.
        options.keys.retain(|key| cx.state.job_by_key(key).is_none_or(|holder| holder.id() == id));
        if let Some(after) = options.after.as_mut() {
            flows::after_again(cx.state, id, options.batch, after)?;
        }
    }
    retried.status = Status::waiting(false, !retried.options().open().is_empty(), false) as i32;
    cx.emit(Event::Retried(retried), true);
    Ok(())
}

pub(super) fn edit(cx: &mut Context<'_>, edit: &Edit) -> Decided {
    let job = cx.state.live_job(cx.unchanged(edit.id, edit.revision)?);
    cx.check_not_deleted(edit.id)?;
    refuse_if(job.status() == Status::Leased, Rejection::Leased)?;
    let priority = edit.priority.unwrap_or(job.priority());
    if let Some(queue) = &edit.queue {
        check_queue(cx.state, queue)?;
        let is_there = cx.state.queue_at(job.queue()).is_some_and(|there| there.name() == queue);
        let payload_bytes = job.payload_len;
        let newcomer = Newcomer { queue, priority, payload_bytes, replaces: &[] };
        (if is_there { Ok(()) } else { room::check_queue(cx.state, &newcomer) })?;
    }
    let run_at_ms = edit.run_at_ms.or(job.run_at_ms()).filter(|run_at| *run_at > cx.now_ms);
    let parked = edit.parked.unwrap_or(job.status() == Status::Parked);
    let status = job.waiting(parked, run_at_ms.is_some());
    let order =
        if status == Status::Ready && job.order() == 0 { cx.next_order() } else { job.order() };
    let edited = Edited {
        id: edit.id.0,
        queue: edit.queue.clone(),
        priority,
        status: status as i32,
        run_at_ms,
        order,
    };
    if let Some(matched) = &edit.matched {
        check_matched(cx.state, matched)?;
    }
    cx.emit(Event::Edited(edited), job.is_logged());
    edit.matched.iter().for_each(|matched| emit_relabelled(cx, job, matched));
    Ok(())
}

pub(super) fn delete(cx: &mut Context<'_>, id: JobId, cause: Cause) -> Decided {
    let logged = !cx.state.is_foreground(id);
    refuse_if(cx.state.handle(id).is_none(), Rejection::NotFound)?;
    cx.emit(Event::Gone(Gone { ids: vec![id.0], cause: cause as i32 }), logged);
    Ok(())
}

pub(super) fn result_read(cx: &mut Context<'_>, id: JobId, keep_read_ms: u64) -> Decided {
    let Some(Found::Finished(finished)) = cx.state.job(id) else {
        return Err(cx.not_finished(id));
    };
    let kept_until_ms = cx.now_ms.saturating_add(keep_read_ms);
    if finished.retained_until_ms().is_none_or(|until| until > kept_until_ms) {
        cx.emit(Event::ResultRead(ResultRead { id: id.0, kept_until_ms }), true);
    }
    Ok(())
}
