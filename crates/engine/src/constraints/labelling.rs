//! Jobs are matched against the constraints before the core sees them: outside the lock, since that
//! reads payloads. A job that was matched by a set that is no longer the newest is matched again.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::MutexGuard;
use spindle_core::command::{Edit, Extend, Matched};
use spindle_core::job::Label;
use spindle_core::state::JobView;
use spindle_core::{BytesRef, Command, JobId, JobImage, Rejection, State, Type};

use super::newest::Known;
use crate::answer::Refused;
use crate::audit::{Deed, People};
use crate::call::NewJob;
use crate::commit::Payload;
use crate::engine::Engine;
use crate::gate::Gated;
use crate::inner::Inner;
use crate::read::FetchError;
use crate::views::Jobs;
use spindle_matching::{Document, Matched as Found, RuleSet};

/// What a job's labels depend on, as it was at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Unmatched {
    pub id: JobId,
    pub revision: u32,
    queue: Bytes,
    fair_key: Bytes,
    payload: BytesRef,
    pub labels: Vec<Label>,
    /// What the queue says its untyped payloads are.
    bytes_type: Type,
}

impl Unmatched {
    pub fn new(state: &State, job: JobView<'_>) -> Unmatched {
        Unmatched {
            id: job.id(),
            revision: job.revision(),
            queue: job.queue().clone(),
            fair_key: job.fair_key().clone(),
            payload: job.payload(),
            labels: job.labels().to_vec(),
            bytes_type: bytes_type(state, job.queue()),
        }
    }
}

/// What a queue's untyped payloads are.
pub(crate) fn bytes_type(state: &State, queue: &[u8]) -> Type {
    let set = state.queue(queue).and_then(|queue| queue.settings().bytes_type);
    set.and_then(|kind| Type::try_from(kind).ok()).unwrap_or(Type::Bytes)
}

impl Jobs<'_> {
    /// Runs a command that names no bytes, made by workers or by the server itself. Changes by
    /// people go through [`People`]. An edit that moves a job to another queue matches it against
    /// the constraints there, unless the edit itself says what the job falls under.
    pub fn execute(&self, command: &Command) -> Gated<Result<(), Refused>> {
        if let Command::Edit(edit) = command
            && let Some(queue) = edit.queue.as_ref().filter(|_| edit.matched.is_none())
        {
            let run = |inner: &mut Inner, edit| inner.run(&Command::Edit(Box::new(edit)));
            return self.0.move_job(edit, queue, run);
        }
        let mut inner = self.0.enter();
        if let Command::Extend(Extend { claim, .. }) | Command::Release { claim, .. } = command {
            inner.claimed(*claim);
        }
        let run = inner.run(command);
        self.0.wake_relabelling(&inner);
        inner.changed(run)
    }
}

impl People<'_> {
    /// Changes a waiting job, as [`Jobs::execute`] does.
    pub fn edit(self, edit: &Edit) -> Gated<Result<(), Refused>> {
        let audit = self.audit;
        let mut run = |inner: &mut Inner, edit: Edit| {
            let deed = Deed::edit(inner, &edit);
            inner.run_for(audit, deed, Some(Command::Edit(Box::new(edit))), None)
        };
        match edit.queue.as_ref().filter(|_| edit.matched.is_none()) {
            Some(queue) => self.engine.move_job(edit, queue, run),
            None => self.engine.change(|inner| Ok(run(inner, edit.clone())?)),
        }
    }
}

impl Engine {
    /// Makes the newest set of constraints ready.
    pub(crate) fn refresh_rules(&self) -> Arc<RuleSet> {
        self.shared.rules.refresh(|known| {
            let state = &self.shared.inner.lock().state;
            (state.server().constraints_revision != known).then(|| Known::of(state))
        })
    }

    // ---- submit ----

