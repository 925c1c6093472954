//! The consumers of the feed, in the model.

use spindle_core::consumer::{CONSUMER_NAME_BYTES_MAX, CONSUMERS_MAX, Consumer};
use spindle_core::{Rejection, State};

use super::Model;
use super::refuse::Refusals;

/// The number of a consumer's newest move among all, and where to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moved {
    number: u64,
    to: (u64, u32),
}

impl Model {
    pub(super) fn refuse_consumer(consumer: &Consumer) -> Refusals {
        let is_wrong = consumer.name.is_empty() || consumer.name.len() > CONSUMER_NAME_BYTES_MAX;
        Refusals::when(is_wrong, Rejection::OutOfRange("the name of a consumer"))
    }

    pub(super) fn apply_consumer(&mut self, Consumer { name, position, index }: &Consumer) {
        let to = (*position, *index);
        if self.consumers.get(name).is_some_and(|moved| moved.to == to) {
            return;
        }
        let number = self.consumers.values().map(|moved| moved.number + 1).max().unwrap_or(0);
        self.consumers.insert(name.clone(), Moved { number, to });
        if self.consumers.len() > CONSUMERS_MAX {
            let oldest = self.consumers.values().map(|moved| moved.number).min();
            self.consumers.retain(|_, moved| Some(moved.number) != oldest);
        }
    }

    pub(super) fn compare_consumers(&self, state: &State) -> Result<(), String> {
        let mut expected: Vec<_> = self.consumers.iter().collect();
        expected.sort_by_key(|(_, moved)| moved.number);
        let found = &state.server().consumers.moved;
        let expected = expected.into_iter().map(|(name, moved)| (name, moved.to));
        if found.iter().map(|it| (&it.name, (it.position, it.index))).eq(expected) {
            return Ok(());
        }
        Err(format!("consumers should be {:?} and are {found:?}", self.consumers))
    }
}
