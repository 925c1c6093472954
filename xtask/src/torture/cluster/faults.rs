//! The faults of a run: which ones, in which order, and which processes each of them hits.

use crate::torture::job::Dice;

/// Something that happens to processes of a cluster, or between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    Killed(Victim),
    Stopped(Victim),
    Cut(Cut),
}

/// The processes that a fault hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Victim {
    Leader,
    Follower,
    LogLeader,
    LogFollower,
    /// The leader and the log server of its machine.
    Machine,
}

/// Which connections are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cut {
    /// The leader's machine from the other machines.
    Machine,
    /// The leader from all log servers; it and the other nodes reach each other.
    LeaderFromLog,
    /// What the leader sends to log servers.
    LeaderToLog,
    /// What log servers send to the leader.
    LogToLeader,
    /// The leader of the log from the other log servers; all nodes reach it.
    LogLeader,
    /// The leader from the other nodes; all reach the log.
    LeaderFromNodes,
}

/// The groups of faults, of which even the shortest run has one each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    Kills,
    Stops,
    Partitions,
}

impl Group {
    pub const ALL: [Self; 3] = [Self::Kills, Self::Stops, Self::Partitions];

    pub fn name(self) -> &'static str {
        match self {
            Self::Kills => "kills",
            Self::Stops => "stops",
            Self::Partitions => "partitions",
        }
    }
}

impl Fault {
    pub const ALL: [Self; 15] = [
        Self::Killed(Victim::Leader),
        Self::Killed(Victim::Follower),
        Self::Killed(Victim::LogLeader),
        Self::Killed(Victim::LogFollower),
        Self::Killed(Victim::Machine),
        Self::Stopped(Victim::Leader),
        Self::Stopped(Victim::Follower),
        Self::Stopped(Victim::LogLeader),
        Self::Stopped(Victim::LogFollower),
        Self::Cut(Cut::Machine),
        Self::Cut(Cut::LeaderFromLog),
        Self::Cut(Cut::LeaderToLog),
        Self::Cut(Cut::LogToLeader),
        Self::Cut(Cut::LogLeader),
        Self::Cut(Cut::LeaderFromNodes),
    ];

    pub fn group(self) -> Group {
        match self {
            Self::Killed(_) => Group::Kills,
            Self::Stopped(_) => Group::Stops,
            Self::Cut(_) => Group::Partitions,
        }
    }

    /// What it is, for the summary.
    pub fn name(self) -> String {
        let (verb, victim) = match self {
            Self::Killed(victim) => ("killed", victim),
            Self::Stopped(victim) => ("stopped", victim),
            Self::Cut(cut) => return cut.name().to_owned(),
        };
        format!("{} {verb}", victim.name())
    }

    /// How often it is in a deck: kills twice.
    fn copies(self) -> usize {
        if self.group() == Group::Kills { 2 } else { 1 }
    }
}

impl Victim {
    fn name(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Follower => "follower",
            Self::LogLeader => "log's leader",
            Self::LogFollower => "log's follower",
            Self::Machine => "leader's machine",
        }
    }
}

impl Cut {
    fn name(self) -> &'static str {
        match self {
            Self::Machine => "leader's machine cut off",
            Self::LeaderFromLog => "leader cut off from the log",
            Self::LeaderToLog => "leader unheard by the log",
            Self::LogToLeader => "log unheard by the leader",
            Self::LogLeader => "log's leader cut off from its followers",
            Self::LeaderFromNodes => "leader cut off from the other nodes",
        }
    }
}

/// Faults that all come within [`deck_len`] cycles.
pub fn possible(with_partitions: bool) -> Vec<Fault> {
    let is_possible = |fault: &Fault| with_partitions || fault.group() != Group::Partitions;
    Fault::ALL.into_iter().filter(is_possible).collect()
}

/// The number of cycles within which every possible fault comes.
pub fn deck_len(possible: &[Fault]) -> usize {
    possible.iter().map(|fault| fault.copies()).sum()
}

