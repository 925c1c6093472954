//! Jobs reserved for sleepers that were called: other leases leave them.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::job::Label;

/// How many jobs of which queues, and how many starts under which labels, other leases must leave.
/// It names no job: a called worker takes the one that its own selection finds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reservations {
    queues: BTreeMap<Bytes, u64>,
    labels: BTreeMap<Label, u64>,
}

impl Reservations {
    /// Nothing is to be left.
    pub const NONE: Reservations =
        Reservations { queues: BTreeMap::new(), labels: BTreeMap::new() };

    /// One more job of a queue, which starts under these labels.
    pub fn add(&mut self, queue: &Bytes, labels: &[Label]) {
        *self.queues.entry(queue.clone()).or_default() += 1;
        for label in labels {
            *self.labels.entry(*label).or_default() += 1;
        }
    }

    /// Takes back what was added.
    pub fn remove(&mut self, queue: &Bytes, labels: &[Label]) {
        take_one(&mut self.queues, queue);
        for label in labels {
            take_one(&mut self.labels, label);
        }
    }

    /// Whether nothing is to be left.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    pub(crate) fn of_queue(&self, queue: &[u8]) -> u64 {
        self.queues.get(queue).copied().unwrap_or_default()
    }

    pub(crate) fn of_label(&self, label: Label) -> u64 {
        self.labels.get(&label).copied().unwrap_or_default()
    }
}

fn take_one<K: Ord>(counts: &mut BTreeMap<K, u64>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_and_taken_back_leaves_nothing() {
        let (queue, label) = (Bytes::from_static(b"q"), Label { constraint: 1, value: 2 });
        let mut reservations = Reservations::NONE;
        reservations.add(&queue, &[label]);
        reservations.add(&queue, &[]);
        assert_eq!((reservations.of_queue(b"q"), reservations.of_label(label)), (2, 1));
        reservations.remove(&queue, &[label]);
        assert_eq!((reservations.of_queue(b"q"), reservations.of_label(label)), (1, 0));
        reservations.remove(&queue, &[]);
        reservations.remove(&queue, &[label]);
        assert!(reservations.is_empty() && reservations == Reservations::NONE);
    }
}
