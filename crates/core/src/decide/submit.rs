//! Jobs that come in.

use bytes::Bytes;

use crate::command::Submit;
use crate::decide::room::{self, Newcomer};
use crate::decide::{
    Context, Decided, batches, check_place_of, check_queue_of_any_shard, flows, refuse_if,
};
use crate::event::{Event, Gone};
use crate::job::{
    After, Cause, JOB_ID_END, JobId, JobImage, JobOptions, LABELS_MAX, Origin, Outcome, Scope,
    Status,
};
use crate::payload::BytesRef;
use crate::queue::FAIR_KEY_BYTES_MAX;
use crate::rejection::Rejection;
use crate::state::{State, event_fits, state_fits};

/// TTRs are kept in 32 bits: at most this, about 49 days.
pub const TTR_MS_MAX: u64 = u32::MAX as u64 - 1;

/// Keys and tags of one job.
const NAMES_MAX: usize = 64;

pub(super) fn submit(cx: &mut Context<'_>, submit: &Submit) -> Decided {
    check_names(cx.state, submit)?;
    let replaced = replaced(cx.state, submit)?;
    check_place(cx.state, submit, !replaced.is_empty())?;
    take(cx, submit, &[], replaced)
}

/// Submits a schedule's job after the end of these unfinished jobs, which is already decided. A schedule's jobs
/// are on the schedule's shard, wherever its queue has moved since.
pub(super) fn submit_after(cx: &mut Context<'_>, submit: &Submit, ended: &[u64]) -> Decided {
    check_names(cx.state, submit)?;
    let replaced = replaced(cx.state, submit)?;
    take(cx, submit, ended, replaced)
}

/// Whether the job's names can be taken. Checked before the queue's place: on a shard that a queue is
/// leaving, names stay taken by the jobs that are there.
fn check_names(state: &State, submit: &Submit) -> Decided {
    check_queue_of_any_shard(state, &submit.queue)?;
    check_limits(submit)?;
    match submit.uuid.and_then(|uuid| state.job_by_uuid(&uuid)) {
        Some(taken) => Err(Rejection::KeyTaken(taken.id())),
        None => Ok(()),
    }
}

/// Whether the queue takes the job here. While it is leaving, only what belongs to jobs that are here.
fn check_place(state: &State, submit: &Submit, replaces: bool) -> Decided {
    // Jobs of LightJQ are on one shard, whatever their queues.
    if submit.origin == Origin::Lightjq {
        return Ok(());
    }
    let is_bound = replaces || submit.batch.is_some() || !submit.after.is_empty();
    check_place_of(state, &submit.queue, is_bound)
}

fn take(cx: &mut Context<'_>, submit: &Submit, ended: &[u64], replaced: Vec<u64>) -> Decided {
    cx.check_new_id(submit.id)?;
    // Also without labels: a newer constraint may have one for it.
    refuse_if(
        submit.constraints_revision != cx.state.server().constraints_revision,
        Rejection::StaleConstraints,
    )?;
    refuse_if(cx.state.has_no_room_for(&submit.labels), Rejection::TooManyValues)?;
    let newcomer = Newcomer {
        queue: &submit.queue,
        priority: submit.priority,
        payload_bytes: submit.payload.len,
        replaces: if ended.is_empty() { &replaced } else { ended },
    };
    room::check(cx.state, &newcomer)?;
    let ahead = submit.run_at_ms.is_some_and(|run_at| run_at > cx.now_ms)
        && !cx.state.faults().scheduled_at_once;
    if let Some(batch) = submit.batch {
        // It has to be counted, also after a crash.
        refuse_if(submit.foreground, Rejection::OutOfRange("batch"))?;
        batches::check_takes(cx.state, batch)?;
    }
    let after = flows::after(cx.state, submit)?;
    let is_blocked = after.as_ref().is_some_and(|after| !after.open.is_empty());
    let status = Status::waiting(submit.parked, is_blocked, ahead);
    let start_ms = submit.run_at_ms.unwrap_or(cx.now_ms);
    refuse_if(
        submit.ttl_ms.is_some_and(|ttl| start_ms.saturating_add(ttl) <= cx.now_ms),
        Rejection::OutOfRange("ttl"),
    )?;
    if !replaced.is_empty() {
        // First: the keys must be free when the new job takes them.
        cx.emit(Event::Gone(Gone { ids: replaced, cause: Cause::Deleted as i32 }), true);
    }
    let order = if status == Status::Ready { cx.next_order() } else { 0 };
    let (uuid_high, uuid_low) = JobImage::uuid_halves(submit.uuid);
    let image = JobImage {
        id: submit.id.0,
        queue: submit.queue.clone(),
        status: status as i32,
        origin: submit.origin as i32,
        priority: submit.priority,
        order,
        created_ms: cx.now_ms,
        ttl_ms: submit.ttl_ms,
        ttr_ms: submit.ttr_ms,
        uuid_high,
        uuid_low,
        payload: Some(submit.payload.clone()),
        options: options(cx.state, submit, ahead, after),
        foreground: submit.foreground,
        ..JobImage::default()
    };
    cx.emit(Event::Submitted(image), !submit.foreground);
    Ok(())
}

