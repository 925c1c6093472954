//! Why a command may be refused.

use spindle_core::command::{Claim, Compact, Edit, Lease, Matched, Submit};
use spindle_core::job::{LABELS_MAX, Label};
use spindle_core::queue::QUEUE_NAME_BYTES_MAX;
use spindle_core::{Command, JobId, JobImage, Rejection, Status};

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
    /// Nothing stands against it.
    pub fn is_empty(&self) -> bool {
        self.must.is_empty()
    }

    /// Whether this is one of the reasons.
    pub fn allow(&self, rejection: &Rejection) -> bool {
        self.must.iter().chain(&self.may).any(|reason| match (reason, rejection) {
            (Rejection::OutOfRange(_), Rejection::OutOfRange(_)) => true,
            (reason, rejection) => reason == rejection,
        })
    }

    fn add(&mut self, applies: bool, reason: Rejection) {
        if applies {
            self.must.push(reason);
        }
    }

    fn may(&mut self, applies: bool, reason: Rejection) {
        if applies {
            self.may.push(reason);
        }
    }

    fn one(reason: Rejection) -> Refusals {
        Refusals { must: vec![reason], may: Vec::new() }
    }
}

impl Model {
    /// Why a command would be refused now; empty when it has to be accepted.
    pub fn refusals(&self, command: &Command, now_ms: u64) -> Refusals {
        match command {
            Command::Submit(submit) => self.refuse_submit(submit, now_ms),
            Command::Lease(lease) => self.refuse_lease(lease, now_ms),
            Command::Extend(extend) => self.refuse_claim(extend.claim, true),
            Command::Finish(finish) => self.refuse_claim(finish.claim, false),
            Command::DropTimeout { claim } | Command::Release { claim, .. } => {
                self.refuse_claim(*claim, true)
            }
            Command::Retry { image, payload } => self.refuse_retry(image, payload.is_some()),
            Command::Edit(edit) => self.refuse_edit(edit),
            Command::Cancel { id } | Command::PayloadDamaged { id } => self.refuse_finished(*id),
            Command::Delete { id, .. } => self.refuse_absent(*id),
            Command::ResultRead { id, .. } => match self.job(*id) {
                None => Refusals::one(Rejection::NotFound),
                Some(job) if !job.status().is_finished() => Refusals::one(Rejection::NotFinished),
                Some(_) => Refusals::default(),
            },
            Command::Persist { id, .. } => {
                let mut reasons = self.refuse_finished(*id);
                reasons.add(!reasons.is_empty(), Rejection::NotFound);
                reasons
            }
            Command::SetState { id, revision, .. } => self.refuse_state(*id, *revision),
            Command::AddEvent { id, .. } => self.refuse_state(*id, None),
            Command::SetQueue { name, .. } => {
                let mut reasons = Refusals::default();
                reasons.add(!is_queue_name(name), Rejection::OutOfRange("queue name"));
                reasons
            }
            Command::SetConstraint(rule) => {
                let mut reasons = Refusals::default();
                let known = rule.number == 0 || self.rules.contains_key(&rule.number);
                reasons.add(!known, Rejection::NoConstraint);
                reasons
            }
            Command::RemoveConstraint { number } => {
                let mut reasons = Refusals::default();
                reasons.add(!self.rules.contains_key(number), Rejection::NoConstraint);
                reasons
            }
            Command::Relabel { id, revision, matched } => {
                let mut reasons = self.refuse_finished(*id);
                let Some(job) = self.job(*id) else { return reasons };
                let stale = revision.is_some_and(|revision| revision != job.revision);
                reasons.add(stale, Rejection::Stale);
                self.refuse_matched(matched, &mut reasons);
                reasons
            }
            Command::NoteRelabelled { revision, .. } => {
                let mut reasons = Refusals::default();
                let stale = *revision != self.constraints_revision;
                reasons.add(stale, Rejection::StaleConstraints);
                reasons
            }
            Command::Start { epoch } => {
                let mut reasons = Refusals::default();
                reasons.add(*epoch <= self.epoch, Rejection::OldEpoch);
                reasons
            }
            Command::Compact(item) => self.refuse_compaction(item),
            Command::ReturnIds { from } => {
                let mut reasons = Refusals::default();
                let reserved = 1..=self.ids_until();
                reasons.add(!reserved.contains(from), Rejection::OutOfRange("id"));
                let in_use = self.jobs().any(|job| job.id >= *from);
                reasons.add(in_use, Rejection::IdInUse);
                reasons
            }
            Command::HolderGone { .. }
            | Command::Recover { .. }
            | Command::ReserveIds { .. }
            | Command::Tick { .. }
            | Command::RaiseFormat { .. } => Refusals::default(),
        }
    }

