//! Schedules: put, removed, fired.

use prost::Message as _;

use crate::command::{FireSchedule, Occasion, SetSchedule};
use crate::decide::{Context, Decided, check_place_of, finish, refuse_if, submit};
use crate::event::{Event, ScheduleFired, ScheduleRemoved, ScheduleSet};
use crate::job::JobId;
use crate::payload::{BytesRef, Type};
use crate::queue::QUEUE_NAME_BYTES_MAX;
use crate::rejection::Rejection;
use crate::schedule::{
    JITTER_MS_MAX, MADE_UP_MAX, MISSED_AFTER_MS, Missed, Occurrence, Outcome, Overlap, Progress,
    SCHEDULE_NAME_BYTES_MAX, SCHEDULE_PAYLOAD_BYTES_MAX, SCHEDULE_TEXT_BYTES_MAX,
    SCHEDULES_BYTES_MAX, SCHEDULES_MAX, Schedule,
};
use crate::state::{ScheduleView, State};

/// What becomes of a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    /// A job comes, and this one goes before it.
    Submit { replaces: Option<u64> },
    /// None comes.
    Pass(Outcome),
}

pub(super) fn set(cx: &mut Context<'_>, set: &SetSchedule) -> Decided {
    let SetSchedule { schedule, next } = set;
    check(cx, schedule)?;
    let known = cx.state.schedule(&schedule.name);
    let queue = &schedule.job.queue;
    // A schedule that is here may be changed even while its queue is leaving.
    if known.is_none_or(|known| known.schedule.job.queue != *queue) {
        check_place_of(cx.state, queue, false)?;
    }
    let is_too_many = known.is_none() && cx.state.schedules_count() >= SCHEDULES_MAX;
    refuse_if(is_too_many, Rejection::OutOfRange("the number of schedules"))?;
    let before = known.map_or(0, |known| known.schedule.encoded_len() as u64);
    let bytes = cx.state.schedules_bytes() - before + schedule.encoded_len() as u64;
    refuse_if(bytes > SCHEDULES_BYTES_MAX, Rejection::OutOfRange("the bytes of all schedules"))?;
    let waits = schedule.overlap() == Overlap::QueueOne;
    let kept = known.map(|known| known.progress.clone()).unwrap_or_default();
    let progress = Progress {
        revision: cx.state.server().schedules_revision + 1,
        next: *next,
        pending_ms: kept.pending_ms.filter(|_| waits),
        made_up: 0,
        ..kept
    };
    emit_set(cx, schedule, &progress, true);
    Ok(())
}

fn check(cx: &Context<'_>, schedule: &Schedule) -> Decided {
    let check = |what, holds: bool| refuse_if(!holds, Rejection::OutOfRange(what));
    let job = &schedule.job;
    let all = schedule.missed() == Missed::All;
    check("schedule name", (1..=SCHEDULE_NAME_BYTES_MAX).contains(&schedule.name.len()))?;
    check("schedule expression", schedule.expression.len() <= SCHEDULE_TEXT_BYTES_MAX)?;
    check("schedule zone", schedule.zone.len() <= SCHEDULE_TEXT_BYTES_MAX)?;
    check("jitter", schedule.jitter_ms <= JITTER_MS_MAX)?;
    check("missed_max", !all || (1..=MADE_UP_MAX).contains(&schedule.missed_max))?;
    check("queue name", (1..=QUEUE_NAME_BYTES_MAX).contains(&job.queue.len()))?;
    check("payload", job.payload.len() <= SCHEDULE_PAYLOAD_BYTES_MAX)?;
    let any_id = JobId(cx.state.server().ids_until.max(1));
    submit::check_limits(&job.submit(&schedule.name, any_id, BytesRef::empty(Type::Bytes)))
}

fn emit_set(cx: &mut Context<'_>, schedule: &Schedule, progress: &Progress, logged: bool) {
    let schedule = Some(Box::new(schedule.clone()));
    let progress = Some(Box::new(progress.clone()));
    cx.emit(Event::ScheduleSet(ScheduleSet { schedule, progress }), logged);
}

pub(super) fn remove(cx: &mut Context<'_>, name: &str) -> Decided {
    cx.state.schedule(name).ok_or(Rejection::NoSchedule)?;
    cx.emit(Event::ScheduleRemoved(ScheduleRemoved { name: name.to_owned() }), true);
    Ok(())
}

