//! How a node reaches the leader of each shard, for clients whose protocol it speaks itself.

use std::future::Future;
use std::io;
use std::sync::Arc;

use spindle_engine::Peer;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, timeout_at};

use crate::channel::{NodeTls, in_plain};
use crate::node::{Gate, Leader, Node};
use crate::passage::{LAST_ANSWERS_TIME, LEADER_TIME, RETRY_PAUSE, is_another, open_way};
use crate::preamble::Preamble;

/// How many clients may wait for leaders at a time.
const WAITING_MAX: usize = 4096;

/// The ways to the leaders of all shards, this node's own among them.
pub struct Crossing {
    tls: NodeTls,
    /// By shard.
    leaders: Vec<watch::Receiver<Option<Leader>>>,
    waiting: Arc<Semaphore>,
}

impl Crossing {
    /// Between the shards that these nodes follow and lead.
    #[must_use]
    pub fn between(shards: &[Node]) -> Crossing {
        let tls = shards.first().map(|node| node.tls().clone()).unwrap_or_default();
        let leaders = shards.iter().map(Node::leader).collect();
        Crossing { tls, leaders, waiting: Arc::new(Semaphore::new(WAITING_MAX)) }
    }

    /// Connects a client to a door of a shard, at its leader. Waits for somebody to lead.
    ///
    /// The future that comes with the connection ends when that leader no longer leads, and has had its time
    /// to answer.
    ///
    /// # Errors
    ///
    /// When nobody leads for too long, or too many wait for that.
    pub async fn reach(
        &self,
        shard: u8,
        door: &str,
        client: &Peer,
    ) -> io::Result<(TcpStream, impl Future<Output = ()> + Send + use<>)> {
        let leaders = self.leaders.get(usize::from(shard));
        let leaders = leaders.ok_or_else(|| io::Error::other("there is no such shard"))?;
        let deadline = Instant::now() + LEADER_TIME;
        loop {
            let (leader, gate) = self.leader(leaders, deadline).await?;
            let preamble = Preamble::of_known(gate.pass_key.clone(), shard, door, client);
            match open_way(&self.tls, &gate, &preamble).await {
                Ok(stream) => {
                    return Ok((in_plain(stream).await?, deposed(leaders.clone(), leader)));
                }
                // The leader may have just gone, or its successor may not have announced its address yet.
                Err(error) if Instant::now() < deadline => {
                    let node = leader.node;
                    tracing::debug!(node, shard, "cannot reach the shard's leader: {error}");
                    sleep(RETRY_PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until there is a leader whose doors are open.
    async fn leader(
        &self,
        leaders: &watch::Receiver<Option<Leader>>,
        deadline: Instant,
    ) -> io::Result<(Leader, Gate)> {
        let open = |leader: &Option<Leader>| {
            let leader = leader.clone()?;
            let gate = leader.gate.clone()?;
            Some((leader, gate))
        };
        if let Some(found) = open(&leaders.borrow()) {
            return Ok(found);
        }
        let Ok(_place) = self.waiting.try_acquire() else {
            return Err(io::Error::other("nobody leads the shard, and too many wait for it"));
        };
        let mut leaders = leaders.clone();
        let heard = leaders.wait_for(|leader| open(leader).is_some());
        match timeout_at(deadline, heard).await {
            Ok(Ok(leader)) => open(&leader).ok_or_else(|| io::Error::other("nobody leads")),
            Ok(Err(_)) => Err(io::Error::other("the node stops")),
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "nobody leads the shard")),
        }
    }
}

/// Ends when this leader no longer leads, and has had its time to answer the requests it got before.
async fn deposed(mut leaders: watch::Receiver<Option<Leader>>, leader: Leader) {
    // The end of the node ends this wait too.
    drop(leaders.wait_for(|now| is_another(now, &leader)).await);
    sleep(LAST_ANSWERS_TIME).await;
}
