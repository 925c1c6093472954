//! What the client hears of the jobs it waits for.

use bytes::Bytes;
use spindle_core::job::{JobImage, Outcome, Status};
use spindle_core::{JobId, Type};
use spindle_engine::{Answer, FetchError, Flow, Gate, JobRef, News, Outbox, Ticket};

use super::GearmanSession;
use crate::wire::encode;

/// With so much unsent, WORK_STATUS is dropped: the next one tells more.
const NEWS_BYTES_MAX: usize = 1024 * 1024;
/// With so much unsent, a client that further WORK_DATA or WORK_WARNING comes for has stopped
/// reading: it is cut off, so that a slow reader of a fast worker does not fill the memory.
const UNREAD_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The codes of failures that a WORK_FAIL tells. All but the first are the engine's own.
const WORDLESS: [&[u8]; 8] = [
    FAILED_CODE,
    b"timeout",
    b"worker_lost",
    b"released",
    b"cancelled",
    b"payload damaged",
    b"limit",
    b"failed",
];

/// The code of a failure a worker told with WORK_FAIL.
pub(super) const FAILED_CODE: &[u8] = b"work_fail";
/// The code of a failure a worker told with WORK_EXCEPTION.
pub(super) const EXCEPTION_CODE: &[u8] = b"work_exception";

/// Whether a worker said something about a failure. Gearman's WORK_FAIL has nothing to say, nor has
/// the server when it ends a job; what another door's worker gave as the failed result is an
/// exception, be it empty.
fn is_exception(outcome: &Outcome) -> bool {
    let has_bytes = outcome.bytes.as_ref().is_some_and(|bytes| bytes.len > 0);
    has_bytes || !WORDLESS.contains(&&outcome.code[..])
}

impl GearmanSession {
    /// An answer to a watch.
    pub(super) fn watched(
        &mut self,
        ticket: Ticket,
        answer: Answer,
        gate: Gate,
        out: &mut Outbox,
    ) -> Flow {
        match answer {
            Answer::Told { job, news } => return self.tell_news(job, &news, gate, out),
            Answer::Ended { image, streamed_bytes } => {
                self.watches.remove(&ticket);
                self.tell_end(&image, streamed_bytes as usize, gate, out);
            }
            Answer::Gone(job) => {
                self.watches.remove(&ticket);
                let handle = self.common.handles.handle(job.0);
                out.put(gate, |out| encode::work_fail(out, handle.as_bytes()));
            }
            _ => {}
        }
        Flow::Continue
    }

    fn tell_news(&self, job: JobId, news: &News, gate: Gate, out: &mut Outbox) -> Flow {
        let handle = self.common.handles.handle(job.0);
        let handle = handle.as_bytes();
        let unsent = out.pending_bytes();
        match news {
            News::Progress { .. } if unsent > NEWS_BYTES_MAX => {}
            News::Progress { numerator, denominator, .. } => {
                out.put(gate, |out| encode::work_status(out, handle, numerator, denominator));
            }
            News::Data(_) | News::Warning(_) if unsent > UNREAD_BYTES_MAX => {
                let connection = self.caller.connection.0;
                tracing::warn!(connection, "cut off a client that does not read its jobs' data");
                return Flow::Abort;
            }
            News::Data(data) => out.put(gate, |out| encode::work_data(out, handle, data)),
            News::Warning(data) => out.put(gate, |out| encode::work_warning(out, handle, data)),
        }
        Flow::Continue
    }

    fn tell_end(&self, image: &JobImage, streamed_bytes: usize, gate: Gate, out: &mut Outbox) {
        let handle = self.common.handles.handle(image.id);
        let handle = handle.as_bytes();
        let outcome = image.outcome.clone().unwrap_or_default();
        let succeeded = image.status() == Status::Done;
        let has_words = succeeded || (self.wants_exceptions && is_exception(&outcome));
        if !has_words {
            out.put(gate, |out| encode::work_fail(out, handle));
            return;
        }
        match self.result(image, &outcome) {
            Ok((bytes, gate_then)) => {
                let gate = gate.max(gate_then);
                let end = bytes.get(streamed_bytes..).unwrap_or_default();
                out.put(gate, |out| match succeeded {
                    true => encode::work_complete(out, handle, end),
                    false => encode::work_exception(out, handle, &bytes),
                });
            }
            Err(error) => {
                tracing::error!("the result of job {} cannot be read: {error}", image.id);
                out.put(gate, |out| encode::work_fail(out, handle));
            }
        }
    }

    /// The bytes of a result, wherever they are by now.
    fn result(&self, image: &JobImage, outcome: &Outcome) -> Result<(Bytes, Gate), FetchError> {
        let empty = spindle_core::BytesRef::empty(Type::Bytes);
        match self.engine.bytes(outcome.bytes.as_ref().unwrap_or(&empty)) {
            // Carried to a newer record since the job ended: that place is in its image now.
            Err(FetchError::Moved) => {
                let (found, gate) = self.engine.job(JobRef::Id(JobId(image.id)))?;
                let newer = found.and_then(|image| image.outcome).ok_or(FetchError::Moved)?;
                let bytes = self.engine.bytes(newer.bytes.as_ref().unwrap_or(&empty))?;
                Ok((bytes, gate))
            }
            read => read.map(|bytes| (bytes, Gate::OPEN)),
        }
    }
}
