//! Jobs are matched against the constraints before the core sees them: outside the lock, since that
//! reads payloads. What was matched by a set that is no longer the newest is matched again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard, RwLock};
use spindle_core::command::{Edit, Matched, Submit};
use spindle_core::job::Label;
use spindle_core::queue::Constraint;
use spindle_core::state::JobView;
use spindle_core::{BytesRef, Command, Found, JobId, JobImage, State, Type};

use crate::door::Gate;
use crate::engine::{Engine, NewJob, Refused};
use crate::inner::Inner;
use crate::read::FetchError;
use spindle_matching::{Document, RuleSet};

/// There are constraints: jobs have to be matched.
const MATCHING: u64 = u64::MAX;

/// The matchers of the constraints as they were when somebody last asked.
pub(crate) struct Rules {
    /// Without any constraint, the revision of their set: then that is all a submit needs to know,
    /// and it costs one load. Else [`MATCHING`].
    unconstrained: AtomicU64,
    newest: RwLock<Arc<RuleSet>>,
    /// Held while a newer set is made ready, so that only one caller does.
    refreshing: Mutex<()>,
}

impl Rules {
    pub fn new(state: &State) -> Rules {
        let (revision, constraints) = constraints_of(state);
        let set = RuleSet::new(revision, &constraints, None);
        let unconstrained = AtomicU64::new(if set.is_empty() { revision } else { MATCHING });
        let newest = RwLock::new(Arc::new(set));
        Rules { unconstrained, newest, refreshing: Mutex::default() }
    }
}

/// Cheap: names and matchers are shared.
fn constraints_of(state: &State) -> (u64, Vec<Constraint>) {
    (state.server().constraints_revision, state.constraints().cloned().collect())
}

/// What a job's labels depend on, as it was at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Unmatched {
    pub id: JobId,
    pub revision: u32,
    queue: Bytes,
    payload: BytesRef,
    pub labels: Vec<Label>,
    /// What the queue says its untyped payloads are.
    bytes_type: Type,
}

