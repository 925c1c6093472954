//! A job in memory, told in full, and back.

use std::num::NonZeroU64;

use super::*;
use crate::job::{JobId, JobImage, Status};
use crate::payload::{BytesRef, Type};

impl State {
    /// A live job in full.
    pub(crate) fn image_of(&self, number: u32) -> JobImage {
        let slot = &self.slots[number];
        let queue = self.queue_at(slot.queue).map(|queue| queue.name.clone()).unwrap_or_default();
        let mut image = JobImage {
            id: slot.id.get(),
            queue,
            status: slot.status() as i32,
            origin: slot.origin() as i32,
            priority: slot.priority,
            order: slot.order,
            created_ms: slot.created_ms,
            ttl_ms: (slot.ttl_ms != NO_TTL).then_some(slot.ttl_ms),
            expires_ms: slot.expires_ms(),
            ttr_ms: (slot.ttr_ms != NO_TTR).then(|| u64::from(slot.ttr_ms)),
            attempts: slot.attempts,
            payload: Some(slot.payload_ref()),
            revision: slot.revision,
            foreground: slot.is_foreground(),
            ..JobImage::default()
        };
        image.set_uuid(slot.has_uuid().then_some(slot.uuid));
        if let Some(extra) = slot.extra.as_deref() {
            fill_from_extra(&mut image, extra);
        }
        image
    }

    /// A slot for a live job's image. Its home is the oldest record it needs.
    pub(super) fn slot_from(&self, image: &JobImage, position: u64) -> Option<Slot> {
        let payload = image.payload.clone().unwrap_or_default();
        let kind = Type::try_from(payload.kind).unwrap_or(Type::Bytes);
        let id = NonZeroU64::new(image.id)?;
        let mut slot = Slot::new(id, image.status(), image.origin(), kind);
        slot.home = payload.needs().unwrap_or(position).min(position);
        slot.payload_offset = payload.offset;
        slot.payload_len = payload.len;
        slot.priority = image.priority;
        slot.order = image.order;
        slot.created_ms = image.created_ms;
        slot.ttl_ms = image.ttl_ms.unwrap_or(NO_TTL);
        slot.ttr_ms =
            image.ttr_ms.map_or(NO_TTR, |ttr| u32::try_from(ttr).unwrap_or(NO_TTR).min(NO_TTR - 1));
        slot.attempts = image.attempts;
        slot.revision = image.revision;
        slot.set_foreground(image.foreground);
        slot.set_last(position);
        if image.fails > 0
            || image.started_ms.is_some()
            || image.lease.is_some()
            || !image.history.is_empty()
        {
            let extra = slot.extra();
            extra.fails = image.fails;
            extra.started_ms = image.started_ms;
            extra.lease.clone_from(&image.lease);
            extra.history.clone_from(&image.history);
        }
        fill_rare(&mut slot, image, payload.inline);
        Some(slot)
    }

    /// Everything that is logged, told in full and in a fixed order: two states are equal exactly
    /// if these bytes are. Buckets that would be full at `now_ms` are as good as forgotten.
    pub fn dump(&self, now_ms: u64) -> Vec<u8> {
        use prost::Message;
        let mut out = Vec::new();
        let key_of = |handle: u32| u128::from(self.id_of(handle));
        for handle in self.by_id.iter_from(0, key_of) {
            if handle & STUB == 0 {
                if !self.slots[handle].is_foreground() {
                    self.image_of(handle).encode_length_delimited(&mut out).ok();
                }
            } else {
                let stub = &self.stubs[handle & !STUB];
                let told = format!(
                    "{:?} {:?} {:?} {:?} {:?} {:?} {:?}\n",
                    stub.job_id(),
                    stub.status(),
                    stub.uuid(),
                    self.queue_at(stub.queue()).map(|queue| &queue.name),
                    stub.image(),
                    stub.kept_until_ms(),
                    self.stub_keys.get(&handle),
                );
                out.extend_from_slice(told.as_bytes());
            }
        }
        for (name, number) in &self.queue_names {
            if let Some(queue) = self.queue_at(*number).filter(|q| q.settings_home.is_some()) {
                out.extend_from_slice(format!("{name:?} {:?}\n", queue.settings).as_bytes());
            }
        }
        for (number, kept) in &self.constraints {
            out.extend_from_slice(format!("{number} {:?}\n", kept.rule).as_bytes());
        }
        for (label, bucket) in &self.buckets {
            if let Some(kept) = self.constraints.get(&label.constraint)
                && !bucket.is_idle(&kept.rule, now_ms)
            {
                out.extend_from_slice(format!("{:?}\n", bucket.image(*label)).as_bytes());
            }
        }
        // Order numbers of foreground jobs leave no trace in the log.
        let server = Server { home: 0, next_order: 0, ..self.server.clone() };
        out.extend_from_slice(format!("{server:?}\n").as_bytes());
        out
    }
}

