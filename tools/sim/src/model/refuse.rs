//! Why a command may be refused.

use spindle_core::command::{Claim, Compact, Edit, Lease, Matched, Submit};
use spindle_core::job::{LABELS_MAX, Label, Origin};
use spindle_core::places::Stage;
use spindle_core::queue::QUEUE_NAME_BYTES_MAX;
use spindle_core::{BytesRef, Command, JobId, JobImage, Rejection, Status};

use super::{Model, names};

/// A lease names at most this many queues.
const LEASE_QUEUES_MAX: usize = 1024;

/// The reasons to refuse a command; with several, the core names any of them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Refusals {
    /// One of these, if there are any.
    must: Vec<Rejection>,
    /// Or one of these, or none.
    may: Vec<Rejection>,
}

impl Refusals {
    /// Whether there is no reason.
    pub fn is_empty(&self) -> bool {
        self.must.is_empty()
    }

    /// Whether there is a reason, or may be.
    pub(super) fn may_be(&self) -> bool {
        !(self.must.is_empty() && self.may.is_empty())
    }

    /// Whether this reason certainly applies.
    pub(super) fn must_be(&self, rejection: &Rejection) -> bool {
        self.must.contains(rejection)
    }

    /// Whether this is one of the reasons.
    pub fn allow(&self, rejection: &Rejection) -> bool {
        self.must.iter().chain(&self.may).any(|reason| match (reason, rejection) {
            (Rejection::OutOfRange(_), Rejection::OutOfRange(_)) => true,
            (reason, rejection) => reason == rejection,
        })
    }

    /// One reason, if it applies.
    pub(super) fn when(applies: bool, reason: Rejection) -> Refusals {
        Refusals::default().or(applies, reason)
    }

    /// One more reason, if it applies.
    pub(super) fn or(mut self, applies: bool, reason: Rejection) -> Refusals {
        self.must.extend(applies.then_some(reason));
        self
    }

    /// One more reason that may be named, if it applies.
    fn or_perhaps(mut self, applies: bool, reason: Rejection) -> Refusals {
        self.may.extend(applies.then_some(reason));
        self
    }
}

