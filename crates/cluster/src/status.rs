//! A cluster as one node sees it.

use spindle_log::LogHealth;

use crate::announcement::{Announcement, Role};
use crate::node::Node;
use crate::peers::LIVE;

/// What one node knows of its cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// The node that says this.
    pub node: String,
    /// What it does.
    pub role: Role,
    /// The epoch that it leads, or the highest that it has folded.
    pub epoch: u64,
    /// The leader, as far as this node has heard; none if it has heard of none.
    pub leader: Option<String>,
    /// All nodes that were heard in the last hour, this one included, by name.
    pub nodes: Vec<NodeStatus>,
    /// The servers that keep the log, as this node hears; none while it does not have the log open.
    pub log: Option<LogHealth>,
}

/// One node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeStatus {
    /// Its name.
    pub node: String,
    /// What it does, or did when it was last heard.
    pub role: Role,
    /// Whether it was heard within the last second.
    pub live: bool,
    /// How many milliseconds ago it was heard; 0 of the node that says this.
    pub heard_ms: u64,
    /// The epoch that it leads, or the highest that it has folded.
    pub epoch: u64,
    /// The position behind the last record that it has folded, or that is durable where it leads.
    pub position: u64,
    /// How many records it is behind the leader; none if nobody is heard to lead.
    pub lag: Option<u64>,
    /// Where other nodes reach it.
    pub address: Option<String>,
    /// Its program's version.
    pub version: String,
}

impl Node {
    /// The cluster as this node sees it.
    pub fn status(&self) -> Status {
        let now = self.now();
        let log = self.state().log.clone().map(|log| log.health());
        let state = self.state();
        let options = &self.shared.options;
        let position = state.engine.as_ref().map_or(state.position, |engine| engine.durable().0);
        let mut nodes = vec![NodeStatus {
            node: options.name.clone(),
            role: state.role,
            live: true,
            heard_ms: 0,
            epoch: state.epoch,
            position,
            lag: None,
            address: options.advertise.clone(),
            version: options.version.clone(),
        }];
        nodes.extend(state.peers.all().map(|heard| {
            let age = now.saturating_sub(heard.at);
            let Announcement { node, role, epoch, position, advertise, version, .. } =
                heard.announcement.clone();
            let heard_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
            let (live, address, lag) = (age < LIVE, advertise, None);
            NodeStatus { node, role, live, heard_ms, epoch, position, lag, address, version }
        }));
        let leads = |it: &&NodeStatus| {
            it.live
                && it.epoch >= state.epoch
                && matches!(it.role, Role::Leader | Role::SteppingDown)
        };
        let leader = nodes.iter().filter(leads).max_by_key(|it| it.epoch);
        let (leader, end) = (leader.map(|it| it.node.clone()), leader.map(|it| it.position));
        for node in &mut nodes {
            node.lag = end.map(|end| end.saturating_sub(node.position));
        }
        nodes.sort_by(|one, other| one.node.cmp(&other.node));
        let (node, role, epoch) = (options.name.clone(), state.role, state.epoch);
        Status { node, role, epoch, leader, nodes, log }
    }
}
