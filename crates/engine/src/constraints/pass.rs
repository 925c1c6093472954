//! How far the pass over jobs that were there before the newest constraints has come.

/// The pass that is under way, or the last one.
#[derive(Debug, Default)]
pub(crate) struct Pass {
    revision: u64,
    pub relabelled: u64,
    pub looked_at: u64,
    /// Unfinished jobs when it began.
    total: u64,
}

/// How far the jobs that were there have been matched against the newest constraints.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Relabelling {
    /// The revision of the constraints.
    pub revision: u64,
    /// Jobs whose labels changed so far, since the start.
    pub relabelled: u64,
    /// Unfinished jobs still to be looked at; at least 1 while the pass goes on.
    pub remaining: u64,
}

impl Pass {
    /// Begins a pass for a revision of the constraints, or goes on with it.
    pub fn begin(&mut self, revision: u64, goes_on: bool, total: u64) {
        if self.revision != revision || (!goes_on && self.looked_at > 0) {
            *self = Pass { revision, total, ..Pass::default() };
        }
    }

    /// How far it has come towards a revision; `unfinished` jobs are left to a pass that has not
    /// begun.
    pub fn progress(&self, revision: u64, is_done: bool, unfinished: u64) -> Relabelling {
        let is_its = self.revision == revision;
        let remaining = match (is_done, is_its) {
            (true, _) => 0,
            (false, true) => self.total.saturating_sub(self.looked_at).max(1),
            (false, false) => unfinished.max(1),
        };
        Relabelling { revision, relabelled: if is_its { self.relabelled } else { 0 }, remaining }
    }
}