impl Model {
    /// Why a command would be refused now; empty when it has to be accepted.
    pub fn refusals(&self, command: &Command, now_ms: u64) -> Refusals {
        match command {
            Command::Submit(submit) => {
                let is_bound = submit.batch.is_some() || !submit.after.is_empty();
                let refusals = self.refuse_submit(submit, now_ms);
                match submit.origin {
                    Origin::Lightjq => refusals,
                    _ => self.refuse_place(&submit.queue, is_bound, refusals),
                }
            }
            Command::Lease(lease) => self.refuse_lease(lease, now_ms),
            Command::Extend(extend) => self.refuse_claim(extend.claim, true),
            Command::Finish(finish) => self.refuse_claim(finish.claim, false),
            Command::DropTimeout { claim } | Command::Release { claim, .. } => {
                self.refuse_claim(*claim, true)
            }
            Command::Retry { image, payload } => self.refuse_retry(image, payload.as_ref()),
            Command::Edit(edit) => self.refuse_edit(edit),
            Command::Cancel { id } => {
                self.refuse_deleted(*id, Rejection::Deleted, self.refuse_finished(*id))
            }
            Command::PayloadDamaged { id } => self.refuse_finished(*id),
            Command::DeleteLater { id, .. } => {
                self.refuse_deleted(*id, Rejection::Deleted, self.refuse_absent(*id))
            }
            Command::Undelete { id } => self.refuse_undo(*id),
            Command::Delete { id, .. } => self.refuse_absent(*id),
            Command::ResultRead { id, .. } => self.refuse_unfinished(*id),
            Command::Persist { id, .. } => {
                let refusals = self.refuse_finished(*id);
                let applies = !refusals.is_empty();
                refusals.or(applies, Rejection::NotFound)
            }
            Command::SetState { id, revision, .. } => {
                let refusals = self.refuse_changed(*id, *revision);
                self.refuse_deleted(*id, Rejection::NotFound, refusals)
            }
            Command::AddEvent { id, .. } => {
                let refusals = self.refuse_changed(*id, None);
                self.refuse_deleted(*id, Rejection::NotFound, refusals)
            }
            Command::SetQueue { name, .. } => {
                let is_wrong = !is_queue_name(name);
                let refusals = Refusals::when(is_wrong, Rejection::OutOfRange("queue name"));
                self.refuse_settings(name, refusals)
            }
            Command::SetConstraint(rule, scope) => {
                let known = rule.number == 0 || self.rules.contains_key(&rule.number);
                let refusals = Refusals::when(!known, Rejection::NoConstraint);
                self.refuse_scope(rule, *scope, refusals)
            }
            Command::RemoveConstraint { number } => self.refuse_unknown(*number),
            Command::Relabel { id, revision, matched } => {
                let refusals = self.refuse_changed(*id, *revision);
                if self.job(*id).is_none() {
                    return refusals;
                }
                self.refuse_matched(matched, refusals)
            }
            Command::NoteRelabelled { revision, .. } => {
                let stale = *revision != self.constraints_revision;
                Refusals::when(stale, Rejection::StaleConstraints)
            }
            Command::Start { epoch, .. } => {
                Refusals::when(*epoch <= self.epoch, Rejection::OldEpoch)
            }
            Command::Audited(audited) => match &audited.command {
                Some(command) => self.refusals(command, now_ms),
                None => Refusals::default(),
            },
            Command::SetSchedule(set) => self.refuse_schedule(&set.schedule),
            Command::RemoveSchedule { name } => self.refuse_unknown_schedule(name),
            Command::FireSchedule(fire) => self.refuse_firing(fire, now_ms),
            Command::OpenBatch(open) => self.refuse_opening(open),
            Command::SealBatch { id } => self.refuse_sealing(*id),
            Command::CancelBatch { id } => self.refuse_unknown_batch(*id),
            Command::PlaceQueue { queue, shard } => self.refuse_placing(queue, *shard),
            Command::EndDrain { queue, version } => self.refuse_end_of_drain(queue, *version),
            Command::KnowPlace { queue, version, shard, .. } => {
                self.refuse_known_place(queue, *version, *shard)
            }
            Command::SealQueue { queue, version } => {
                self.refuse_step(queue, *version, Stage::Offered)
            }
            Command::LeaveQueue { queue, version } => {
                self.refuse_step(queue, *version, Stage::Sealed)
            }
            Command::MoveConsumer(consumer) => Self::refuse_consumer(consumer),
            Command::Compact(item) => self.refuse_compaction(item),
            Command::ReturnIds { from } => {
                let reserved = 1..=self.ids_until();
                let batches = self.batches.keys();
                let in_use = self.jobs.keys().chain(batches).any(|id| id >= from);
                Refusals::when(!reserved.contains(from), Rejection::OutOfRange("id"))
                    .or(in_use, Rejection::IdInUse)
            }
            Command::HolderGone { .. }
            | Command::Recover { .. }
            | Command::ReserveIds { .. }
            | Command::Tick { .. }
            | Command::RaiseFormat { .. } => Refusals::default(),
        }
    }

    pub(super) fn refuse_absent(&self, id: JobId) -> Refusals {
        Refusals::when(self.job(id).is_none(), Rejection::NotFound)
    }

    fn refuse_finished(&self, id: JobId) -> Refusals {
        let finished = self.job(id).is_some_and(|job| job.status().is_finished());
        self.refuse_absent(id).or(finished, Rejection::Finished)
    }

    fn refuse_unfinished(&self, id: JobId) -> Refusals {
        let unfinished = self.job(id).is_some_and(|job| !job.status().is_finished());
        self.refuse_absent(id).or(unfinished, Rejection::NotFinished)
    }

    /// A job that is finished, or has another revision than this one.
    fn refuse_changed(&self, id: JobId, revision: Option<u32>) -> Refusals {
        let differs = |job: &JobImage| revision.is_some_and(|revision| revision != job.revision);
        self.refuse_finished(id).or(self.job(id).is_some_and(differs), Rejection::Stale)
    }

    fn refuse_unknown(&self, constraint: u32) -> Refusals {
        Refusals::when(!self.rules.contains_key(&constraint), Rejection::NoConstraint)
    }