    fn refuse_absent(&self, id: JobId) -> Refusals {
        let mut reasons = Refusals::default();
        reasons.add(self.job(id).is_none(), Rejection::NotFound);
        reasons
    }

    fn refuse_finished(&self, id: JobId) -> Refusals {
        let mut reasons = self.refuse_absent(id);
        let finished = self.job(id).is_some_and(|job| job.status().is_finished());
        reasons.add(finished, Rejection::Finished);
        reasons
    }

    fn refuse_submit(&self, submit: &Submit, now_ms: u64) -> Refusals {
        let mut reasons = Refusals::default();
        let starts_ms = submit.run_at_ms.unwrap_or(now_ms);
        let expires_ms = submit.ttl_ms.map(|ttl| starts_ms.saturating_add(ttl));
        let over = expires_ms.is_some_and(|expires| expires <= now_ms);
        reasons.add(over, Rejection::OutOfRange("ttl"));
        let id = submit.id.0;
        let fresh = id > 0 && id < self.ids_until() && !self.jobs.contains_key(&id);
        reasons.add(!fresh, Rejection::IdNotReserved);
        reasons.add(!is_queue_name(&submit.queue), Rejection::OutOfRange("queue name"));
        reasons.add(!are_labels(&submit.labels), Rejection::OutOfRange("labels"));
        let stale = submit.constraints_revision != self.constraints_revision;
        reasons.add(stale, Rejection::StaleConstraints);
        for key in names(submit) {
            if let Some(holder) = self.key_holder(&key) {
                reasons.add(true, Rejection::KeyTaken(holder));
            }
        }
        reasons.add(self.is_full(&submit.queue, submit.priority), Rejection::QueueFull);
        self.refuse_values(&submit.labels, &mut reasons);
        reasons
    }

    /// Whether a queue takes no more jobs of this priority: high, normal or low.
    fn is_full(&self, queue: &[u8], priority: i64) -> bool {
        let settings = self.settings(queue);
        let all = self.unfinished(queue, |_| true);
        let class = usize::try_from(1 - priority.signum()).expect("it is 0, 1 or 2");
        let class_max = settings.jobs_max_by_class.get(class).copied().unwrap_or(0);
        settings.jobs_max.is_some_and(|max| all >= max) || (class_max > 0 && all >= class_max)
    }

    fn refuse_lease(&self, lease: &Lease, now_ms: u64) -> Refusals {
        let mut reasons = Refusals::default();
        reasons.add(lease.queues.len() > LEASE_QUEUES_MAX, Rejection::OutOfRange("queues"));
        let (choices, certain) = self.lease_choices(lease, now_ms);
        reasons.add(choices.is_empty(), Rejection::NothingReady);
        reasons.may(!certain, Rejection::NothingReady);
        reasons
    }

    fn refuse_claim(&self, claim: Claim, needs_lease: bool) -> Refusals {
        let Some(job) = self.job(claim.id()) else { return Refusals::one(Rejection::NotFound) };
        if job.status().is_finished() {
            return match claim {
                Claim::Unfinished { .. } if needs_lease => {
                    let must = vec![Rejection::Finished, Rejection::NotHeld];
                    Refusals { must, may: Vec::new() }
                }
                Claim::Unfinished { .. } => Refusals::one(Rejection::Finished),
                Claim::Token { .. } => Refusals {
                    must: vec![Rejection::Finished, Rejection::NotHeld],
                    may: Vec::new(),
                },
            };
        }
        let mut reasons = Refusals::default();
        match claim {
            Claim::Token { epoch, attempt, .. } => {
                let live = job.lease.as_ref().is_some_and(|lease| lease.epoch == epoch)
                    && job.attempts == attempt;
                reasons.add(!live, Rejection::NotHeld);
            }
            Claim::Unfinished { .. } => {
                reasons.add(needs_lease && job.lease.is_none(), Rejection::NotHeld);
            }
        }
        reasons
    }

