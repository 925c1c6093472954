//! The matchers of the newest constraints, ready to be asked without the lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use spindle_core::State;
use spindle_core::queue::Constraint;
use spindle_matching::RuleSet;

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
        Rules { unconstrained, newest: RwLock::new(Arc::new(set)), refreshing: Mutex::default() }
    }

    /// The matchers to go by.
    pub fn newest(&self) -> Arc<RuleSet> {
        self.newest.read().clone()
    }

    /// The revision of the constraints if there are none: then no job has to be matched. One load;
    /// a moment behind a change.
    pub fn unconstrained(&self) -> Option<u64> {
        Some(self.unconstrained.load(Ordering::Acquire)).filter(|revision| *revision != MATCHING)
    }

    /// Makes the newest set of constraints ready: `newer_than` reads their revision and their list,
    /// if the revision is not the given one.
    pub fn refresh(
        &self,
        newer_than: impl FnOnce(u64) -> Option<(u64, Vec<Constraint>)>,
    ) -> Arc<RuleSet> {
        let _refreshing = self.refreshing.lock();
        let before = self.newest();
        let Some((revision, constraints)) = newer_than(before.revision()) else { return before };
        let set = Arc::new(RuleSet::new(revision, &constraints, Some(&before)));
        let unconstrained = if set.is_empty() { revision } else { MATCHING };
        *self.newest.write() = set.clone();
        self.unconstrained.store(unconstrained, Ordering::Release);
        set
    }
}

/// Cheap: names and matchers are shared.
pub(super) fn constraints_of(state: &State) -> (u64, Vec<Constraint>) {
    (state.server().constraints_revision, state.constraints().cloned().collect())
}
