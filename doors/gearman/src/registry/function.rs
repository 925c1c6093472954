//! A function somebody has named. Tests count how often one is looked at, or its name compared.

use std::borrow::Borrow;
use std::cmp::Ordering;

use bytes::Bytes;

/// A function's name, as the registry keeps it in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name(Bytes);

impl Name {
    pub fn of(name: &Bytes) -> Name {
        Name(name.clone())
    }

    pub fn bytes(&self) -> &Bytes {
        &self.0
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Name) -> Ordering {
        note_step();
        self.0.cmp(&other.0)
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Name) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

/// How many workers can do it, and its place among the functions without a worker.
#[derive(Debug, Default)]
pub(super) struct Function {
    workers: u64,
    idle: Option<u64>,
}

impl Function {
    /// How many workers can do it.
    pub fn workers(&self) -> u64 {
        note_step();
        self.workers
    }

    /// Adds a worker. Returns the place that the function had among the idle ones.
    pub fn gain_worker(&mut self) -> Option<u64> {
        note_step();
        self.workers += 1;
        self.idle.take()
    }

    /// Removes a worker. Returns whether none is left.
    pub fn lose_worker(&mut self) -> bool {
        note_step();
        self.workers = self.workers.saturating_sub(1);
        self.workers == 0
    }

    /// Sets its place among the idle ones. Returns the previous one.
    pub fn set_idle(&mut self, place: u64) -> Option<u64> {
        note_step();
        self.idle.replace(place)
    }

    /// Its place among the idle ones.
    pub fn idle(&self) -> Option<u64> {
        note_step();
        self.idle
    }
}

#[cfg(test)]
thread_local! {
    static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Steps of this thread since the last call.
#[cfg(test)]
pub(super) fn take_steps() -> u64 {
    STEPS.take()
}

fn note_step() {
    #[cfg(test)]
    STEPS.with(|steps| steps.set(steps.get() + 1));
}
