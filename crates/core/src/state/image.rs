//! From a live job to its image, and back.

use std::num::NonZeroU64;

use super::*;
use crate::job::{Attempt, Cause, HeldLease, JOB_ID_END, JobId, JobImage, Outcome, Status, Words};
use crate::payload::{BytesRef, Type};

impl State {
    /// A live job in full.
    pub(crate) fn image_of(&self, number: u32) -> JobImage {
        let job = &self.jobs.live[number];
        let mut image = self.plain_image(job);
        if let Some(extra) = job.extra.as_deref() {
            image.lease = extra.lease.clone().map(Box::new);
            image.history.clone_from(&extra.history);
            image.outcome.clone_from(&extra.outcome);
        }
        image
    }

    /// A live job's image as it stands when an attempt ends: its lease is an attempt of its
    /// history, and its outcome is left to the caller.
    pub(crate) fn ended_image(
        &self,
        number: u32,
        cause: Cause,
        outcome: Option<&Outcome>,
        now_ms: u64,
    ) -> JobImage {
        let job = &self.jobs.live[number];
        let mut image = self.plain_image(job);
        if let Some(extra) = job.extra.as_deref() {
            image.history = Vec::with_capacity(extra.history.len() + 1);
            image.history.extend(extra.history.iter().cloned());
            if let Some(lease) = &extra.lease {
                let attempt = ended_attempt(lease, job.attempts(), cause, outcome, now_ms);
                evolve::push_attempt(&mut image.history, attempt);
            }
        }
        image
    }

    /// Everything but lease, history and outcome.
    fn plain_image(&self, job: &LiveJob) -> JobImage {
        let queue = self.queue_at(job.queue()).map(|queue| queue.name.clone()).unwrap_or_default();
        let (uuid_high, uuid_low) = JobImage::uuid_halves(job.uuid());
        let extra = job.extra.as_deref();
        JobImage {
            id: job.id(),
            queue,
            status: job.status() as i32,
            origin: job.origin() as i32,
            priority: job.priority(),
            order: job.order(),
            created_ms: job.created_ms(),
            ttl_ms: Some(job.ttl_ms()).filter(|ttl| *ttl != NO_TTL),
            ttr_ms: (job.ttr_ms != NO_TTR).then(|| u64::from(job.ttr_ms)),
            attempts: job.attempts(),
            fails: extra.map_or(0, |extra| extra.fails),
            revision: job.revision,
            payload: Some(job.payload_ref()),
            uuid_high,
            uuid_low,
            foreground: job.is_foreground(),
            options: extra
                .and_then(|extra| extra.options.clone())
                .filter(|options| !options.is_none()),
            started_ms: extra.and_then(|extra| extra.started_ms),
            ..JobImage::default()
        }
    }

    /// A live job from its image; none from one whose number no job can have.
    pub(super) fn live_from(&self, image: &JobImage, position: u64) -> Option<LiveJob> {
        static NONE: BytesRef = BytesRef::NONE;
        let payload = image.payload.as_ref().unwrap_or(&NONE);
        let kind = Type::try_from(payload.kind).unwrap_or(Type::Bytes);
        let id = NonZeroU64::new(image.id).filter(|id| id.get() < JOB_ID_END)?;
        let mut job = LiveJob::new(id, image.status(), image.origin(), kind);
        let oldest_record = image.needs().unwrap_or(position).min(position);
        job.set_place(oldest_record, payload.offset);
        job.payload_len = payload.len;
        job.set_numbers(Wide {
            priority: image.priority,
            order: image.order,
            created_ms: image.created_ms,
            ttl_ms: image.ttl_ms.unwrap_or(NO_TTL),
        });
        job.ttr_ms =
            image.ttr_ms.map_or(NO_TTR, |ttr| u32::try_from(ttr).unwrap_or(NO_TTR).min(NO_TTR - 1));
        job.set_attempts(image.attempts);
        job.revision = image.revision;
        job.set_foreground(image.foreground);
        job.set_last(position);
        if let Some(uuid) = image.uuid() {
            job.set_uuid(uuid);
        }
        if image.fails > 0
            || image.started_ms.is_some()
            || image.lease.is_some()
            || image.outcome.is_some()
            || !image.history.is_empty()
            || payload.inline.is_some()
        {
            let extra = job.extra();
            extra.fails = image.fails;
            extra.started_ms = image.started_ms;
            extra.lease = image.lease.as_deref().map(owned_lease);
            extra.history = Vec::with_capacity(image.history.len());
            for attempt in &image.history {
                let attempt = owned_attempt(attempt, extra.history.last());
                extra.history.push(attempt);
            }
            extra.outcome = image.outcome.as_deref().map(|outcome| Box::new(owned(outcome)));
            extra.inline.clone_from(&payload.inline);
        }
        if let Some(at) = payload.needs().filter(|at| *at != oldest_record) {
            job.extra().payload_position = Some(at);
        }
        if let Some(options) = image.options.as_deref() {
            fill_options(&mut job, options);
        }
        Some(job)
    }

