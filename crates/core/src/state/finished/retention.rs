//! How finished jobs come and go, and the limits on how many are kept.

use std::num::NonZeroU64;

use bytes::Bytes;

use super::{FinishedJob, FinishedParts};
use crate::job::{JobId, JobImage, Scope};
use crate::payload::BytesRef;
use crate::state::scan::marks_of;
use crate::state::*;

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
    pub(in crate::state) fn insert_finished(&mut self, image: &JobImage, at: Place) {
        let Some(id) = NonZeroU64::new(image.id) else { return };
        let mut before = self.handle(JobId(image.id));
        if before.is_some_and(|handle| handle & FINISHED != 0) {
            // Compacted: the new one takes its place in the indices.
            self.remove_job(JobId(image.id));
            before = None;
        }
        let queue = self.queue_made(&image.queue);
        let keys = &image.options().keys;
        let job = FinishedJob::new(&FinishedParts {
            id,
            status: image.status(),
            uuid: image.uuid().or_else(|| keys.iter().find_map(as_uuid)),
            image: at,
            oldest_record: image.needs().map_or(at.position, |needs| needs.min(at.position)),
            finished_ms: image.finished_ms.unwrap_or(0),
            kept_until_ms: image.kept_until_ms,
            deletion: image.options().deletion.as_deref().copied(),
            bytes: bytes_of(image),
        });
        let marks = marks_of(job.status(), image.origin(), queue);
        // Entered before the unfinished job is removed, so that the queue is not forgotten in
        // between.
        let Some(number) = self.enter_finished(queue, &job) else { return };
        match before {
            Some(handle) if self.jobs.live[handle].is_found_by_id_and_uuid_only() => {
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
        let id = self.jobs.finished.job(number).id();
        let kept: Vec<Key> = keys
            .iter()
            .filter(|key| key.scope() == Scope::WhileKept && as_uuid(key).is_none())
            .map(|key| Key { name: Bytes::copy_from_slice(&key.name), ..*key })
            .collect();
        if !kept.is_empty() {
            self.jobs.finished_keys.insert(id, kept);
        }
        let State { jobs, by_id, .. } = self;
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
        self.lead_elsewhere(id, (live_number, number | FINISHED), marks);
        if let Some(job) = self.jobs.live.remove(live_number) {
            self.forget_queue_if_unused(job.queue());
        }
    }

    /// Exchanges the handle of a job for another one in the indices of its id and its UUID.
    fn lead_elsewhere(&mut self, id: u64, (old, new): (u32, u32), marks: u128) {
        let State { jobs, by_id, keys, .. } = self;
        by_id.replace(id, (old, new), marks, |other| jobs.id_of(other));
        if let Some(uuid) = jobs.uuid_of(old).filter(|_| !keys.is_deferred()) {
            keys.replace(keys.hash(&uuid), old, new);
        }
    }

    /// Takes a finished job out of everything but the indices of its keys and its id. Returns its
    /// queue.
    pub(in crate::state) fn remove_finished(&mut self, number: u32) -> u32 {
        let job = self.jobs.finished.job(number);
        let (id, queue_number) = (job.id(), job.queue());
        let (job_status, is_deleted) = (job.status(), job.is_deleted());
        self.finished_bytes -= job.bytes();
        let State { jobs, queues, .. } = self;
        jobs.finished_keys.remove(&id);
        if let Some(queue) = queues.find_mut(queue_number) {
            queue.counts[job_status as usize] -= 1;
            queue.deleted -= usize::from(is_deleted);
            jobs.finished.remove(number, &mut queue.finished);
        }
        self.close_sparse_chunk();
        self.note_surplus(queue_number);
        queue_number
    }

    /// Puts a finished job, as it is now, where new ones go.
    fn move_finished(&mut self, number: u32, job: &FinishedJob) {
        let queue_number = self.jobs.finished.job(number).queue();
        let State { jobs, queues, named, .. } = self;
        let Some(queue) = queues.find_mut(queue_number) else { return };
        let moved = jobs.finished.insert(queue_number, &mut queue.finished, job);
        let handles = (number | FINISHED, moved | FINISHED);
        for key in jobs.other_keys_of(handles.0) {
            if let Some(handle) = named.get_mut(&Named::of(key))
                && *handle == handles.0
            {
                *handle = handles.1;
            }
        }
        self.lead_elsewhere(job.id(), handles, 0);
        if let Some(queue) = self.queues.find_mut(queue_number) {
            self.jobs.finished.remove(number, &mut queue.finished);
        }
    }

    /// Moves the jobs of one chunk, at most 64, if too many slots are empty.
    fn close_sparse_chunk(&mut self) {
        let State { jobs, queues, .. } = self;
        let Some((chunk, queue)) = jobs.finished.sparse() else { return };
        let Some(queue) = queues.find_mut(queue) else { return };
        for number in jobs.finished.close(chunk, &mut queue.finished) {
            let job = self.jobs.finished.job(number).alone();
            self.move_finished(number, &job);
        }
    }

    pub(in crate::state) fn set_kept_until(&mut self, number: u32, until_ms: u64) {
        self.change_finished(number, |job| job.set_retained_until(Some(until_ms)));
        self.note_due(until_ms);
    }

    /// Changes a finished job, which has another number then.
    pub(in crate::state) fn change_finished(
        &mut self,
        number: u32,
        change: impl FnOnce(&mut FinishedJob),
    ) {
        let before = self.jobs.finished.job(number);
        let (queue, was_deleted, mut job) = (before.queue(), before.is_deleted(), before.alone());
        change(&mut job);
        if let Some(queue) = self.queues.find_mut(queue) {
            queue.deleted =
                queue.deleted + usize::from(job.is_deleted()) - usize::from(was_deleted);
        }
        self.move_finished(number, &job);
        self.close_sparse_chunk();
    }

    fn enter_finished(&mut self, queue_number: u32, job: &FinishedJob) -> Option<u32> {
        let State { jobs, queues, finished_bytes, .. } = self;
        let queue = queues.find_mut(queue_number)?;
        queue.counts[job.status() as usize] += 1;
        queue.deleted += usize::from(job.is_deleted());
        *finished_bytes += job.bytes();
        let number = jobs.finished.insert(queue_number, &mut queue.finished, job);
        if queue.settings.finished_max.is_some() {
            self.note_surplus(queue_number);
        }
        self.note_due(job.kept_until_ms().unwrap_or(u64::MAX));
        Some(number)
    }

    /// Notes whether a queue keeps more finished jobs than it may.
    pub(in crate::state) fn note_surplus(&mut self, number: u32) {
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
        } else if self.count_surplus() > 0 {
            Some(FinishedCap::Count)
        } else if self.finished_bytes > self.defaults.finished_bytes_max {
            Some(FinishedCap::Bytes)
        } else {
            None
        }
    }

    /// How many finished jobs are above the server's number, or have to go so that job numbers do not
    /// run out.
    fn count_surplus(&self) -> usize {
        let finished = &self.jobs.finished;
        let over = finished.len().saturating_sub(self.defaults.finished_max);
        over.max(finished.surplus_chunks())
    }

    /// At most `limit` finished jobs above a limit: of a queue over its own, else the oldest of
    /// all.
    pub(crate) fn surplus(&self, limit: usize) -> Vec<u64> {
        let finished = &self.jobs.finished;
        let id = |number: u32| finished.job(number).id();
        if let Some(queue) = self.surplus.first().and_then(|number| self.queue_at(*number)) {
            let count = usize::try_from(queue.surplus()).unwrap_or(limit).min(limit);
            return finished.oldest_of(&queue.finished).take(count).map(id).collect();
        }
        let mut count = self.count_surplus();
        let mut bytes = self.finished_bytes.saturating_sub(self.defaults.finished_bytes_max);
        let mut oldest = finished.oldest().take(limit);
        let mut ids = Vec::new();
        while (count > 0 || bytes > 0)
            && let Some(number) = oldest.next()
        {
            count = count.saturating_sub(1);
            bytes = bytes.saturating_sub(finished.job(number).bytes());
            ids.push(id(number));
        }
        ids
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
