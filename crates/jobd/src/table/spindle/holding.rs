//! The leases a worker holds, and the heartbeat that keeps each alive.

use std::collections::HashMap;

use tokio::task::AbortHandle;

use crate::table::row::{Owned, RowId};

/// A lease and how far its job has come.
#[derive(Debug)]
pub(super) struct Holding {
    token: String,
    target: String,
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
            .filter(|(_, holding)| !holding.is_lost)
            .map(|(id, holding)| Owned {
                id: *id,
                target: holding.target.clone(),
                running: holding.is_started,
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