    pub(super) fn refuse_submit(&self, submit: &Submit, now_ms: u64) -> Refusals {
        let starts_ms = submit.run_at_ms.unwrap_or(now_ms);
        let expires_ms = submit.ttl_ms.map(|ttl| starts_ms.saturating_add(ttl));
        let over = expires_ms.is_some_and(|expires| expires <= now_ms);
        let id = submit.id.0;
        let fresh = id > 0 && id < self.ids_until() && !self.has_number(id);
        let stale = submit.constraints_revision != self.constraints_revision;
        let mut refusals = Refusals::when(over, Rejection::OutOfRange("ttl"))
            .or(!fresh, Rejection::IdNotReserved)
            .or(!is_queue_name(&submit.queue), Rejection::OutOfRange("queue name"))
            .or(!are_labels(&submit.labels), Rejection::OutOfRange("labels"))
            .or(stale, Rejection::StaleConstraints)
            .or(self.is_server_full(), Rejection::ServerFull)
            .or(
                self.is_full(&submit.queue, submit.priority, submit.payload.len),
                Rejection::QueueFull,
            );
        let holders = names(submit).into_iter().filter_map(|key| self.key_holder(&key));
        refusals.must.extend(holders.map(Rejection::KeyTaken));
        let refusals = self.refuse_after(submit, refusals);
        let refusals = self.refuse_batch_of(submit, refusals);
        self.refuse_values(&submit.labels, refusals)
    }

    fn is_server_full(&self) -> bool {
        let unfinished = self.jobs().filter(|job| !job.status().is_finished()).count() as u64;
        unfinished >= self.defaults.unfinished_max
    }

    /// Whether a queue takes no more jobs of this priority (high, normal or low) with such a payload.
    fn is_full(&self, queue: &[u8], priority: i64, payload_bytes: u32) -> bool {
        let settings = self.settings(queue);
        let payload_len = |job: &JobImage| job.payload.as_ref().map_or(0, |payload| payload.len);
        let in_queue = |job: &&JobImage| job.queue == queue && !job.status().is_finished();
        let held: u64 = self.jobs().filter(in_queue).map(|job| u64::from(payload_len(job))).sum();
        if settings.bytes_max.is_some_and(|max| held + u64::from(payload_bytes) > max) {
            return true;
        }
        let all = self.unfinished(queue, |_| true);
        let class = usize::try_from(1 - priority.signum()).expect("it is 0, 1 or 2");
        let class_max = settings.jobs_max_by_class.get(class).copied().unwrap_or(0);
        let jobs_max = settings.jobs_max.unwrap_or(self.defaults.queue_unfinished_max);
        all >= jobs_max || (class_max > 0 && all >= class_max)
    }

    fn refuse_lease(&self, lease: &Lease, now_ms: u64) -> Refusals {
        let (choices, certain) = self.lease_choices(lease, now_ms);
        let too_many = lease.queues.len() > LEASE_QUEUES_MAX;
        Refusals::when(too_many, Rejection::OutOfRange("queues"))
            .or(choices.is_empty(), Rejection::NothingReady)
            .or_perhaps(!certain, Rejection::NothingReady)
    }

    fn refuse_claim(&self, claim: Claim, needs_lease: bool) -> Refusals {
        let Some(job) = self.job(claim.id()) else { return self.refuse_absent(claim.id()) };
        let is_held = match claim {
            Claim::Token { epoch, attempt, .. } => {
                let is_epoch = job.lease.as_ref().is_some_and(|lease| lease.epoch == epoch);
                is_epoch && job.attempts == attempt && !job.status().is_finished()
            }
            Claim::Unfinished { .. } => !needs_lease || job.lease.is_some(),
        };
        let refusals = self.refuse_finished(claim.id()).or(!is_held, Rejection::NotHeld);
        self.refuse_deleted(claim.id(), Rejection::NotFound, refusals)
    }