/// The faults of a run: whole decks, each in an order of its own, and of the last one a part in which the groups
/// take turns.
pub fn deal(possible: &[Fault], cycles: usize, dice: &mut Dice) -> Vec<Fault> {
    let mut dealt = Vec::with_capacity(cycles);
    while dealt.len() < cycles {
        let copies = possible.iter().flat_map(|fault| [*fault; 2].into_iter().take(fault.copies()));
        let mut deck: Vec<Fault> = copies.collect();
        for last in (1..deck.len()).rev() {
            deck.swap(last, dice.below(last as u64 + 1) as usize);
        }
        let left = cycles - dealt.len();
        if left < deck.len() {
            deck = in_turns(deck);
            deck.truncate(left);
        }
        dealt.extend(deck);
    }
    dealt
}

/// Takes one fault of each group in turn, keeping the order within each group.
fn in_turns(deck: Vec<Fault>) -> Vec<Fault> {
    let mut groups = Group::ALL
        .map(|group| deck.iter().copied().filter(|it| it.group() == group).collect::<Vec<_>>());
    groups.iter_mut().for_each(|group| group.reverse());
    let mut ordered = Vec::new();
    while ordered.len() < deck.len() {
        ordered.extend(groups.iter_mut().filter_map(Vec::pop));
    }
    ordered
}

/// A process of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Member {
    Node(usize),
    Log(usize),
}

/// The roles of the processes when a fault comes.
#[derive(Clone, Copy, Debug)]
pub struct Roles {
    pub leader: usize,
    pub nodes: usize,
    pub log_leader: usize,
    pub log_servers: usize,
}

/// What a fault does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub killed: Vec<Member>,
    pub stopped: Vec<Member>,
    /// Pairs of a sender and a receiver that hears nothing of it.
    pub cut: Vec<(Member, Member)>,
}

impl Plan {
    /// Whether a server of the log is killed.
    pub fn kills_log(&self) -> bool {
        self.killed.iter().any(|member| matches!(member, Member::Log(_)))
    }
}

impl Roles {
    /// What a fault does to which processes. Among followers the choice is random.
    pub fn plan(&self, fault: Fault, dice: &mut Dice) -> Plan {
        let mut plan = Plan::default();
        match fault {
            Fault::Killed(victim) => plan.killed = self.hit(victim, dice),
            Fault::Stopped(victim) => plan.stopped = self.hit(victim, dice),
            Fault::Cut(cut) => plan.cut = self.cut(cut),
        }
        plan
    }

    fn hit(&self, victim: Victim, dice: &mut Dice) -> Vec<Member> {
        let mut other_than =
            |one: usize, of: usize| (one + 1 + dice.below(of as u64 - 1) as usize) % of;
        match victim {
            Victim::Leader => vec![Member::Node(self.leader)],
            Victim::Follower => vec![Member::Node(other_than(self.leader, self.nodes))],
            Victim::LogLeader => vec![Member::Log(self.log_leader)],
            Victim::LogFollower => vec![Member::Log(other_than(self.log_leader, self.log_servers))],
            Victim::Machine => self.machine(),
        }
    }

    /// The leader and its log server. If there are fewer log servers than nodes, some nodes share
    /// one.
    fn machine(&self) -> Vec<Member> {
        vec![Member::Node(self.leader), Member::Log(self.leader % self.log_servers)]
    }

