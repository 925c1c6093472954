//! The spans of a job that belongs to a trace: its submit, its leases, its attempts.
//!
//! They are siblings below the submit, whose span the job keeps as its parent. The ids of attempts
//! are computed, so that nothing is kept from a lease to its end, over restarts too.

use std::sync::Arc;
use std::time::SystemTime;

use spindle_core::command::Submit;
use spindle_core::job::{Attempt, Cause, TraceParent};
use spindle_core::state::JobView;
use spindle_core::{Event, JobId};

use crate::command_log::ShownName;
use crate::inner::Inner;
use crate::spans::{Span, SpanCounts, SpanKind, SpanSink, id_of_job_span, time};
use crate::views::Observe;

impl Observe<'_> {
    /// Where spans go, if they are taken at all.
    pub fn span_sink(&self) -> Option<Arc<dyn SpanSink>> {
        self.0.shared.inner.lock().options.spans.clone()
    }

    /// What became of spans.
    pub fn spans(&self) -> SpanCounts {
        self.span_sink().map_or_else(SpanCounts::default, |spans| spans.counts())
    }
}

/// A submit under way that belongs to a trace.
pub(crate) struct SubmitSpan {
    spans: Arc<dyn SpanSink>,
    /// The span of the request.
    parent: u64,
    own: TraceParent,
    began: SystemTime,
}

impl Inner {
    /// Begins the span of a submit, and makes it the parent of what its job will do.
    pub fn begin_submit_span(&self, submit: &mut Submit) -> Option<SubmitSpan> {
        let spans = self.options.spans.as_ref()?;
        let trace = submit.trace.as_deref_mut().filter(|trace| trace.is_sampled())?;
        let parent = trace.span;
        *trace = trace.with_span(id_of_job_span(*trace, submit.id.0, 0));
        Some(SubmitSpan { spans: spans.clone(), parent, own: *trace, began: SystemTime::now() })
    }

    /// A job that belongs to a trace is given out. Returns the trace as its worker gets it: with the
    /// span of the attempt, if that will be exported.
    pub fn lease_span(&self, job: &JobView<'_>, attempt: u32) -> Option<TraceParent> {
        let trace = job.options().trace.as_deref().copied()?;
        let Some(spans) = self.options.spans.as_ref().filter(|_| trace.is_sampled()) else {
            return Some(trace);
        };
        let last_end_ms = job.history().last().map_or(0, |attempt| attempt.ended_ms);
        let since_ms = job.created_ms().max(job.options().scheduled_ms.unwrap_or(0));
        let own = crate::spans::new_trace(Some(trace));
        let mut span = Span::new("lease".to_owned(), SpanKind::Consumer, own, Some(trace.span));
        span.began = time(since_ms.max(last_end_ms)).min(span.ended);
        describe(&mut span, job.id(), job.queue(), attempt);
        spans.record(span);
        Some(trace.with_span(id_of_job_span(trace, job.id().0, attempt)))
    }

    /// An event is about to be folded: if it ends an attempt of a job that belongs to a trace, that
    /// is a span.
    pub fn note_attempt_end(&self, event: &Event) {
        let Some(spans) = &self.options.spans else { return };
        match event {
            Event::Requeued(requeued) => self.end_attempt(spans, requeued.id, requeued.cause()),
            Event::Deleted(deleted) => self.end_attempt(spans, deleted.id, Cause::Deleted),
            Event::Finished(image) => {
                let cause = image.history.last().map_or(Cause::Cancelled, Attempt::cause);
                self.end_attempt(spans, image.id, cause);
            }
            Event::Gone(gone) => {
                gone.ids.iter().for_each(|id| self.end_attempt(spans, *id, gone.cause()));
            }
            _ => {}
        }
    }

    fn end_attempt(&self, spans: &Arc<dyn SpanSink>, id: u64, cause: Cause) {
        let Some(job) = self.state.live(JobId(id)) else { return };
        let trace = job.options().trace.as_deref().filter(|trace| trace.is_sampled());
        // What was undone never came to a worker.
        let (Some(trace), Some(lease)) = (trace, job.lease().filter(|_| cause != Cause::Undone))
        else {
            return;
        };
        let own = trace.with_span(id_of_job_span(*trace, id, job.attempts()));
        let mut span = Span::new("attempt".to_owned(), SpanKind::Consumer, own, Some(trace.span));
        (span.began, span.ended) =
            (time(lease.started_ms), time(self.now_ms.max(lease.started_ms)));
        describe(&mut span, job.id(), job.queue(), job.attempts());
        let outcome = word(cause);
        if !lease.worker.is_empty() {
            span.put("spindle.worker", ShownName::of(&lease.worker).as_str());
        }
        span.put("spindle.outcome", outcome.as_str());
        span.failed = (cause != Cause::Completed).then_some(outcome);
        spans.record(span);
    }
}

impl SubmitSpan {
    /// The submit has succeeded, or been refused.
    pub fn end<T, E: std::fmt::Display>(self, submit: &Submit, submitted: &Result<T, E>) {
        let SubmitSpan { spans, parent, own, began } = self;
        let mut span = Span::new("submit".to_owned(), SpanKind::Producer, own, Some(parent));
        span.began = began;
        describe(&mut span, submit.id, &submit.queue, 0);
        span.failed = submitted.as_ref().err().map(ToString::to_string);
        spans.record(span);
    }
}

fn describe(span: &mut Span, id: JobId, queue: &[u8], attempt: u32) {
    span.put("messaging.system", "spindle");
    span.put("messaging.destination.name", ShownName::of(queue).as_str());
    span.put("messaging.message.id", id.to_string());
    if attempt > 0 {
        span.put("spindle.attempt", i64::from(attempt));
    }
}

/// `HolderGone` is `holder_gone`.
fn word(cause: Cause) -> String {
    let mut word = String::new();
    for letter in format!("{cause:?}").chars() {
        if letter.is_uppercase() && !word.is_empty() {
            word.push('_');
        }
        word.push(letter.to_ascii_lowercase());
    }
    word
}
