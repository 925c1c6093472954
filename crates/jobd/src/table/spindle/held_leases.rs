//! The leases that a worker holds, and the heartbeat that keeps each alive.

use std::collections::HashMap;

use crate::table::abort::AbortOnDrop;
use crate::table::row::{Owned, RowId};

/// A lease and how far its job has come.
#[derive(Debug, Default)]
pub(super) struct HeldLease {
    pub token: String,
    pub target: String,
    /// The worker has decided about the job.
    pub is_taken: bool,
    /// The job's process was started.
    pub is_started: bool,
    /// The lease has ended against the worker's will.
    pub is_lost: bool,
    /// The job's end is on the server, but not all other ends of the same write.
    pub is_written: bool,
    /// Ends with the lease.
    pub _heartbeat: Option<AbortOnDrop>,
}

/// All leases that are held, by the ids of their jobs.
#[derive(Debug, Default)]
pub(super) struct HeldLeases(pub HashMap<RowId, HeldLease>);

impl HeldLeases {
    /// Changes a lease, if it is held.
    pub fn update(&mut self, id: RowId, change: impl FnOnce(&mut HeldLease)) {
        if let Some(lease) = self.0.get_mut(&id) {
            change(lease);
        }
    }

    /// Whether the job may start now. A lost one is forgotten instead.
    pub fn start(&mut self, id: RowId) -> bool {
        match self.0.get_mut(&id) {
            Some(lease) if lease.is_lost => {
                self.0.remove(&id);
                false
            }
            Some(lease) => {
                lease.is_started = true;
                true
            }
            None => false,
        }
    }

    /// The lease with which the end of this job is to be written, if there is one.
    pub fn to_finish(&self, id: RowId) -> Option<&HeldLease> {
        self.0.get(&id).filter(|lease| !lease.is_lost)
    }

    /// In order of their ids.
    pub fn owned(&self) -> Vec<Owned> {
        let mut owned: Vec<Owned> = self
            .0
            .iter()
            .filter(|(_, lease)| lease.is_taken && !lease.is_lost)
            .map(|(id, lease)| Owned {
                id: *id,
                target: lease.target.clone(),
                running: lease.is_started,
                started_s: None,
            })
            .collect();
        owned.sort_unstable_by_key(|row| row.id);
        owned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leases() -> HeldLeases {
        let mut leases = HeldLeases::default();
        for id in [2, 1] {
            let (token, target) = (format!("token{id}"), "q".to_owned());
            leases.0.insert(RowId(id), HeldLease { token, target, ..HeldLease::default() });
        }
        leases
    }

    #[test]
    fn a_row_on_its_way_is_nobodys_to_give_back() {
        let mut leases = leases();
        assert_eq!(leases.owned(), []);
        leases.update(RowId(1), |lease| lease.is_taken = true);
        leases.update(RowId(2), |lease| lease.is_taken = true);
        assert!(leases.start(RowId(2)));
        let owned = |id, running| {
            let target = "q".to_owned();
            Owned { id: RowId(id), target, running, started_s: None }
        };
        assert_eq!(leases.owned(), [owned(1, false), owned(2, true)]);
    }

    #[test]
    fn a_lost_row_does_not_start_and_its_end_is_not_written() {
        let mut leases = leases();
        assert!(leases.start(RowId(1)));
        leases.update(RowId(1), |lease| lease.is_lost = true);
        leases.update(RowId(2), |lease| lease.is_lost = true);
        assert!(leases.to_finish(RowId(1)).is_none());
        assert!(leases.0.contains_key(&RowId(1)), "its process may still run");
        assert!(!leases.start(RowId(2)));
        assert!(!leases.0.contains_key(&RowId(2)));
    }
}
