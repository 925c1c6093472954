//! The matchers of the newest constraints, ready to be asked without the lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use spindle_core::State;
use spindle_core::queue::Constraint;
use spindle_matching::RuleSet;

/// There are constraints, or queues that are fair by a field: jobs have to be matched.
const MATCHING: u64 = u64::MAX;

/// The matchers of the constraints as they were when a caller last asked.
pub(crate) struct Rules {
    /// The revision of the set if there are no constraints and no queues that are fair by a field:
    /// then a submit needs nothing else, and it costs one load. Else [`MATCHING`].
    unconstrained: AtomicU64,
    newest: RwLock<Arc<RuleSet>>,
    /// Held while a newer set is made ready, so that only one caller does.
    refreshing: Mutex<()>,
}

impl Rules {
    pub fn new(state: &State) -> Rules {
        let known = Known::of(state);
        let revision = known.revision;
        let set = known.compiled(None);
        let unconstrained = AtomicU64::new(if set.is_empty() { revision } else { MATCHING });
        Rules { unconstrained, newest: RwLock::new(Arc::new(set)), refreshing: Mutex::default() }
    }

    /// The matchers to go by.
    pub fn newest(&self) -> Arc<RuleSet> {
        self.newest.read().clone()
    }

    /// The revision of the constraints if there are none: then no job has to be matched. Costs one
    /// load; may be a moment behind a change.
    pub fn unconstrained(&self) -> Option<u64> {
        Some(self.unconstrained.load(Ordering::Acquire)).filter(|revision| *revision != MATCHING)
    }

    /// Makes the newest set of constraints ready: `newer_than` reads their revision and their list,
    /// if the revision is not the given one.
    pub fn refresh(&self, newer_than: impl FnOnce(u64) -> Option<Known>) -> Arc<RuleSet> {
        let _refreshing = self.refreshing.lock();
        let before = self.newest();
        let Some(known) = newer_than(before.revision()) else { return before };
        let set = Arc::new(known.compiled(Some(&before)));
        let unconstrained = if set.is_empty() { known.revision } else { MATCHING };
        *self.newest.write() = set.clone();
        self.unconstrained.store(unconstrained, Ordering::Release);
        set
    }
}

/// What the matchers are made of.
pub(crate) struct Known {
    revision: u64,
    constraints: Vec<Constraint>,
    /// Queues that are fair by a field.
    fair: Vec<(Bytes, String)>,
}

impl Known {
    /// Cheap: names and matchers are shared.
    pub fn of(state: &State) -> Known {
        Known {
            revision: state.server().constraints_revision,
            constraints: state.constraints().cloned().collect(),
            fair: state.fair_fields().map(|(name, field)| (name.clone(), field.into())).collect(),
        }
    }

    fn compiled(&self, before: Option<&RuleSet>) -> RuleSet {
        let fair = self.fair.iter().cloned();
        RuleSet::new(self.revision, &self.constraints, before).with_fair_queues(fair)
    }
}
