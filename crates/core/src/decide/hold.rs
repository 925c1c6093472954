//! What people do to jobs: retry, edit, park, delete.

use crate::command::Edit;
use crate::decide::limits::check_matched;
use crate::decide::{Decision, is_logged, live};
use crate::event::{Edited, Event, Gone, Relabelled, ResultRead};
use crate::job::{Cause, JobId, JobImage, Status};
use crate::payload::BytesRef;
use crate::queue::QUEUE_NAME_BYTES_MAX;
use crate::rejection::Rejection;
use crate::state::State;

pub(super) fn retry(
    state: &State,
    image: &JobImage,
    payload: &Option<BytesRef>,
    now_ms: u64,
    out: &mut Decision,
) -> Result<(), Rejection> {
    let id = JobId(image.id);
    if state.stub(id).is_none() {
        return Err(if state.live(id).is_some() {
            Rejection::NotFinished
        } else {
            Rejection::NotFound
        });
    }
    if image.expires_ms().is_some_and(|expires| expires <= now_ms) {
        return Err(Rejection::NotFound);
    }
    if image.payload.is_none() && payload.is_none() {
        return Err(Rejection::PayloadDamaged);
    }
    if state.has_no_room_for(&image.options().labels) {
        return Err(Rejection::TooManyValues);
    }
    let mut retried = JobImage {
        status: Status::Ready as i32,
        order: out.next_order(),
        attempts: 0,
        fails: 0,
        payload: payload.clone().or_else(|| image.payload.clone()),
        finished_ms: None,
        kept_until_ms: None,
        lease: None,
        revision: image.revision.wrapping_add(1),
        ..image.clone()
    };
    if let Some(options) = retried.options.as_mut() {
        options.run_at_ms = None;
        // A unique key may have been taken meanwhile by a younger job: then that one has it.
        options.keys.retain(|key| state.job_by_key(key).is_none_or(|holder| holder.id() == id));
    }
    out.emit(Event::Retried(retried), true);
    Ok(())
}

pub(super) fn edit(
    state: &State,
    edit: &Edit,
    now_ms: u64,
    out: &mut Decision,
) -> Result<(), Rejection> {
    let number = live(state, edit.id)?;
    let slot = state.slot(number);
    if edit.revision.is_some_and(|revision| revision != slot.revision) {
        return Err(Rejection::Stale);
    }
    if slot.status() == Status::Leased {
        return Err(Rejection::Leased);
    }
    if let Some(queue) = &edit.queue
        && !(1..=QUEUE_NAME_BYTES_MAX).contains(&queue.len())
    {
        return Err(Rejection::OutOfRange("queue name"));
    }
    let run_at_ms = edit.run_at_ms.or(slot.run_at_ms()).filter(|run_at| *run_at > now_ms);
    let parked = edit.parked.unwrap_or(slot.status() == Status::Parked);
    let status = match (parked, run_at_ms) {
        (true, _) => Status::Parked,
        (false, Some(_)) => Status::Scheduled,
        (false, None) => Status::Ready,
    };
    let order =
        if status == Status::Ready && slot.order == 0 { out.next_order() } else { slot.order };
    let edited = Edited {
        id: edit.id.0,
        queue: edit.queue.clone(),
        priority: edit.priority.unwrap_or(slot.priority),
        status: status as i32,
        run_at_ms,
        order,
    };
    if let Some(matched) = &edit.matched {
        check_matched(state, matched)?;
    }
    let logged = is_logged(slot);
    out.emit(Event::Edited(edited), logged);
    if let Some(matched) = edit.matched.as_ref().filter(|new| slot.labels() != new.labels) {
        let relabelled = Relabelled { id: edit.id.0, labels: matched.labels.clone() };
        out.emit(Event::Relabelled(relabelled), logged);
    }
    Ok(())
}

pub(super) fn delete(
    state: &State,
    id: JobId,
    cause: Cause,
    out: &mut Decision,
) -> Result<(), Rejection> {
    let logged = !state.is_foreground(id);
    if state.handle(id).is_none() {
        return Err(Rejection::NotFound);
    }
    out.emit(Event::Gone(Gone { ids: vec![id.0], cause: cause as i32 }), logged);
    Ok(())
}

pub(super) fn result_read(
    state: &State,
    id: JobId,
    keep_read_ms: u64,
    now_ms: u64,
    out: &mut Decision,
) -> Result<(), Rejection> {
    let Some(crate::state::Found::Finished(stub)) = state.job(id) else {
        return Err(if state.live(id).is_some() {
            Rejection::NotFinished
        } else {
            Rejection::NotFound
        });
    };
    let kept_until_ms = now_ms.saturating_add(keep_read_ms);
    if stub.kept_until_ms().is_none_or(|until| until > kept_until_ms) {
        out.emit(Event::ResultRead(ResultRead { id: id.0, kept_until_ms }), true);
    }
    Ok(())
}
