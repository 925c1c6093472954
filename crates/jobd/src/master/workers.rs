//! Who is registered, and which targets somebody poked that nobody serves. No I/O.

use indexmap::IndexSet;

use crate::link::Link;

/// How many targets without a worker are remembered.
const REMEMBERED_MAX: usize = 10_000;
/// How many bytes their names may have, each.
const NAME_BYTES_MAX: usize = 1024;

/// A registered worker.
#[derive(Clone, Debug)]
pub(super) struct Registered {
    pub(super) link: Link,
    pub(super) name: String,
    pub(super) targets: Vec<String>,
    /// How much had been heard of it at the last ping, and how many pings ago that was.
    pub(super) heard: usize,
    pub(super) silent_pings: u32,
}

impl Registered {
    pub(super) fn new(link: Link, name: String, targets: Vec<String>) -> Self {
        Self { link, name, targets, heard: 0, silent_pings: 0 }
    }

    /// Those of its targets that are asked for, in its own order.
    pub(super) fn among(&self, asked: &IndexSet<String>) -> Vec<String> {
        self.targets.iter().filter(|target| asked.contains(*target)).cloned().collect()
    }
}

/// All registered workers, in order of their registration.
#[derive(Debug, Default)]
pub(super) struct Workers {
    all: Vec<Registered>,
    remembered: IndexSet<String>,
    /// Where the search for a worker goes on, so that each gets its share.
    turn: usize,
}

impl Workers {
    /// Registers a worker, or replaces what its connection had registered. Answers the targets
    /// somebody had poked meanwhile that it serves.
    pub(super) fn register(&mut self, worker: Registered) -> Vec<String> {
        let due = worker.among(&self.remembered);
        self.remembered.retain(|target| !due.contains(target));
        match self.all.iter_mut().find(|known| known.link == worker.link) {
            Some(known) => *known = worker,
            None => self.all.push(worker),
        }
        due
    }

    /// Forgets a connection's worker, if it had registered one.
    pub(super) fn drop_link(&mut self, link: &Link) -> Option<Registered> {
        let at = self.all.iter().position(|known| known.link == *link)?;
        Some(self.all.remove(at))
    }

    pub(super) fn all(&self) -> &[Registered] {
        &self.all
    }

    pub(super) fn all_mut(&mut self) -> &mut [Registered] {
        &mut self.all
    }

    pub(super) fn is_served(&self, target: &str) -> bool {
        self.all.iter().any(|worker| worker.targets.iter().any(|served| served == target))
    }

    /// Remembers those of the targets that nobody serves.
    pub(super) fn remember(&mut self, targets: impl IntoIterator<Item = String>) {
        for target in targets {
            let has_place =
                self.remembered.len() < REMEMBERED_MAX && target.len() <= NAME_BYTES_MAX;
            if has_place && !self.is_served(&target) {
                self.remembered.insert(target);
            }
        }
    }

    /// A worker that serves the target; each in turn.
    pub(super) fn pick(&mut self, target: &str) -> Option<&Registered> {
        let count = self.all.len();
        let serves = |worker: &Registered| worker.targets.iter().any(|served| served == target);
        let step = (0..count).find(|step| serves(&self.all[(self.turn + step) % count]))?;
        let at = (self.turn + step) % count;
        self.turn = at + 1;
        self.all.get(at)
    }
}
