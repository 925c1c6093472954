//! Shards in memory with the real API, behind listeners of their own, and the router in front of them.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use axum::Router;
use axum::http::HeaderMap;
use axum::routing::any;
use parking_lot::Mutex;
use serde_json::{Value, json};
use spindle_api::Api;
use spindle_core::seat::Seat;
use spindle_engine::{Committer, Engine, Peer, SystemClock};
use spindle_http::listen::{self, Handle, HttpConfig};
use spindle_http::{Names, Site};
use spindle_log::MemoryLog;
use spindle_router::http::HttpRouter;
use spindle_router::{Link, NoLog, Placement, Reach, Reached, Shard};
use spindle_testkit::{PATIENCE, spawn};

/// Shards that know nothing of each other, and a router in front of them.
pub struct Sharded {
    pub placement: Placement,
    pub engines: Vec<Engine>,
    pub reach: Arc<Direct>,
    /// The router's routes, without a listener.
    pub routes: Router,
    shards: Vec<Handle>,
    router: Handle,
    agent: ureq::Agent,
}

/// Connects to fixed addresses.
#[derive(Default)]
pub struct Direct {
    addresses: Mutex<Vec<Option<SocketAddr>>>,
    /// How many connections were made.
    pub count: AtomicUsize,
}

impl Reach for Direct {
    fn reach<'a>(&'a self, shard: Shard, door: &'static str, client: &'a Peer) -> Reached<'a> {
        assert_eq!(door, "http");
        assert!(client.address.ip().is_loopback() || client.address.port() == 0);
        let address = self.addresses.lock()[usize::from(shard.0)];
        self.count.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            match address {
                Some(address) => Ok(Link::lasting(tokio::net::TcpStream::connect(address).await?)),
                None => Err(io::Error::other("nobody leads it")),
            }
        })
    }
}

impl Sharded {
    pub fn new() -> Sharded {
        Sharded::over(3)
    }

    pub fn over(shards: u8) -> Sharded {
        let placement = Placement::over(shards);
        let (mut engines, mut handles, mut addresses) = (Vec::new(), Vec::new(), Vec::new());
        for shard in placement.shards() {
            let engine = open(shard, shards);
            let options = spindle_api::Options { host: "box".to_owned(), ..Default::default() };
            let routes = Api::new(engine.clone(), options).router().merge(own_routes(shard));
            let handle = serve(routes, Arc::new(engine.clone()));
            addresses.push(Some(handle.local_addr()));
            engines.push(engine);
            handles.push(handle);
        }
        let reach = Arc::new(Direct { addresses: Mutex::new(addresses), ..Direct::default() });
        let routes = HttpRouter::new(reach.clone(), placement.clone()).router();
        let router = serve(routes.clone(), Arc::new(NoLog));
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(PATIENCE * 2))
            .build();
        let agent = config.into();
        Sharded { placement, engines, reach, routes, shards: handles, router, agent }
    }

    pub fn address(&self) -> SocketAddr {
        self.router.local_addr()
    }

    /// The name of a queue that is on this shard; other numbers, other names.
    pub fn queue_on(&self, shard: u8, number: usize) -> String {
        let names = (0..).map(|at| format!("queue-{at}"));
        let mut on_it = names.filter(|name| self.placement.of(name.as_bytes()) == Shard(shard));
        on_it.nth(number).unwrap()
    }

    /// Closes all connections of one shard, and makes it unreachable.
    pub fn lose(&self, shard: u8) {
        self.reach.addresses.lock()[usize::from(shard)] = None;
        self.shards[usize::from(shard)].finish(Instant::now());
    }

    /// Where a shard itself listens.
    pub fn address_of(&self, shard: u8) -> SocketAddr {
        self.shards[usize::from(shard)].local_addr()
    }

    pub fn call(&self, method: &str, target: &str, body: Option<Value>) -> Reply {
        self.send(method, target, &[], body.map(|body| body.to_string()).as_deref())
    }

    pub fn get(&self, target: &str) -> Reply {
        self.call("GET", target, None)
    }

    pub fn post(&self, target: &str, body: Value) -> Reply {
        self.call("POST", target, Some(body))
    }

    pub fn send(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: Option<&str>,
    ) -> Reply {
        let uri = format!("http://{}{target}", self.address());
        let mut request = ureq::http::Request::builder().method(method).uri(uri);
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(body.unwrap_or_default().to_owned()).unwrap();
        Reply::of(self.agent.run(request).unwrap())
    }

    /// Submits a job, and gives its number.
    pub fn submit(&self, body: Value) -> u64 {
        let reply = self.post("/api/v1/jobs", body);
        reply.is(201);
        reply.json()["id"].as_u64().unwrap()
    }

    /// A connection to the router, whose reads fail after a while.
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Begins a request on a connection of its own.
    pub fn begin(&self, method: &str, target: &str, headers: &str, body: &str) -> TcpStream {
        let mut stream = self.connect();
        write!(
            stream,
            "{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             {headers}Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        stream
    }

    /// How many clients wait for a shard's engine.
    pub fn waits(&self, shard: u8) -> usize {
        self.engines[usize::from(shard)].observe().gauges().waits
    }
}