    fn cut(&self, cut: Cut) -> Vec<(Member, Member)> {
        let leader = vec![Member::Node(self.leader)];
        let log: Vec<_> = (0..self.log_servers).map(Member::Log).collect();
        let nodes: Vec<_> = (0..self.nodes).map(Member::Node).collect();
        let without = |all: &[Member], some: &[Member]| -> Vec<Member> {
            all.iter().copied().filter(|it| !some.contains(it)).collect()
        };
        match cut {
            Cut::Machine => {
                let machine = self.machine();
                both_ways(&machine, &without(&[&nodes[..], &log].concat(), &machine))
            }
            Cut::LeaderFromLog => both_ways(&leader, &log),
            Cut::LeaderToLog => one_way(&leader, &log),
            Cut::LogToLeader => one_way(&log, &leader),
            Cut::LogLeader => {
                let log_leader = [Member::Log(self.log_leader)];
                both_ways(&log_leader, &without(&log, &log_leader))
            }
            Cut::LeaderFromNodes => both_ways(&leader, &without(&nodes, &leader)),
        }
    }
}

fn one_way(from: &[Member], to: &[Member]) -> Vec<(Member, Member)> {
    from.iter().flat_map(|from| to.iter().map(|to| (*from, *to))).collect()
}

fn both_ways(these: &[Member], those: &[Member]) -> Vec<(Member, Member)> {
    [one_way(these, those), one_way(those, these)].concat()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_fault_comes_in_a_run_that_is_long_enough_and_one_of_each_group_in_any() {
        for with_partitions in [true, false] {
            let possible = possible(with_partitions);
            let len = deck_len(&possible);
            for seed in 0..50 {
                let dealt = deal(&possible, len, &mut Dice::new(seed));
                let kinds: BTreeSet<_> = dealt.iter().collect();
                assert_eq!((dealt.len(), kinds.len()), (len, possible.len()), "seed {seed}");
                let few = deal(&possible, 3, &mut Dice::new(seed));
                let groups: BTreeSet<_> = few.iter().map(|fault| fault.group()).collect();
                assert_eq!(groups.len(), if with_partitions { 3 } else { 2 }, "seed {seed}");
            }
        }
        let all = possible(true);
        assert_eq!(deck_len(&all), 20);
        let kills = deal(&all, 100, &mut Dice::new(1)).into_iter();
        assert_eq!(kills.filter(|fault| fault.group() == Group::Kills).count(), 50);
        let orders: BTreeSet<_> = (0..9).map(|seed| deal(&all, 20, &mut Dice::new(seed))).collect();
        assert_eq!(orders.len(), 9, "the seed decides the order");
    }

    #[test]
    fn a_plan_hits_whom_its_fault_names() {
        let roles = Roles { leader: 2, nodes: 3, log_leader: 0, log_servers: 3 };
        let plan = |fault| roles.plan(fault, &mut Dice::new(1));
        use Member::{Log, Node};
        assert_eq!(plan(Fault::Killed(Victim::Machine)).killed, [Node(2), Log(2)]);
        assert_eq!(plan(Fault::Stopped(Victim::LogLeader)).stopped, [Log(0)]);
        for seed in 0..20 {
            let hit = |victim| roles.plan(Fault::Killed(victim), &mut Dice::new(seed)).killed;
            assert!(!hit(Victim::Follower).contains(&Node(2)));
            assert!(!hit(Victim::LogFollower).contains(&Log(0)));
        }
        let cut = |cut| plan(Fault::Cut(cut)).cut;
        let sent = [(Node(2), Log(0)), (Node(2), Log(1)), (Node(2), Log(2))];
        assert_eq!(cut(Cut::LeaderToLog), sent);
        assert_eq!(cut(Cut::LogToLeader), sent.map(|(from, to)| (to, from)));
        assert_eq!(cut(Cut::LeaderFromLog).len(), 6);
        assert_eq!(cut(Cut::LogLeader).len(), 4);
        assert_eq!(cut(Cut::LeaderFromNodes).len(), 4);
        let machine = cut(Cut::Machine);
        assert_eq!(machine.len(), 16, "each of two from each of four, both ways");
        assert!(!machine.contains(&(Node(2), Log(2))), "what is on one machine stays together");
        let few = Roles { leader: 2, nodes: 3, log_leader: 0, log_servers: 2 };
        assert_eq!(few.machine(), [Node(2), Log(0)]);
    }
}
