//! How attempts and jobs end.

use bytes::Bytes;
use spindle_core::command::Finish;
use spindle_core::job::{Attempt, Cause, Origin, Outcome, Words};
use spindle_core::{JobId, JobImage, Status};

use super::apply::door_of;
use super::{Model, goes_to_the_tail, waiting};

impl Model {
    pub(crate) fn apply_finish(&mut self, finish: &Finish, now_ms: u64) {
        let id = finish.claim.id().0;
        let outcome = Outcome {
            success: finish.success,
            bytes: finish.result.clone(),
            message: finish.message.clone(),
            error: finish.error.clone(),
            code: finish.code.clone(),
            worker_finished_at: finish.worker_finished_at.clone(),
            error_kind: 0,
        };
        if finish.success {
            self.end_attempt(id, Cause::Completed, None, now_ms);
            self.end_job(id, Status::Done, Some(outcome), now_ms);
            return;
        }
        let by_lightjq = door_of(&self.jobs[&id]) == Some(Origin::Lightjq);
        let texts = texts_kept(&outcome, by_lightjq);
        self.end_attempt(id, Cause::Failed, texts, now_ms);
        self.change(id).fails += 1;
        let job = &self.jobs[&id];
        let tries = self.tries(job);
        let (attempts, fails) = (job.attempts, job.fails);
        if !finish.retry || tries.are_used_up(attempts, fails) {
            self.end_job(id, Status::Dead, Some(outcome), now_ms);
            return;
        }
        let wait_ms = tries.backoff.wait_ms(JobId(id), fails);
        self.change(id).outcome = Some(Box::new(outcome));
        self.wait_again(id, false, wait_ms, now_ms);
    }

    /// A job waits again, at its old place or at the tail; never before the time it may run, and a
    /// parked job stays parked.
    fn wait_again(&mut self, id: u64, tail: bool, wait_ms: u64, now_ms: u64) {
        let order = self.jobs[&id].order;
        let waits_anew = tail && order != 0 && self.ages(&self.jobs[&id].queue);
        let order = if tail || order == 0 { self.take_order() } else { order };
        let job = self.revise(id);
        if waits_anew {
            job.options_mut().waits_since_ms = Some(now_ms);
        }
        job.order = order;
        let backoff_ends_ms = (wait_ms > 0).then(|| now_ms.saturating_add(wait_ms));
        let asked_for_ms = job.options().run_at_ms.filter(|at| *at > now_ms);
        let run_at_ms = backoff_ends_ms.max(asked_for_ms);
        job.options_mut().run_at_ms = run_at_ms;
        let blocked = !job.options().open().is_empty();
        job.status = waiting(job.status() == Status::Parked, blocked, run_at_ms.is_some()) as i32;
    }

    /// Whether a job's maximum was lowered while it waited, so that one more lease would exceed it.
    pub fn is_spent(&self, id: JobId) -> bool {
        self.job(id).is_some_and(|job| {
            let max = self.tries(job).attempts_max;
            max > 0 && job.attempts >= max
        })
    }

    /// A spent job that was about to be leased is dead instead.
    pub fn end_spent(&mut self, id: JobId, now_ms: u64) {
        let job = &self.jobs[&id.0];
        let (had, max) = (job.attempts, self.tries(job).attempts_max);
        let why = format!("it had {had} attempts, and may have no more than {max} now");
        let outcome = Outcome { code: "limit".into(), message: why.into(), ..last_result(job) };
        self.end_job(id.0, Status::Dead, Some(outcome), now_ms);
        self.settle_turns();
        self.count_batches(now_ms);
    }

    /// A lease ended without a result: the job waits again if it has attempts left.
    pub(crate) fn give_back(&mut self, id: u64, cause: Cause, now_ms: u64) {
        let lost = matches!(cause, Cause::Timeout | Cause::HolderGone | Cause::Restarted);
        let tail = lost && door_of(&self.jobs[&id]).is_some_and(goes_to_the_tail);
        self.end_attempt(id, cause, None, now_ms);
        let job = &self.jobs[&id];
        let tries = self.tries(job);
        if tries.attempts_max > 0 && job.attempts >= tries.attempts_max {
            let (code, how) = match cause {
                Cause::Timeout => ("timeout", "the last one timed out"),
                Cause::Released => ("released", "the last worker gave the job back"),
                _ => ("worker_lost", "the last worker was lost"),
            };
            let why = format!("{} of {} attempts: {how}", job.attempts, tries.attempts_max);
            let outcome = Outcome { code: code.into(), message: why.into(), ..last_result(job) };
            self.end_job(id, Status::Dead, Some(outcome), now_ms);
            return;
        }
        // A job that a restart interrupted did not fail: it waits for no backoff.
        let waits = matches!(cause, Cause::Timeout | Cause::HolderGone);
        let wait_ms = tries.backoff.wait_ms(JobId(id), job.attempts.max(1));
        self.wait_again(id, tail, if waits { wait_ms } else { 0 }, now_ms);
    }