    /// Everything that is logged, in full and in a fixed order: two states are equal exactly if
    /// these bytes are. Buckets that would be full at `now_ms` are as good as forgotten.
    pub fn dump(&self, now_ms: u64) -> Vec<u8> {
        use prost::Message;
        let mut out = Vec::new();
        let key_of = |handle: u32| self.id_of(handle);
        for handle in self.by_id.iter_from(0, key_of) {
            if handle & FINISHED == 0 {
                if !self.jobs.live[handle].is_foreground() {
                    self.image_of(handle).encode_length_delimited(&mut out).ok();
                }
            } else {
                let finished = self.jobs.finished.job(handle & !FINISHED);
                let line = format!(
                    "{:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?}\n",
                    finished.job_id(),
                    finished.status(),
                    finished.uuid(),
                    self.queue_at(finished.queue()).map(|queue| &queue.name),
                    finished.image(),
                    finished.kept_until_ms(),
                    finished.retained_until_ms(),
                    finished.deletion(),
                    self.jobs.finished_keys.get(&finished.id()),
                );
                out.extend_from_slice(line.as_bytes());
            }
        }
        for (name, number) in &self.queue_names {
            if let Some(queue) = self.queue_at(*number).filter(|q| q.settings_record.is_some()) {
                out.extend_from_slice(format!("{name:?} {:?}\n", queue.settings).as_bytes());
            }
        }
        for (number, kept) in &self.constraints {
            let unmatched = self.unmatched_below(*number);
            let line = format!("{number} {} {:?} {unmatched}\n", kept.revision, kept.rule);
            out.extend_from_slice(line.as_bytes());
        }
        for (label, bucket) in &self.buckets {
            let level = self.rebased(*label, bucket);
            if let Some(kept) = self.constraints.get(&label.constraint)
                && level.full_at(&kept.rule) > now_ms
            {
                let level = level.at(&kept.rule, now_ms);
                out.extend_from_slice(format!("{label:?} {level}\n").as_bytes());
            }
        }
        for batch in self.batches_from(JobId(0)) {
            let members: Vec<_> = self.members(JobId(batch.id), JobId(0)).collect();
            out.extend_from_slice(format!("{batch:?} {members:?}\n").as_bytes());
        }
        let entries: Vec<_> = self.audit_entries(u64::MAX, now_ms).collect();
        out.extend_from_slice(format!("{entries:?}\n").as_bytes());
        // Order numbers of foreground jobs are not logged.
        let server = Server { next_order: 0, ..self.server.clone() };
        out.extend_from_slice(format!("{server:?}\n").as_bytes());
        out
    }
}

impl LiveJob {
    /// Where the payload is.
    pub(crate) fn payload_ref(&self) -> BytesRef {
        let extra = self.extra.as_deref();
        if let Some(bytes) = extra.and_then(|extra| extra.inline.clone()) {
            return BytesRef::in_memory(bytes, self.payload_kind());
        }
        let position = match extra.and_then(|extra| extra.payload_position) {
            _ if self.payload_len == 0 => 0,
            Some(position) => position,
            None => self.oldest_record(),
        };
        BytesRef::logged(position, self.payload_offset(), self.payload_len, self.payload_kind())
    }
}