/// The jobs that a submit replaces because it takes their unique keys. Only waiting jobs are
/// replaced: none that a worker has, that is finished, or whose key holds while it is kept.
fn replaced(state: &State, submit: &Submit) -> Result<Vec<u64>, Rejection> {
    let mut ids = Vec::new();
    for key in &submit.keys {
        let Some(taken) = state.job_by_key(key) else { continue };
        let waits = !taken.status().is_finished() && taken.status() != Status::Leased;
        let may_go = submit.replaces && !submit.foreground && waits;
        if !may_go || key.scope() != Scope::WhileUnfinished {
            return Err(Rejection::KeyTaken(taken.id()));
        }
        if !ids.contains(&taken.id().0) {
            ids.push(taken.id().0);
        }
    }
    Ok(ids)
}

/// What few submits ask for.
fn options(
    state: &State,
    submit: &Submit,
    ahead: bool,
    after: Option<Box<After>>,
) -> Option<Box<JobOptions>> {
    if is_plain(submit) {
        return None;
    }
    let updated = submit.state.is_some() || submit.event.is_some();
    let options = JobOptions {
        run_at_ms: submit.run_at_ms.filter(|_| ahead),
        scheduled_ms: submit.run_at_ms,
        attempts_max: submit.attempts_max,
        fails_max: submit.fails_max,
        backoff: submit.backoff,
        keys: submit.keys.clone(),
        labels: submit.labels.clone(),
        tags: submit.tags.clone(),
        state: submit.state.clone(),
        events: submit.event.iter().cloned().collect(),
        keep_ms: submit.keep_ms,
        keep_read_ms: submit.keep_read_ms,
        drop_result: submit.drop_result,
        updated_ms: 0,
        update_seq: if updated { state.next_update() } else { 0 },
        pages: Vec::new(),
        trace: submit.trace.clone(),
        deletion: None,
        after,
        fair_key: submit.fair_key.clone(),
        waits_since_ms: None,
        batch: submit.batch.map_or(0, |batch| batch.0),
    };
    options.boxed()
}

/// Whether nothing is asked for that only few submits ask for.
fn is_plain(submit: &Submit) -> bool {
    // All fields by name: one that is added does not compile before it is looked at here.
    let Submit {
        id: _,
        queue: _,
        origin: _,
        priority: _,
        ttl_ms: _,
        ttr_ms: _,
        payload: _,
        uuid: _,
        replaces: _,
        constraints_revision: _,
        parked: _,
        foreground: _,
        run_at_ms: None,
        attempts_max: None,
        fails_max: None,
        backoff: None,
        keys,
        labels,
        tags,
        keep_ms: None,
        keep_read_ms: None,
        drop_result: false,
        state: None,
        event: None,
        trace: None,
        after,
        on_dead: _,
        fair_key: None,
        batch: None,
    } = submit
    else {
        return false;
    };
    keys.is_empty() && labels.is_empty() && tags.is_empty() && after.is_empty()
}

pub(super) fn check_limits(submit: &Submit) -> Result<(), Rejection> {
    let check = |field, holds: bool| refuse_if(!holds, Rejection::OutOfRange(field));
    check("id", submit.id.0 > 0 && submit.id.0 < JOB_ID_END)?;
    check("ttr", submit.ttr_ms.is_none_or(|ttr| (1..=TTR_MS_MAX).contains(&ttr)))?;
    check("ttl", submit.ttl_ms.is_none_or(|ttl| ttl > 0))?;
    // All zeros is how events say that a job has no UUID.
    check("uuid", submit.uuid != Some([0; 16]))?;
    check("labels", submit.labels.len() <= LABELS_MAX)?;
    check("keys", submit.keys.len() <= NAMES_MAX)?;
    check("tags", submit.tags.len() <= NAMES_MAX)?;
    let fits = |key: &Bytes| (1..=FAIR_KEY_BYTES_MAX).contains(&key.len());
    check("fair key", submit.fair_key.as_ref().is_none_or(fits))?;
    check("state", state_fits(submit.state.as_ref()))?;
    check("event", event_fits(submit.event.as_ref()))
}

pub(super) fn persist(
    cx: &mut Context<'_>,
    id: JobId,
    payload: &BytesRef,
    keep_ms: Option<u64>,
) -> Decided {
    let mut image = cx.state.image(id).ok_or(Rejection::NotFound)?;
    if !image.foreground {
        return Ok(());
    }
    image.foreground = false;
    image.payload = Some(payload.clone());
    image.options_mut().keep_ms = keep_ms;
    image.options = image.options.filter(|options| !options.is_none());
    image.revision = image.revision.wrapping_add(1);
    // A record has no room for it: results are logged beside events, and this one was not.
    let in_memory = |outcome: &&mut Box<Outcome>| {
        outcome.bytes.as_ref().is_some_and(|result| result.inline.is_some())
    };
    if let Some(outcome) = image.outcome.as_mut().filter(in_memory) {
        outcome.leave_out_result("it was in memory only");
    }
    cx.emit(Event::Persisted(image), true);
    Ok(())
}
