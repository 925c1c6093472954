//! Web pages of a cluster with shards: the leader of the first shard serves them and queries all shards.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use spindle_cluster::Node;
use spindle_web::Pulse;
use tokio::sync::watch;

/// Whether something has happened on any shard.
pub(super) struct ShardsPulse {
    nodes: Vec<Node>,
    position: AtomicU64,
    moved: watch::Sender<()>,
}

impl ShardsPulse {
    /// The pulse of the shards that these nodes follow and lead.
    pub fn of(nodes: &[Node]) -> Arc<ShardsPulse> {
        let (nodes, moved) = (nodes.to_vec(), watch::Sender::new(()));
        Arc::new(ShardsPulse { nodes, position: AtomicU64::new(0), moved })
    }

    /// Checks whether something has happened, and notifies pages if so. To be called now and then.
    pub fn look(&self) {
        let position = self.position();
        if self.position.swap(position, Ordering::Relaxed) != position {
            self.moved.send_replace(());
        }
    }
}

impl Pulse for ShardsPulse {
    fn position(&self) -> u64 {
        self.nodes.iter().map(Node::position).sum()
    }

    fn moves(&self) -> watch::Receiver<()> {
        self.moved.subscribe()
    }
}
