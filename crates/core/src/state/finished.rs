//! Finished jobs, in the order they ended, and the limits on how many are kept.

use std::num::NonZeroU64;

use bytes::Bytes;

use super::live::FinishedParts;
use super::ordered_list::merged;
use super::scan::marks_of;
use super::*;
use crate::job::{JobId, JobImage, Scope};
use crate::payload::BytesRef;

/// Roughly how many bytes a finished job takes on disk besides its payload and its result.
const IMAGE_BYTES: u64 = 192;

/// A limit on the finished jobs that are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FinishedCap {
    /// A queue's own number of them.
    Queue,
    /// The server's number of them.
    Count,
    /// What they take on disk, over the whole server.
    Bytes,
}

impl State {
    /// Puts a finished job into all indices, in the place of the unfinished job if there is one.
    pub(super) fn insert_finished(&mut self, image: &JobImage, at: Place) {
        let Some(id) = NonZeroU64::new(image.id) else { return };
        let mut before = self.handle(JobId(image.id));
        if before.is_some_and(|handle| handle & FINISHED != 0) {
            // Compacted: the new one takes its place in the indices.
            self.remove_job(JobId(image.id));
            before = None;
        }
        let queue = self.queue_made(&image.queue);
        let keys = &image.options().keys;
        let job = FinishedJob::new(FinishedParts {
            id,
            status: image.status(),
            uuid: image.uuid().or_else(|| keys.iter().find_map(as_uuid)),
            queue,
            image: at,
            oldest_record: image.needs().map_or(at.position, |needs| needs.min(at.position)),
            finished_ms: image.finished_ms.unwrap_or(0),
            kept_until_ms: image.kept_until_ms,
            bytes: bytes_of(image),
        });
        let marks = marks_of(job.status(), image.origin(), queue);
        let number = self.jobs.finished.insert(job);
        // Entered before the unfinished job is removed, so that the queue is not forgotten in
        // between.
        self.enter_finished(number);
        match before {
            Some(handle) if self.jobs.live[handle].other_keys().is_empty() => {
                self.index_finished_instead(handle, number, marks);
            }
            _ => {
                if before.is_some() {
                    self.remove_job(JobId(image.id));
                }
                self.index_finished(number, keys, marks);
            }
        }
    }

    fn index_finished(&mut self, number: u32, keys: &[Key], marks: u128) {
        let handle = number | FINISHED;
        let kept: Vec<Key> = keys
            .iter()
            .filter(|key| key.scope() == Scope::WhileKept && as_uuid(key).is_none())
            .map(|key| Key { name: Bytes::copy_from_slice(&key.name), ..*key })
            .collect();
        if !kept.is_empty() {
            self.jobs.finished_keys.insert(handle, kept);
        }
        let State { jobs, by_id, .. } = self;
        let id = jobs.finished[number].job_id().0;
        by_id.insert(handle, |other| jobs.id_of(other));
        by_id.mark(id, marks);
        self.enter_keys(handle);
    }

    /// The common case: the name and the id stay where they are in their indices, and lead to the
    /// finished job from now on.
    fn index_finished_instead(&mut self, live_number: u32, number: u32, marks: u128) {
        self.leave_expiry(live_number);
        self.detach(live_number);
        if !self.jobs.live[live_number].labels().is_empty() {
            self.leave_labels(live_number);
        }
        let id = self.jobs.live[live_number].id();
        let handle = number | FINISHED;
        let State { jobs, by_id, keys, .. } = self;
        by_id.replace(id, (live_number, handle), marks, |other| jobs.id_of(other));
        if let Some(uuid) = jobs.uuid_of(live_number).filter(|_| !keys.is_deferred()) {
            keys.replace(keys.hash(&uuid), live_number, handle);
        }
        if let Some(job) = self.jobs.live.remove(live_number) {
            self.forget_queue_if_unused(job.queue());
        }
    }

    /// Takes a finished job out of everything but the indices of its keys and its id. Returns its
    /// queue.
    pub(super) fn remove_finished(&mut self, number: u32) -> Option<u32> {
        self.leave_finished(number);
        self.jobs.finished_keys.remove(&(number | FINISHED));
        self.jobs.finished.remove(number).map(|job| job.queue())
    }

    pub(super) fn set_kept_until(&mut self, number: u32, until_ms: u64) {
        self.leave_finished_expiry(number);
        self.jobs.finished[number].set_kept_until(Some(until_ms));
        self.enter_finished_expiry(number);
    }

    // ---- indices ----

