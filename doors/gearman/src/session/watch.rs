//! Answers about the jobs that a client waits for: their news and their ends.

use spindle_core::JobId;
use spindle_core::job::{JobImage, Outcome, Status};
use spindle_engine::{Answer, Flow, News, Outbox, Ticket};

use super::{GearmanSession, reply};
use crate::wire::Response;

/// With more bytes than this unsent, WORK_STATUS is dropped: a later one replaces it.
const NEWS_BYTES_MAX: usize = 1024 * 1024;
/// With more bytes than this unsent when further WORK_DATA or WORK_WARNING comes, the client has
/// stopped reading: it is cut off, so that a slow reader of a fast worker does not fill the memory.
const UNREAD_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The codes of failures that clients get as a WORK_FAIL. All but the first are the engine's own.
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

/// The code of a failure a worker ended with WORK_FAIL.
pub(super) const FAILED_CODE: &[u8] = b"work_fail";
/// The code of a failure a worker ended with WORK_EXCEPTION.
pub(super) const EXCEPTION_CODE: &[u8] = b"work_exception";

/// Whether a worker said something about a failure. Gearman's WORK_FAIL carries no text, and
/// neither does the end of a job by the server; a result that a worker of another door gave with
/// its failure is an exception, even if it is empty.
fn is_exception(outcome: &Outcome) -> bool {
    let has_bytes = outcome.bytes.as_ref().is_some_and(|bytes| bytes.len > 0);
    has_bytes || !WORDLESS.contains(&&outcome.code[..])
}

impl GearmanSession {
    /// An answer to a watch.
    pub(super) fn watched(&mut self, ticket: Ticket, answer: Answer, out: &mut Outbox) -> Flow {
        match answer {
            Answer::Reported { job, news, .. } => return self.send_news(job, &news, out),
            Answer::Ended { image, streamed_bytes } => {
                self.watches.remove(&ticket);
                self.send_end(&image, streamed_bytes as usize, out);
            }
            Answer::Gone(job) => {
                self.watches.remove(&ticket);
                let handle = self.common.handles.handle(job.0);
                reply(out, Response::WorkFail { handle: handle.as_bytes() });
            }
            _ => {}
        }
        Flow::Continue
    }

    fn send_news(&self, job: JobId, news: &News, out: &mut Outbox) -> Flow {
        let handle = self.common.handles.handle(job.0);
        let handle = handle.as_bytes();
        let unsent = out.pending_bytes();
        match news {
            News::Progress { .. } if unsent > NEWS_BYTES_MAX => {}
            News::Progress { numerator, denominator, .. } => {
                reply(out, Response::WorkStatus { handle, numerator, denominator });
            }
            News::Data(_) | News::Warning(_) if unsent > UNREAD_BYTES_MAX => {
                let connection = self.caller.connection.0;
                tracing::warn!(connection, "cut off a client that does not read its jobs' data");
                return Flow::Abort;
            }
            News::Data(data) => reply(out, Response::WorkData { handle, data }),
            News::Warning(data) => reply(out, Response::WorkWarning { handle, data }),
        }
        Flow::Continue
    }

    fn send_end(&self, image: &JobImage, streamed_bytes: usize, out: &mut Outbox) {
        let handle = self.common.handles.handle(image.id);
        let handle = handle.as_bytes();
        let outcome = image.outcome.clone().unwrap_or_default();
        let succeeded = image.status() == Status::Done;
        let has_words = succeeded || (self.wants_exceptions && is_exception(&outcome));
        if !has_words {
            return reply(out, Response::WorkFail { handle });
        }
        match self.engine.jobs().result(image) {
            Ok(bytes) => {
                let bytes = out.open(bytes);
                let end = bytes.get(streamed_bytes..).unwrap_or_default();
                let response = match succeeded {
                    true => Response::WorkComplete { handle, result: end },
                    false => Response::WorkException { handle, data: &bytes },
                };
                reply(out, response);
            }
            Err(error) => {
                tracing::error!("the result of job {} cannot be read: {error}", image.id);
                reply(out, Response::WorkFail { handle });
            }
        }
    }
}
