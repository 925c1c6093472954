//! Where a leader lets in clients that came to other nodes.

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpStream as StdStream};
use std::sync::Arc;
use std::time::Duration;

use spindle_engine::Peer;
use spindle_tls::stream::HandshakeTurns;
use subtle::ConstantTimeEq;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{Instant, sleep, timeout};

use crate::channel::{NodeTls, in_plain};
use crate::node::Node;
use crate::preamble::Preamble;
use crate::seldom::Seldom;

/// The doors of a leader, as the code that hands clients on sees them.
pub trait Admit: Send + Sync {
    /// Serves a connection as if it had been accepted by that door, from that client. It is closed if
    /// there is no such door, or no place.
    fn admit(&self, door: &str, stream: StdStream, client: Arriving);
}

/// A client that came to another node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Arriving {
    /// Only its address is known; its bytes come as it sends them.
    At(SocketAddr),
    /// All of this is known of it, and its bytes come in plain.
    Known(Peer),
}

impl Arriving {
    /// Where it is.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        match self {
            Arriving::At(address) => *address,
            Arriving::Known(peer) => peer.address,
        }
    }
}

/// The leader's doors, while they are open.
pub(crate) type OpenDoors = watch::Receiver<Option<Arc<dyn Admit>>>;

/// The doors of the log that one node leads at times: open while it does.
pub struct Threshold {
    pub(crate) node: Node,
    doors: watch::Sender<Option<Arc<dyn Admit>>>,
}

impl Threshold {
    /// Doors that are closed.
    #[must_use]
    pub fn of(node: &Node) -> Threshold {
        Threshold { node: node.clone(), doors: watch::Sender::new(None) }
    }

    /// This node leads, and its doors are open: other nodes may hand clients on.
    pub fn open(&self, doors: Arc<dyn Admit>) {
        self.doors.send_replace(Some(doors));
        self.node.let_in();
    }

    /// Its doors are closed.
    pub fn close(&self) {
        self.node.let_nobody_in();
        self.doors.send_replace(None);
    }

    pub(crate) fn doors(&self) -> OpenDoors {
        self.doors.subscribe()
    }
}

/// A follower sends its preamble within this time, handshake included.
const PREAMBLE_TIME: Duration = Duration::from_secs(5);
/// The most connections without a preamble yet. For one more, the one that has been silent for longest is
/// closed, so that silent strangers keep no node out.
const UNKNOWN_MAX: usize = 1024;
/// A connection is not closed for another one before it is this old.
const HEARD_OUT: Duration = Duration::from_millis(500);
/// The pause after an accept that failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves the cluster's listener.
pub(crate) struct Entrance {
    pub tls: NodeTls,
    /// By shard.
    pub sides: Vec<(Node, OpenDoors)>,
}

impl Entrance {
    pub async fn serve(self, listener: TcpListener) {
        let (turns, refused) = (HandshakeTurns::default(), Arc::new(Seldom::default()));
        let mut unknown = Unknown::default();
        let this = Arc::new(self);
        loop {
            unknown.make_room().await;
            let (stream, from) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::debug!("cannot accept a connection of another node: {error}");
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let (this, turns, refused) = (Arc::clone(&this), turns.clone(), Arc::clone(&refused));
            unknown.keep(tokio::spawn(async move {
                let why = match timeout(PREAMBLE_TIME, this.admit(stream, &turns)).await {
                    Ok(Ok(())) => return,
                    Ok(Err(why)) => why,
                    Err(_) => "it said nothing in time".to_owned(),
                };
                if let Some(since_start) = refused.count() {
                    tracing::warn!(
                        %from,
                        since_start,
                        "a connection at the cluster's address was refused: {why}"
                    );
                }
            }));
        }
    }

    async fn admit(&self, stream: TcpStream, turns: &HandshakeTurns) -> Result<(), String> {
        let stream = self.tls.accept(stream, turns, PREAMBLE_TIME).await;
        let mut stream = stream.map_err(|error| format!("no handshake: {error}"))?;
        let preamble = Preamble::read(&mut stream).await;
        let preamble = preamble.map_err(|error| format!("no preamble: {error}"))?;
        let (node, doors) = self.sides.get(usize::from(preamble.shard)).ok_or("no such shard")?;
        let (key, expected) = (preamble.key.as_bytes(), node.state().pass_key.clone());
        if !expected.is_some_and(|expected| bool::from(expected.as_bytes().ct_eq(key))) {
            return Err("its key is not this leader's".to_owned());
        }
        let doors = doors.borrow().clone().ok_or("the doors are closed")?;
        let stream = in_plain(stream).await.and_then(TcpStream::into_std);
        let stream = stream.map_err(|error| error.to_string())?;
        doors.admit(&preamble.door, stream, preamble.arrival());
        Ok(())
    }
}

/// Connections that have not sent their preamble yet, the oldest first.
#[derive(Default)]
struct Unknown(VecDeque<(Instant, AbortHandle)>);

impl Unknown {
    fn keep(&mut self, task: JoinHandle<()>) {
        self.0.push_back((Instant::now(), task.abort_handle()));
    }

    /// Waits until there may be one more.
    async fn make_room(&mut self) {
        while self.0.len() >= UNKNOWN_MAX {
            self.0.retain(|(_, task)| !task.is_finished());
            if self.0.len() < UNKNOWN_MAX {
                return;
            }
            let Some((since, oldest)) = self.0.front() else { return };
            let heard_out = *since + HEARD_OUT;
            if Instant::now() < heard_out {
                sleep(LOOK_PAUSE).await;
                continue;
            }
            oldest.abort();
            self.0.pop_front();
        }
    }
}

/// The pause between two looks whether one of the unknown connections has become known.
const LOOK_PAUSE: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_is_silent_for_longest_makes_room() {
        let mut unknown = Unknown::default();
        let silent = || tokio::spawn(std::future::pending::<()>());
        for _ in 0..UNKNOWN_MAX - 1 {
            unknown.make_room().await;
            unknown.keep(silent());
        }
        // A connection that has sent its preamble is not unknown any more.
        unknown.keep(tokio::spawn(async {}));
        let began = Instant::now();
        unknown.make_room().await;
        assert!(began.elapsed() < HEARD_OUT);
        assert_eq!(unknown.0.len(), UNKNOWN_MAX - 1);

        // None is closed before its time.
        unknown.keep(silent());
        unknown.make_room().await;
        assert!(began.elapsed() >= HEARD_OUT);
        assert_eq!(unknown.0.len(), UNKNOWN_MAX - 1);
    }
}
