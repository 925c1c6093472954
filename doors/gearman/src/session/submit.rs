//! Submitting jobs.

use spindle_core::job::Origin;
use spindle_core::{BytesRef, JobId, Type, command};
use spindle_engine::{NewJob, Outbox, Payload};

use super::naming::{key_of, reducer_tags};
use super::{GearmanSession, copy_name, refuse, refuse_with, reply};
use crate::wire::{ErrorReply, Priority, Response, Submit, SubmitKind};

impl GearmanSession {
    pub(super) fn submit(&mut self, submit: Submit, out: &mut Outbox) {
        let Some(run_at_ms) = self.run_at_ms(&submit.kind) else {
            return refuse_with(out, ErrorReply::BadSchedule);
        };
        let new = self.new_job(&submit, run_at_ms);
        let watcher = submit.is_foreground().then_some(&self.caller);
        match out.open(self.engine.jobs().submit_or_join(watcher, new)) {
            Ok(joined) => {
                if self.named != submit.function {
                    self.named = copy_name(&submit.function);
                    self.common.registry.lock().note_function(&self.named);
                }
                if let Some(ticket) = joined.watch {
                    self.watches.insert(ticket, self.named.clone());
                }
                let handle = self.common.handles.handle(joined.job.0);
                reply(out, Response::JobCreated { handle: handle.as_bytes() });
            }
            Err(refused) => refuse(out, &refused),
        }
    }

    /// When the job is to run, if not at once; none when its schedule never matches.
    fn run_at_ms(&self, kind: &SubmitKind) -> Option<Option<u64>> {
        match kind {
            SubmitKind::Scheduled(schedule) => {
                schedule.next_after_ms(self.engine.now_ms()).map(Some)
            }
            SubmitKind::Epoch { at_s: 0 } => Some(None),
            SubmitKind::Epoch { at_s } => Some(Some(at_s.saturating_mul(1000))),
            SubmitKind::Foreground(_) | SubmitKind::Background(_) | SubmitKind::Reduce { .. } => {
                Some(None)
            }
        }
    }

    fn new_job(&self, submit: &Submit, run_at_ms: Option<u64>) -> NewJob {
        let payload = BytesRef::empty(Type::Bytes);
        let queue = submit.function.clone();
        let mut job = command::Submit::new(JobId(0), queue, Origin::Gearman, payload);
        job.priority = match submit.priority() {
            Priority::High => 1,
            Priority::Normal => 0,
            Priority::Low => -1,
        };
        job.run_at_ms = run_at_ms;
        job.foreground = submit.is_foreground();
        job.keys = key_of(&submit.function, &submit.unique, &submit.payload).into_iter().collect();
        if let SubmitKind::Reduce { reducer, .. } = &submit.kind {
            job.tags = reducer_tags(reducer);
        }
        NewJob { submit: job, payload: Payload::new(submit.payload.clone(), Type::Bytes) }
    }
}