    /// Locks the core with a new job matched by the constraints as they are then. A job that came
    /// with labels of its own keeps them.
    pub(crate) fn enter_matched(&self, job: &mut NewJob) -> MutexGuard<'_, Inner> {
        if job.is_unmatched() { self.enter_all_matched(&mut [job]) } else { self.enter() }
    }

    /// As [`Engine::enter_matched`], for unmatched jobs that come together. Without any constraint,
    /// it costs one load.
    pub(crate) fn enter_all_matched(&self, jobs: &mut [&mut NewJob]) -> MutexGuard<'_, Inner> {
        // Whether a job has come with a key, from its first match on.
        let mut has_key: Vec<bool> = Vec::new();
        loop {
            if let Some(revision) = self.shared.rules.unconstrained() {
                for (at, job) in jobs.iter_mut().enumerate() {
                    job.set_matched(Found::default(), revision, has_key.get(at).copied());
                }
            } else {
                let rules = self.shared.rules.newest();
                if has_key.is_empty() {
                    has_key.extend(jobs.iter().map(|job| job.submit.fair_key.is_some()));
                }
                for (job, has_key) in jobs.iter_mut().zip(&has_key) {
                    let NewJob { submit, payload, .. } = &**job;
                    let key = submit.fair_key.as_deref().filter(|_| *has_key);
                    let found = self.found_in(&rules, &submit.queue, key, payload);
                    job.set_matched(found, rules.revision(), Some(*has_key));
                }
            }
            let inner = self.enter();
            let newest = inner.state.server().constraints_revision;
            if jobs.iter().all(|job| job.submit.constraints_revision == newest) {
                return inner;
            }
            drop(inner);
            self.refresh_rules();
        }
    }

    fn found_in(
        &self,
        rules: &RuleSet,
        queue: &[u8],
        key: Option<&[u8]>,
        payload: &Payload,
    ) -> Found {
        let kind = match payload.kind() {
            Type::Bytes if rules.reads(queue) => bytes_type(&self.shared.inner.lock().state, queue),
            typed => typed,
        };
        rules.matched(queue, key, Document::new(payload.bytes(), kind))
    }

    // ---- jobs that are there ----

    /// The labels a job should have. Its payload is read if they depend on it.
    pub(crate) fn labels_of(
        &self,
        rules: &RuleSet,
        job: &Unmatched,
    ) -> Result<Vec<Label>, FetchError> {
        let kind = match job.payload.kind() {
            Type::Bytes => job.bytes_type,
            typed => typed,
        };
        if kind == Type::Bytes || !rules.asks_for_fields(&job.queue) {
            return Ok(rules.labels(&job.queue, &job.fair_key, Document::Opaque, &job.labels));
        }
        let payload = self.jobs().payload(job.id, &job.payload)?;
        Ok(rules.labels(&job.queue, &job.fair_key, Document::new(&payload, kind), &job.labels))
    }

    /// An edit that moves a job to another queue: there it may fall under other constraints.
    fn move_job(
        &self,
        edit: &Edit,
        queue: &Bytes,
        run: impl FnOnce(&mut Inner, Edit) -> Result<(), Rejection>,
    ) -> Gated<Result<(), Refused>> {
        let mut rules = self.shared.rules.newest();
        loop {
            let Some(moved) = self.enter().moved(edit.id, queue) else {
                return self.change(|inner| Ok(run(inner, edit.clone())?));
            };
            let labels = match self.labels_of(&rules, &moved) {
                Ok(labels) => labels,
                // The job ended meanwhile, or dies of the damage: the next look sees that.
                Err(FetchError::Moved | FetchError::Damaged(_)) => continue,
                Err(error) => {
                    tracing::error!("job {} is moved with its old labels: {error}", edit.id);
                    moved.labels.clone()
                }
            };
            let mut inner = self.enter();
            if inner.state.server().constraints_revision != rules.revision() {
                drop(inner);
                rules = self.refresh_rules();
                continue;
            }
            if inner.state.live(edit.id).map(|job| job.revision()) != Some(moved.revision) {
                continue;
            }
            let matched = Matched { labels, constraints_revision: rules.revision() };
            let edited = run(&mut inner, Edit { matched: Some(matched), ..edit.clone() });
            return inner.changed(edited);
        }
    }

    /// Gives a finished job that is to run again the labels it should have now, by its old payload
    /// or its new one. Returns the revision they are made by.
    pub(crate) fn match_retry(
        &self,
        image: &mut JobImage,
        payload: Option<&Payload>,
    ) -> Result<u64, FetchError> {
        let rules = self.shared.rules.newest();
        // A job that came without a key has none, whatever its queue is fair by now.
        let key = image.options().fair_key.clone().unwrap_or_default();
        let labels = if rules.is_empty() {
            Vec::new()
        } else if let Some(payload) = payload {
            self.found_in(&rules, &image.queue, Some(&key), payload).labels
        } else {
            let place = image.payload.clone().unwrap_or(BytesRef::NONE);
            let bytes = match self.jobs().bytes(&place) {
                // The damage is reported when the job is to be worked.
                Err(FetchError::Damaged(_)) => Bytes::new(),
                read => read?,
            };
            let payload = Payload::new(bytes, place.kind());
            self.found_in(&rules, &image.queue, Some(&key), &payload).labels
        };
        if labels != image.options().labels {
            image.options_mut().labels = labels;
            image.options = image.options.take().filter(|options| !options.is_none());
        }
        Ok(rules.revision())
    }
}

impl NewJob {
    /// Takes over what matching found out about the job. A key that it came with counts, whatever
    /// its payload says.
    fn set_matched(&mut self, found: Found, revision: u64, has_key: Option<bool>) {
        self.submit.labels = found.labels;
        if has_key == Some(false) {
            self.submit.fair_key = found.fair_key;
        }
        self.submit.constraints_revision = revision;
    }
}

impl Inner {
    /// A live job as it would be in another queue.
    fn moved(&self, id: JobId, queue: &Bytes) -> Option<Unmatched> {
        let job = Unmatched::new(&self.state, self.state.live(id)?);
        let bytes_type = bytes_type(&self.state, queue);
        Some(Unmatched { queue: queue.clone(), bytes_type, ..job })
    }
}