/// The job and the event that moves the schedule on are decided together, and stand in one record.
pub(super) fn fire(cx: &mut Context<'_>, fire: &FireSchedule) -> Decided {
    let known = cx.state.schedule(&fire.name).ok_or(Rejection::NoSchedule)?;
    let verdict = verdict(cx.state, known, fire, cx.now_ms)?;
    let mut progress = known.progress.clone();
    advance(&mut progress, known.schedule, fire, verdict, cx.now_ms);
    let mut reason = String::new();
    let outcome = match verdict {
        Verdict::Pass(outcome) => outcome,
        Verdict::Submit { replaces } => match submit_job(cx, fire, replaces) {
            Ok(()) => {
                progress.last_job = Some(fire.job.id.0);
                progress.submitted += 1;
                Outcome::Submitted
            }
            // A person hears of it at once.
            Err(rejection) if fire.occasion == Occasion::Now => return Err(rejection),
            // With other labels, or another id, it may be accepted.
            Err(again @ (Rejection::StaleConstraints | Rejection::IdNotReserved)) => {
                return Err(again);
            }
            Err(rejection) => {
                cx.out.events.clear();
                reason = rejection.to_string();
                Outcome::Refused
            }
        },
    };
    let (due_ms, at_ms) = (fire.due_ms, cx.now_ms);
    progress.last = Some(Occurrence { due_ms, at_ms, outcome: outcome as i32, reason });
    let fired = ScheduleFired { name: fire.name.clone(), progress: Some(Box::new(progress)) };
    cx.emit(Event::ScheduleFired(fired), !cx.state.faults().firing_not_logged);
    Ok(())
}

fn submit_job(cx: &mut Context<'_>, fire: &FireSchedule, replaces: Option<u64>) -> Decided {
    if let Some(id) = replaces {
        finish::cancel(cx, JobId(id))?;
    }
    submit::submit_after(cx, &fire.job, replaces.as_slice())
}

impl State {
    /// Whether a job comes if this command is decided now; why it is refused, if it is.
    pub fn fires(&self, fire: &FireSchedule, now_ms: u64) -> Result<bool, Rejection> {
        let known = self.schedule(&fire.name).ok_or(Rejection::NoSchedule)?;
        let verdict = verdict(self, known, fire, now_ms)?;
        Ok(matches!(verdict, Verdict::Submit { .. }))
    }
}

fn verdict(
    state: &State,
    known: ScheduleView<'_>,
    fire: &FireSchedule,
    now_ms: u64,
) -> Result<Verdict, Rejection> {
    let ScheduleView { schedule, progress } = known;
    if fire.occasion == Occasion::Now {
        return Ok(Verdict::Submit { replaces: None });
    }
    refuse_if(fire.revision != progress.revision, Rejection::Stale)?;
    refuse_if(schedule.paused, Rejection::NotDue)?;
    let unfinished = progress.last_job.filter(|id| state.is_unfinished(JobId(*id)));
    if fire.occasion == Occasion::Pending {
        refuse_if(progress.pending_ms != Some(fire.due_ms), Rejection::Stale)?;
        refuse_if(unfinished.is_some(), Rejection::NotDue)?;
        return Ok(Verdict::Submit { replaces: None });
    }
    let next = progress.next.ok_or(Rejection::Stale)?;
    refuse_if(next.due_ms != fire.due_ms, Rejection::Stale)?;
    refuse_if(next.fire_ms > now_ms, Rejection::NotDue)?;
    if is_missed(next.fire_ms, now_ms) && !makes_up(schedule, progress) {
        return Ok(Verdict::Pass(Outcome::Missed));
    }
    Ok(match (schedule.overlap(), unfinished) {
        (Overlap::Skip, Some(_)) => Verdict::Pass(Outcome::Overlapped),
        (Overlap::QueueOne, Some(_)) => Verdict::Pass(Outcome::Pending),
        (Overlap::Replace, replaces) => Verdict::Submit { replaces },
        (Overlap::Allow, _) | (_, None) => Verdict::Submit { replaces: None },
    })
}

fn is_missed(fire_ms: u64, now_ms: u64) -> bool {
    now_ms.saturating_sub(fire_ms) > MISSED_AFTER_MS
}

fn makes_up(schedule: &Schedule, progress: &Progress) -> bool {
    match schedule.missed() {
        Missed::Skip => false,
        Missed::Once => true,
        Missed::All => progress.made_up < schedule.missed_max,
    }
}

/// Where the schedule stands after this time.
fn advance(
    progress: &mut Progress,
    schedule: &Schedule,
    fire: &FireSchedule,
    verdict: Verdict,
    now_ms: u64,
) {
    let (following, resumed) = match fire.occasion {
        Occasion::Now => return,
        Occasion::Pending => {
            progress.pending_ms = None;
            return;
        }
        Occasion::Due { following, resumed } => (following, resumed),
    };
    let missed = progress.next.is_some_and(|next| is_missed(next.fire_ms, now_ms));
    if verdict == Verdict::Pass(Outcome::Pending) {
        // One comes, for the first of them.
        progress.pending_ms = progress.pending_ms.or(Some(fire.due_ms));
    }
    let one_by_one = missed && schedule.missed() == Missed::All && makes_up(schedule, progress);
    progress.made_up = if one_by_one { progress.made_up + 1 } else { 0 };
    progress.next = if missed && !one_by_one { resumed } else { following };
}

/// Appends a schedule again.
pub(super) fn compact(cx: &mut Context<'_>, name: &str) -> Decided {
    let known = cx.state.schedule(name).ok_or(Rejection::NoSchedule)?;
    let logged = !cx.state.faults().schedule_not_compacted;
    emit_set(cx, known.schedule, known.progress, logged);
    Ok(())
}