    fn enter_finished(&mut self, number: u32) {
        self.enter_finished_expiry(number);
        let State { jobs, queues, oldest, finished_bytes, .. } = self;
        let job = &jobs.finished[number];
        let (queue_number, key) = (job.queue(), job.age_key());
        *finished_bytes += job.bytes();
        if let Some(queue) = queues.find_mut(queue_number) {
            queue.counts[job.status() as usize] += 1;
            let before = queue.finished.first();
            queue.finished.insert(number, |other| jobs.finished[other].age_key());
            if queue.finished.first() == Some(number) {
                before
                    .map(|before| oldest.remove(&(jobs.finished[before].age_key(), queue_number)));
                oldest.insert((key, queue_number));
            }
            if queue.settings.finished_max.is_none() {
                return;
            }
        }
        self.note_surplus(queue_number);
    }

    fn leave_finished(&mut self, number: u32) {
        self.leave_finished_expiry(number);
        let State { jobs, queues, oldest, finished_bytes, .. } = self;
        let job = &jobs.finished[number];
        let (queue_number, key) = (job.queue(), job.age_key());
        *finished_bytes -= job.bytes();
        if let Some(queue) = queues.find_mut(queue_number) {
            queue.counts[job.status() as usize] -= 1;
            let was_first = queue.finished.first() == Some(number);
            queue.finished.remove(number, |other| jobs.finished[other].age_key());
            if was_first {
                oldest.remove(&(key, queue_number));
                let first = queue.finished.first();
                oldest.extend(first.map(|first| (jobs.finished[first].age_key(), queue_number)));
            }
        }
        self.note_surplus(queue_number);
    }

    fn enter_finished_expiry(&mut self, number: u32) {
        let State { jobs, finished_expiry, .. } = self;
        let Some(until_ms) = jobs.finished[number].kept_until_ms() else { return };
        finished_expiry.insert(number, |other| jobs.finished[other].expiry_key());
        self.note_due(until_ms);
    }

    fn leave_finished_expiry(&mut self, number: u32) {
        let State { jobs, finished_expiry, .. } = self;
        if jobs.finished[number].kept_until_ms().is_some() {
            finished_expiry.remove(number, |other| jobs.finished[other].expiry_key());
        }
    }

    /// Notes whether a queue keeps more finished jobs than it may.
    pub(super) fn note_surplus(&mut self, number: u32) {
        let over = self.queue_at(number).is_some_and(|queue| queue.surplus() > 0);
        if over {
            self.surplus.insert(number);
        } else if !self.surplus.is_empty() {
            self.surplus.remove(&number);
        }
    }

    // ---- limits ----

    /// How many bytes finished jobs take on disk: never less than they do, and about an eighth more
    /// at most.
    pub fn finished_bytes(&self) -> u64 {
        self.finished_bytes
    }

    /// Whether a limit says that finished jobs have to go; ticks remove them, some at a time.
    pub fn has_surplus(&self) -> bool {
        self.exceeded_cap().is_some()
    }

    /// The limit for which the next finished jobs go.
    pub fn exceeded_cap(&self) -> Option<FinishedCap> {
        if !self.surplus.is_empty() {
            Some(FinishedCap::Queue)
        } else if self.jobs.finished.len() > self.defaults.finished_max {
            Some(FinishedCap::Count)
        } else if self.finished_bytes > self.defaults.finished_bytes_max {
            Some(FinishedCap::Bytes)
        } else {
            None
        }
    }

    /// At most `limit` finished jobs above a limit: of a queue over its own, else the oldest of
    /// all.
    pub(crate) fn surplus(&self, limit: usize) -> Vec<u64> {
        let id = |number: u32| self.jobs.finished[number].job_id().0;
        if let Some(queue) = self.surplus.first().and_then(|number| self.queue_at(*number)) {
            let count = usize::try_from(queue.surplus()).unwrap_or(limit).min(limit);
            return queue.finished.iter_after(0).take(count).map(id).collect();
        }
        let mut count = self.jobs.finished.len().saturating_sub(self.defaults.finished_max);
        let mut bytes = self.finished_bytes.saturating_sub(self.defaults.finished_bytes_max);
        let queues = self.oldest.iter().take(limit);
        let lists = queues
            .filter_map(|(_, number)| self.queue_at(*number))
            .map(|queue| queue.finished.iter_after(0));
        let oldest = merged(lists, |number| self.jobs.finished[number].age_key());
        let is_over = |number: &u32| {
            let is_over = count > 0 || bytes > 0;
            count = count.saturating_sub(1);
            bytes = bytes.saturating_sub(self.jobs.finished[*number].bytes());
            is_over
        };
        oldest.take(limit).take_while(is_over).map(id).collect()
    }
}

/// A little more than a finished job takes in the log.
fn bytes_of(image: &JobImage) -> u64 {
    let len = |place: Option<&BytesRef>| place.map_or(0, |place| u64::from(place.len));
    let outcome = image.outcome.as_deref();
    let options = image.options.as_deref().map_or(0, prost::Message::encoded_len);
    let image_bytes = IMAGE_BYTES + (image.queue.len() + options + image.words_len()) as u64;
    image_bytes + len(image.payload.as_ref()) + len(outcome.and_then(|o| o.bytes.as_ref()))
}