impl Drop for Sharded {
    fn drop(&mut self) {
        self.router.abort();
        self.shards.iter().for_each(Handle::abort);
        self.engines.iter().for_each(Engine::stop);
    }
}

fn open(shard: Shard, shards: u8) -> Engine {
    let seat = Seat { shard: shard.0, shards };
    let options = spindle_engine::Options { seat, ..Default::default() };
    let clock = Arc::new(SystemClock::new());
    let engine = Engine::open(Arc::new(MemoryLog::new()), clock, options).unwrap();
    spawn(&engine);
    engine
}

fn serve(routes: Router, committer: Arc<dyn Committer>) -> Handle {
    let bound = listen::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let site = Site::new(routes, Names::new(IpAddr::V4(Ipv4Addr::LOCALHOST)));
    let config = HttpConfig { threads: 1, ..HttpConfig::default() };
    bound.start(site, committer, config, Arc::default()).unwrap()
}

/// Stands in for another door's routes: the answer says which shard has got what.
fn own_routes(shard: Shard) -> Router {
    let echo = move |headers: HeaderMap, uri: axum::http::Uri, body: String| async move {
        let headers: Value = headers
            .iter()
            .map(|(name, value)| (name.to_string(), json!(value.to_str().unwrap_or_default())))
            .collect::<serde_json::Map<_, _>>()
            .into();
        let answer = json!({
            "shard": shard.0, "headers": headers, "target": uri.to_string(), "body": body
        });
        ([("x-kept", "yes"), ("connection", "x-hop"), ("x-hop", "no")], answer.to_string())
    };
    Router::new()
        .route("/echo", any(echo))
        .route("/api/v0/job/create", any(echo))
        .route("/job", any(echo))
        .route("/constraint/{name}", any(move || async move {}))
}

/// An answer.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub text: String,
}

impl Reply {
    fn of(answer: ureq::http::Response<ureq::Body>) -> Reply {
        let (head, mut body) = answer.into_parts();
        let text = body.read_to_string().unwrap();
        Reply { status: head.status.as_u16(), headers: head.headers, text }
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    #[track_caller]
    pub fn is(&self, status: u16) {
        assert_eq!(self.status, status, "{self:?}");
    }

    #[track_caller]
    pub fn is_problem(&self, status: u16, code: &str) {
        let found = (self.status, self.json()["code"].clone());
        assert_eq!(found, (status, json!(code)), "{self:?}");
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// Reads one answer, whose length its head tells.
pub fn receive(stream: &mut TcpStream) -> (u16, String) {
    let mut reader = BufReader::new(stream);
    let (mut status, mut length) = (0, 0);
    loop {
        let mut line = String::new();
        assert!(reader.read_line(&mut line).unwrap() > 0, "the connection ended");
        if let Some(rest) = line.strip_prefix("HTTP/1.1 ") {
            status = rest[..3].parse().unwrap();
        }
        if let Some(text) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = text.trim().parse().unwrap();
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    (status, String::from_utf8(body).unwrap())
}