    /// The server ends a job.
    pub(crate) fn kill(&mut self, id: u64, cause: Cause, now_ms: u64) {
        let code = if cause == Cause::Cancelled { "cancelled" } else { "payload damaged" };
        let outcome = Outcome { code: code.into(), ..Outcome::default() };
        self.end_attempt(id, cause, None, now_ms);
        self.end_job(id, Status::Dead, Some(outcome), now_ms);
    }

    /// Ends a job's lease, if it has one: the attempt goes to its history.
    pub(crate) fn end_attempt(&mut self, id: u64, cause: Cause, words: Option<Words>, now_ms: u64) {
        let job = self.change(id);
        if let Some(lease) = job.lease.take() {
            job.history.push(Attempt {
                attempt: job.attempts,
                started_ms: lease.started_ms,
                ended_ms: now_ms,
                cause: cause as i32,
                door: lease.door,
                worker: lease.worker,
                words: words.map(Box::new),
            });
        }
    }

    /// Done or dead: kept for a while, unless it lived in memory only.
    pub(super) fn end_job(
        &mut self,
        id: u64,
        status: Status,
        outcome: Option<Outcome>,
        now_ms: u64,
    ) {
        if self.jobs[&id].foreground {
            self.jobs.remove(&id);
            return;
        }
        let job = &self.jobs[&id];
        let queue = self.settings(&job.queue);
        let keep_ms = if status == Status::Done {
            job.options().keep_ms.or(queue.keep_ms).or(self
                .defaults
                .policies
                .of(job.origin())
                .keep_ms)
        } else {
            Some(queue.keep_dead_ms.unwrap_or(self.defaults.keep_dead_ms))
        };
        let kept = keep_ms.map(|keep| now_ms.saturating_add(keep));
        let job = self.revise(id);
        job.status = status as i32;
        if let Some(after) = job.options.as_mut().and_then(|options| options.after.as_mut()) {
            after.open.clear();
        }
        job.finished_ms = Some(now_ms);
        let until_ms = match (kept, job.expires_ms()) {
            (Some(kept), Some(expires)) => Some(kept.min(expires)),
            (kept, expires) => kept.or(expires),
        };
        // A job that should have gone before it ended, while no server ran, is due at once: the
        // core stores only the second in which it ended.
        job.kept_until_ms = until_ms.map(|until| until.max(now_ms / 1000 * 1000));
        job.outcome = outcome.map(Box::new);
        if job.options().drop_result
            && let Some(outcome) = &mut job.outcome
        {
            outcome.bytes = None;
        }
        if status == Status::Done {
            self.were_done.insert(id);
        }
    }
}

/// A job that is logged from now on keeps of its last try what the history keeps, if the result is
/// in memory only.
pub(super) fn leave_out_result(job: &mut JobImage) {
    let by_lightjq = door_of(job) == Some(Origin::Lightjq);
    let Some(outcome) = job.outcome.as_deref_mut() else { return };
    let Some(result) = outcome.bytes.take_if(|result| result.inline.is_some()) else { return };
    let Words { message, error, code } = texts_kept(outcome, by_lightjq).unwrap_or_default();
    let said = String::from_utf8_lossy(&message);
    let why = format!("its result of {} bytes was not kept: it was in memory only", result.len);
    let message = if said.is_empty() { why } else { format!("{said}; {why}") };
    (outcome.message, outcome.error, outcome.code) = (message.into(), error, code);
    outcome.worker_finished_at = Bytes::new();
}

/// What the history has of what the worker of a failed attempt reported.
fn texts_kept(outcome: &Outcome, by_lightjq: bool) -> Option<Words> {
    let error = match outcome.error.len() {
        257.. if by_lightjq => Bytes::new(),
        _ => beginning(&outcome.error, 256),
    };
    let words = Words {
        message: beginning(&outcome.message, 256),
        error,
        code: beginning(&outcome.code, 64),
    };
    (words != Words::default()).then_some(words)
}

/// At most `max` bytes, cut at the beginning of a letter. If none begins nearby the bytes are not
/// text, and are cut anywhere.
fn beginning(text: &Bytes, max: usize) -> Bytes {
    let begins_letter = |at: &usize| text.get(*at).is_none_or(|byte| !(0x80..0xc0).contains(byte));
    let end = (max - 3..=max).rev().find(begins_letter).unwrap_or(max);
    text.slice(..end.min(text.len()))
}

/// A job that ends without a report keeps the last result that a worker reported.
fn last_result(job: &JobImage) -> Outcome {
    let last = job.outcome.as_deref().cloned().unwrap_or_default();
    Outcome { success: false, ..last }
}
