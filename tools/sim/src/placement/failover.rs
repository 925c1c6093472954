//! A node dies: when each shard that it led is led again, and answers.

use std::collections::BTreeMap;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::lead::Placement;

/// After a silence of so long a follower wants to lead. (`crates/cluster/src/election.rs` has the real ones.)
const SILENCE_MS: f64 = 800.0;
/// The interval of announcements: the silence may already be older by up to this much.
const ANNOUNCED_EVERY_MS: f64 = 200.0;
/// Followers take turns.
const TURN_MS: f64 = 150.0;
/// And wait at random for up to this.
const JITTER_MS: f64 = 100.0;
/// A new leader answers once this much time has passed since its epoch record was appended.
const ANSWERS_AFTER_MS: f64 = 510.0;

/// What it costs to take a shard over.
#[derive(Debug, Clone, Copy)]
pub struct TakingOver {
    /// How long the append of an epoch record takes, with what has to be read before it.
    pub append_ms: f64,
    /// How many shards a node takes over at a time.
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
/// Of the shard's followers, the one that leads the fewest shards goes first. That is a proposal:
/// today they go in the order of names.
pub fn dies(placement: &Placement, id: u64, costs: TakingOver, seed: u64) -> Outage {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let heard_ms_ago = random.random_range(0.0..ANNOUNCED_EVERY_MS);
    let mut campaigns = Vec::new();
    for (shard, members) in placement.members.iter().enumerate() {
        if placement.leaders[shard] != id {
            continue;
        }
        for (turn, node) in placement.in_turn(members, id).into_iter().enumerate() {
            let waits = TURN_MS * turn as f64 + random.random_range(0.0..JITTER_MS);
            campaigns.push(Campaign { begins: SILENCE_MS - heard_ms_ago + waits, node, shard });
        }
    }
    held(campaigns, costs)
}

/// A follower wants to lead a shard.
#[derive(Debug, Clone, Copy)]
struct Campaign {
    begins: f64,
    node: u64,
    shard: usize,
}

/// Plays campaigns in the order in which they begin. A node that is free for a shard which another
/// node leads by then leaves it alone.
fn held(mut campaigns: Vec<Campaign>, costs: TakingOver) -> Outage {
    campaigns.sort_by(|a, b| a.begins.total_cmp(&b.begins));
    let mut led: BTreeMap<usize, (f64, u64)> = BTreeMap::new();
    // Of each node, when each of its appends ends.
    let mut appends: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for Campaign { begins, node, shard } in campaigns {
        let ends = appends.entry(node).or_default();
        let free = ends.len().checked_sub(costs.at_a_time).map_or(0.0, |before| ends[before]);
        let starts = begins.max(free);
        if led.get(&shard).is_some_and(|(at, _)| *at <= starts) {
            continue;
        }
        let end = starts + costs.append_ms;
        ends.push(end);
        let first = led.entry(shard).or_insert((end, node));
        if end < first.0 {
            *first = (end, node);
        }
    }
    let mut taken: BTreeMap<u64, usize> = BTreeMap::new();
    led.values().for_each(|(_, node)| *taken.entry(*node).or_default() += 1);
    let taken_max = taken.into_values().max().unwrap_or_default();
    let mut led: Vec<f64> = led.into_values().map(|(at, _)| at).collect();
    led.sort_by(f64::total_cmp);
    let answers = led.iter().map(|led| led + ANSWERS_AFTER_MS).collect();
    Outage { led, answers, taken_max }
}

#[cfg(test)]
mod tests {
    use super::super::rendezvous::Node;
    use super::*;

    fn campaign(begins: f64, node: u64, shard: usize) -> Campaign {
        Campaign { begins, node, shard }
    }

    #[test]
    fn a_node_takes_over_as_many_as_it_may_at_a_time() {
        let costs = TakingOver { append_ms: 10.0, at_a_time: 2 };
        let begins = [0.0, 0.0, 0.0, 5.0, 100.0];
        let campaigns = begins.iter().zip(0..).map(|(&begins, shard)| campaign(begins, 1, shard));
        let outage = held(campaigns.collect(), costs);
        assert_eq!(outage.led, [10.0, 10.0, 20.0, 20.0, 110.0]);
        assert_eq!(outage.taken_max, 5);
    }

    #[test]
    fn a_shard_is_led_by_whoever_is_first_and_the_next_in_turn_leaves_it() {
        let costs = TakingOver { append_ms: 10.0, at_a_time: 1 };
        let of = |second: f64| {
            let busy = (0..9).map(|shard| campaign(0.0, 1, shard));
            held(busy.chain([campaign(second, 2, 8), campaign(second, 2, 0)]).collect(), costs)
        };
        // The second in turn comes before the busy first one to shard 8, and too late to shard 0.
        assert_eq!((of(50.0).led[8], of(50.0).taken_max), (80.0, 8));
        // And too late to both.
        assert_eq!((of(95.0).led[8], of(95.0).taken_max), (90.0, 9));
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
        assert!(last <= SILENCE_MS + JITTER_MS + 4.0 * 51.0 / 16.0 + 4.0, "{outage:?}");
        assert_eq!(outage.answers[0], outage.led[0] + ANSWERS_AFTER_MS);
        assert_eq!(outage, dies(&placement, 1, costs, 9));
    }
}
