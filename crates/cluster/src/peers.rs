//! What was heard of the other nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use spindle_core::rendezvous::score;

use crate::announcement::{Announcement, Role};

/// Nodes that are remembered.
const NODES_MAX: usize = 64;
/// A node that was not heard for so long is not there.
pub(crate) const LIVE: Duration = Duration::from_secs(1);
/// A node that was not heard for so long is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(3600);

/// The newest announcement of a node, and when it came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Heard {
    pub announcement: Announcement,
    pub at: Duration,
    /// Since when this process is heard without a pause.
    pub since: Duration,
}

/// Orders nodes by their turn to lead. With one log, the order is by name; with several, each log has an order
/// of its own, so that their leaders are spread.
fn turn(node: &str, shard: Option<u8>) -> (u64, &str) {
    (shard.map_or(0, |shard| score(node.as_bytes(), u64::from(shard))), node)
}

/// The newest announcement of each node. Times are of the boot clock.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    nodes: BTreeMap<String, Heard>,
}

impl Peers {
    /// Keeps an announcement, unless a newer one of the same process came before it.
    pub fn hear(&mut self, now: Duration, announcement: Announcement) {
        self.nodes.retain(|_, heard| now.saturating_sub(heard.at) < FORGOTTEN);
        let name = announcement.node.clone();
        let (is_new, since) = match self.nodes.get(&name) {
            Some(Heard { announcement: old, at, since }) => {
                let is_same = old.run == announcement.run;
                let is_on = is_same && now.saturating_sub(*at) < LIVE;
                (!is_same || old.number < announcement.number, if is_on { *since } else { now })
            }
            None => (self.nodes.len() < NODES_MAX, now),
        };
        if is_new {
            self.nodes.insert(name, Heard { announcement, at: now, since });
        }
    }

    /// All that are remembered, by name.
    pub fn all(&self) -> impl Iterator<Item = &Heard> {
        self.nodes.values()
    }

    /// The newest version of records that all known nodes can read. Nodes that were not heard for long are not
    /// waited for.
    pub fn all_read(&self, now: Duration) -> Option<u8> {
        let known = self.all().filter(|heard| now.saturating_sub(heard.at) < FORGOTTEN);
        known.map(|heard| heard.announcement.reads).min()
    }

    /// How many live followers stand before a node: they campaign first.
    pub fn rank(&self, me: &str, shard: Option<u8>, now: Duration) -> u32 {
        let my_turn = turn(me, shard);
        let stands_before = |heard: &&Heard| {
            let is_live = now.saturating_sub(heard.at) < LIVE;
            let Announcement { node, role, .. } = &heard.announcement;
            let waits = matches!(role, Role::Follower | Role::Campaigning);
            is_live && waits && turn(node, shard) < my_turn
        };
        u32::try_from(self.all().filter(stands_before).count()).unwrap_or(u32::MAX)
    }

    /// The follower that should lead instead of node `me`: it stands before it, has been heard since `since` or
    /// longer, and has read up to `position`.
    pub fn better_leader(
        &self,
        me: &str,
        shard: u8,
        now: Duration,
        (since, position): (Duration, u64),
    ) -> Option<&str> {
        let is_ready = |heard: &&Heard| {
            let Announcement { role, position: its, .. } = heard.announcement;
            let is_live = now.saturating_sub(heard.at) < LIVE && heard.since <= since;
            is_live && role == Role::Follower && its >= position
        };
        let ready = self.all().filter(is_ready).map(|heard| heard.announcement.node.as_str());
        let first = ready.min_by_key(|node| turn(node, Some(shard)))?;
        (turn(first, Some(shard)) < turn(me, Some(shard))).then_some(first)
    }

