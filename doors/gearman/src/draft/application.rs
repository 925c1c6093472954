//! What applications do: create jobs, ask how far they are and how they ended.

use bytes::{BufMut, Bytes, BytesMut};
use spindle_core::address::from_gearman_handle;
use spindle_core::command;
use spindle_core::job::{JobImage, Key, Origin, Outcome, Scope, Status};
use spindle_core::{BytesRef, JobId, Type};
use spindle_engine::{Answer, JobRef, NewJob as EngineJob, News, Outbox, Payload, Ticket};

use super::worker::FAILED_CODE;
use super::{DraftSession, error, refuse, reply};
use crate::wire::draft::{ErrorCode, JobKind, NewJob, Progress, Reply};
use crate::wire::parse_number;

/// The progress of a job that has ended.
const OVER: Progress = Progress { numerator: 1, denominator: 1, remaining_s: 0 };

/// With more bytes than this unsent, progress of a sync job is dropped: a later report replaces it.
const NEWS_BYTES_MAX: usize = 1024 * 1024;

/// The synchronous job this connection waits for.
#[derive(Debug)]
pub(super) struct SyncJob {
    pub ticket: Ticket,
    pub name: Bytes,
    /// When it was asked for.
    since_ms: u64,
}

impl DraftSession {
    // ---- creating ----

    pub(super) fn create(&mut self, job: &NewJob, out: &mut Outbox) {
        let is_sync = job.kind == JobKind::Sync;
        if is_sync && self.sync_job.is_some() {
            error(out, ErrorCode::SyncJobOpen);
            return;
        }
        let watcher = is_sync.then_some(&self.caller);
        match out.open(self.engine.jobs().submit_or_join(watcher, engine_job(job))) {
            Ok(joined) => {
                let since_ms = self.engine.now_ms();
                let name = Bytes::copy_from_slice(&job.name);
                self.common.registry.lock().note_function(&name);
                self.sync_job = match joined.watch {
                    Some(ticket) => Some(SyncJob { ticket, name, since_ms }),
                    None => self.sync_job.take(),
                };
                let handle = match job.kind {
                    JobKind::Handle => {
                        let handle = self.common.handles.handle(joined.job.0);
                        Bytes::copy_from_slice(handle.as_bytes())
                    }
                    JobKind::Sync | JobKind::ThrowAway => Bytes::new(),
                };
                reply(out, &Reply::JobCreated { handle });
            }
            Err(refused) => refuse(out, &refused),
        }
    }

    // ---- asking ----

    pub(super) fn status(&self, handle: &Bytes, out: &mut Outbox) {
        let Some(id) = self.asked(handle, out) else { return };
        if let Some(progress) = out.open(self.engine.waits().progress(JobRef::Id(id))) {
            let [numerator, denominator] =
                [&progress.numerator, &progress.denominator].map(|text| number(text));
            let remaining_s = progress.remaining_s;
            let progress = Progress { numerator, denominator, remaining_s };
            return reply(out, &Reply::JobStatus(progress));
        }
        match out.open(self.engine.jobs().find(JobRef::Id(id))) {
            Some(_) => reply(out, &Reply::JobStatus(OVER)),
            None => error(out, ErrorCode::UnknownJob),
        }
    }

    pub(super) fn completion(&self, handle: &Bytes, out: &mut Outbox) {
        let Some(id) = self.asked(handle, out) else { return };
        match self.engine.jobs().get(JobRef::Id(id)).map(|image| out.open(image)) {
            Ok(Some(image)) if image.status().is_finished() => {
                self.send_end(&image, image.created_ms, out);
            }
            Ok(Some(_)) => {
                let complete = Reply::JobComplete { elapsed_s: 0, code: 0, result: Bytes::new() };
                reply(out, &complete);
            }
            Ok(None) => error(out, ErrorCode::UnknownJob),
            Err(refusal) => {
                tracing::error!("job {id} cannot be read: {refusal}");
                error(out, ErrorCode::Refused);
            }
        }
    }