    fn refuse_retry(&self, image: &JobImage, new_payload: Option<&BytesRef>) -> Refusals {
        let refusals = self.refuse_unfinished(JobId(image.id));
        let refusals = self.refuse_deleted(JobId(image.id), Rejection::Deleted, refusals);
        let Some(job) = self.job(JobId(image.id)) else { return refusals };
        let payload = new_payload.or(job.payload.as_ref());
        let damaged = payload.is_none() && refusals.is_empty();
        let payload_bytes = payload.map_or(0, |payload| payload.len);
        let is_full = self.is_full(&job.queue, job.priority, payload_bytes);
        let refusals = refusals
            .or(damaged, Rejection::PayloadDamaged)
            .or(self.is_server_full(), Rejection::ServerFull)
            .or(is_full, Rejection::QueueFull);
        self.refuse_values(&image.options().labels, refusals)
    }

    fn refuse_edit(&self, edit: &Edit) -> Refusals {
        let Some(job) = self.job(edit.id) else { return self.refuse_absent(edit.id) };
        let bad_name = edit.queue.as_ref().is_some_and(|queue| !is_queue_name(queue));
        let payload_bytes = job.payload.as_ref().map_or(0, |payload| payload.len);
        let priority = edit.priority.unwrap_or(job.priority);
        let moved = edit.queue.as_ref().filter(|queue| **queue != job.queue);
        let is_full = moved.is_some_and(|queue| self.is_full(queue, priority, payload_bytes));
        let refusals = self
            .refuse_deleted(
                edit.id,
                Rejection::Deleted,
                self.refuse_changed(edit.id, edit.revision),
            )
            .or(is_full, Rejection::QueueFull)
            .or(job.status() == Status::Leased, Rejection::Leased)
            .or(bad_name, Rejection::OutOfRange("queue name"));
        let refusals = match &edit.queue {
            Some(queue) => self.refuse_place(queue, false, refusals),
            None => refusals,
        };
        match &edit.matched {
            Some(matched) => self.refuse_matched(matched, refusals),
            None => refusals,
        }
    }

    fn refuse_matched(&self, matched: &Matched, refusals: Refusals) -> Refusals {
        let stale = matched.constraints_revision != self.constraints_revision;
        let refusals = refusals
            .or(!are_labels(&matched.labels), Rejection::OutOfRange("labels"))
            .or(stale, Rejection::StaleConstraints);
        self.refuse_values(&matched.labels, refusals)
    }

    fn refuse_values(&self, labels: &[Label], refusals: Refusals) -> Refusals {
        labels.iter().fold(refusals, |refusals, label| {
            let (must, may) = self.has_too_many_values(*label);
            refusals.or(must, Rejection::TooManyValues).or_perhaps(may, Rejection::TooManyValues)
        })
    }

    fn refuse_compaction(&self, item: &Compact) -> Refusals {
        match item {
            Compact::Job { id, revision, .. } => {
                let foreground = self.job(*id).is_some_and(|job| job.foreground);
                self.refuse_changed(*id, Some(*revision)).or(foreground, Rejection::Foreground)
            }
            Compact::Page { id, old, .. } => {
                let moved = |job: &JobImage| !job.options().pages.contains(old);
                self.refuse_finished(*id).or(self.job(*id).is_some_and(moved), Rejection::Stale)
            }
            Compact::Finished(image) => {
                let refusals = self.refuse_unfinished(JobId(image.id));
                let live = self.job(JobId(image.id)).is_some() && !refusals.is_empty();
                refusals.or(live, Rejection::Stale)
            }
            Compact::Queue(name) => {
                let used = self.jobs().any(|job| job.queue == *name);
                let known = used || self.queues.contains_key(name);
                Refusals::when(!known, Rejection::NotFound)
            }
            Compact::Constraint { number, .. } => self.refuse_unknown(*number),
            Compact::Schedule(name) => self.refuse_unknown_schedule(name),
            Compact::Batch(id) => self.refuse_unknown_batch(*id),
            Compact::Server | Compact::Audit { .. } => Refusals::default(),
        }
    }
}

fn is_queue_name(name: &[u8]) -> bool {
    !name.is_empty() && name.len() <= QUEUE_NAME_BYTES_MAX
}

fn are_labels(labels: &[Label]) -> bool {
    labels.len() <= LABELS_MAX
}
