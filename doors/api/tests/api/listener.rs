//! The listener, over real sockets.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use spindle_core::job::Origin;
use spindle_http::listen::{self, Handle, HttpConfig, Limits};
use spindle_limits::{PlaceLimits, Places};
use spindle_log::Log;
use spindle_testkit::{new_job, opened, submit_to, wait_until};

use crate::harness::{Bench, PATIENCE};

struct Served {
    handle: Handle,
    connections: Arc<AtomicUsize>,
    bench: Bench,
}

impl Served {
    fn new(limits: Limits) -> Served {
        Served::with(limits, Places::default())
    }

    fn with(limits: Limits, places: Places) -> Served {
        let bench = Bench::new();
        let connections = Arc::<AtomicUsize>::default();
        let bound = listen::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let committer = Arc::new(bench.engine.clone());
        let config = HttpConfig { threads: 2, limits, places, ..HttpConfig::default() };
        let routes = bench.site.clone();
        let handle = bound.start(routes, committer, config, connections.clone()).unwrap();
        Served { bench, handle, connections }
    }

    fn connect(&self) -> TcpStream {
        connect(self.handle.local_addr())
    }

    fn open(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

fn connect(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn send(stream: &mut TcpStream, head: &str, body: &str) {
    let text = format!(
        "{head}\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(text.as_bytes()).unwrap();
}

/// One answer with its body, whose length the head tells.
fn receive(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    let mut byte = [0];
    while !text.ends_with(b"\r\n\r\n") {
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "{}", text.escape_ascii());
        text.push(byte[0]);
    }
    let head = String::from_utf8(text).unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).unwrap();
    head + std::str::from_utf8(&body).unwrap()
}

fn rest(mut stream: TcpStream) -> String {
    let mut text = String::new();
    // A reset means the same as an end.
    let _ = stream.read_to_string(&mut text);
    text
}

const WAIT: &str = r#"{"queues":["q"],"wait_s":300}"#;

#[test]
fn requests_follow_each_other_on_one_connection() {
    let served = Served::new(Limits::default());
    let mut stream = served.connect();
    send(&mut stream, "POST /api/v1/jobs HTTP/1.1", r#"{"queue":"q","payload":[1]}"#);
    assert!(receive(&mut stream).starts_with("HTTP/1.1 201 Created\r\n"));
    send(&mut stream, "GET /api/v1/jobs/1 HTTP/1.1", "");
    let answer = receive(&mut stream);
    assert!(
        answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("\"payload\":[1]"),
        "{answer}"
    );
    assert_eq!(served.open(), 1);
    drop(stream);
    wait_until("the connections", || served.open() == 0);
}

#[test]
fn a_head_that_does_not_come_in_time_ends_its_connection() {
    let limits = Limits { head_time: Duration::from_millis(100), ..Limits::default() };
    let served = Served::new(limits);
    let mut slow = served.connect();
    slow.write_all(b"GET /healthz HTTP/1.1\r\nHost: local").unwrap();
    let idle = served.connect();
    assert!(!rest(slow).contains(" 200 "));
    assert_eq!(rest(idle), "");
    wait_until("the connections", || served.open() == 0);
}

#[test]
fn a_head_that_is_too_long_is_refused() {
    let served = Served::new(Limits { head_bytes_max: 8192, ..Limits::default() });
    let mut stream = served.connect();
    let filler = "x".repeat(20_000);
    // It may be cut off in the middle.
    let _ = write!(stream, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: {filler}\r\n\r\n");
    assert!(!rest(stream).contains(" 200 "));
    wait_until("the connections", || served.open() == 0);
}

#[test]
fn connections_above_the_limit_are_closed_at_once() {
    let served = Served::with(Limits::default(), Places::new(PlaceLimits::of(2)));
    let mut first = served.connect();
    let _second = served.connect();
    wait_until("the connections", || served.open() == 2);
    let refused = rest(served.connect());
    let (head, body) = refused.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 503 ") && head.contains("\r\nConnection: close"), "{head}");
    assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{refused}");
    send(&mut first, "GET /healthz HTTP/1.1", "");
    assert!(receive(&mut first).contains(" 200 OK"));
    drop(first);
    wait_until("the connections", || served.open() == 1);
    let mut third = served.connect();
    send(&mut third, "GET /healthz HTTP/1.1", "");
    assert!(receive(&mut third).contains(" 200 OK"));
}

#[test]
fn a_worker_that_hangs_up_while_it_waits_gets_no_job() {
    let served = Served::new(Limits::default());
    let mut stream = served.connect();
    send(&mut stream, "POST /api/v1/lease HTTP/1.1", WAIT);
    wait_until("the waits", || served.bench.engine.observe().gauges().waits == 1);
    drop(stream);
    wait_until("the waits", || served.bench.engine.observe().gauges().waits == 0);
    let mut other = served.connect();
    send(&mut other, "POST /api/v1/jobs HTTP/1.1", r#"{"queue":"q"}"#);
    receive(&mut other);
    send(&mut other, "GET /api/v1/jobs/1 HTTP/1.1", "");
    assert!(receive(&mut other).contains("\"status\":\"ready\""));
}

#[test]
fn an_orderly_end_answers_who_waits_and_closes_who_idles() {
    let served = Served::new(Limits::default());
    let mut waiting = served.connect();
    send(&mut waiting, "POST /api/v1/lease HTTP/1.1", WAIT);
    let mut following = served.connect();
    send(&mut following, "GET /api/v1/events HTTP/1.1", "");
    let idle = served.connect();
    wait_until("the waits", || {
        served.bench.engine.observe().gauges().waits == 2 && served.open() == 3
    });
    served.bench.engine.stop_leasing();
    served.bench.api.stop();
    served.handle.begin_shutdown();
    assert!(rest(waiting).starts_with("HTTP/1.1 204 No Content\r\n"));
    assert!(rest(following).starts_with("HTTP/1.1 200 OK\r\n"));
    assert_eq!(rest(idle), "");
    assert!(served.handle.finish(Instant::now() + PATIENCE));
    assert!(TcpStream::connect(served.handle.local_addr()).is_err(), "it listens no more");
}

#[test]
fn an_answer_that_never_comes_ends_with_the_deadline() {
    let served = Served::new(Limits::default());
    let mut stream = served.connect();
    served.bench.log.hold(true);
    // The log thread commits this one, and is held back: so no serving thread is.
    let (engine, before) = (&served.bench.engine, served.bench.log.next());
    opened(engine.jobs().submit(new_job(submit_to("q", Origin::Api), b""))).unwrap();
    drop(engine.turn());
    wait_until("the commit", || served.bench.log.next() != before);
    send(&mut stream, "POST /api/v1/jobs HTTP/1.1", r#"{"queue":"q"}"#);
    wait_until("the job", || served.bench.engine.observe().gauges().jobs == 2);
    assert!(!served.handle.finish(Instant::now() + Duration::from_millis(50)));
    assert_eq!(rest(stream), "", "nothing that is not on disk");
}

#[test]
fn an_abort_closes_everything_unanswered() {
    let served = Served::new(Limits::default());
    let mut stream = served.connect();
    send(&mut stream, "POST /api/v1/lease HTTP/1.1", WAIT);
    wait_until("the waits", || served.bench.engine.observe().gauges().waits == 1);
    served.handle.abort();
    assert_eq!(rest(stream), "");
    wait_until("the waits", || served.bench.engine.observe().gauges().waits == 0);
}

#[test]
fn a_taken_address_is_an_error() {
    let served = Served::new(Limits::default());
    let error = listen::bind(served.handle.local_addr()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
}
