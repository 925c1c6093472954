//! Which member of each shard leads, and what changes when nodes come and go.

use std::collections::BTreeMap;

use super::rendezvous::{Node, members};

/// All shards, their members and their leaders.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    seed: u64,
    replicas: usize,
    nodes: Vec<Node>,
    /// Of each shard, its members, the highest score first.
    pub members: Vec<Vec<u64>>,
    /// Of each shard, who leads it.
    pub leaders: Vec<u64>,
}

/// What changed when a node came or went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moved {
    /// Times that a node has to fold a shard that it did not have.
    pub folded: usize,
    /// Shards that another node leads now.
    pub led: usize,
}

impl Placement {
    /// Places shards from 0 on: each is led by the member that leads the fewest for its weight so
    /// far.
    pub fn new(seed: u64, shards: u64, nodes: Vec<Node>, replicas: usize) -> Placement {
        let members: Vec<Vec<u64>> =
            (0..shards).map(|shard| members(seed, shard, &nodes, replicas)).collect();
        let mut placement = Placement { seed, replicas, nodes, members, leaders: Vec::new() };
        let mut loads = placement.loads(&[]);
        for members in &placement.members {
            let leader = fewest(&loads, members);
            placement.leaders.push(leader);
            add(&mut loads, leader, 1.0);
        }
        placement
    }

    /// How many of these shards each node leads, for its weight.
    fn loads(&self, leaders: &[u64]) -> Loads {
        let mut loads: Loads =
            self.nodes.iter().map(|node| (node.id, (0.0, node.weight))).collect();
        leaders.iter().for_each(|leader| add(&mut loads, *leader, 1.0));
        loads
    }

    /// How many shards each node leads, in the order of nodes.
    pub fn led(&self) -> Vec<usize> {
        self.counted(self.leaders.iter().copied())
    }

    /// How many shards each node would lead if the highest score led.
    pub fn first(&self) -> Vec<usize> {
        self.counted(self.members.iter().filter_map(|members| members.first().copied()))
    }

    /// How many shards each node has in memory.
    pub fn held(&self) -> Vec<usize> {
        self.counted(self.members.iter().flatten().copied())
    }

    /// The members of a shard without one that died; the member that leads the fewest goes first.
    pub fn in_turn(&self, members: &[u64], dead: u64) -> Vec<u64> {
        let loads = self.loads(&self.leaders);
        let mut turns: Vec<u64> = members.iter().copied().filter(|id| *id != dead).collect();
        turns.sort_by(|a, b| share(&loads, *a, 0.0).total_cmp(&share(&loads, *b, 0.0)));
        turns
    }

    fn counted(&self, ids: impl Iterator<Item = u64>) -> Vec<usize> {
        let mut counts: BTreeMap<u64, usize> = self.nodes.iter().map(|node| (node.id, 0)).collect();
        ids.for_each(|id| *counts.entry(id).or_default() += 1);
        counts.into_values().collect()
    }

    /// A node leaves: its shards get another member, and those that it led get another leader, one
    /// of the members that have them in memory.
    pub fn leave(&mut self, id: u64) -> Moved {
        let remaining = self.nodes.iter().copied().filter(|node| node.id != id).collect();
        let before = std::mem::replace(&mut self.nodes, remaining);
        debug_assert!(self.nodes.len() < before.len(), "node {id} is there");
        let mut moved = Moved::default();
        let mut loads = self.loads(&self.leaders);
        for (shard, leader) in self.leaders.iter_mut().enumerate() {
            let former = &self.members[shard];
            if !former.contains(&id) {
                continue;
            }
            if *leader == id {
                let survivors: Vec<u64> = former.iter().copied().filter(|it| *it != id).collect();
                *leader = fewest(&loads, &survivors);
                add(&mut loads, *leader, 1.0);
                moved.led += 1;
            }
            let next = members(self.seed, shard as u64, &self.nodes, self.replicas);
            moved.folded += next.iter().filter(|it| !former.contains(it)).count();
            self.members[shard] = next;
        }
        moved
    }

