//! Shards in memory, and a network of threads between them and a router.

use std::collections::{HashMap, VecDeque};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use bytes::Bytes;
use parking_lot::Mutex;
use spindle_engine::{Door, Engine, Options, Peer, SystemClock};
use spindle_log::MemoryLog;
use spindle_net::{NetConfig, Server, ServerHandle, bind};
use spindle_router::{Came, Network, NoLog, Placement, Shard, Wake, Way, Ways};
use spindle_testkit::{PATIENCE, spawn};

/// Servers with one door each, which know nothing of each other, and a router in front of them.
pub struct Sharded {
    pub placement: Placement,
    /// By shard.
    pub engines: Vec<Engine>,
    servers: Vec<ServerHandle>,
    router: ServerHandle,
    address: SocketAddr,
}

impl Sharded {
    /// So many shards whose doors `door` opens, behind the router that `router` makes.
    pub fn start<D: Door, R: Door>(
        shards: u8,
        door: impl Fn(Engine) -> D,
        router: impl FnOnce(Arc<dyn Network>, Placement) -> R,
    ) -> Sharded {
        let placement = Placement::over(shards);
        let engines: Vec<Engine> = placement.shards().map(open).collect();
        let served = engines.iter().map(|engine| serve(engine, door(engine.clone())));
        let (servers, addresses): (Vec<_>, Vec<_>) = served.unzip();
        let door = Arc::new(router(Arc::new(Direct { addresses }), placement));
        let bound = bind(door, "127.0.0.1:0".parse().unwrap()).unwrap();
        let address = bound.local_addr();
        let router = Server::start(Arc::new(NoLog), vec![bound], NetConfig::default()).unwrap();
        Sharded { placement, engines, servers, router, address }
    }

    /// Where the router listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A client of the router, whose reads and writes fail after [`PATIENCE`].
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// The name of a queue that is on this shard; other numbers, other names.
    pub fn queue_on(&self, shard: u8, number: usize) -> String {
        let names = (0..).map(|at| format!("queue-{at}"));
        let mut on_it = names.filter(|name| self.placement.of(name.as_bytes()) == Shard(shard));
        on_it.nth(number).unwrap()
    }

    /// Closes all connections of one shard's server, and takes no new ones.
    pub fn lose(&self, shard: u8) {
        self.servers[usize::from(shard)].abort();
    }
}

impl Drop for Sharded {
    fn drop(&mut self) {
        self.router.abort();
        self.servers.iter().for_each(ServerHandle::abort);
        self.engines.iter().for_each(Engine::stop);
    }
}

fn open(shard: Shard) -> Engine {
    let options = Options { shard: shard.0, ..Options::default() };
    let clock = Arc::new(SystemClock::new());
    let engine = Engine::open(Arc::new(MemoryLog::new()), clock, options).unwrap();
    spawn(&engine);
    engine
}

fn serve<D: Door>(engine: &Engine, door: D) -> (ServerHandle, SocketAddr) {
    let bound = bind(Arc::new(door), "127.0.0.1:0".parse().unwrap()).unwrap();
    let address = bound.local_addr();
    let config = NetConfig { reactors: 1, ..NetConfig::default() };
    (Server::start(Arc::new(engine.clone()), vec![bound], config).unwrap(), address)
}

/// Connects to servers at fixed addresses.
struct Direct {
    addresses: Vec<SocketAddr>,
}

impl Network for Direct {
    fn ways(&self, _door: &'static str, _client: &Peer, wake: Wake) -> Box<dyn Ways> {
        let addresses = self.addresses.clone();
        Box::new(DirectWays { addresses, wake, came: Arc::default(), open: HashMap::new() })
    }
}

struct DirectWays {
    addresses: Vec<SocketAddr>,
    wake: Wake,
    came: Arc<Mutex<VecDeque<(Way, Came)>>>,
    open: HashMap<Way, (TcpStream, Arc<AtomicBool>)>,
}

impl DirectWays {
    fn open(&mut self, way: Way) {
        let address = self.addresses[usize::from(way.shard.0)];
        let closed = Arc::new(AtomicBool::new(false));
        let Ok(stream) = TcpStream::connect(address) else {
            self.came.lock().push_back((way, Came::Ended));
            return self.wake.wake();
        };
        stream.set_nodelay(true).unwrap();
        let (mut reader, is_closed) = (stream.try_clone().unwrap(), Arc::clone(&closed));
        let (came, wake) = (Arc::clone(&self.came), self.wake.clone());
        thread::spawn(move || {
            let mut piece = vec![0; 64 * 1024];
            loop {
                let count = reader.read(&mut piece).unwrap_or(0);
                let new = match count {
                    0 => Came::Ended,
                    count => Came::Bytes(Bytes::copy_from_slice(&piece[..count])),
                };
                let mut came = came.lock();
                if is_closed.load(Ordering::SeqCst) {
                    return;
                }
                came.push_back((way, new));
                drop(came);
                wake.wake();
                if count == 0 {
                    return;
                }
            }
        });
        self.open.insert(way, (stream, closed));
    }
}

impl Ways for DirectWays {
    fn send(&mut self, way: Way, bytes: Bytes) {
        if !self.open.contains_key(&way) {
            self.open(way);
        }
        if let Some((stream, _)) = self.open.get_mut(&way) {
            // What cannot be sent shows where it is read.
            let _ = stream.write_all(&bytes);
        }
    }

    fn unsent_bytes(&self) -> usize {
        0
    }

    fn finish(&mut self, way: Way) {
        if let Some((stream, _)) = self.open.get(&way) {
            let _ = stream.shutdown(Shutdown::Write);
        }
    }

    fn close(&mut self, way: Way) {
        if let Some((stream, closed)) = self.open.remove(&way) {
            let mut came = self.came.lock();
            closed.store(true, Ordering::SeqCst);
            came.retain(|(of, _)| *of != way);
            drop(came);
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn receive(&mut self) -> Option<(Way, Came)> {
        let next = self.came.lock().pop_front()?;
        if next.1 == Came::Ended {
            self.open.remove(&next.0);
        }
        Some(next)
    }

    fn wake_later(&mut self) {
        self.wake.wake();
    }
}

impl Drop for DirectWays {
    fn drop(&mut self) {
        for (stream, _) in self.open.values() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}