    /// The live leader of the highest epoch, if that is not below `epoch`.
    pub fn leader(&self, epoch: u64, now: Duration) -> Option<&Heard> {
        let is_leader = |heard: &&Heard| {
            let Announcement { role, epoch: its, .. } = heard.announcement;
            let is_live = now.saturating_sub(heard.at) < LIVE;
            is_live && its >= epoch && matches!(role, Role::Leader | Role::SteppingDown)
        };
        self.all().filter(is_leader).max_by_key(|heard| heard.announcement.epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::announcement::tests::of;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn the_newest_announcement_of_each_node_counts() {
        let mut peers = Peers::default();
        let mut told = of("a", Role::Leader, 2);
        told.number = 5;
        peers.hear(MS(0), told.clone());
        told.number = 4;
        told.role = Role::Follower;
        peers.hear(MS(1), told.clone());
        assert_eq!(
            peers.leader(2, MS(1)).map(|heard| heard.at),
            Some(MS(0)),
            "an older one came late"
        );
        told.run = "another".to_owned();
        peers.hear(MS(2), told);
        assert!(peers.leader(2, MS(2)).is_none(), "the process was started again");
    }

    #[test]
    fn a_leader_of_an_older_epoch_and_one_that_is_silent_lead_no_more() {
        let mut peers = Peers::default();
        peers.hear(MS(0), of("a", Role::Leader, 2));
        peers.hear(MS(0), of("b", Role::Leader, 3));
        let name = |epoch, now| peers.leader(epoch, now).map(|it| it.announcement.node.clone());
        assert_eq!(name(2, MS(10)).as_deref(), Some("b"));
        assert_eq!(name(4, MS(10)), None);
        assert_eq!(name(2, LIVE), None);
    }

    #[test]
    fn a_node_counts_by_what_it_reads_until_it_is_forgotten() {
        let mut peers = Peers::default();
        assert_eq!(peers.all_read(MS(0)), None);
        let newer = |node: &str| Announcement { reads: 2, ..of(node, Role::Follower, 1) };
        peers.hear(MS(0), of("a", Role::Follower, 1));
        peers.hear(MS(5), newer("b"));
        assert_eq!(peers.all_read(MS(5)), Some(1));
        assert_eq!(peers.all_read(FORGOTTEN + MS(1)), Some(2));
        let again = Announcement { run: "upgraded".to_owned(), ..newer("a") };
        peers.hear(MS(6), again);
        assert_eq!(peers.all_read(MS(6)), Some(2));
    }

    #[test]
    fn each_shard_has_an_order_of_its_own_and_whoever_stands_first_is_to_lead() {
        let names = ["a", "b", "c"];
        let first = |shard| {
            let mut peers = Peers::default();
            names.iter().for_each(|name| peers.hear(MS(0), of(name, Role::Follower, 1)));
            let ranked = |name: &&str| peers.rank(name, Some(shard), MS(1)) == 0;
            names.into_iter().find(ranked).unwrap()
        };
        let spread: std::collections::BTreeSet<_> = (0..8).map(first).collect();
        assert_eq!(spread.len(), 3, "{spread:?}");

        let (shard, best) = (0, first(0));
        let other = names.into_iter().find(|name| *name != best).unwrap();
        let mut peers = Peers::default();
        let told = Announcement { position: 100, ..of(best, Role::Follower, 1) };
        for (at, number) in (0..=10_000).step_by(200).zip(1..) {
            peers.hear(MS(at), Announcement { number, ..told.clone() });
        }
        let better =
            |me, since, position| peers.better_leader(me, shard, MS(10_000), (MS(since), position));
        assert_eq!(better(other, 0, 100), Some(best));
        assert_eq!(better(best, 0, 100), None, "it leads itself");
        assert_eq!(better(other, 0, 101), None, "it is behind");
        peers.hear(MS(12_000), Announcement { number: 99, ..told });
        let late = peers.better_leader(other, shard, MS(12_000), (MS(11_000), 100));
        assert_eq!(late, None, "it was silent, and is heard since now only");
    }

    #[test]
    fn followers_stand_in_the_order_of_their_names_and_only_so_many_are_known() {
        let mut peers = Peers::default();
        for (name, role) in [("a", Role::Leader), ("b", Role::Follower), ("d", Role::Follower)] {
            peers.hear(MS(0), of(name, role, 1));
        }
        assert_eq!(["b", "c", "e"].map(|me| peers.rank(me, None, MS(1))), [0, 1, 2]);
        assert_eq!(peers.rank("e", None, LIVE), 0);
        for n in 0..100 {
            peers.hear(MS(1), of(&format!("n{n}"), Role::Follower, 1));
        }
        assert_eq!(peers.all().count(), NODES_MAX);
        peers.hear(FORGOTTEN + MS(1), of("late", Role::Follower, 1));
        assert_eq!(peers.all().count(), 1);
    }
}