impl Unmatched {
    pub fn new(state: &State, job: &JobView<'_>) -> Unmatched {
        Unmatched {
            id: job.id(),
            revision: job.revision(),
            queue: job.queue().clone(),
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

impl Engine {
    /// The matchers to go by.
    pub(crate) fn rules(&self) -> Arc<RuleSet> {
        self.shared.rules.newest.read().clone()
    }

    /// Whether anything may hold jobs back. One load; a moment behind a change.
    pub fn has_constraints(&self) -> bool {
        self.shared.rules.unconstrained.load(Ordering::Acquire) == MATCHING
    }

    /// Makes the newest set of constraints ready.
    pub(crate) fn refresh_rules(&self) -> Arc<RuleSet> {
        let rules = &self.shared.rules;
        let _refreshing = rules.refreshing.lock();
        let before = self.rules();
        let (revision, constraints) = {
            let inner = self.shared.inner.lock();
            if inner.state.server().constraints_revision == before.revision() {
                return before;
            }
            constraints_of(&inner.state)
        };
        let set = Arc::new(RuleSet::new(revision, &constraints, Some(&before)));
        let unconstrained = if set.is_empty() { revision } else { MATCHING };
        *rules.newest.write() = set.clone();
        rules.unconstrained.store(unconstrained, Ordering::Release);
        set
    }

    // ---- submit ----

    /// Locks the core with a new job matched by the constraints as they are then. A job that came
    /// with labels of its own keeps them.
    pub(crate) fn enter_matched(&self, job: &mut NewJob) -> MutexGuard<'_, Inner> {
        if job.submit.constraints_revision != Submit::UNMATCHED {
            return self.enter();
        }
        loop {
            self.match_new(job);
            let inner = self.enter();
            if inner.state.server().constraints_revision == job.submit.constraints_revision {
                return inner;
            }
            drop(inner);
            self.refresh_rules();
        }
    }

    /// As [`Engine::enter_matched`], for jobs that come together.
    pub(crate) fn enter_all_matched(&self, jobs: &mut [NewJob]) -> MutexGuard<'_, Inner> {
        let unmatched = |job: &NewJob| job.submit.constraints_revision == Submit::UNMATCHED;
        let asked: Vec<bool> = jobs.iter().map(unmatched).collect();
        loop {
            for (job, _) in jobs.iter_mut().zip(&asked).filter(|(_, asked)| **asked) {
                self.match_new(job);
            }
            let inner = self.enter();
            let newest = inner.state.server().constraints_revision;
            let stale = |(job, asked): (&NewJob, &bool)| {
                *asked && job.submit.constraints_revision != newest
            };
            if !jobs.iter().zip(&asked).any(stale) {
                return inner;
            }
            drop(inner);
            self.refresh_rules();
        }
    }

    /// Without any constraint, one load.
    fn match_new(&self, job: &mut NewJob) {
        let unconstrained = self.shared.rules.unconstrained.load(Ordering::Acquire);
        let (labels, revision) = if unconstrained == MATCHING {
            let rules = self.rules();
            let labels = self.new_labels(&rules, &job.submit.queue, &job.payload, job.kind);
            (labels, rules.revision())
        } else {
            (Vec::new(), unconstrained)
        };
        job.submit.labels = labels;
        job.submit.constraints_revision = revision;
    }

    fn new_labels(&self, rules: &RuleSet, queue: &[u8], payload: &[u8], kind: Type) -> Vec<Label> {
        let kind = match kind {
            Type::Bytes if rules.asks_for_fields(queue) => {
                bytes_type(&self.shared.inner.lock().state, queue)
            }
            typed => typed,
        };
        rules.labels(queue, Document::new(payload, kind), &[])
    }

    // ---- jobs that are there ----

    /// The labels a job should have. Its payload is read if they depend on it.
    pub(crate) fn labels_of(
        &self,
        rules: &RuleSet,
        job: &Unmatched,
    ) -> Result<Vec<Label>, FetchError> {
        let kind = match Type::try_from(job.payload.kind) {
            Ok(Type::Bytes) | Err(_) => job.bytes_type,
            Ok(typed) => typed,
        };
        if kind == Type::Bytes || !rules.asks_for_fields(&job.queue) {
            return Ok(rules.labels(&job.queue, Document::Opaque, &job.labels));
        }
        let payload = self.payload(job.id, &job.payload)?;
        Ok(rules.labels(&job.queue, Document::new(&payload, kind), &job.labels))
    }

    /// An edit that moves a job to another queue: there it may fall under other constraints.
    pub(crate) fn move_job(&self, edit: &Edit, queue: &Bytes) -> Result<Gate, Refused> {
        let mut rules = self.rules();
        loop {
            let moved = self.look_fresh(|state| match state.job(edit.id) {
                Some(Found::Live(job)) => {
                    let moved = Unmatched::new(state, &job);
                    let bytes_type = bytes_type(state, queue);
                    Some(Unmatched { queue: queue.clone(), bytes_type, ..moved })
                }
                _ => None,
            });
            let Some(moved) = moved else {
                return self.execute_as_is(&Command::Edit(Box::new(edit.clone())));
            };
            let labels = match self.labels_of(&rules, &moved) {
                Ok(labels) => labels,
                // It ended meanwhile, or dies of this: the next look sees that.
                Err(FetchError::Moved | FetchError::Damaged(_)) => continue,
                Err(error) => {
                    tracing::error!("job {} is moved with its old labels: {error}", edit.id);
                    moved.labels.clone()
                }
            };
            let mut inner = self.enter();
            self.check_room(&inner)?;
            if inner.state.server().constraints_revision != rules.revision() {
                drop(inner);
                rules = self.refresh_rules();
                continue;
            }
            if inner.revision_of(edit.id) != Some(moved.revision) {
                continue;
            }
            let matched = Matched { labels, constraints_revision: rules.revision() };
            let command = Command::Edit(Box::new(Edit { matched: Some(matched), ..edit.clone() }));
            return match inner.run(&command) {
                Ok(()) => Ok(inner.own_gate()),
                Err(rejection) => Err(self.refuse(&inner, rejection)),
            };
        }
    }

    /// Gives a finished job that is to run again the labels it should have now, by its old payload
    /// or its new one. Returns the revision they are made by.
    pub(crate) fn match_retry(
        &self,
        image: &mut JobImage,
        payload: Option<&(Bytes, Type)>,
    ) -> Result<u64, FetchError> {
        let rules = self.rules();
        let labels = if rules.is_empty() {
            Vec::new()
        } else if let Some((bytes, kind)) = payload {
            self.new_labels(&rules, &image.queue, bytes, *kind)
        } else {
            let place = image.payload.clone().unwrap_or(BytesRef::NONE);
            let bytes = match self.bytes(&place) {
                // That it is damaged is told when it is to be worked.
                Err(FetchError::Damaged(_)) => Bytes::new(),
                read => read?,
            };
            let kind = Type::try_from(place.kind).unwrap_or(Type::Bytes);
            self.new_labels(&rules, &image.queue, &bytes, kind)
        };
        if labels != image.options().labels {
            image.options_mut().labels = labels;
            image.options = image.options.take().filter(|options| !options.is_none());
        }
        Ok(rules.revision())
    }

    fn look_fresh<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.enter().state)
    }
}

impl Inner {
    fn revision_of(&self, id: JobId) -> Option<u32> {
        match self.state.job(id)? {
            Found::Live(job) => Some(job.revision()),
            Found::Finished(_) => None,
        }
    }
}