    fn refuse_retry(&self, image: &JobImage, has_new_payload: bool) -> Refusals {
        let Some(job) = self.job(JobId(image.id)) else {
            return Refusals::one(Rejection::NotFound);
        };
        let mut reasons = Refusals::default();
        reasons.add(!job.status().is_finished(), Rejection::NotFinished);
        let damaged = job.payload.is_none() && !has_new_payload;
        reasons.add(damaged && reasons.is_empty(), Rejection::PayloadDamaged);
        self.refuse_values(&image.options().labels, &mut reasons);
        reasons
    }

    fn refuse_edit(&self, edit: &Edit) -> Refusals {
        let mut reasons = self.refuse_finished(edit.id);
        let Some(job) = self.job(edit.id) else { return reasons };
        reasons.add(job.status() == Status::Leased, Rejection::Leased);
        let stale = edit.revision.is_some_and(|revision| revision != job.revision);
        reasons.add(stale, Rejection::Stale);
        let bad_name = edit.queue.as_ref().is_some_and(|queue| !is_queue_name(queue));
        reasons.add(bad_name, Rejection::OutOfRange("queue name"));
        if let Some(matched) = &edit.matched {
            self.refuse_matched(matched, &mut reasons);
        }
        reasons
    }

    fn refuse_matched(&self, matched: &Matched, reasons: &mut Refusals) {
        reasons.add(!are_labels(&matched.labels), Rejection::OutOfRange("labels"));
        let stale = matched.constraints_revision != self.constraints_revision;
        reasons.add(stale, Rejection::StaleConstraints);
        self.refuse_values(&matched.labels, reasons);
    }

    fn refuse_values(&self, labels: &[Label], reasons: &mut Refusals) {
        for label in labels {
            let (must, may) = self.has_too_many_values(*label);
            reasons.add(must, Rejection::TooManyValues);
            reasons.may(may, Rejection::TooManyValues);
        }
    }

    fn refuse_state(&self, id: JobId, revision: Option<u32>) -> Refusals {
        let mut reasons = self.refuse_finished(id);
        let Some(job) = self.job(id) else { return reasons };
        reasons.add(revision.is_some_and(|revision| revision != job.revision), Rejection::Stale);
        reasons
    }

    fn refuse_compaction(&self, item: &Compact) -> Refusals {
        match item {
            Compact::Job { id, revision, .. } => {
                let mut reasons = self.refuse_finished(*id);
                let Some(job) = self.job(*id) else { return reasons };
                reasons.add(job.revision != *revision, Rejection::Stale);
                reasons.add(job.foreground, Rejection::Foreground);
                reasons
            }
            Compact::Page { id, old, .. } => {
                let mut reasons = self.refuse_finished(*id);
                let Some(job) = self.job(*id) else { return reasons };
                reasons.add(!job.options().pages.contains(old), Rejection::Stale);
                reasons
            }
            Compact::Finished(image) => match self.job(JobId(image.id)) {
                None => Refusals::one(Rejection::NotFound),
                Some(job) if !job.status().is_finished() => Refusals {
                    must: vec![Rejection::NotFinished, Rejection::Stale],
                    may: Vec::new(),
                },
                Some(_) => Refusals::default(),
            },
            Compact::Queue(name) => {
                let mut reasons = Refusals::default();
                let used = self.jobs().any(|job| job.queue == *name);
                let known = used || self.queues.contains_key(name);
                reasons.add(!known, Rejection::NotFound);
                reasons
            }
            Compact::Constraint { number, .. } => {
                let mut reasons = Refusals::default();
                reasons.add(!self.rules.contains_key(number), Rejection::NoConstraint);
                reasons
            }
            Compact::Server => Refusals::default(),
        }
    }
}

fn is_queue_name(name: &[u8]) -> bool {
    !name.is_empty() && name.len() <= QUEUE_NAME_BYTES_MAX
}

fn are_labels(labels: &[Label]) -> bool {
    labels.len() <= LABELS_MAX
}
