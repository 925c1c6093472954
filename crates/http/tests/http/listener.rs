//! Clients that behave badly, and what handlers learn of them.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Extension;
use axum::Router;
use axum::body::Bytes;
use axum::routing::{get, post};
use spindle_engine::Peer;
use spindle_http::listen::{self, Handle, HttpConfig, Limits};
use spindle_testkit::{PATIENCE, wait_until};
use spindle_tls::ListenerTls;

use crate::{engine, site};

/// More than the buffers of a loopback connection take.
pub const LARGE: usize = 64 << 20;

pub struct Served {
    pub handle: Handle,
    connections: Arc<AtomicUsize>,
}

impl Served {
    fn new(limits: Limits) -> Served {
        Served::with(HttpConfig { threads: 2, limits, ..HttpConfig::default() })
    }

    fn with(config: HttpConfig) -> Served {
        Served::with_tls(config, ListenerTls::Off)
    }

    pub fn with_tls(config: HttpConfig, tls: ListenerTls) -> Served {
        let routes = Router::new()
            .route("/large", get(async || vec![b'x'; LARGE]))
            .route("/small", get(async || "small"))
            .route("/whole", post(async |body: Bytes| body.len().to_string()))
            .route("/peer", get(async |Extension(peer): Extension<Peer>| peer.address.to_string()))
            .route(
                "/name",
                get(async |Extension(peer): Extension<Peer>| {
                    format!("{} {:?}", peer.encrypted, peer.certificate)
                }),
            )
            .route("/thread", get(async || format!("{:?}", std::thread::current().id())));
        let connections = Arc::<AtomicUsize>::default();
        let bound = listen::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let handle = bound
            .with_tls(tls)
            .start(site(routes), Arc::new(engine()), config, connections.clone())
            .unwrap();
        Served { handle, connections }
    }

    fn ask(&self, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.handle.local_addr()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        stream
    }

    fn answer(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.handle.local_addr()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.rsplit("\r\n").next().unwrap().to_owned()
    }

    pub fn await_open(&self, count: usize) {
        wait_until("the connections", || self.connections.load(Ordering::SeqCst) == count);
    }
}

#[test]
fn a_client_that_never_reads_its_answer_loses_its_connection() {
    let limits = Limits { write_time: Duration::from_millis(200), ..Limits::default() };
    let served = Served::new(limits);
    let mut deaf = served.ask("/large");
    served.await_open(1);
    served.await_open(0);
    let mut taken = Vec::new();
    // A reset says the same as an end.
    let _ = deaf.read_to_end(&mut taken);
    assert!(taken.len() < LARGE, "the answer was cut off");
}

#[test]
fn a_client_that_pipelines_and_never_reads_loses_its_connection() {
    let limits = Limits { write_time: Duration::from_millis(200), ..Limits::default() };
    let served = Served::new(limits);
    let mut deaf = served.ask("/small");
    deaf.set_write_timeout(Some(PATIENCE)).unwrap();
    // It asks until the server takes no more, and is then closed for what it does not read.
    let many = "GET /small HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(1000);
    while deaf.write_all(many.as_bytes()).is_ok() {}
    served.await_open(0);
}

/// As long as a head may be, one byte more, and with as many fields as it may have.
#[test]
fn a_head_has_its_limits_to_the_byte() {
    let served = Served::new(Limits::default());
    let ask = |fields: &str| {
        let mut stream = TcpStream::connect(served.handle.local_addr()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head =
            format!("GET /small HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}\r\n");
        // It may be refused before it is read to its end.
        let _ = stream.write_all(head.as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        (head.len(), String::from_utf8(answer).unwrap())
    };
    let (rest, _) = ask("X: \r\n");
    for (bytes, status) in [(64 * 1024, "200"), (64 * 1024 + 1, "431")] {
        let (sent, answer) = ask(&format!("X: {}\r\n", "x".repeat(bytes - rest)));
        assert_eq!(sent, bytes);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{bytes}: {answer}");
        assert!(answer.contains("\r\ndate: "), "{answer}");
    }
    for (count, status) in [(100, "200"), (101, "431")] {
        let (_, answer) = ask(&"X: x\r\n".repeat(count - 2));
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{count}: {answer}");
    }
}

#[test]
fn a_client_that_reads_slowly_gets_its_whole_answer() {
    let write_time = Duration::from_millis(500);
    let served = Served::new(Limits { write_time, ..Limits::default() });
    let mut slow = served.ask("/large");
    let begun = Instant::now();
    let mut bytes = vec![0; 256 << 10];
    let mut taken = 0;
    while taken < LARGE {
        // In all, longer than the time in which a client must take a byte, but never so long at once.
        if begun.elapsed() < write_time * 3 {
            std::thread::sleep(write_time / 20);
        }
        let count = slow.read(&mut bytes).unwrap();
        assert!(count > 0, "cut off after {taken}");
        taken += count;
    }
    assert!(begun.elapsed() > write_time * 2, "it was no slow client");
}

#[test]
fn connections_are_dealt_out_to_the_threads_in_turn() {
    let served = Served::with(HttpConfig { threads: 3, ..HttpConfig::default() });
    let threads: Vec<String> = (0..9).map(|_| served.answer("/thread")).collect();
    let different: HashSet<_> = threads.iter().collect();
    assert_eq!(different.len(), 3);
    assert!(threads.iter().zip(&threads[3..]).all(|(one, other)| one == other));
}

#[test]
fn handlers_learn_the_address_of_their_client() {
    let served = Served::new(Limits::default());
    let mut stream = served.ask("/peer");
    let own = stream.local_addr().unwrap().to_string();
    let mut answer = String::new();
    while !answer.ends_with(&own) {
        let mut bytes = [0; 1024];
        let count = stream.read(&mut bytes).unwrap();
        assert!(count > 0, "{answer}");
        answer.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
    }
}
