//! The way of one connection through a follower.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use spindle_tls::stream::MaybeTls;
use tokio::io::{AsyncWriteExt, copy_bidirectional};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::answer::{LocalAnswer, answer};
use crate::channel::NodeTls;
use crate::entrance::{Admit, Arriving, OpenDoors};
use crate::node::{Gate, Leader};
use crate::preamble::Preamble;

/// How long a client waits for somebody to lead.
pub(crate) const LEADER_TIME: Duration = Duration::from_secs(15);
/// How many clients may wait for that at a time.
pub(super) const WAITING_MAX: usize = 1024;
/// A leader takes a connection within this time.
const CONNECT_TIME: Duration = Duration::from_secs(2);
/// Answers that a leader gave before it lost the lead reach its clients within this time.
pub(crate) const LAST_ANSWERS_TIME: Duration = Duration::from_secs(2);
/// The pause between two tries to reach the leader.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// A door of this node whose clients are handed on.
pub(super) struct Entry {
    pub name: &'static str,
    pub answer: Option<LocalAnswer>,
}

/// What all connections share.
pub(super) struct Relay {
    pub tls: NodeTls,
    pub leader: watch::Receiver<Option<Leader>>,
    pub doors: OpenDoors,
    pub open: Arc<Semaphore>,
    pub waiting: Arc<Semaphore>,
}

/// Where a client goes.
enum Way {
    /// To this node's own doors, because it leads by now.
    Here(Arc<dyn Admit>),
    There(Leader, Gate),
}

impl Relay {
    /// Serves a client that was accepted, or closes the connection if there are too many.
    pub fn take(self: &Arc<Self>, client: TcpStream, from: SocketAddr, door: &Arc<Entry>) {
        let Ok(place) = Arc::clone(&self.open).try_acquire_owned() else {
            tracing::debug!(door = door.name, client = %from, "closed: too many are handed on");
            return;
        };
        let (this, door) = (Arc::clone(self), Arc::clone(door));
        tokio::spawn(async move {
            if let Err(why) = this.serve(client, from, &door).await {
                tracing::debug!(door = door.name, client = %from, "closed: {why}");
            }
            drop(place);
        });
    }

    async fn serve(&self, mut client: TcpStream, from: SocketAddr, door: &Entry) -> io::Result<()> {
        if let Some(by) = &door.answer
            && answer(&mut client, by).await?
        {
            return Ok(());
        }
        let deadline = Instant::now() + LEADER_TIME;
        loop {
            let (leader, gate) = match self.way(deadline).await? {
                Way::Here(doors) => {
                    doors.admit(door.name, client.into_std()?, Arriving::At(from));
                    return Ok(());
                }
                Way::There(leader, gate) => (leader, gate),
            };
            let preamble = Preamble::as_it_comes(gate.pass_key.clone(), door.name, from);
            match open_way(&self.tls, &gate, &preamble).await {
                Ok(stream) => return self.copy(client, stream, &leader).await,
                // The leader may have just gone, or its successor may not have announced its address.
                Err(error) if Instant::now() < deadline => {
                    tracing::debug!(leader = leader.node, "cannot reach the leader: {error}");
                    sleep(RETRY_PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until somebody leads.
    async fn way(&self, deadline: Instant) -> io::Result<Way> {
        let (mut doors, mut leader) = (self.doors.clone(), self.leader.clone());
        let at_once = || -> Option<Way> {
            if let Some(doors) = self.doors.borrow().clone() {
                return Some(Way::Here(doors));
            }
            let leader = self.leader.borrow().clone()?;
            let gate = leader.gate.clone()?;
            Some(Way::There(leader, gate))
        };
        if let Some(way) = at_once() {
            return Ok(way);
        }
        let Ok(_place) = self.waiting.try_acquire() else {
            return Err(io::Error::other("nobody leads, and too many wait for it"));
        };
        let found = async {
            loop {
                tokio::select! {
                    opened = doors.changed() => opened.map_err(io::Error::other)?,
                    heard = leader.changed() => heard.map_err(io::Error::other)?,
                }
                if let Some(way) = at_once() {
                    return io::Result::Ok(way);
                }
            }
        };
        match timeout_at(deadline, found).await {
            Ok(way) => way,
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "nobody leads")),
        }
    }

    /// Carries bytes both ways for as long as that node leads, and then its last answers.
    async fn copy(
        &self,
        mut client: TcpStream,
        mut stream: MaybeTls<TcpStream>,
        leader: &Leader,
    ) -> io::Result<()> {
        let mut known = self.leader.clone();
        let copied = copy_bidirectional(&mut client, &mut stream);
        tokio::pin!(copied);
        tokio::select! {
            ended = &mut copied => return ended.map(|_| ()),
            _ = known.wait_for(|now| is_another(now, leader)) => {}
        }
        match timeout(LAST_ANSWERS_TIME, copied).await {
            Ok(ended) => ended.map(|_| ()),
            Err(_) => Err(io::Error::other("the leader has changed")),
        }
    }
}

/// Whether somebody else leads now, or nobody.
pub(crate) fn is_another(now: &Option<Leader>, leader: &Leader) -> bool {
    now.as_ref().is_none_or(|now| now.run != leader.run || now.epoch != leader.epoch)
}

/// Connects to the leader and sends the preamble.
pub(crate) async fn open_way(
    tls: &NodeTls,
    gate: &Gate,
    preamble: &Preamble,
) -> io::Result<MaybeTls<TcpStream>> {
    let preamble = preamble.write().map_err(io::Error::other)?;
    let reached = async {
        let mut stream = tls.connect(&gate.address, gate.channel).await?;
        stream.write_all(&preamble).await?;
        stream.flush().await?;
        io::Result::Ok(stream)
    };
    timeout(CONNECT_TIME, reached).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}
