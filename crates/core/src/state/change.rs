//! How items enter and leave the indices. [`State::evolve`] takes a job out of what depends on its
//! status, changes it, and puts it back: so no event needs to know all indices.

use bytes::Bytes;

use super::scan::marks_of;
use super::*;
use crate::job::{JobId, Status};

impl State {
    // ---- handles ----

    pub(crate) fn id_of(&self, handle: u32) -> u64 {
        id_of(&self.slots, &self.stubs, handle)
    }

    /// The handle of a job, finished or not.
    pub(crate) fn handle(&self, id: JobId) -> Option<u32> {
        self.by_id.find(id.0, |handle| self.id_of(handle))
    }

    /// The slot number of an unfinished job.
    pub(crate) fn live(&self, id: JobId) -> Option<u32> {
        self.handle(id).filter(|handle| handle & STUB == 0)
    }

    /// The stub number of a finished job.
    pub(crate) fn stub(&self, id: JobId) -> Option<u32> {
        self.handle(id).filter(|handle| handle & STUB != 0).map(|handle| handle & !STUB)
    }

    pub(crate) fn slot(&self, number: u32) -> &Slot {
        &self.slots[number]
    }

    // ---- queues ----

    pub(crate) fn queue_number(&self, name: &[u8]) -> Option<u32> {
        self.queue_names.get(name).copied()
    }

    pub(crate) fn queue_at(&self, number: u32) -> Option<&Queue> {
        self.queues.get(number as usize).and_then(Option::as_ref)
    }

    pub(super) fn queue_made(&mut self, name: &Bytes) -> u32 {
        if let Some(number) = self.queue_names.get(name) {
            return *number;
        }
        // The name may be a slice of a large network buffer: keep the name only.
        let name = Bytes::copy_from_slice(name);
        let number = self.free_queues.pop().unwrap_or_else(|| {
            self.queues.push(None);
            self.queues.len() as u32 - 1
        });
        self.queues[number as usize] = Some(Queue::new(name.clone()));
        self.queue_names.insert(name, number);
        number
    }

    pub(super) fn forget_queue_if_unused(&mut self, number: u32) {
        let Some(slot) = self.queues.get_mut(number as usize) else { return };
        if slot.as_ref().is_some_and(Queue::is_forgettable)
            && let Some(queue) = slot.take()
        {
            self.surplus.remove(&number);
            self.queue_names.remove(&queue.name);
            self.free_queues.push(number);
        }
    }

    pub(super) fn set_queue(&mut self, name: &Bytes, settings: QueueSettingsAt) {
        let number = self.queue_made(name);
        if let Some(queue) = self.queues[number as usize].as_mut() {
            queue.settings_record = (!settings.settings.is_default()).then_some(settings.position);
            queue.settings = settings.settings;
        }
        self.note_surplus(number);
        self.forget_queue_if_unused(number);
    }

    pub(super) fn note_due(&mut self, due_ms: u64) {
        self.due_hint_ms = self.due_hint_ms.min(due_ms);
    }

    // ---- what depends on a job's status ----

    /// Takes a slot out of everything its status put it in.
    pub(super) fn detach(&mut self, number: u32) {
        let slot = &self.slots[number];
        let (queue_number, priority) = (slot.queue, slot.priority);
        let status = slot.status();
        match status {
            Status::Ready => self.leave_ready(number),
            Status::Scheduled => {
                let key = slot.due_key();
                let State { slots, timers, queues, .. } = self;
                timers.remove(key, number, |other| slots[other].due_key());
                if let Some(queue) = queues[queue_number as usize].as_mut() {
                    queue.scheduled.remove(key, number, |other| slots[other].due_key());
                }
            }
            Status::Leased => self.leave_leased(number),
            Status::Parked | Status::Done | Status::Dead => {}
        }
        if let Some(queue) = self.queues[queue_number as usize].as_mut() {
            queue.count_one(status, priority, false);
        }
    }

    /// Puts a slot into everything its status asks for.
    pub(super) fn attach(&mut self, number: u32) {
        let slot = &self.slots[number];
        let (queue_number, priority) = (slot.queue, slot.priority);
        let status = slot.status();
        match status {
            Status::Ready => self.enter_ready(number),
            Status::Scheduled => {
                let (key, due) = (slot.due_key(), slot.due_ms().unwrap_or(0));
                let State { slots, timers, queues, .. } = self;
                timers.insert(key, number, |other| slots[other].due_key());
                if let Some(queue) = queues[queue_number as usize].as_mut() {
                    queue.scheduled.insert(key, number, |other| slots[other].due_key());
                }
                self.note_due(due);
            }
            Status::Leased => self.enter_leased(number),
            Status::Parked | Status::Done | Status::Dead => {}
        }
        if let Some(queue) = self.queues[queue_number as usize].as_mut() {
            queue.count_one(status, priority, true);
        }
        let slot = &self.slots[number];
        self.by_id.mark(slot.id.get(), marks_of(status, slot.origin(), queue_number));
    }

