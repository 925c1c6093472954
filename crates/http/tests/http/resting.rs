//! Connections whose clients ask for nothing for a while, which here is a moment.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::routing::{get, post};
use futures_util::stream;
use spindle_http::listen::{self, Handle, HttpConfig, Limits};
use spindle_testkit::{Certificates, PATIENCE};
use spindle_tls::{ListenerTls, ServerTls};
use tokio::sync::Notify;

use crate::{engine, site};

const SMALL: &str = "GET /small HTTP/1.1\r\nHost: localhost\r\n\r\n";

struct Served {
    handle: Handle,
    /// Lets handlers go on that wait for it.
    go: Arc<Notify>,
}

impl Served {
    fn new(tls: ListenerTls) -> Served {
        Served::with(tls, Limits::default().head_time)
    }

    fn with(tls: ListenerTls, head_time: Duration) -> Served {
        let go = Arc::<Notify>::default();
        let (parts, keeps) = (Arc::clone(&go), Arc::clone(&go));
        let routes = Router::new()
            .route("/small", get(async || "small"))
            .route("/later", get(later))
            .route("/ignores", post(async || "ignored"))
            .route("/parts", get(async move || in_parts(parts)))
            .route("/keeps", post(async move |request| keep(request, keeps)));
        let limits =
            Limits { head_time, restless_max: 0, rest_time: Duration::ZERO, ..Limits::default() };
        let config = HttpConfig { threads: 1, limits, ..HttpConfig::default() };
        let bound = listen::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let bound = bound.with_tls(tls);
        let handle = bound.start(site(routes), Arc::new(engine()), config, Arc::default()).unwrap();
        Served { handle, go }
    }

    fn socket(&self) -> TcpStream {
        let stream = TcpStream::connect(self.handle.local_addr()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// Lets the connections rest that can.
    fn let_rest(&self) {
        let mut stream = self.socket();
        stream.write_all(SMALL.replace("small", "later").as_bytes()).unwrap();
        read_to(&mut stream, "\r\n\r\nlater");
    }
}

/// Answers when all that rests has come to rest: timers of a thread go off in order.
async fn later() -> &'static str {
    tokio::time::sleep(Duration::from_millis(20)).await;
    "later"
}

/// A body whose second part comes when it may.
fn in_parts(go: Arc<Notify>) -> Body {
    Body::from_stream(stream::unfold(0, move |part| {
        let go = Arc::clone(&go);
        async move {
            match part {
                0 => Some((Ok::<_, std::io::Error>(Bytes::from("first ")), 1)),
                1 => {
                    go.notified().await;
                    Some((Ok(Bytes::from("second")), 2))
                }
                _ => None,
            }
        }
    }))
}

/// Answers before the body has come, which is dropped when it may.
fn keep(request: Request, go: Arc<Notify>) -> &'static str {
    tokio::spawn(async move {
        go.notified().await;
        drop(request);
    });
    "kept"
}

/// Reads up to these bytes.
#[track_caller]
fn read_to(mut stream: impl Read, end: &str) -> String {
    let (mut taken, mut byte) = (String::new(), [0]);
    while !taken.ends_with(end) {
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "it ended after {taken}");
        taken.push(char::from(byte[0]));
    }
    taken
}

fn read_all(mut stream: TcpStream) -> String {
    let mut taken = Vec::new();
    // A reset says the same as an end.
    let _ = stream.read_to_end(&mut taken);
    String::from_utf8(taken).unwrap()
}

fn asks_often(served: &Served, mut stream: impl Read + Write) {
    for _ in 0..3 {
        stream.write_all(SMALL.as_bytes()).unwrap();
        read_to(&mut stream, "\r\n\r\nsmall");
        served.let_rest();
    }
}

#[test]
fn a_connection_that_has_rested_serves_again() {
    let certificates = Certificates::new();
    let tls = ServerTls::load(certificates.server_for_clients()).unwrap();
    let served = Served::new(ListenerTls::Optional(Arc::new(tls)));
    asks_often(&served, served.socket());
    asks_often(&served, certificates.connect(served.socket(), None));
}

#[test]
fn a_connection_that_rests_ends_with_the_server() {
    let served = Served::with(ListenerTls::Off, PATIENCE * 2);
    let mut stream = served.socket();
    stream.write_all(SMALL.as_bytes()).unwrap();
    read_to(&mut stream, "\r\n\r\nsmall");
    served.let_rest();
    assert!(served.handle.finish(Instant::now() + PATIENCE), "it did not end by itself");
    assert_eq!(read_all(stream), "");
}

#[test]
fn a_connection_that_rests_is_closed_when_it_has_idled_long_enough() {
    let head_time = Duration::from_millis(100);
    let served = Served::with(ListenerTls::Off, head_time);
    let mut stream = served.socket();
    stream.write_all(SMALL.as_bytes()).unwrap();
    read_to(&mut stream, "\r\n\r\nsmall");
    served.let_rest();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
}

#[test]
fn a_head_that_has_begun_before_the_rest_goes_on_after_it() {
    let served = Served::new(ListenerTls::Off);
    let (begin, end) = SMALL.split_at(20);
    let mut stream = served.socket();
    stream.write_all(format!("{SMALL}{begin}").as_bytes()).unwrap();
    for _ in 0..3 {
        read_to(&mut stream, "\r\n\r\nsmall");
        served.let_rest();
        stream.write_all(format!("{end}{begin}").as_bytes()).unwrap();
    }
    read_to(&mut stream, "\r\n\r\nsmall");
}

#[test]
fn an_answer_in_parts_is_whole_and_its_connection_stays() {
    let served = Served::new(ListenerTls::Off);
    let mut stream = served.socket();
    for _ in 0..3 {
        stream.write_all(SMALL.replace("small", "parts").as_bytes()).unwrap();
        read_to(&mut stream, "first ");
        served.let_rest();
        served.go.notify_one();
        read_to(&mut stream, "second\r\n0\r\n\r\n");
    }
}

#[test]
fn the_rest_of_a_body_that_nobody_reads_is_no_request() {
    let served = Served::new(ListenerTls::Off);
    for (path, answer) in [("/keeps", "kept"), ("/ignores", "ignored")] {
        let mut stream = served.socket();
        let length = SMALL.len() + 10;
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{}",
            "x".repeat(10)
        );
        stream.write_all(head.as_bytes()).unwrap();
        read_to(&mut stream, answer);
        served.let_rest();
        served.go.notify_one();
        served.let_rest();
        // The server may have closed the connection.
        let _ = stream.write_all(SMALL.as_bytes());
        let rest = read_all(stream);
        assert!(rest.is_empty(), "{path}: {rest}");
    }
}
