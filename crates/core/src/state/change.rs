//! How items enter and leave the indices. [`State::evolve`] takes a job out of what depends on its
//! status, changes it, and puts it back: so no event needs to know all indices.

use bytes::Bytes;

use super::*;
use crate::job::{JobId, Status};

impl State {
    // ---- handles ----

    pub(crate) fn id_of(&self, handle: u32) -> u64 {
        id_of(&self.slots, &self.stubs, handle)
    }

    /// The handle of a job, finished or not.
    pub(crate) fn handle(&self, id: JobId) -> Option<u32> {
        self.by_id.find(u128::from(id.0), |handle| u128::from(self.id_of(handle)))
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
            self.queue_names.remove(&queue.name);
            self.free_queues.push(number);
        }
    }

    pub(super) fn set_queue(&mut self, name: &Bytes, settings: QueueSettingsAt) {
        let number = self.queue_made(name);
        if let Some(queue) = self.queues[number as usize].as_mut() {
            queue.settings_home = (!settings.settings.is_default()).then_some(settings.position);
            queue.settings = settings.settings;
        }
        self.forget_queue_if_unused(number);
    }

    pub(super) fn set_kept_until(&mut self, number: u32, until_ms: u64) {
        let State { stubs, stub_expiry, .. } = self;
        if stubs[number].kept_until_ms().is_some() {
            let key = stubs[number].expiry_key();
            stub_expiry.remove(key, number, |other| stubs[other].expiry_key());
        }
        stubs[number].set_kept_until(until_ms);
        let key = stubs[number].expiry_key();
        stub_expiry.insert(key, number, |other| stubs[other].expiry_key());
        self.note_due(until_ms);
    }

    pub(super) fn note_due(&mut self, due_ms: u64) {
        self.due_hint_ms = self.due_hint_ms.min(due_ms);
    }

    // ---- what depends on a job's status ----

    /// Takes a slot out of everything its status put it in.
    pub(super) fn detach(&mut self, number: u32) {
        let slot = &self.slots[number];
        let queue_number = slot.queue;
        let status = slot.status();
        match status {
            Status::Ready => self.leave_ready(number),
            Status::Scheduled => {
                let due = slot.run_at_ms().unwrap_or(0);
                self.timers.remove(&(due, number));
                if let Some(queue) = self.queues[queue_number as usize].as_mut() {
                    queue.scheduled.remove(&(due, number));
                }
            }
            Status::Leased => self.leave_leased(number),
            Status::Parked | Status::Done | Status::Dead => {}
        }
        if let Some(queue) = self.queues[queue_number as usize].as_mut() {
            queue.counts[status as usize] -= 1;
        }
    }

    /// Puts a slot into everything its status asks for.
    pub(super) fn attach(&mut self, number: u32) {
        let slot = &self.slots[number];
        let queue_number = slot.queue;
        let status = slot.status();
        match status {
            Status::Ready => self.enter_ready(number),
            Status::Scheduled => {
                let due = slot.run_at_ms().unwrap_or(0);
                self.timers.insert((due, number));
                self.note_due(due);
                if let Some(queue) = self.queues[queue_number as usize].as_mut() {
                    queue.scheduled.insert((due, number));
                }
            }
            Status::Leased => self.enter_leased(number),
            Status::Parked | Status::Done | Status::Dead => {}
        }
        if let Some(queue) = self.queues[queue_number as usize].as_mut() {
            queue.counts[status as usize] += 1;
        }
    }

    fn enter_leased(&mut self, number: u32) {
        let slot = &self.slots[number];
        let Some(lease) = slot.lease() else { return };
        let (bound, holder, deadline_ms) = (lease.bound, lease.holder, lease.deadline_ms);
        if let Some(deadline_ms) = deadline_ms {
            self.timers.insert((deadline_ms, number));
            self.note_due(deadline_ms);
        }
        if bound {
            self.bound.entry(holder).or_default().insert(number);
        }
        for label in self.slots[number].labels().to_vec() {
            match self.bucket_made(label) {
                Some(bucket) => bucket.started(),
                None => *self.unruled.entry(label).or_default() += 1,
            }
        }
    }

    fn leave_leased(&mut self, number: u32) {
        let slot = &self.slots[number];
        let Some(lease) = slot.lease() else { return };
        if let Some(deadline) = lease.deadline_ms {
            self.timers.remove(&(deadline, number));
        }
        if lease.bound {
            let holder = lease.holder;
            if let Some(held) = self.bound.get_mut(&holder) {
                held.remove(&number);
                if held.is_empty() {
                    self.bound.remove(&holder);
                }
            }
        }
        for label in self.slots[number].labels().to_vec() {
            match self.buckets.get_mut(&label) {
                Some(bucket) => bucket.ended(),
                None => self.end_unruled(label),
            }
            self.promote_all(label);
        }
    }

    fn end_unruled(&mut self, label: Label) {
        if let Some(running) = self.unruled.get_mut(&label) {
            *running -= 1;
            if *running == 0 {
                self.unruled.remove(&label);
            }
        }
    }

    /// A constraint is there: what runs under its labels already counts.
    pub(super) fn rule_running(&mut self, from: Label, until: Label) {
        let labels: Vec<Label> =
            self.unruled.range(from..=until).map(|(label, _)| *label).collect();
        for label in labels {
            let running = self.unruled.remove(&label).unwrap_or_default();
            if let Some(bucket) = self.bucket_made(label) {
                (0..running).for_each(|_| bucket.started());
            }
        }
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
        let State { slots, queues, buckets, .. } = self;
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
        // A waiting group whose new head is the best of its line competes at once: its bucket may
        // be open, with a lesser group trying for all of them.
        if let (Some(label), Some(head)) = (waits_at, head) {
            let line = self.buckets.get(&label).and_then(|b| b.waiting.get(&queue_number));
            if line.is_some_and(|line| line.first() == Some(&(head, number))) {
                self.promote(label, queue_number);
            }
        }
    }

    fn forget_waiting_line(&mut self, label: Label, queue_number: u32) {
        if let Some(bucket) = self.buckets.get_mut(&label)
            && bucket.waiting.get(&queue_number).is_some_and(BTreeSet::is_empty)
        {
            bucket.waiting.remove(&queue_number);
        }
    }

    /// The best group that waits at this bucket in this queue competes again, for all of them.
    fn promote(&mut self, label: Label, queue_number: u32) {
        let State { queues, buckets, promoted, .. } = self;
        let Some(bucket) = buckets.get_mut(&label) else { return };
        let Some(line) = bucket.waiting.get_mut(&queue_number) else { return };
        let Some(queue) = queues[queue_number as usize].as_mut() else { return };
        let Queue { groups, heads, .. } = queue;
        for large in [false, true] {
            let best = line.iter().copied().find(|(_, number)| {
                groups
                    .get(*number as usize)
                    .and_then(Option::as_ref)
                    .is_some_and(|group| group.large == large)
            });
            let Some((head, number)) = best else { continue };
            line.remove(&(head, number));
            if let Some(group) = groups.get_mut(number as usize).and_then(Option::as_mut) {
                group.blocked_by = None;
                group.probes = Some(label);
                promoted.insert(queue_number);
                heads[usize::from(group.large)].insert((head, number));
            }
        }
        if line.is_empty() {
            bucket.waiting.remove(&queue_number);
        }
    }

    fn promote_all(&mut self, label: Label) {
        let queues: Vec<u32> = self
            .buckets
            .get(&label)
            .map(|bucket| bucket.waiting.keys().copied().collect())
            .unwrap_or_default();
        for queue in queues {
            self.promote(label, queue);
        }
    }

    /// All groups that wait at this bucket compete again.
    pub(super) fn release_bucket(&mut self, label: Label) {
        while self.buckets.get(&label).is_some_and(|bucket| !bucket.waiting.is_empty()) {
            self.promote_all(label);
        }
    }

    /// A group was found blocked by this bucket: it waits there from now on. An index only, nothing
    /// that is told in the log.
    pub(crate) fn hold_back(&mut self, queue_number: u32, number: u32, label: Label, now_ms: u64) {
        let State { queues, buckets, constraints, bucket_wakes, .. } = self;
        let Some(rule) = constraints.get(&label.constraint) else { return };
        let bucket = buckets.entry(label).or_insert_with(|| Bucket::full(&rule.rule));
        let Some(queue) = queues.get_mut(queue_number as usize).and_then(Option::as_mut) else {
            return;
        };
        let Queue { groups, heads, .. } = queue;
        let Some(group) = groups.get_mut(number as usize).and_then(Option::as_mut) else { return };
        let Some(head) = group.head.filter(|_| group.blocked_by.is_none()) else { return };
        heads[usize::from(group.large)].remove(&(head, number));
        group.blocked_by = Some(label);
        bucket.waiting.entry(queue_number).or_default().insert((head, number));
        if let Some(wake) = bucket.admits_at(&rule.rule, now_ms) {
            bucket_wakes.insert((wake, label));
            self.due_hint_ms = self.due_hint_ms.min(wake);
        }
        let probed = group.probes.take();
        if let Some(other) = probed.filter(|other| *other != label) {
            self.promote(other, queue_number);
        }
    }

    /// Queues in which jobs that were held back compete again, since this was last asked.
    pub fn take_promoted(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.promoted)
            .into_iter()
            .filter_map(|number| self.queue_at(number).map(|queue| queue.name.clone()))
            .collect()
    }

    /// Buckets that time has freed let their groups compete again. An index only.
    pub fn wake_buckets(&mut self, now_ms: u64) {
        while let Some((due, label)) = self.bucket_wakes.first().copied() {
            if due > now_ms {
                return;
            }
            self.bucket_wakes.remove(&(due, label));
            self.promote_all(label);
        }
    }

    pub(crate) fn bucket_made(&mut self, label: Label) -> Option<&mut Bucket> {
        let rule = &self.constraints.get(&label.constraint)?.rule;
        Some(self.buckets.entry(label).or_insert_with(|| Bucket::full(rule)))
    }

    // ---- keys ----

    pub(super) fn enter_keys(&mut self, handle: u32) {
        let State { slots, stubs, stub_keys, keys, named, .. } = self;
        if let Some(uuid) = uuid_of(slots, stubs, handle) {
            let hash = keys.hash(Origin::Workq as u8, &uuid);
            let seed = keys.clone_seed();
            keys.insert(hash, handle, |other| hash_of(&seed, slots, stubs, other));
        }
        for key in other_keys_of(slots, stub_keys, handle) {
            named.insert((key.namespace, key.name.clone()), handle);
        }
    }

    pub(super) fn leave_keys(&mut self, handle: u32) {
        let State { slots, stubs, stub_keys, keys, named, .. } = self;
        if let Some(uuid) = uuid_of(slots, stubs, handle) {
            let hash = keys.hash(Origin::Workq as u8, &uuid);
            let seed = keys.clone_seed();
            keys.remove(hash, handle, |other| hash_of(&seed, slots, stubs, other));
        }
        for key in other_keys_of(slots, stub_keys, handle) {
            let name = (key.namespace, key.name.clone());
            if named.get(&name) == Some(&handle) {
                named.remove(&name);
            }
        }
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
        let id = slot.id.get();
        let number = self.slots.insert(slot);
        let State { slots, stubs, by_id, .. } = self;
        by_id.insert(u128::from(id), number, |other| u128::from(id_of(slots, stubs, other)));
        self.enter_keys(number);
        self.enter_expiry(number);
        self.attach(number);
        number
    }

    /// Takes a job, finished or not, out of everything. Returns whether it was there.
    pub(super) fn remove_job(&mut self, id: JobId) -> bool {
        let Some(handle) = self.handle(id) else { return false };
        self.leave_keys(handle);
        let State { slots, stubs, by_id, .. } = self;
        by_id.remove(u128::from(id.0), handle, |other| u128::from(id_of(slots, stubs, other)));
        let queue = if handle & STUB == 0 {
            self.leave_expiry(handle);
            self.detach(handle);
            self.slots.remove(handle).map(|slot| slot.queue)
        } else {
            self.remove_stub(handle & !STUB)
        };
        if let Some(queue) = queue {
            self.forget_queue_if_unused(queue);
        }
        true
    }

    fn remove_stub(&mut self, number: u32) -> Option<u32> {
        let State { stubs, stub_expiry, queues, stub_keys, .. } = self;
        let key = stubs[number].expiry_key();
        stub_expiry.remove(key, number, |other| stubs[other].expiry_key());
        stub_keys.remove(&(number | STUB));
        let stub = stubs.remove(number)?;
        if let Some(queue) = queues[stub.queue() as usize].as_mut() {
            queue.counts[stub.status() as usize] -= 1;
        }
        Some(stub.queue())
    }

    /// Puts a stub into all indices, in the place of the unfinished job if there is one.
    pub(super) fn insert_stub(&mut self, image: &crate::job::JobImage, at: Place) {
        let id = JobId(image.id);
        let status = image.status();
        let queue = self.queue_made(&image.queue);
        // Counted before the unfinished job goes, so that the queue is not forgotten in between.
        if let Some(queue) = self.queues[queue as usize].as_mut() {
            queue.counts[status as usize] += 1;
        }
        let uuid = image.uuid().or_else(|| image.keys.iter().find_map(as_uuid));
        let home = image.needs().map_or(at.position, |needs| needs.min(at.position));
        let stub = Stub::new(id, status, uuid, queue, at, home, image.kept_until_ms);
        let key = stub.expiry_key();
        match self.handle(id) {
            Some(handle) if handle & STUB == 0 && self.slots[handle].other_keys().is_empty() => {
                self.replace_by_stub(handle, stub);
            }
            _ => {
                self.remove_job(id);
                let kept = image.keys.iter().filter(|key| {
                    key.scope == crate::job::Scope::WhileKept as i32 && as_uuid(key).is_none()
                });
                let kept: Vec<Key> = kept.cloned().collect();
                let handle = self.stubs.insert(stub) | STUB;
                if !kept.is_empty() {
                    self.stub_keys.insert(handle, kept);
                }
                let State { slots, stubs, by_id, .. } = self;
                by_id.insert(u128::from(id.0), handle, |other| {
                    u128::from(id_of(slots, stubs, other))
                });
                self.enter_keys(handle);
            }
        }
        if let Some(kept_until_ms) = image.kept_until_ms
            && let Some(number) = self.stub(id)
        {
            let State { stubs, stub_expiry, .. } = self;
            stub_expiry.insert(key, number, |other| stubs[other].expiry_key());
            self.note_due(kept_until_ms);
        }
    }

    /// The common case: the name and the id stay where they are in their indices, and lead to the
    /// stub from now on.
    fn replace_by_stub(&mut self, slot_number: u32, stub: Stub) {
        self.leave_expiry(slot_number);
        self.detach(slot_number);
        let id = self.slots[slot_number].id.get();
        let handle = self.stubs.insert(stub) | STUB;
        let State { slots, stubs, by_id, keys, .. } = self;
        by_id.replace(u128::from(id), slot_number, handle, |other| {
            u128::from(id_of(slots, stubs, other))
        });
        if let Some(uuid) = uuid_of(slots, stubs, slot_number) {
            keys.replace(keys.hash(Origin::Workq as u8, &uuid), slot_number, handle);
        }
        if let Some(slot) = self.slots.remove(slot_number) {
            self.forget_queue_if_unused(slot.queue);
        }
    }
}

/// Settings and the record that told them.
pub(super) struct QueueSettingsAt {
    pub settings: crate::queue::QueueSettings,
    pub position: u64,
}

fn id_of(slots: &Slab<Slot>, stubs: &Slab<Stub>, handle: u32) -> u64 {
    if handle & STUB == 0 { slots[handle].id.get() } else { stubs[handle & !STUB].job_id().0 }
}

fn uuid_of(slots: &Slab<Slot>, stubs: &Slab<Stub>, handle: u32) -> Option<[u8; 16]> {
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

fn hash_of(seed: &keys::Seed, slots: &Slab<Slot>, stubs: &Slab<Stub>, handle: u32) -> u64 {
    let uuid = uuid_of(slots, stubs, handle).unwrap_or_default();
    seed.hash(Origin::Workq as u8, &uuid)
}