    /// A node comes: it becomes a member where its score says so, and then leads as many as others do. A
    /// leader that is no member any more hands over in order.
    pub fn join(&mut self, node: Node) -> Moved {
        self.nodes.push(node);
        let mut moved = Moved::default();
        let mut loads = self.loads(&self.leaders);
        for shard in 0..self.leaders.len() {
            let next = members(self.seed, shard as u64, &self.nodes, self.replicas);
            if !next.contains(&node.id) {
                continue;
            }
            moved.folded += 1;
            let leader = self.leaders[shard];
            let heir = fewest(&loads, &next);
            let has_to = !next.contains(&leader);
            if has_to || (heir == node.id && share(&loads, heir, 1.0) < share(&loads, leader, 0.0))
            {
                add(&mut loads, leader, -1.0);
                add(&mut loads, heir, 1.0);
                self.leaders[shard] = heir;
                moved.led += 1;
            }
            self.members[shard] = next;
        }
        moved
    }
}

/// Of each node, how many shards it leads, and its weight.
type Loads = BTreeMap<u64, (f64, f64)>;

fn add(loads: &mut Loads, id: u64, shards: f64) {
    if let Some((led, _)) = loads.get_mut(&id) {
        *led += shards;
    }
}

/// How many shards a node would lead with `more` further ones, for its weight; a node that is not
/// there has no room.
fn share(loads: &Loads, id: u64, more: f64) -> f64 {
    loads.get(&id).map_or(f64::INFINITY, |(led, weight)| (led + more) / weight)
}

/// The member that leads the fewest for its weight; of equal ones the first.
fn fewest(loads: &Loads, members: &[u64]) -> u64 {
    let by_share = |a: &&u64, b: &&u64| share(loads, **a, 0.0).total_cmp(&share(loads, **b, 0.0));
    members.iter().min_by(by_share).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn even(count: u64) -> Vec<Node> {
        (0..count).map(|id| Node { id, weight: 1.0 }).collect()
    }

    fn is_sound(placement: &Placement) {
        for (members, leader) in placement.members.iter().zip(&placement.leaders) {
            assert!(members.contains(leader), "{leader} leads, of {members:?}");
        }
    }

    #[test]
    fn members_that_lead_fewest_lead_almost_evenly() {
        let placement = Placement::new(1, 4_000, even(40), 3);
        is_sound(&placement);
        let (led, first) = (placement.led(), placement.first());
        assert!(led.iter().all(|led| (95..=105).contains(led)), "{led:?}");
        assert!(first.iter().any(|first| *first > 110), "{first:?}");
        assert_eq!(placement.held().iter().sum::<usize>(), 12_000);
    }

    #[test]
    fn a_node_that_goes_is_replaced_where_it_was_and_its_shards_are_led_by_who_has_them() {
        let before = Placement::new(3, 1_000, even(10), 3);
        let (held, led) = (before.held()[4], before.led()[4]);
        let mut after = before.clone();
        assert_eq!(after.leave(4), Moved { folded: held, led });
        is_sound(&after);
        for (shard, leader) in after.leaders.iter().enumerate() {
            assert!(before.members[shard].contains(leader), "shard {shard} is led by a stranger");
            assert!(before.leaders[shard] == 4 || before.leaders[shard] == *leader);
        }
    }

    #[test]
    fn a_node_that_comes_gets_its_share_and_moves_little_else() {
        let mut placement = Placement::new(5, 1_000, even(9), 3);
        let moved = placement.join(Node { id: 9, weight: 1.0 });
        is_sound(&placement);
        assert_eq!(moved.folded, placement.held()[9]);
        assert!((250..350).contains(&moved.folded), "{moved:?}");
        let led = placement.led();
        assert!((90..=105).contains(&led[9]), "{led:?}");
        assert!(moved.led < 160, "{moved:?}");
    }
}
