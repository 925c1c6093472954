//! Measures what the TCP server costs: requests of 300 bytes, answers of 5, the gate always open,
//! beside a plain tokio server with a task per connection, in turns in one process.
//!
//! `cargo run --release -p spindle-net --example echo_rate -- CONNECTIONS DEPTH SECONDS ROUNDS`
//!
//! Prints requests per second and the CPU time of the server's thread per request, medians over
//! the rounds.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use spindle_engine::{
    Answer, ConnectionId, Door, Flow, Gate, Gated, LeaseRef, Mailbox, Outbox, Session, Ticket,
};
use spindle_net::{NetConfig, Server, bind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;

const REQUEST_BYTES: usize = 300;
const ANSWER: &[u8; 5] = b"+OK\r\n";

struct Fixed;

impl Door for Fixed {
    fn name(&self) -> &'static str {
        "fixed"
    }
    fn attach(&self, _mailbox: &Arc<dyn Mailbox>) {}
    fn end_turn(&self) {}

    fn durable(&self) -> Gate {
        Gate(u64::MAX)
    }
    fn open(&self, _: ConnectionId, _: SocketAddr, _: &Arc<dyn Mailbox>) -> Box<dyn Session> {
        Box::new(FixedSession)
    }
}

struct FixedSession;

impl Session for FixedSession {
    fn on_bytes(&mut self, input: &mut BytesMut, out: &mut Outbox) -> Flow {
        while input.len() >= REQUEST_BYTES {
            input.advance(REQUEST_BYTES);
            out.put(|bytes| bytes.extend_from_slice(ANSWER));
        }
        Flow::Continue
    }
    fn on_answer(&mut self, _: Ticket, _: Gated<Answer>, _: &mut Outbox) -> Flow {
        Flow::Continue
    }
    fn on_end_of_input(&mut self, _: &mut BytesMut, _: &mut Outbox) -> Flow {
        Flow::Close
    }
    fn on_shutdown(&mut self, _: bool, _: &mut Outbox) -> Flow {
        Flow::Close
    }
    fn on_closed(&mut self, _: &[LeaseRef]) {}
    fn input_bytes_max(&self) -> usize {
        1 << 20
    }
}

/// The usual way: a task per connection that awaits its reads and writes.
fn plain_tokio() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.set_nonblocking(true).expect("a fresh socket");
    let addr = listener.local_addr().expect("a bound socket");
    let serve = async move {
        let listener = TcpListener::from_std(listener).expect("a fresh socket");
        loop {
            let (mut stream, _) = listener.accept().await.expect("few connections");
            stream.set_nodelay(true).expect("a fresh socket");
            tokio::spawn(async move {
                let mut input = BytesMut::with_capacity(64 * 1024);
                let mut output = Vec::new();
                while stream.read_buf(&mut input).await.is_ok_and(|count| count > 0) {
                    output.clear();
                    while input.len() >= REQUEST_BYTES {
                        input.advance(REQUEST_BYTES);
                        output.extend_from_slice(ANSWER);
                    }
                    input.reserve(64 * 1024);
                    if stream.write_all(&output).await.is_err() {
                        break;
                    }
                }
            });
        }
    };
    let body =
        move || Builder::new_current_thread().enable_io().build().expect("epoll").block_on(serve);
    thread::Builder::new().name("plain-tokio".to_owned()).spawn(body).expect("a thread");
    addr
}

/// Keeps `depth` requests under way on each connection for `time`; answers received.
fn load(addr: SocketAddr, connections: usize, depth: usize, time: Duration) -> u64 {
    let answers = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let runtime = Builder::new_current_thread().enable_all().build().expect("epoll");
    runtime.block_on(async {
        let mut clients = Vec::new();
        for _ in 0..connections {
            let mut stream = TcpStream::connect(addr).await.expect("the server listens");
            stream.set_nodelay(true).expect("a fresh socket");
            let (answers, stop) = (Arc::clone(&answers), Arc::clone(&stop));
            clients.push(tokio::spawn(async move {
                let request = vec![b'x'; REQUEST_BYTES * depth];
                let mut answer = vec![0; ANSWER.len() * depth];
                while !stop.load(Ordering::Relaxed) {
                    stream.write_all(&request).await.expect("the server reads");
                    stream.read_exact(&mut answer).await.expect("the server answers");
                    answers.fetch_add(depth as u64, Ordering::Relaxed);
                }
            }));
        }
        tokio::time::sleep(time).await;
        stop.store(true, Ordering::Relaxed);
        for client in clients {
            client.await.expect("clients do not panic");
        }
    });
    answers.load(Ordering::Relaxed)
}

/// CPU time so far of this process's thread of that name.
fn cpu_ns(thread_name: &str) -> u64 {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    tasks
        .filter_map(|task| {
            let name = fs::read_to_string(task.path().join("comm")).ok()?;
            (name.trim() == thread_name).then_some(())?;
            let stat = fs::read_to_string(task.path().join("schedstat")).ok()?;
            stat.split(' ').next()?.parse::<u64>().ok()
        })
        .sum()
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}

fn main() {
    let arguments: Vec<usize> =
        std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let argument = |n: usize, default| arguments.get(n).copied().unwrap_or(default);
    let (connections, depth) = (argument(0, 64), argument(1, 1));
    let time = Duration::from_secs(argument(2, 2) as u64);
    let bound = bind(Arc::new(Fixed), SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port");
    let config = NetConfig { reactors: 1, ..NetConfig::default() };
    let ours = bound.local_addr();
    let _server = Server::start(vec![bound], config).expect("threads");
    let servers = [("spindle-net-0", ours), ("plain-tokio", plain_tokio())];
    let mut rates = [Vec::new(), Vec::new()];
    let mut costs = [Vec::new(), Vec::new()];
    for _ in 0..argument(3, 5) {
        for (n, (name, addr)) in servers.iter().enumerate() {
            let (begin, cpu) = (Instant::now(), cpu_ns(name));
            let answers = load(*addr, connections, depth, time);
            rates[n].push((answers as f64 / begin.elapsed().as_secs_f64()) as u64);
            costs[n].push((cpu_ns(name) - cpu) / answers.max(1));
        }
    }
    for ((name, _), (rates, costs)) in servers.iter().zip(rates.into_iter().zip(costs)) {
        let (rate, cost) = (median(rates), median(costs));
        println!("{name:14} {connections} connections, {depth} deep: {rate}/s, {cost} ns CPU each");
    }
}
