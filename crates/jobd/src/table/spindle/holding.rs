//! The leases a worker holds, and the heartbeat that keeps each alive.

use std::collections::HashMap;

use tokio::task::AbortHandle;

use crate::table::row::{Owned, RowId};

/// A lease and how far its job has come.
#[derive(Debug)]
pub(super) struct Holding {
    token: String,
    target: String,
    /// The worker has decided about it.
    is_taken: bool,
    /// Its process was started.
    is_started: bool,
    /// It has ended against our will.
    is_lost: bool,
    /// Its end is on the server, though not all ends that were to be written with it.
    pub is_written: bool,
    _beat: Option<Beat>,
}

/// A heartbeat, which ends with the lease.
#[derive(Debug)]
pub(super) struct Beat(pub AbortHandle);

impl Drop for Beat {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Holdings(HashMap<RowId, Holding>);

impl Holdings {
    pub fn insert(&mut self, id: RowId, token: String, target: String, beat: Option<Beat>) {
        let holding = Holding {
            token,
            target,
            is_taken: false,
            is_started: false,
            is_lost: false,
            is_written: false,
            _beat: beat,
        };
        self.0.insert(id, holding);
    }

    pub fn get_mut(&mut self, id: RowId) -> Option<&mut Holding> {
        self.0.get_mut(&id)
    }

    pub fn contains(&self, id: RowId) -> bool {
        self.0.contains_key(&id)
    }

    pub fn token(&self, id: RowId) -> Option<String> {
        self.0.get(&id).map(|holding| holding.token.clone())
    }

    pub fn remove(&mut self, id: RowId) {
        self.0.remove(&id);
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The worker has decided about the job.
    pub fn take(&mut self, id: RowId) {
        if let Some(holding) = self.0.get_mut(&id) {
            holding.is_taken = true;
        }
    }

    /// Whether the job may start now. A lost one is forgotten instead.
    pub fn start(&mut self, id: RowId) -> bool {
        match self.0.get_mut(&id) {
            Some(holding) if holding.is_lost => {
                self.0.remove(&id);
                false
            }
            Some(holding) => {
                holding.is_started = true;
                true
            }
            None => false,
        }
    }

    /// The lease has ended.
    pub fn lose(&mut self, id: RowId) {
        if let Some(holding) = self.0.get_mut(&id) {
            holding.is_lost = true;
        }
    }

    /// What is to be written of the end of this job, if it is ours to write.
    pub fn to_finish(&self, id: RowId) -> Option<&Holding> {
        self.0.get(&id).filter(|holding| !holding.is_lost)
    }

    /// In order of their ids.
    pub fn owned(&self) -> Vec<Owned> {
        let mut owned: Vec<Owned> = self
            .0
            .iter()
            .filter(|(_, holding)| holding.is_taken && !holding.is_lost)
            .map(|(id, holding)| Owned {
                id: *id,
                target: holding.target.clone(),
                running: holding.is_started,
                started_s: None,
            })
            .collect();
        owned.sort_unstable_by_key(|row| row.id);
        owned
    }
}

impl Holding {
    pub fn token(&self) -> &str {
        &self.token
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holdings() -> Holdings {
        let mut holdings = Holdings::default();
        for id in [2, 1] {
            holdings.insert(RowId(id), format!("token{id}"), "q".to_owned(), None);
        }
        holdings
    }

    #[test]
    fn a_row_on_its_way_is_nobodys_to_give_back() {
        let mut holdings = holdings();
        assert_eq!(holdings.owned(), []);
        holdings.take(RowId(1));
        holdings.take(RowId(2));
        assert!(holdings.start(RowId(2)));
        let owned = |id, running| {
            let target = "q".to_owned();
            Owned { id: RowId(id), target, running, started_s: None }
        };
        assert_eq!(holdings.owned(), [owned(1, false), owned(2, true)]);
    }

    #[test]
    fn a_lost_row_does_not_start_and_its_end_is_not_written() {
        let mut holdings = holdings();
        assert!(holdings.start(RowId(1)));
        holdings.lose(RowId(1));
        holdings.lose(RowId(2));
        assert!(holdings.to_finish(RowId(1)).is_none());
        assert!(holdings.contains(RowId(1)), "its process may still run");
        assert!(!holdings.start(RowId(2)));
        assert!(!holdings.contains(RowId(2)));
    }
}