    /// The job of a handle. While a sync job is open no question is taken: its own packets could
    /// not be distinguished from the answer.
    fn asked(&self, handle: &Bytes, out: &mut Outbox) -> Option<JobId> {
        if self.sync_job.is_some() {
            error(out, ErrorCode::SyncJobOpen);
            return None;
        }
        let id = from_gearman_handle(handle);
        if id.is_none() {
            error(out, ErrorCode::UnknownJob);
        }
        id
    }

    // ---- the sync job ----

    /// News of the sync job, or its end.
    pub(super) fn watched(&mut self, answer: Answer, out: &mut Outbox) {
        match answer {
            Answer::Reported {
                news: News::Progress { numerator, denominator, remaining_s },
                ..
            } if out.pending_bytes() <= NEWS_BYTES_MAX => {
                let (numerator, denominator) = (number(&numerator), number(&denominator));
                let progress = Progress { numerator, denominator, remaining_s };
                reply(out, &Reply::JobStatus(progress));
            }
            Answer::Ended { image, .. } => {
                if let Some(job) = self.sync_job.take() {
                    self.send_end(&image, job.since_ms, out);
                }
            }
            Answer::Gone(_) => {
                if let Some(job) = self.sync_job.take() {
                    let elapsed_s = elapsed_s(job.since_ms, self.engine.now_ms());
                    let result = Bytes::new();
                    let gone = Reply::JobComplete { elapsed_s, code: FAILED_CODE, result };
                    reply(out, &gone);
                }
            }
            // The draft has no packet for pieces of a result and for warnings; the pieces are in
            // the result.
            _ => {}
        }
    }

    fn send_end(&self, image: &JobImage, since_ms: u64, out: &mut Outbox) {
        let outcome = image.outcome.clone().unwrap_or_default();
        match self.engine.jobs().result(image).map(|result| out.open(result)) {
            Ok(result) => {
                let ended_ms = image.finished_ms.unwrap_or_default();
                let elapsed_s = elapsed_s(since_ms, ended_ms);
                let code = code_of(image, &outcome);
                reply(out, &Reply::JobComplete { elapsed_s, code, result });
            }
            Err(refusal) => {
                tracing::error!("the result of job {} cannot be read: {refusal}", image.id);
                error(out, ErrorCode::Refused);
            }
        }
    }
}

fn engine_job(job: &NewJob) -> EngineJob {
    let queue = job.name.clone();
    let payload = BytesRef::empty(Type::Bytes);
    let mut submit = command::Submit::new(JobId(0), queue, Origin::GearmanDraft, payload);
    submit.foreground = job.kind == JobKind::Sync;
    submit.drop_result = job.kind == JobKind::ThrowAway;
    submit.keys = key_of(job).into_iter().collect();
    EngineJob { submit, payload: Payload::new(job.payload.clone(), Type::Bytes) }
}

/// A duplicate key is unique within its name, as long as the job is unfinished.
fn key_of(job: &NewJob) -> Option<Key> {
    if job.duplicate_key.is_empty() {
        return None;
    }
    let mut name = BytesMut::with_capacity(job.name.len() + 1 + job.duplicate_key.len());
    name.put_slice(&job.name);
    name.put_u8(0);
    name.put_slice(&job.duplicate_key);
    Some(Key {
        namespace: Origin::GearmanDraft as i32,
        name: name.freeze(),
        scope: Scope::WhileUnfinished as i32,
    })
}

/// The result code of a finished job: the draft worker's own, or 255 for failures that have none.
fn code_of(image: &JobImage, outcome: &Outcome) -> u8 {
    if image.status() == Status::Done {
        return 0;
    }
    let given = std::str::from_utf8(&outcome.code).ok().and_then(|code| code.parse().ok());
    given.filter(|code| *code != 0).unwrap_or(FAILED_CODE)
}

/// Whole seconds; less than one counts as one, because 0 says that the job is not finished.
fn elapsed_s(since_ms: u64, until_ms: u64) -> u32 {
    let elapsed_s = until_ms.saturating_sub(since_ms) / 1000;
    u32::try_from(elapsed_s).unwrap_or(u32::MAX).max(1)
}

/// A number of a progress, which workers of other doors write as they like.
fn number(text: &[u8]) -> u32 {
    u32::try_from(parse_number(text)).unwrap_or(u32::MAX)
}
