//! Shards in memory, and a router in front of them.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use spindle_core::seat::Seat;
use spindle_engine::{Door, Engine, Options, Peer, SystemClock};
use spindle_log::MemoryLog;
use spindle_net::{NetConfig, Server, ServerHandle, bind};
use spindle_router::{Link, Network, NoLog, Placement, Reach, Reached, Shard, Sockets};
use spindle_testkit::{PATIENCE, spawn};
use tokio::runtime::{Builder, Runtime};

/// Servers with one door each, which know nothing of each other, and a router in front of them.
pub struct Sharded {
    pub placement: Placement,
    /// By shard.
    pub engines: Vec<Engine>,
    servers: Vec<ServerHandle>,
    router: ServerHandle,
    address: SocketAddr,
    _runtime: Runtime,
}

impl Sharded {
    /// So many shards whose doors `door` opens, behind the router that `router` makes.
    pub fn start<D: Door, R: Door>(
        shards: u8,
        door: impl Fn(Engine) -> D,
        router: impl FnOnce(Arc<dyn Network>, Placement) -> R,
    ) -> Sharded {
        let placement = Placement::over(shards);
        let engines: Vec<Engine> = placement.shards().map(|shard| open(shard, shards)).collect();
        let served = engines.iter().map(|engine| serve(engine, door(engine.clone())));
        let (servers, addresses): (Vec<_>, Vec<_>) = served.unzip();
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap();
        let network = Sockets::new(runtime.handle().clone(), Arc::new(Direct { addresses }));
        let door = Arc::new(router(Arc::new(network), placement.clone()));
        let bound = bind(door, "127.0.0.1:0".parse().unwrap()).unwrap();
        let address = bound.local_addr();
        let router = Server::start(Arc::new(NoLog), vec![bound], NetConfig::default()).unwrap();
        Sharded { placement, engines, servers, router, address, _runtime: runtime }
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

fn open(shard: Shard, shards: u8) -> Engine {
    let seat = Seat { shard: shard.0, shards };
    let mut options = Options { seat, ..Options::default() };
    options.defaults.policies = spindle_gearman::policies(0).into_iter().collect();
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

impl Reach for Direct {
    fn reach<'a>(&'a self, shard: Shard, _door: &'static str, _client: &'a Peer) -> Reached<'a> {
        Box::pin(async move {
            let address = self.addresses[usize::from(shard.0)];
            let stream = tokio::net::TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(Link::lasting(stream))
        })
    }
}
