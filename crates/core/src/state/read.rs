//! Reading: what doors and lists show.

use super::*;
use crate::job::{JobId, Status};
use crate::queue::{LimitScope, QueuePattern};

/// Groups whose jobs are counted in one look: a queue may have as many groups as its constraints have
/// values.
pub(super) const GROUPS_COUNTED_MAX: usize = 1_024;

/// Some of the queues whose ready jobs a constraint holds back.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HeldBackSlice {
    /// Names, and how many ready jobs cannot start now.
    pub queues: Vec<(Bytes, usize)>,
    /// The queue after which to continue; none at the end.
    pub next: Option<Bytes>,
    /// A queue had too many groups to look at all of them.
    pub is_partial: bool,
}

/// A queue in a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueListing {
    /// Its name.
    pub name: Bytes,
    /// Jobs by the number of their status.
    pub counts: [usize; Status::ALL.len()],
    /// Nothing is leased from it.
    pub paused: bool,
}

impl State {
    /// A job by its number.
    pub fn job(&self, id: JobId) -> Option<Found<'_>> {
        self.handle(id).map(|handle| self.found(handle))
    }

    /// An unfinished job by its number.
    pub fn live(&self, id: JobId) -> Option<JobView<'_>> {
        self.job(id)?.live()
    }

    /// A job by a key.
    pub fn job_by_key(&self, key: &Key) -> Option<Found<'_>> {
        self.find_key(key).map(|handle| self.found(handle))
    }

    /// The jobs that have a key of a namespace with this prefix, by the names of their keys. A door
    /// whose names hold within a scope (one function of many) puts the scope after the name, and
    /// finds the name in all scopes by one lookup.
    pub fn jobs_by_key_prefix(
        &self,
        namespace: i32,
        prefix: Bytes,
    ) -> impl Iterator<Item = Found<'_>> {
        let keys = self.named.range(Named::new(namespace, prefix.clone())..);
        let fits =
            move |named: &Named| named.namespace == namespace && named.name.starts_with(&prefix);
        keys.take_while(move |(named, _)| fits(named)).map(|(_, handle)| self.found(*handle))
    }

    /// A job by its UUID.
    pub fn job_by_uuid(&self, uuid: &[u8; 16]) -> Option<Found<'_>> {
        self.find_uuid(uuid).map(|handle| self.found(handle))
    }

    /// Jobs by number, from this one on.
    pub fn jobs_from(&self, id: JobId) -> impl Iterator<Item = Found<'_>> {
        self.by_id.iter_from(id.0, |handle| self.id_of(handle)).map(|handle| self.found(handle))
    }

    /// How many jobs there are, finished ones included.
    pub fn jobs_count(&self) -> usize {
        self.by_id.len()
    }

    /// How many jobs are neither done nor dead.
    pub fn unfinished_count(&self) -> usize {
        self.by_id.len() - self.jobs.finished.len()
    }

    /// How many finished jobs are kept.
    pub fn finished_count(&self) -> usize {
        self.jobs.finished.len()
    }

    /// A queue by its name.
    pub fn queue(&self, name: &[u8]) -> Option<&Queue> {
        self.queue_number(name).and_then(|number| self.queue_at(number))
    }

    /// The queue that a job is in, finished or not.
    pub fn queue_of(&self, found: &Found<'_>) -> Option<&Queue> {
        self.queue_at(found.queue())
    }

    /// Queues by name, from this one on (or after it).
    pub fn queues_from<'a>(
        &'a self,
        name: &[u8],
        exclusive: bool,
    ) -> impl Iterator<Item = QueueListing> + 'a {
        use std::ops::Bound;
        let start = if exclusive { Bound::Excluded(name) } else { Bound::Included(name) };
        self.queue_names
            .range::<[u8], _>((start, Bound::Unbounded))
            .filter_map(|(_, number)| self.queue_at(*number))
            .map(|queue| QueueListing {
                name: queue.name.clone(),
                counts: queue.counts,
                paused: queue.settings.paused,
            })
    }

    /// Queues whose ready jobs a constraint holds back, by name, after this one: a slice of them,
    /// because the number of groups looked at is bounded. If a queue has more groups than that, some
    /// of its jobs may not be counted.
    pub fn held_back(&self, rule: &Constraint, after: Option<&[u8]>, now_ms: u64) -> HeldBackSlice {
        use std::ops::Bound;
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut slice = HeldBackSlice::default();
        let mut left = GROUPS_COUNTED_MAX;
        for number in self.queue_names.range::<[u8], _>((start, Bound::Unbounded)).map(|it| it.1) {
            let Some(queue) = self.queue_at(*number) else { continue };
            let groups_count = queue.groups_count();
            if slice.next.is_some() && groups_count > left {
                return slice;
            }
            let looked_at = queue.groups.iter().take(left);
            let jobs = looked_at.map(|group| self.held_back_of(group, rule, now_ms)).sum();
            slice.is_partial |= groups_count > left;
            if jobs > 0 {
                slice.queues.push((queue.name.clone(), jobs));
            }
            slice.next = Some(queue.name.clone());
            left = left.saturating_sub(groups_count);
        }
        slice.next = None;
        slice
    }

    /// Ready jobs of a group that a constraint holds back.
    fn held_back_of(&self, group: &Group, rule: &Constraint, now_ms: u64) -> usize {
        let mut labels = group.labels.iter().filter(|label| label.constraint == rule.number);
        let is_held =
            |label: &Label| self.bucket(*label).is_some_and(|bucket| !bucket.admits(rule, now_ms));
        if group.ready.is_empty() || !labels.any(is_held) { 0 } else { group.ready.len() }
    }

    /// Whether there is a job, a schedule or a batch of a queue.
    pub(crate) fn has_any_of(&self, queue: &[u8]) -> bool {
        let has_jobs = |queue: &Queue| Status::ALL.iter().any(|status| queue.count(*status) > 0);
        self.queue(queue).is_some_and(has_jobs)
            || self.schedules(None).any(|it| it.schedule.job.queue == queue)
            || self.batches_from(JobId(0)).any(|batch| batch.queue == queue)
    }

    /// How many queues there are.
    pub fn queues_count(&self) -> usize {
        self.queue_names.len()
    }

    /// Scheduled jobs of a queue, next one first.
    pub fn scheduled_jobs<'a>(&'a self, queue: &[u8]) -> impl Iterator<Item = JobView<'a>> + 'a {
        self.queue(queue)
            .into_iter()
            .flat_map(|queue| queue.scheduled.iter_after(0))
            .map(|number| self.view(number))
    }

    /// No deadline lies before this. Cheap, but it may lie too early: see
    /// [`State::renew_due_hint`].
    pub fn due_hint_ms(&self) -> u64 {
        self.due_hint_ms
    }

    /// Makes the hint exact again. This is not logged.
    pub fn renew_due_hint(&mut self, hold_expiry: bool) {
        self.due_hint_ms = self.next_deadline(hold_expiry).unwrap_or(u64::MAX);
    }

    /// When something becomes due; with `hold_expiry`, leaving out what TTLs would delete.
    pub fn next_deadline(&self, hold_expiry: bool) -> Option<u64> {
        let timer = self.timers.first().and_then(|number| self.jobs.live[number].due_ms());
        let wakes = [self.bucket_wakes.first(), self.bucket_ends.first()];
        let wake = wakes.into_iter().flatten().map(|(due, _)| *due).min();
        let batch = self.next_batch_end().filter(|_| !hold_expiry);
        let (live, finished) = if hold_expiry {
            (None, None)
        } else {
            (
                self.expiry.first().and_then(|number| self.jobs.live[number].goes_ms()),
                self.jobs
                    .finished
                    .expiring()
                    .next()
                    .and_then(|number| self.jobs.finished.job(number).kept_until_ms()),
            )
        };
        let dependents = self.has_ended_blockers().then_some(0);
        [timer, wake, live, finished, batch, dependents].into_iter().flatten().min()
    }

    /// Whether a connection holds leases bound to it.
    pub fn holds_any(&self, holder: u64) -> bool {
        self.held_by(holder).next().is_some()
    }

    /// The server item.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// What jobs get that set nothing themselves.
    pub fn defaults(&self) -> &Defaults {
        &self.defaults
    }

    /// The constraints, by number.
    pub fn constraints(&self) -> impl Iterator<Item = &Constraint> {
        self.constraints.values().map(|kept| &kept.rule)
    }

    /// A bucket of a constraint; none means that it is full and that no job of it runs.
    pub fn bucket(&self, label: Label) -> Option<BucketView<'_>> {
        let bucket = self.buckets.get(&label)?;
        Some(BucketView { bucket, level: self.rebased(label, bucket) })
    }

    /// How many buckets a constraint has.
    pub fn buckets_count_of(&self, number: u32) -> usize {
        self.values.get(&number).copied().unwrap_or_default()
    }

    /// Queues that are fair by a field of the payload: their names, and JSON Pointers.
    pub fn fair_fields(&self) -> impl Iterator<Item = (&Bytes, &str)> {
        let queues = self.fair_queues.iter().filter_map(|number| self.queue_at(*number));
        let fields = queues
            .filter_map(|queue| Some((&queue.name, &queue.settings.fair.as_ref()?.field[..])));
        fields.filter(|(_, field)| !field.is_empty())
    }

    /// How many constraints there are.
    pub fn constraints_count(&self) -> usize {
        self.constraints.len()
    }

    /// Whether all jobs have been matched against the constraints as they are.
    pub fn is_relabelled(&self) -> bool {
        let server = &self.server;
        let done = (server.relabelled_revision, server.relabelled_below);
        server.constraints_revision == 0 || done == (server.constraints_revision, u64::MAX)
    }

    /// The revision a constraint was set with.
    pub fn constraint_revision(&self, number: u32) -> Option<u64> {
        self.constraints.get(&number).map(|kept| kept.revision)
    }

    /// Whether the jobs that a constraint takes are all on one shard. One that cannot be read takes none.
    pub fn scope_of(&self, rule: &Constraint) -> LimitScope {
        let seat = self.server.seat().unwrap_or_default();
        let queues = QueuePattern::decode(&rule.matcher);
        match queues.is_ok_and(|queues| !seat.has_on_one_shard(&queues)) {
            true => LimitScope::PerShard,
            false => LimitScope::Whole,
        }
    }

    /// Whether it would be one limit for queues that may be on several shards.
    pub fn spans_shards(&self, rule: &Constraint, scope: LimitScope) -> bool {
        scope == LimitScope::Whole && self.scope_of(rule) == LimitScope::PerShard
    }

    /// How many buckets there are.
    pub fn buckets_count(&self) -> usize {
        self.buckets.len()
    }

    /// Items besides jobs that need a record below this position.
    pub fn items_needing(&self, below: u64) -> Vec<crate::command::Compact> {
        use crate::command::Compact;
        let queues = self.queue_names.values().filter_map(|number| self.queue_at(*number));
        let mut items: Vec<Compact> = queues
            .filter(|queue| queue.settings_record.is_some_and(|record| record < below))
            .map(|queue| Compact::Queue(queue.name.clone()))
            .collect();
        let rules = self.constraints.iter().filter(|(_, kept)| kept.oldest_record < below);
        items.extend(rules.map(|(number, _)| Compact::Constraint { number: *number, from: 0 }));
        let schedules = self.schedules_needing(below);
        items.extend(schedules.map(|name| Compact::Schedule(name.to_owned())));
        items.extend(self.batches_needing(below).map(Compact::Batch));
        if self.audit_needs(below) {
            items.push(Compact::Audit { from: 0, below });
        }
        if self.server_record < below {
            items.push(Compact::Server);
        }
        items
    }

    pub(crate) fn due_timers(&self, now_ms: u64) -> impl Iterator<Item = u32> + '_ {
        self.timers
            .iter_after(0)
            .take_while(move |n| self.jobs.live[*n].due_ms().is_some_and(|at| at <= now_ms))
    }

    pub(crate) fn due_expiries(&self, now_ms: u64) -> impl Iterator<Item = u64> + '_ {
        let live = self
            .expiry
            .iter_after(0)
            .take_while(move |n| self.jobs.live[*n].goes_ms().is_some_and(|at| at <= now_ms))
            .map(|number| self.jobs.live[number].id());
        let finished = &self.jobs.finished;
        let finished = finished
            .expiring()
            .map(|number| finished.job(number))
            .take_while(move |job| job.kept_until_ms().is_some_and(|at| at <= now_ms))
            .map(|job| job.id());
        live.chain(finished)
    }

    fn held_by(&self, holder: u64) -> impl Iterator<Item = JobId> + '_ {
        self.bound.range((holder, 0)..=(holder, u64::MAX)).map(|(_, id)| JobId(*id))
    }

    /// Jobs whose leases are bound to a connection, by number.
    pub(crate) fn bound_to(&self, holder: u64) -> impl Iterator<Item = u32> + '_ {
        self.held_by(holder).filter_map(|id| self.find_live(id))
    }

    /// A constraint by its number.
    pub fn constraint(&self, number: u32) -> Option<&Constraint> {
        self.constraints.get(&number).map(|kept| &kept.rule)
    }

    /// The buckets of a constraint, by value, from this one on.
    pub fn buckets_of(
        &self,
        number: u32,
        from: u64,
    ) -> impl Iterator<Item = (Label, BucketView<'_>)> {
        let from = Label { constraint: number, value: from };
        let until = Label { constraint: number, value: u64::MAX };
        self.buckets.range(from..=until).map(|(label, bucket)| {
            (*label, BucketView { bucket, level: self.rebased(*label, bucket) })
        })
    }
}
