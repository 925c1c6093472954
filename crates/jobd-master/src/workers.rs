//! The registered workers, and the poked targets that none of them serves. No I/O.

use std::{sync::Arc, time::SystemTime};

use indexmap::IndexSet;

use crate::{link::Link, report::Report};

/// How many targets without a worker are remembered.
const REMEMBERED_MAX: usize = 10_000;
/// How many bytes their names may have, each.
const NAME_BYTES_MAX: usize = 1024;

/// A registered worker.
#[derive(Clone, Debug)]
pub(crate) struct Registered {
    /// Its number among all that ever registered, from 1; 0 before it has one.
    pub(crate) id: u64,
    /// When this connection registered for the first time.
    pub(crate) since: SystemTime,
    pub(crate) link: Link,
    pub(crate) name: String,
    pub(crate) targets: Vec<String>,
    /// The link's count of reads at the last ping, and for how many pings it has not changed.
    pub(crate) reads: usize,
    pub(crate) silent_pings: u32,
    /// Its status.
    pub(crate) report: Arc<Report>,
}

impl Registered {
    pub(crate) fn new(link: Link, name: String, targets: Vec<String>) -> Self {
        Self {
            id: 0,
            since: SystemTime::now(),
            link,
            name,
            targets,
            reads: 0,
            silent_pings: 0,
            report: Arc::default(),
        }
    }

    pub(crate) fn serves(&self, target: &str) -> bool {
        self.targets.iter().any(|served| served == target)
    }

    /// Those of its targets that are asked for, in its own order.
    pub(crate) fn among(&self, asked: &IndexSet<String>) -> Vec<String> {
        self.targets.iter().filter(|target| asked.contains(*target)).cloned().collect()
    }
}

/// All registered workers, in order of their registration.
#[derive(Debug, Default)]
pub(crate) struct Workers {
    all: Vec<Registered>,
    remembered: IndexSet<String>,
    /// Where the search for a worker goes on, so that each gets its share.
    turn: usize,
    /// The number that was given last.
    last_id: u64,
}

impl Workers {
    /// Registers a worker, or replaces what its connection had registered. Returns those of its
    /// targets that were poked while no worker served them.
    pub(crate) fn register(&mut self, mut worker: Registered) -> Vec<String> {
        let due = worker.among(&self.remembered);
        self.remembered.retain(|target| !due.contains(target));
        match self.all.iter_mut().find(|known| known.link == worker.link) {
            Some(known) => {
                (worker.id, worker.since) = (known.id, known.since);
                *known = worker;
            }
            None => {
                self.last_id += 1;
                worker.id = self.last_id;
                self.all.push(worker);
            }
        }
        due
    }

    /// Forgets a connection's worker, if it had registered one.
    pub(crate) fn drop_link(&mut self, link: &Link) -> Option<Registered> {
        let at = self.all.iter().position(|known| known.link == *link)?;
        Some(self.all.remove(at))
    }

    pub(crate) fn all(&self) -> &[Registered] {
        &self.all
    }

    pub(crate) fn all_mut(&mut self) -> &mut [Registered] {
        &mut self.all
    }

    pub(crate) fn is_served(&self, target: &str) -> bool {
        self.all.iter().any(|worker| worker.serves(target))
    }

    /// Remembers those of the targets that no worker serves.
    pub(crate) fn remember(&mut self, targets: impl IntoIterator<Item = String>) {
        for target in targets {
            let has_place =
                self.remembered.len() < REMEMBERED_MAX && target.len() <= NAME_BYTES_MAX;
            if has_place && !self.is_served(&target) {
                self.remembered.insert(target);
            }
        }
    }

    /// Poked targets that no worker serves.
    pub(crate) fn unserved(&self) -> impl ExactSizeIterator<Item = &String> {
        self.remembered.iter()
    }

    /// A worker that serves the target; each in turn.
    pub(crate) fn pick(&mut self, target: &str) -> Option<&Registered> {
        let count = self.all.len();
        let turn = self.turn..self.turn + count;
        let at = turn.map(|at| at % count).find(|at| self.all[*at].serves(target))?;
        self.turn = at + 1;
        self.all.get(at)
    }
}