impl Slot {
    /// Where the payload is.
    pub(crate) fn payload_ref(&self) -> BytesRef {
        if let Some(bytes) = self.find_rare().and_then(|rare| rare.inline.clone()) {
            return BytesRef::in_memory(bytes, self.payload_kind());
        }
        let position = if self.payload_len == 0 { 0 } else { self.home };
        BytesRef::logged(position, self.payload_offset, self.payload_len, self.payload_kind())
    }
}

fn fill_from_extra(image: &mut JobImage, extra: &Extra) {
    image.fails = extra.fails;
    image.started_ms = extra.started_ms;
    image.lease.clone_from(&extra.lease);
    image.history.clone_from(&extra.history);
    let Some(rare) = extra.rare.as_deref() else { return };
    image.run_at_ms = rare.run_at_ms;
    image.scheduled_ms = rare.scheduled_ms;
    image.attempts_max = rare.attempts_max;
    image.fails_max = rare.fails_max;
    image.backoff = rare.backoff;
    image.outcome.clone_from(&rare.outcome);
    image.keys.extend(rare.keys.iter().cloned());
    image.labels.clone_from(&rare.labels);
    image.tags.clone_from(&rare.tags);
    image.state.clone_from(&rare.state);
    image.events.clone_from(&rare.events);
    image.keep_ms = rare.keep_ms;
    image.keep_read_ms = rare.keep_read_ms;
    image.drop_result = rare.drop_result;
}

fn fill_rare(slot: &mut Slot, image: &JobImage, inline: Option<Bytes>) {
    let mut keys = Vec::new();
    if let Some(uuid) = image.uuid() {
        slot.set_uuid(uuid);
    }
    for key in &image.keys {
        match as_uuid(key) {
            Some(uuid) if !slot.has_uuid() => slot.set_uuid(uuid),
            _ => keys.push(key.clone()),
        }
    }
    let is_plain = image.run_at_ms.is_none()
        && image.scheduled_ms.is_none()
        && image.attempts_max.is_none()
        && image.fails_max.is_none()
        && image.backoff.is_none()
        && image.outcome.is_none()
        && keys.is_empty()
        && image.labels.is_empty()
        && image.tags.is_empty()
        && image.state.is_none()
        && image.events.is_empty()
        && image.keep_ms.is_none()
        && image.keep_read_ms.is_none()
        && !image.drop_result
        && inline.is_none();
    if is_plain {
        return;
    }
    // Names may be slices of large buffers: keep the bytes themselves only.
    for key in &mut keys {
        key.name = Bytes::copy_from_slice(&key.name);
    }
    *slot.rare() = Rare {
        run_at_ms: image.run_at_ms,
        scheduled_ms: image.scheduled_ms,
        attempts_max: image.attempts_max,
        fails_max: image.fails_max,
        backoff: image.backoff,
        outcome: image.outcome.clone(),
        keys,
        labels: image.labels.clone(),
        tags: image.tags.iter().map(|tag| Bytes::copy_from_slice(tag)).collect(),
        state: image.state.as_ref().map(|state| Bytes::copy_from_slice(state)),
        events: image.events.iter().map(|event| Bytes::copy_from_slice(event)).collect(),
        keep_ms: image.keep_ms,
        keep_read_ms: image.keep_read_ms,
        drop_result: image.drop_result,
        inline,
    };
}

impl State {
    /// The image of a live job, as it is told to others.
    pub fn image(&self, id: JobId) -> Option<JobImage> {
        self.live(id).map(|number| self.image_of(number))
    }

    /// Whether the job is live and never logged.
    pub fn is_foreground(&self, id: JobId) -> bool {
        self.live(id).is_some_and(|number| self.slots[number].is_foreground())
    }

    /// The status of a job.
    pub fn status(&self, id: JobId) -> Option<Status> {
        let handle = self.handle(id)?;
        Some(if handle & STUB == 0 {
            self.slots[handle].status()
        } else {
            self.stubs[handle & !STUB].status()
        })
    }
}

impl State {
    /// A live job's image with its lease taken off, as it stands when an attempt ends.
    pub(crate) fn ended_image(
        &self,
        number: u32,
        cause: crate::job::Cause,
        now_ms: u64,
    ) -> JobImage {
        let mut image = self.image_of(number);
        if let Some(lease) = image.lease.take() {
            let attempt = crate::job::Attempt {
                attempt: image.attempts,
                started_ms: lease.started_ms,
                ended_ms: now_ms,
                cause: cause as i32,
                door: lease.door,
                worker: lease.worker,
            };
            evolve::push_attempt(&mut image.history, attempt);
        }
        image
    }
}
