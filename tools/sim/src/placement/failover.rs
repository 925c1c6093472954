//! A node dies: when each shard that it led is led again, and answers.

use std::collections::BTreeMap;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::lead::Placement;

/// After a silence of so long a follower wants to lead. (`crates/cluster/src/election.rs` has the real ones.)
const SILENCE_MS: f64 = 800.0;
/// Announcements come every so often: so much older the silence may be already.
const ANNOUNCED_EVERY_MS: f64 = 200.0;
/// Followers take turns.
const TURN_MS: f64 = 150.0;
/// And wait at random for up to this.
const JITTER_MS: f64 = 100.0;
/// A new leader answers when so much has passed since its epoch record was appended.
const ANSWERS_AFTER_MS: f64 = 510.0;

/// What it costs to take a shard over.
#[derive(Debug, Clone, Copy)]
pub struct TakingOver {
    /// How long the append of an epoch record takes, with what has to be read before it.
    pub append_ms: f64,
    /// So many shards a node takes over at a time.
    pub at_a_time: usize,
}

/// When the shards of a dead node are led again and when they answer, in milliseconds from its death, each
/// in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Outage {
    /// When their epoch records are committed.
    pub led: Vec<f64>,
    /// When their new leaders answer.
    pub answers: Vec<f64>,
    /// The most shards that one node took over.
    pub taken_max: usize,
}

/// What follows when a node dies, at a moment that is random between two announcements.
///
/// Of the shard's followers the one that leads fewest goes first, which is a proposal: today it is the order
/// of names.
pub fn dies(placement: &Placement, id: u64, costs: TakingOver, seed: u64) -> Outage {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let heard_ms_ago = random.random_range(0.0..ANNOUNCED_EVERY_MS);
    let mut after = placement.clone();
    after.leave(id);
    // Of each node, when the campaigns for its new shards begin.
    let mut campaigns: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for (shard, leader) in placement.leaders.iter().enumerate() {
        if *leader != id {
            continue;
        }
        // The first in turn wins, unless its random wait and queue let the next one overtake it: then that one
        // leads, no later. So this is not too early.
        let begins = SILENCE_MS - heard_ms_ago + random.random_range(0.0..JITTER_MS);
        campaigns.entry(after.leaders[shard]).or_default().push(begins);
    }
    let mut outage = Outage { led: Vec::new(), answers: Vec::new(), taken_max: 0 };
    for mut begins in campaigns.into_values() {
        outage.taken_max = outage.taken_max.max(begins.len());
        begins.sort_by(f64::total_cmp);
        outage.led.extend(one_after_the_other(&begins, costs));
    }
    outage.led.sort_by(f64::total_cmp);
    outage.answers = outage.led.iter().map(|led| led + ANSWERS_AFTER_MS).collect();
    outage
}

/// The longest that the second in turn waits for the first, which is as dead: `second` follower's turn.
pub const SECOND_TURN_MS: f64 = TURN_MS;

/// When each append ends, of a node that has a bounded number of them on their way.
fn one_after_the_other(begins: &[f64], costs: TakingOver) -> Vec<f64> {
    let mut ends: Vec<f64> = Vec::with_capacity(begins.len());
    for (at, begins) in begins.iter().enumerate() {
        let free = at.checked_sub(costs.at_a_time).map_or(0.0, |before| ends[before]);
        ends.push(begins.max(free) + costs.append_ms);
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::super::rendezvous::Node;
    use super::*;

    #[test]
    fn a_node_takes_over_as_many_as_it_may_at_a_time() {
        let costs = TakingOver { append_ms: 10.0, at_a_time: 2 };
        let ends = one_after_the_other(&[0.0, 0.0, 0.0, 5.0, 100.0], costs);
        assert_eq!(ends, [10.0, 10.0, 20.0, 20.0, 110.0]);
    }

    #[test]
    fn all_shards_of_the_dead_node_are_led_again_and_answer_later() {
        let nodes = (0..3).map(|id| Node { id, weight: 1.0 }).collect();
        let placement = Placement::new(1, 300, nodes, 3);
        let costs = TakingOver { append_ms: 4.0, at_a_time: 16 };
        let outage = dies(&placement, 1, costs, 9);
        assert_eq!(outage.led.len(), placement.led()[1]);
        assert!(outage.led[0] >= SILENCE_MS - ANNOUNCED_EVERY_MS + 4.0, "{outage:?}");
        let last = outage.led[outage.led.len() - 1];
        assert!(last <= SILENCE_MS + JITTER_MS + 4.0 * 50.0 / 16.0 + 4.0, "{outage:?}");
        assert_eq!(outage.answers[0], outage.led[0] + ANSWERS_AFTER_MS);
        assert_eq!(outage, dies(&placement, 1, costs, 9));
    }
}
