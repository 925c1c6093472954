//! A job as LightJQ shows it.

use bytes::Bytes;
use spindle_core::job::Outcome;
use spindle_core::payload::Type;
use spindle_core::{BytesRef, Command, JobId, JobImage, Status};
use spindle_engine::{FetchError, Gated, JobRef};
use spindle_http::{Answered, no_job, work_on_bytes};

use crate::door::LightJq;
use crate::extract::Reads;
use crate::take::as_msgpack;
use crate::wire::{JobShown, Pack, check};
use crate::worker_id::WorkerId;

/// A job that was looked up: its status, and the body that shows it.
pub(crate) struct JobAnswer {
    pub status: Status,
    pub packed: Vec<u8>,
}

impl LightJq {
    /// A job, once all that is shown of it is durable. A result that is shown counts as read.
    pub(crate) async fn job_answer(&self, id: JobId, reads: &Reads) -> Answered<JobAnswer> {
        let image = self.bridge().durable(self.engine().jobs().get(JobRef::Id(id))?).await;
        let image = image.ok_or_else(no_job)?;
        let status = image.status();
        let result = result_place(&image).map(|place| (place.len as usize, place.kind()));
        let keep_read_ms = image.options().keep_read_ms.filter(|_| reads.0 && result.is_some());
        let (bytes, engine) = (result.map_or(0, |(bytes, _)| bytes), self.engine().clone());
        let packed = work_on_bytes(bytes, move || {
            let Some((_, kind)) = result else { return Ok(Gated::open(shown(&image, None))) };
            let read = engine.jobs().result(&image)?;
            Ok::<_, FetchError>(read.map(|bytes| shown(&image, Some(as_msgpack(&bytes, kind)))))
        });
        let packed = self.bridge().durable(packed.await?).await;
        if let Some(keep_read_ms) = keep_read_ms {
            let command = Command::ResultRead { id, keep_read_ms };
            // It may be gone by now, or another client may have read it; neither matters.
            let read = self.bridge().call(|engine| engine.jobs().execute(&command)).await;
            read.without_waiting("a crash that forgets it keeps the result longer").ok();
        }
        Ok(JobAnswer { status, packed })
    }
}

/// Where the result is, if the job is done and has one.
fn result_place(image: &JobImage) -> Option<&BytesRef> {
    let outcome = image.outcome.as_ref().filter(|outcome| outcome.success);
    outcome.and_then(|outcome| outcome.bytes.as_ref())
}

/// The body that shows a job, with its result in MessagePack.
fn shown(image: &JobImage, result: Option<Bytes>) -> Vec<u8> {
    let status = image.status();
    let failure = image.outcome.as_deref().filter(|outcome| !outcome.success);
    let shown = JobShown {
        status: match status {
            Status::Leased => "running",
            Status::Done => "done",
            Status::Dead => "error",
            _ if image.attempts == 0 => "queued",
            Status::Scheduled | Status::Ready | Status::Parked | Status::Blocked => "retrying",
        },
        worker_id: worker_of(image),
        result: result.map(|bytes| bytes.to_vec()),
        error: failure.and_then(|outcome| error_of(image, outcome)),
        message: failure.and_then(message_of),
        retry_count: image.attempts.saturating_sub(1),
    };
    shown.encode()
}

/// Who has the job, or had it last: a worker's id, or what another door calls its worker.
fn worker_of(image: &JobImage) -> Option<String> {
    let last = image.history.last().map(|attempt| &attempt.worker);
    let worker = image.lease.as_ref().map(|lease| &lease.worker).or(last)?;
    let text = || String::from_utf8_lossy(worker).into_owned();
    let shown = WorkerId::of_signature(worker).map_or_else(text, |id| id.to_string());
    (!shown.is_empty()).then_some(shown)
}

/// The error of a failure: a MessagePack value from this door's workers, a text from others.
fn error_of(image: &JobImage, outcome: &Outcome) -> Option<Vec<u8>> {
    if outcome.error.is_empty() {
        return None;
    }
    if image.error_type() == Type::Msgpack && check(&outcome.error).is_ok() {
        return Some(outcome.error.to_vec());
    }
    let mut pack = Pack::new();
    pack.text(&String::from_utf8_lossy(&outcome.error));
    Some(pack.into_bytes())
}

/// The message for people; where the worker gave none, what happened.
fn message_of(outcome: &Outcome) -> Option<String> {
    let said = if outcome.message.is_empty() { &outcome.code } else { &outcome.message };
    (!said.is_empty()).then(|| String::from_utf8_lossy(said).into_owned())
}
