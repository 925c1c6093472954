//! Weighted rendezvous hashing: each node draws a score for each shard, and the highest scores have it.

use spindle_core::rendezvous::mixed;

/// A node: its number for ever, and its share of the shards beside the others'.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Node {
    /// Its number.
    pub id: u64,
    /// Its weight, above 0: a node of weight 2 has twice the shards of a node of weight 1.
    pub weight: f64,
}

/// The members of a shard, the highest score first; all nodes if there are no more than `replicas`.
pub fn members(seed: u64, shard: u64, nodes: &[Node], replicas: usize) -> Vec<u64> {
    let mut scores: Vec<(f64, u64)> =
        nodes.iter().map(|node| (score(seed, shard, node), node.id)).collect();
    let order = |a: &(f64, u64), b: &(f64, u64)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
    if replicas < scores.len() {
        scores.select_nth_unstable_by(replicas, order);
        scores.truncate(replicas);
    }
    scores.sort_unstable_by(order);
    scores.into_iter().map(|(_, id)| id).collect()
}

/// `-weight / ln(u)` with `u` uniform between 0 and 1: each node has the highest score as often as
/// its weight says.
fn score(seed: u64, shard: u64, node: &Node) -> f64 {
    let drawn = mixed(mixed(seed ^ mixed(shard)) ^ node.id);
    // 53 bits, and never 0 or 1.
    let even = ((drawn >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    -node.weight / even.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn even(count: u64) -> Vec<Node> {
        (0..count).map(|id| Node { id, weight: 1.0 }).collect()
    }

    #[test]
    fn a_node_that_goes_moves_its_own_shards_and_no_others() {
        let all = even(10);
        for shard in 0..500 {
            let before = members(1, shard, &all, 3);
            assert_eq!(before.len(), 3);
            let after = members(1, shard, &all[..9], 3);
            let kept: Vec<u64> = before.iter().copied().filter(|id| *id != 9).collect();
            assert_eq!(after[..kept.len()], kept, "shard {shard}: {before:?} {after:?}");
        }
    }

    #[test]
    fn shards_are_shared_by_weight() {
        let nodes: Vec<Node> =
            [1.0, 1.0, 2.0].iter().zip(0..).map(|(&weight, id)| Node { id, weight }).collect();
        let first = |id| (0..8_000).filter(|shard| members(7, *shard, &nodes, 1) == [id]).count();
        for (id, expected) in [(0, 2_000), (1, 2_000), (2, 4_000)] {
            assert!(first(id).abs_diff(expected) < 200, "node {id}: {}", first(id));
        }
    }

    #[test]
    fn a_seed_is_one_placement_and_another_seed_is_another() {
        let nodes = even(50);
        let all = |seed| -> Vec<_> { (0..100).map(|it| members(seed, it, &nodes, 3)).collect() };
        assert_eq!(all(1), all(1));
        assert_ne!(all(1), all(2));
        assert_eq!(members(1, 1, &nodes[..2], 3).len(), 2);
    }
}
