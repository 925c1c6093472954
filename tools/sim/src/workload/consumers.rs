//! Consumers follow the feed and report how far they have come.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spindle_core::Command;
use spindle_core::consumer::{CONSUMER_NAME_BYTES_MAX, CONSUMERS_MAX, Consumer};

/// A separate generator, so that consumers change as little else as possible.
#[derive(Clone, Debug)]
pub(super) struct Consumers {
    rng: ChaCha8Rng,
    /// Some seeds have none.
    every: Option<u32>,
    /// How many there are: in some seeds more than are remembered.
    many: u32,
}

impl Consumers {
    pub fn new(seed: u64) -> Consumers {
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0xc025_0e52);
        let every = rng.random_ratio(1, 2).then(|| rng.random_range(4..40));
        let many = if rng.random_ratio(1, 2) { 3 } else { CONSUMERS_MAX as u32 + 2 };
        Consumers { rng, every, many }
    }

    /// An action that replaces the next step, or none.
    pub fn step(&mut self) -> Option<Command> {
        let (rng, every) = (&mut self.rng, self.every?);
        if !rng.random_ratio(1, every) {
            return None;
        }
        let name = match rng.random_range(0..30) {
            0 => "x".repeat(rng.random_range(0..2) * (CONSUMER_NAME_BYTES_MAX + 1)),
            _ => rng.random_range(0..self.many).to_string(),
        };
        // Few places, so that some stay where they are.
        let (position, index) = (rng.random_range(0..4), rng.random_range(0..2));
        Some(Command::MoveConsumer(Consumer { name: name.into(), position, index }))
    }
}
