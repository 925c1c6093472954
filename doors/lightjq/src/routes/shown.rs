//! A job as LightJQ tells it.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::HeaderName;
use axum::http::request::Parts;
use bytes::Bytes;
use percent_encoding::percent_decode_str;
use spindle_core::job::Outcome;
use spindle_core::payload::Type;
use spindle_core::{Command, JobId, JobImage, Status, address};
use spindle_engine::{FetchError, Gate, JobRef};
use spindle_http::{Answered, Problem, no_job};

use crate::door::LightJq;
use crate::take::as_msgpack;
use crate::wire::{JobShown, Pack, check};
use crate::worker_id::WorkerId;

/// A result may be carried to a newer record while it is read: then the job is looked up again.
const TRIES: usize = 8;

/// The job a path names.
pub(crate) struct JobPath(pub JobId);

impl FromRequestParts<LightJq> for JobPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &LightJq) -> Answered<Self> {
        let rest = parts.uri.path().strip_prefix("/job/").unwrap_or_default();
        let segment = percent_decode_str(rest.split('/').next().unwrap_or_default());
        let digits: Vec<u8> = segment.collect();
        address::from_decimal(&digits).map(JobPath).ok_or_else(no_job)
    }
}

/// Whether a request asks on behalf of who runs it. A web page of somebody else can make a browser
/// ask, though it never sees the answer: then nobody has read a result.
pub(crate) struct Reads(pub bool);

/// What browsers say about where a request comes from.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

impl FromRequestParts<LightJq> for Reads {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &LightJq) -> Result<Self, Infallible> {
        let mut sites = parts.headers.get_all(SEC_FETCH_SITE).iter();
        Ok(Reads(sites.all(|site| matches!(site.as_bytes(), b"same-origin" | b"none"))))
    }
}

/// A job that was looked up: how it stands, and the body that tells it.
pub(crate) struct Told {
    pub status: Status,
    pub packed: Vec<u8>,
}

/// A job, and its result in MessagePack if it has one.
type Read = (JobImage, Option<Bytes>);

impl LightJq {
    /// A job, once all that is told of it is durable. A result that is told counts as read.
    pub(crate) async fn told(&self, id: JobId, reads: &Reads) -> Answered<Told> {
        let (read, gate) = self.look(id)?;
        self.desk().durable(gate).await;
        let (image, result) = read.ok_or_else(no_job)?;
        if let Some(keep_read_ms) =
            image.options().keep_read_ms.filter(|_| reads.0 && result.is_some())
        {
            let command = Command::ResultRead { id, keep_read_ms };
            // It may be gone by now, or be told again by somebody else: nothing is lost by that.
            let _ = self.desk().call(|engine| engine.execute(&command)).await;
        }
        let status = image.status();
        Ok(Told { status, packed: shown(&image, result).encode() })
    }

    fn look(&self, id: JobId) -> Answered<(Option<Read>, Gate)> {
        let mut tries = 0;
        loop {
            tries += 1;
            let (image, gate) = self.engine().job(JobRef::Id(id))?;
            let Some(image) = image else { return Ok((None, gate)) };
            let place = image.outcome.as_ref().filter(|outcome| outcome.success);
            let Some(place) = place.and_then(|outcome| outcome.bytes.as_ref()) else {
                return Ok((Some((image, None)), gate));
            };
            match self.engine().bytes(place) {
                Ok(bytes) => {
                    let result = as_msgpack(&bytes, place.kind());
                    return Ok((Some((image, Some(result))), gate));
                }
                Err(FetchError::Moved) if tries < TRIES => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn shown(image: &JobImage, result: Option<Bytes>) -> JobShown {
    let status = image.status();
    let failure = image.outcome.as_deref().filter(|outcome| !outcome.success);
    JobShown {
        status: match status {
            Status::Leased => "running",
            Status::Done => "done",
            Status::Dead => "error",
            Status::Scheduled | Status::Ready | Status::Parked if image.attempts == 0 => "queued",
            Status::Scheduled | Status::Ready | Status::Parked => "retrying",
        },
        worker_id: worker_of(image),
        result: result.map(|bytes| bytes.to_vec()),
        error: failure.and_then(|outcome| error_of(image, outcome)),
        message: failure.and_then(message_of),
        retry_count: image.attempts.saturating_sub(1),
    }
}

/// Who has the job, or had it last: a worker's id, or what another door calls its worker.
fn worker_of(image: &JobImage) -> Option<String> {
    let last = image.history.last().map(|attempt| &attempt.worker);
    let worker = image.lease.as_ref().map(|lease| &lease.worker).or(last)?;
    let text = || String::from_utf8_lossy(worker).into_owned();
    let told = WorkerId::of_signature(worker).map_or_else(text, |id| id.to_string());
    (!told.is_empty()).then_some(told)
}

/// What failed said: a MessagePack value from this door's workers, a text from others.
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

/// What was said to people; where nobody said anything, what happened.
fn message_of(outcome: &Outcome) -> Option<String> {
    let said = if outcome.message.is_empty() { &outcome.code } else { &outcome.message };
    (!said.is_empty()).then(|| String::from_utf8_lossy(said).into_owned())
}
