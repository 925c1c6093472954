//! What all clients together make the server hold: who holds the most goes, the others notice nothing.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::extract::Request;
use axum::routing::{get, post};
use spindle_budget::{Budget, Budgets};
use spindle_http::listen::{self, Handle, HttpConfig};
use spindle_http::{Answered, BodyLimits, read_body};
use spindle_testkit::{PATIENCE, wait_until};

use crate::{engine, site};

async fn length(request: Request) -> Answered<String> {
    Ok(read_body(request, BodyLimits::default()).await?.len().to_string())
}

/// A body that is read and kept for ever, which is counted.
async fn keep(request: Request, kept: Arc<AtomicUsize>) -> Answered<String> {
    let _body = read_body(request, BodyLimits::default()).await?;
    kept.fetch_add(1, Ordering::SeqCst);
    std::future::pending().await
}

/// A body that is read and dropped, in a request without an answer.
async fn drop_it(request: Request) -> Answered<String> {
    drop(read_body(request, BodyLimits::default()).await?);
    std::future::pending().await
}

struct Served {
    handle: Handle,
    budgets: Budgets,
    /// Bodies that a handler keeps.
    kept: Arc<AtomicUsize>,
}

impl Served {
    fn new(input_bytes_max: usize, output_bytes_max: usize) -> Served {
        let budgets = Budgets::new(input_bytes_max, output_bytes_max);
        let kept = Arc::<AtomicUsize>::default();
        let keeps = Arc::clone(&kept);
        let routes = Router::new()
            .route("/length", post(length))
            .route("/keep", post(move |request| keep(request, Arc::clone(&keeps))))
            .route("/drop", post(drop_it))
            .route("/40", get(async || vec![b'x'; 40_000_000]))
            .route("/20", get(async || vec![b'x'; 20_000_000]));
        let config = HttpConfig { threads: 2, budgets: budgets.clone(), ..HttpConfig::default() };
        let bound = listen::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let handle = bound.start(site(routes), Arc::new(engine()), config, Arc::default()).unwrap();
        Served { handle, budgets, kept }
    }

    fn send(&self, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.handle.local_addr()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(bytes).unwrap();
        stream
    }

    /// Sends this many bytes of a longer body, and waits until they are counted.
    fn begin_body(&self, path: &str, length: usize, sent: usize) -> TcpStream {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Length: {length}\r\n\r\n"
        );
        let closed_before = closed(&self.budgets.input);
        let before = held(&self.budgets.input);
        let stream = self.send(&[head.as_bytes(), &vec![b'x'; sent]].concat());
        wait_until("the bytes", || {
            held(&self.budgets.input) >= before + sent
                || closed(&self.budgets.input) > closed_before
        });
        stream
    }
}

fn held(budget: &Budget) -> usize {
    budget.readings().held_bytes as usize
}

fn closed(budget: &Budget) -> u64 {
    budget.readings().closed
}

fn rest(stream: &mut TcpStream) -> String {
    let mut rest = Vec::new();
    // A reset says the same as an end.
    let _ = stream.read_to_end(&mut rest);
    String::from_utf8_lossy(&rest).into_owned()
}

#[test]
fn the_largest_body_goes_with_an_error_and_the_others_go_on() {
    let served = Served::new(8_000_000, usize::MAX);
    let mut large = served.begin_body("/length", 5_000_000, 4_999_999);
    let mut small: Vec<_> =
        (0..4).map(|_| served.begin_body("/length", 1_000_000, 999_999)).collect();
    let answer = rest(&mut large);
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("\"overloaded\""), "{answer}");
    assert_eq!(closed(&served.budgets.input), 1);
    for stream in &mut small {
        stream.write_all(b"y").unwrap();
        assert!(rest(stream).ends_with("\r\n\r\n1000000"));
    }
    wait_until("the memory", || held(&served.budgets.input) == 0);
}

#[test]
fn a_body_counts_until_its_handler_has_let_go_of_it() {
    let served = Served::new(8_000_000, usize::MAX);
    let mut kept = served.begin_body("/keep", 5_000_000, 5_000_000);
    wait_until("the whole body", || served.kept.load(Ordering::SeqCst) == 1);
    assert_eq!(held(&served.budgets.input), 5_000_000);
    let mut other = served.begin_body("/length", 4_000_000, 3_999_999);
    assert_eq!(rest(&mut kept), "");
    assert_eq!(closed(&served.budgets.input), 1);
    other.write_all(b"y").unwrap();
    assert!(rest(&mut other).ends_with("\r\n\r\n4000000"));
    wait_until("the memory", || held(&served.budgets.input) == 0);
    let mut unanswered = served.begin_body("/drop", 1_000_000, 999_999);
    unanswered.write_all(b"y").unwrap();
    wait_until("the memory of the body", || held(&served.budgets.input) == 0);
}

