//! Bodies that no handler reads, on connections that go on.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::Duration;

use spindle_http::listen::{HttpConfig, Limits};
use spindle_testkit::PATIENCE;
use spindle_tls::ListenerTls;

use crate::listener::Served;

/// One connection of a client.
struct Client(BufReader<TcpStream>);

impl Client {
    fn of(served: &Served) -> Client {
        let stream = TcpStream::connect(served.handle.local_addr()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client(BufReader::new(stream))
    }

    /// Begins a request with these headers, each a whole line.
    fn begin(&mut self, path: &str, headers: &str) {
        let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
        self.send(head.as_bytes());
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).unwrap();
    }

    fn head(&mut self) -> String {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(self.0.read_line(&mut head).unwrap(), 0, "the connection ended: {head}");
        }
        head
    }

    /// The next answer: its head, and its body.
    fn answer(&mut self) -> (String, String) {
        let head = self.head();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.unwrap().parse().unwrap()];
        self.0.read_exact(&mut body).unwrap();
        (head, String::from_utf8(body).unwrap())
    }

    fn has_ended(&mut self) -> bool {
        self.0.read(&mut [0]).unwrap() == 0
    }
}

fn served() -> Served {
    let config = HttpConfig { threads: 2, limits: Limits::default(), ..HttpConfig::default() };
    Served::with_tls(config, ListenerTls::Off)
}

#[test]
fn the_next_request_is_answered_when_a_body_was_not_read() {
    let served = served();
    let body = vec![b'x'; 100 << 10];
    let (announced, in_chunks) =
        (format!("Content-Length: {}\r\n", body.len()), "Transfer-Encoding: chunked\r\n");
    let chunked = [format!("{:x}\r\n", body.len()).as_bytes(), &body, b"\r\n0\r\n\r\n"].concat();
    let mut client = Client::of(&served);
    for round in 0..20 {
        for (headers, bytes) in [(announced.as_str(), &body), (in_chunks, &chunked)] {
            for path in ["/nowhere", "/small", "/whole"] {
                client.begin(path, headers);
                // The body may come long after the head.
                let (now, later) = bytes.split_at(if round % 2 == 0 { 0 } else { 1000 });
                client.send(now);
                if round < 2 {
                    sleep(Duration::from_millis(50));
                }
                client.send(later);
                let (head, text) = client.answer();
                assert!(!head.contains("connection: close"), "{head}");
                match path {
                    "/nowhere" => assert!(head.starts_with("HTTP/1.1 404 "), "{head}"),
                    "/small" => assert!(head.starts_with("HTTP/1.1 405 "), "{head}"),
                    _ => assert_eq!(text, body.len().to_string()),
                }
            }
        }
    }
}

#[test]
fn an_answer_says_that_it_is_the_last_when_a_body_does_not_end() {
    let served = served();
    for headers in ["Content-Length: 1073741824\r\n", "Transfer-Encoding: chunked\r\n"] {
        let mut client = Client::of(&served);
        client.begin("/nowhere", headers);
        let (head, _) = client.answer();
        assert!(head.contains("connection: close\r\n"), "{head}");
        assert!(client.has_ended());
    }
}

#[test]
fn a_client_that_waits_to_be_asked_for_its_body_is_asked_only_for_what_is_read() {
    let served = served();
    let headers = "Content-Length: 3\r\nExpect: 100-continue\r\n";
    let mut client = Client::of(&served);
    client.begin("/whole", headers);
    assert_eq!(client.head(), "HTTP/1.1 100 Continue\r\n\r\n");
    client.send(b"abc");
    assert_eq!(client.answer().1, "3");
    client.begin("/nowhere", headers);
    let (head, _) = client.answer();
    assert!(head.starts_with("HTTP/1.1 404 ") && head.contains("connection: close\r\n"), "{head}");
    assert!(client.has_ended());
}