fn fill_options(job: &mut LiveJob, options: &JobOptions) {
    let mut keys = Vec::with_capacity(options.keys.len());
    for key in &options.keys {
        match as_uuid(key) {
            Some(uuid) if job.uuid().is_none() => job.set_uuid(uuid),
            _ => keys.push(Key { name: own(&key.name), ..*key }),
        }
    }
    let kept = JobOptions {
        keys,
        labels: options.labels.clone(),
        tags: options.tags.iter().map(own).collect(),
        state: options.state.as_ref().map(own),
        events: options.events.iter().map(own).collect(),
        pages: options.pages.clone(),
        trace: options.trace.clone(),
        deletion: options.deletion.clone(),
        after: options.after.clone(),
        fair_key: options.fair_key.as_ref().map(own),
        ..*options
    };
    if !kept.is_none() {
        job.extra().options = Some(Box::new(kept));
    }
}

/// A copy of some bytes. Bytes in an event may be a slice of a record or of a network buffer, which
/// must not stay in memory for them.
fn own(bytes: &Bytes) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

pub(super) fn owned_lease(lease: &HeldLease) -> HeldLease {
    HeldLease { worker: own(&lease.worker), ..*lease }
}

/// Jobs mostly fail the same way each time: an attempt shares equal bytes with the one before.
pub(super) fn owned_attempt(attempt: &Attempt, before: Option<&Attempt>) -> Attempt {
    let shared = |bytes: &Bytes, theirs: Option<&Bytes>| match theirs {
        Some(theirs) if theirs == bytes => theirs.clone(),
        _ => own(bytes),
    };
    let theirs = before.and_then(|before| before.words.as_deref());
    let words = attempt.words.as_deref().map(|words| {
        Box::new(Words {
            message: shared(&words.message, theirs.map(|theirs| &theirs.message)),
            error: shared(&words.error, theirs.map(|theirs| &theirs.error)),
            code: shared(&words.code, theirs.map(|theirs| &theirs.code)),
        })
    });
    let worker = shared(&attempt.worker, before.map(|before| &before.worker));
    Attempt { worker, words, ..*attempt }
}

pub(super) fn owned(outcome: &Outcome) -> Outcome {
    let bytes = outcome.bytes.as_ref();
    Outcome {
        success: outcome.success,
        bytes: bytes.map(|at| BytesRef { inline: at.inline.as_ref().map(own), ..*at }),
        message: own(&outcome.message),
        error: own(&outcome.error),
        code: own(&outcome.code),
        worker_finished_at: own(&outcome.worker_finished_at),
        error_kind: outcome.error_kind,
    }
}

/// What is kept of an attempt once its lease has ended. `outcome` is what its worker reported.
pub(super) fn ended_attempt(
    lease: &HeldLease,
    attempt: u32,
    cause: Cause,
    outcome: Option<&Outcome>,
    at_ms: u64,
) -> Attempt {
    let failure = outcome.filter(|_| cause == Cause::Failed);
    Attempt {
        attempt,
        started_ms: lease.started_ms,
        ended_ms: at_ms,
        cause: cause as i32,
        door: lease.door,
        worker: lease.worker.clone(),
        words: failure.and_then(Words::of),
    }
}

impl State {
    /// The image of a live job.
    pub fn image(&self, id: JobId) -> Option<JobImage> {
        self.find_live(id).map(|number| self.image_of(number))
    }

    /// Whether the job is live and never logged.
    pub fn is_foreground(&self, id: JobId) -> bool {
        self.find_live(id).is_some_and(|number| self.jobs.live[number].is_foreground())
    }

    /// The status of a job.
    pub fn status(&self, id: JobId) -> Option<Status> {
        self.handle(id).map(|handle| self.jobs.status_of(handle))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Event;

    /// No log that this server wrote has an event with such a number; the fuzzer found the case.
    #[test]
    fn images_with_a_number_that_no_job_has_are_passed_over() {
        let mut state = State::new(1, Defaults::default());
        for id in [0, JOB_ID_END - 1, JOB_ID_END, u64::MAX] {
            let image = JobImage { id, ..JobImage::default() };
            for event in [Event::Submitted(image.clone()), Event::Compacted(image)] {
                state.evolve(&event, Place { position: 0, offset: 0 });
            }
        }
        let ids: Vec<_> = state.jobs_from(JobId(0)).map(|job| job.id()).collect();
        assert_eq!(ids, [JobId(JOB_ID_END - 1)]);
    }
}