#[test]
fn the_beginning_of_a_head_counts_too() {
    let served = Served::new(100_000, usize::MAX);
    let mut heads: Vec<TcpStream> = Vec::new();
    while closed(&served.budgets.input) == 0 {
        assert!(heads.len() < 20, "{} bytes are held", held(&served.budgets.input));
        let bytes = 20_000 - 100 * heads.len();
        let before = held(&served.budgets.input);
        heads.push(served.send(format!("GET /{}", "x".repeat(bytes - 5)).as_bytes()));
        wait_until("the bytes", || {
            held(&served.budgets.input) >= before + bytes || closed(&served.budgets.input) == 1
        });
    }
    assert_eq!(rest(&mut heads[0]), "");
    heads[1].write_all(b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    assert!(rest(&mut heads[1]).starts_with("HTTP/1.1 404 "));
}

#[test]
fn the_largest_unread_answer_goes_and_the_others_can_be_read() {
    let served = Served::new(usize::MAX, 45_000_000);
    let output = &served.budgets.output;
    let ask = |path: &str| {
        let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        served.send(head.as_bytes())
    };
    let mut large = ask("/40");
    // Sockets take some of it.
    wait_until("the first answer", || held(output) >= 20_000_000);
    let mut small = ask("/20");
    let mut another = ask("/20");
    wait_until("the end of the deafest", || closed(output) == 1);
    for stream in [&mut small, &mut another] {
        assert!(rest(stream).len() > 20_000_000);
    }
    assert!(rest(&mut large).len() < 40_000_000);
    wait_until("the memory", || held(output) == 0);
    assert_eq!(closed(output), 1);
}

/// Bytes that sockets with these ports on this machine hold: sent and not acknowledged, or received and
/// not read.
fn queued(local: u16, remote: u16) -> usize {
    let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let port = |address: &str| u16::from_str_radix(&address[address.len() - 4..], 16).unwrap();
    let found = sockets.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        (port(fields[1]) == local && port(fields[2]) == remote).then(|| fields[4].to_owned())
    });
    let (unsent, unread) = found
        .expect("it is open")
        .split_once(':')
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .unwrap();
    let number = |digits: &str| usize::from_str_radix(digits, 16).unwrap();
    number(&unsent) + number(&unread)
}

#[test]
fn little_of_what_is_sent_ahead_is_read_before_the_answer_has_left() {
    let gate = Arc::new(tokio::sync::Notify::new());
    let held_up = Arc::clone(&gate);
    let routes = Router::new()
        .route("/wait", get(move || async move { held_up.notified().await }))
        .route("/now", get(async || "now"));
    let config = HttpConfig { threads: 1, ..HttpConfig::default() };
    let bound = listen::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let handle = bound.start(site(routes), Arc::new(engine()), config, Arc::default()).unwrap();
    let request = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let now = || {
        let mut stream = TcpStream::connect(handle.local_addr()).unwrap();
        let last = "GET /now HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(last.as_bytes()).unwrap();
        rest(&mut stream)
    };
    let mut stream = TcpStream::connect(handle.local_addr()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let first = request("/wait");
    stream.write_all(first.as_bytes()).unwrap();
    let (near, far) = (stream.local_addr().unwrap().port(), handle.local_addr().port());
    let unread = || queued(near, far) + queued(far, near);
    wait_until("the first request", || unread() == 0);
    let count = 6_000;
    let ahead = request("/now").repeat(count);
    stream.write_all(ahead.as_bytes()).unwrap();
    // The one thread has had time for all connections before it answers the last of these.
    for _ in 0..20 {
        assert!(now().ends_with("now"));
    }
    // What is not acknowledged yet counts at both ends.
    wait_until("acknowledgements", || unread() <= ahead.len());
    let read = ahead.len() - unread();
    assert!(read <= 64 * 1024, "{read} of {} bytes", ahead.len());
    gate.notify_one();
    let mut answers = 0;
    let mut part = [0; 64 * 1024];
    while answers < count {
        let length = stream.read(&mut part).unwrap();
        assert!(length > 0, "it was closed");
        // An answer ends with the only `w` at the end of a word; it may be cut anywhere before.
        answers += part[..length].iter().filter(|byte| **byte == b'w').count();
    }
}