    fn enter_leased(&mut self, number: u32) {
        let slot = &self.slots[number];
        let Some(lease) = slot.lease() else { return };
        let labels = slot.labels().to_vec();
        if lease.bound {
            self.bound.insert((lease.holder, slot.id.get()));
        }
        if let Some(deadline_ms) = lease.deadline_ms {
            let State { slots, timers, .. } = self;
            timers.insert(slots[number].due_key(), number, |other| slots[other].due_key());
            self.note_due(deadline_ms);
        }
        for label in labels {
            self.bucket_made(label).started();
        }
    }

    fn leave_leased(&mut self, number: u32) {
        let slot = &self.slots[number];
        let Some(lease) = slot.lease() else { return };
        let labels = slot.labels().to_vec();
        if lease.bound {
            self.bound.remove(&(lease.holder, slot.id.get()));
        }
        if lease.deadline_ms.is_some() {
            let State { slots, timers, .. } = self;
            timers.remove(slots[number].due_key(), number, |other| slots[other].due_key());
        }
        for label in labels {
            self.bucket_made(label).ended();
            self.promote_all(label);
            self.forget_bucket_when_full(label);
        }
    }

    pub(super) fn labels_of(&self, number: u32) -> Vec<Label> {
        self.slots[number].labels().to_vec()
    }

    fn enter_ready(&mut self, number: u32) {
        let State { slots, queues, .. } = self;
        let slot = &slots[number];
        let (key, queue_number) = (slot.ready_key(), slot.queue);
        let Some(queue) = queues[queue_number as usize].as_mut() else { return };
        let group = queue.group_for(slot.labels(), slot.is_large());
        if let Some(group) = queue.group_mut(group) {
            group.ready.insert(key, number, |other| slots[other].ready_key());
        }
        self.rehead(queue_number, group);
    }

    fn leave_ready(&mut self, number: u32) {
        let State { slots, queues, .. } = self;
        let slot = &slots[number];
        let (key, queue_number) = (slot.ready_key(), slot.queue);
        let Some(queue) = queues[queue_number as usize].as_mut() else { return };
        let Some(group) = queue.find_group(slot.labels(), slot.is_large()) else { return };
        if let Some(group) = queue.group_mut(group) {
            group.ready.remove(key, number, |other| slots[other].ready_key());
        }
        self.rehead(queue_number, group);
    }

    // ---- groups and buckets ----

    /// Enters a group into the contest (or its bucket's waiting line) under its head as it is now.
    fn rehead(&mut self, queue_number: u32, number: u32) {
        let State { slots, queues, buckets, unmatched, .. } = self;
        let Some(queue) = queues[queue_number as usize].as_mut() else { return };
        let Queue { groups, heads, .. } = queue;
        let Some(group) = groups.get_mut(number as usize).and_then(Option::as_mut) else { return };
        let head = group.ready.first().map(|slot| slots[slot].ready_key());
        if head == group.head {
            return;
        }
        let lane = &mut heads[usize::from(group.large)];
        let waiting = group
            .blocked_by
            .and_then(|label| buckets.get_mut(&label))
            .and_then(|bucket| bucket.waiting.get_mut(&queue_number));
        let contest = waiting.unwrap_or(lane);
        if let Some(old) = group.head {
            contest.remove(&(old, number));
        }
        if let Some(new) = head {
            contest.insert((new, number));
        }
        group.head = head;
        // Whatever comes first now has to be looked at.
        if let Some(id) = group.aside.take() {
            unmatched.no_longer(id);
        }
        let waits_at = group.blocked_by;
        let probed = group.probes.take();
        if head.is_none() {
            if let Some(label) = group.blocked_by.take() {
                self.forget_waiting_line(label, queue_number);
            }
            if let Some(queue) = self.queues[queue_number as usize].as_mut() {
                queue.drop_group(number);
            }
        }
        if let Some(label) = probed {
            self.promote(label, queue_number);
        }
        if let (Some(label), Some(head)) = (waits_at, head) {
            self.promote_if_first(label, queue_number, (head, number));
        }
    }

    // ---- keys ----

    pub(super) fn enter_keys(&mut self, handle: u32) {
        let State { slots, stubs, stub_keys, keys, named, .. } = self;
        if let Some(uuid) = uuid_of(slots, stubs, handle) {
            let hash = keys.hash(Origin::Workq as u8, &uuid);
            keys.insert(hash, handle);
        }
        for key in other_keys_of(slots, stub_keys, handle) {
            named.insert((key.namespace, key.name.clone()), handle);
        }
    }

