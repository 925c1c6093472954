//! A TCP door behind its reactor.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use spindle_budget::Budgets;
use spindle_engine::{Committer, Door, Engine, Gate, Mailbox};
use spindle_net::{NetConfig, Server, ServerHandle, bind};

use crate::{PATIENCE, wait_until};

/// A server with one door on a free port of loopback; dropping it aborts its connections and stops
/// the engine.
pub struct TcpServer<D> {
    /// The engine behind the door.
    pub engine: Engine,
    /// The door.
    pub door: Arc<D>,
    /// The reactor.
    pub net: ServerHandle,
    /// What its clients make it hold.
    pub budgets: Budgets,
    address: SocketAddr,
}

impl<D: Door> TcpServer<D> {
    /// Serves a door at an engine.
    pub fn start(engine: &Engine, door: D) -> TcpServer<D> {
        TcpServer::with(Arc::new(engine.clone()), engine, door, Budgets::default())
    }

    /// As [`TcpServer::start`], but nothing is durable until the test commits.
    pub fn stepped(engine: &Engine, door: D) -> TcpServer<D> {
        TcpServer::with(Arc::new(Idle(engine.clone())), engine, door, Budgets::default())
    }

    /// As [`TcpServer::stepped`], for clients whose unfinished requests take no more than this together.
    pub fn stepped_within(engine: &Engine, door: D, input_bytes_max: usize) -> TcpServer<D> {
        let budgets = Budgets::new(input_bytes_max, usize::MAX);
        TcpServer::with(Arc::new(Idle(engine.clone())), engine, door, budgets)
    }

    fn with(
        committer: Arc<dyn Committer>,
        engine: &Engine,
        door: D,
        budgets: Budgets,
    ) -> TcpServer<D> {
        let door = Arc::new(door);
        let bound = bind(door.clone(), "127.0.0.1:0".parse().unwrap()).unwrap();
        let address = bound.local_addr();
        let config = NetConfig { budgets: budgets.clone(), ..NetConfig::default() };
        let net = Server::start(committer, vec![bound], config).unwrap();
        TcpServer { engine: engine.clone(), door, net, budgets, address }
    }

    /// A new connection, whose reads and writes fail after [`PATIENCE`].
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Waits for a condition of the engine that needs no time of its clock to pass.
    #[track_caller]
    pub fn until(&self, what: &str, condition: impl Fn(&Engine) -> bool) {
        wait_until(what, || condition(&self.engine));
    }
}

/// Leaves commits to the test.
struct Idle(Engine);

impl Committer for Idle {
    fn attach(&self, mailbox: &Arc<dyn Mailbox>) {
        self.0.attach(mailbox);
    }

    fn durable(&self) -> Gate {
        self.0.durable()
    }

    fn end_turn(&self) -> bool {
        false
    }

    fn commit(&self) {}

    fn commit_if_quick(&self) {}

    fn sync_time(&self) -> Duration {
        Duration::ZERO
    }
}

impl<D> Drop for TcpServer<D> {
    fn drop(&mut self) {
        self.net.abort();
        self.engine.stop();
    }
}
