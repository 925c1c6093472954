//! Where a leader lets in clients that came to other nodes.

use std::net::{SocketAddr, TcpStream as StdStream};
use std::sync::Arc;
use std::time::Duration;

use spindle_engine::Peer;
use subtle::ConstantTimeEq;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::node::Node;
use crate::preamble::Preamble;

/// The doors of a leader, as those who hand clients on see them.
pub trait Admit: Send + Sync {
    /// Serves a connection as if it had been accepted by that door, from that client. It is closed if
    /// there is no such door, or no place.
    fn admit(&self, door: &str, stream: StdStream, client: Arriving);
}

/// A client that came to another node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Arriving {
    /// It is at this address; its bytes come as it sends them.
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

/// A follower says who comes within this time.
const PREAMBLE_TIME: Duration = Duration::from_secs(5);
/// Connections that have not said it yet.
const UNKNOWN_MAX: usize = 256;
/// After an accept that failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Refusals are said in the log this often, at most.
const SAID_EVERY: Duration = Duration::from_secs(10);

/// Serves the cluster's listener.
pub(crate) struct Entrance {
    /// By shard.
    pub sides: Vec<(Node, OpenDoors)>,
}

impl Entrance {
    pub async fn serve(self, listener: TcpListener) {
        let unknown = Arc::new(Semaphore::new(UNKNOWN_MAX));
        let refused = Arc::new(Refused::default());
        let this = Arc::new(self);
        loop {
            let Ok(permit) = Arc::clone(&unknown).acquire_owned().await else { return };
            let (stream, from) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::debug!("cannot accept a connection of another node: {error}");
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let (this, refused) = (Arc::clone(&this), Arc::clone(&refused));
            tokio::spawn(async move {
                let admitted = timeout(PREAMBLE_TIME, this.admit(stream)).await;
                drop(permit);
                let why = match admitted {
                    Ok(Ok(())) => return,
                    Ok(Err(why)) => why,
                    Err(_) => "it said nothing in time".to_owned(),
                };
                refused.note(from, &why);
            });
        }
    }

    async fn admit(&self, mut stream: TcpStream) -> Result<(), String> {
        let preamble = Preamble::read(&mut stream).await;
        let preamble = preamble.map_err(|error| format!("no preamble: {error}"))?;
        let (node, doors) = self.sides.get(usize::from(preamble.shard)).ok_or("no such shard")?;
        let (key, expected) = (preamble.key.as_bytes(), node.state().pass_key.clone());
        if !expected.is_some_and(|expected| bool::from(expected.as_bytes().ct_eq(key))) {
            return Err("its key is not this leader's".to_owned());
        }
        let doors = doors.borrow().clone().ok_or("the doors are closed")?;
        let stream = stream.into_std().map_err(|error| error.to_string())?;
        doors.admit(&preamble.door, stream, preamble.arrival());
        Ok(())
    }
}

/// Connections that were not let in.
#[derive(Default)]
struct Refused {
    state: parking_lot::Mutex<(u64, Option<Instant>)>,
}

impl Refused {
    fn note(&self, from: SocketAddr, why: &str) {
        let mut state = self.state.lock();
        state.0 += 1;
        if state.1.is_none_or(|at| at.elapsed() >= SAID_EVERY) {
            state.1 = Some(Instant::now());
            let since_start = state.0;
            tracing::warn!(%from, since_start, "a connection at the cluster's address was refused: {why}");
        }
    }
}