    pub(super) fn leave_keys(&mut self, handle: u32) {
        let State { slots, stubs, stub_keys, keys, named, .. } = self;
        if let Some(uuid) = uuid_of(slots, stubs, handle) {
            let hash = keys.hash(Origin::Workq as u8, &uuid);
            keys.remove(hash, handle);
        }
        for key in other_keys_of(slots, stub_keys, handle) {
            let name = (key.namespace, key.name.clone());
            if named.get(&name) == Some(&handle) {
                named.remove(&name);
            }
        }
    }

    /// For the fold of a long log, which looks nothing up: from here on no job is entered under its
    /// UUID, and none may be looked for by key or submitted, until [`State::index_keys`].
    pub fn defer_keys(&mut self) {
        self.keys.defer();
    }

    /// Enters all jobs under their UUIDs. Comes once after [`State::defer_keys`].
    pub fn index_keys(&mut self) {
        let State { slots, stubs, by_id, keys, .. } = self;
        let seed = keys.seed();
        keys.fill(|| {
            let uuids = by_id.iter_after(0);
            let uuids = uuids.filter_map(|handle| Some((uuid_of(slots, stubs, handle)?, handle)));
            uuids.map(|(uuid, handle)| (seed.hash(Origin::Workq as u8, &uuid), handle))
        });
    }

    /// The job a key names, finished or not.
    pub(crate) fn find_key(&self, key: &Key) -> Option<u32> {
        match as_uuid(key) {
            Some(uuid) => self.find_uuid(&uuid),
            None => self.named.get(&(key.namespace, key.name.clone())).copied(),
        }
    }

    pub(crate) fn find_uuid(&self, uuid: &[u8; 16]) -> Option<u32> {
        let hash = self.keys.hash(Origin::Workq as u8, uuid);
        self.keys
            .find(hash, |handle| uuid_of(&self.slots, &self.stubs, handle).as_ref() == Some(uuid))
    }

    // ---- whole jobs ----

    pub(super) fn enter_expiry(&mut self, number: u32) {
        let State { slots, expiry, .. } = self;
        if let Some(expires_ms) = slots[number].expires_ms() {
            expiry.insert(slots[number].expiry_key(), number, |other| slots[other].expiry_key());
            self.note_due(expires_ms);
        }
    }

    pub(super) fn leave_expiry(&mut self, number: u32) {
        let State { slots, expiry, .. } = self;
        if slots[number].expires_ms().is_some() {
            expiry.remove(slots[number].expiry_key(), number, |other| slots[other].expiry_key());
        }
    }

    /// Puts a new slot into all indices.
    pub(super) fn insert_slot(&mut self, queue: &Bytes, mut slot: Slot) -> u32 {
        slot.queue = self.queue_made(queue);
        let (id, is_labelled) = (slot.id.get(), !slot.labels().is_empty());
        let number = self.slots.insert(slot);
        let State { slots, stubs, by_id, .. } = self;
        by_id.insert(id, number, |other| id_of(slots, stubs, other));
        self.enter_keys(number);
        self.enter_expiry(number);
        if is_labelled {
            self.enter_labels(number);
        }
        self.attach(number);
        number
    }

    /// Takes a job, finished or not, out of everything. Returns whether it was there.
    pub(super) fn remove_job(&mut self, id: JobId) -> bool {
        let Some(handle) = self.handle(id) else { return false };
        self.leave_keys(handle);
        let State { slots, stubs, by_id, .. } = self;
        by_id.remove(id.0, handle, |other| id_of(slots, stubs, other));
        let queue = if handle & STUB == 0 {
            self.leave_expiry(handle);
            self.detach(handle);
            self.leave_labels(handle);
            self.slots.remove(handle).map(|slot| slot.queue)
        } else {
            self.remove_stub(handle & !STUB)
        };
        if let Some(queue) = queue {
            self.forget_queue_if_unused(queue);
        }
        true
    }
}

/// Settings and the record that told them.
pub(super) struct QueueSettingsAt {
    pub settings: crate::queue::QueueSettings,
    pub position: u64,
}

#[inline]
pub(super) fn id_of(slots: &Slab<Slot>, stubs: &Slab<Stub>, handle: u32) -> u64 {
    if handle & STUB == 0 { slots[handle].id.get() } else { stubs[handle & !STUB].job_id().0 }
}

#[inline]
pub(super) fn uuid_of(slots: &Slab<Slot>, stubs: &Slab<Stub>, handle: u32) -> Option<[u8; 16]> {
    if handle & STUB == 0 {
        let slot = &slots[handle];
        slot.has_uuid().then_some(slot.uuid)
    } else {
        stubs[handle & !STUB].uuid().copied()
    }
}

fn other_keys_of<'a>(
    slots: &'a Slab<Slot>,
    stub_keys: &'a BTreeMap<u32, Vec<Key>>,
    handle: u32,
) -> &'a [Key] {
    if handle & STUB == 0 {
        slots[handle].other_keys()
    } else {
        stub_keys.get(&handle).map_or(&[], Vec::as_slice)
    }
}
