//! A TCP door behind its reactor.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use spindle_engine::{Door, Engine};
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
    address: SocketAddr,
}

impl<D: Door> TcpServer<D> {
    /// Serves a door at an engine.
    pub fn start(engine: &Engine, door: D) -> TcpServer<D> {
        let door = Arc::new(door);
        let bound = bind(door.clone(), "127.0.0.1:0".parse().unwrap()).unwrap();
        let address = bound.local_addr();
        let net =
            Server::start(Arc::new(engine.clone()), vec![bound], NetConfig::default()).unwrap();
        TcpServer { engine: engine.clone(), door, net, address }
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

impl<D> Drop for TcpServer<D> {
    fn drop(&mut self) {
        self.net.abort();
        self.engine.stop();
    }
}
