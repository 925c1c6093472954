//! Queues are moved between shards. The log is one of them; the answers of the others are random.

use bytes::Bytes;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spindle_core::Command;
use spindle_core::places::{Known, Stage};

use super::{QUEUES, View, Workload};

/// A separate generator, so that moves change as little else as possible.
#[derive(Clone, Debug)]
pub(super) struct Moves(ChaCha8Rng);

/// One of this many steps belongs to a move, where there are shards.
const EVERY: u32 = 12;

impl Moves {
    pub fn new(seed: u64) -> Moves {
        Moves(ChaCha8Rng::seed_from_u64(seed ^ 0x006d_0ed5))
    }
}

impl Workload {
    /// An action on places that replaces the next step, or none.
    pub(super) fn move_step(&mut self, view: View<'_>) -> Option<Command> {
        let moved = &view.model.moved;
        if moved.seat.shards == 1 || !self.moves.0.random_ratio(1, EVERY) {
            return None;
        }
        let rng = &mut self.moves.0;
        let queue = Bytes::from_static(QUEUES[rng.random_range(0..self.mix.queues)]);
        let shard = rng.random_range(0..=moved.seat.shards);
        let known = moved.known(&queue);
        let version = known.map_or(0, |known| known.version);
        // Mostly the next one.
        let next = version + rng.random_range(0..4).min(1);
        Some(match (rng.random_range(0..6), known.map(Known::stage)) {
            (0, _) => Command::PlaceQueue { queue, shard },
            (1, _) => {
                let version = moved.placed(&queue).map_or(1, |placed| placed.version);
                Command::EndDrain { queue, version }
            }
            (2..5, Some(Stage::Offered)) => Command::SealQueue { queue, version },
            (2..5, Some(Stage::Sealed)) => Command::LeaveQueue { queue, version },
            _ => {
                let settings =
                    rng.random_ratio(1, 2).then(|| Box::new(view.model.settings(&queue)));
                Command::KnowPlace { queue, version: next, shard, settings }
            }
        })
    }
}
