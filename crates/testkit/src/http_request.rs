//! One HTTP request over a connection of its own.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};

use crate::PATIENCE;

/// A request that was sent; its connection closes with the answer.
#[derive(Debug)]
pub struct HttpRequest(TcpStream);

impl HttpRequest {
    /// Sends a request with a body in JSON. `head` is its method and path, as in `GET /healthz`.
    pub fn send(address: &str, head: &str, body: &str) -> HttpRequest {
        let headers = format!("Host: {address}\r\nContent-Type: application/json\r\n");
        HttpRequest::send_with(address, head, &headers, body)
    }

    /// Sends a request with these headers, each a whole line, and no others but the body's length.
    pub fn send_with(
        address: impl ToSocketAddrs,
        head: &str,
        headers: &str,
        body: &str,
    ) -> HttpRequest {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let length = body.len();
        write!(
            stream,
            "{head} HTTP/1.1\r\n{headers}Content-Length: {length}\r\n\
             Connection: close\r\n\r\n{body}"
        )
        .unwrap();
        HttpRequest(stream)
    }

    /// Waits for the answer, as it came.
    #[track_caller]
    pub fn bytes(mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.0.read_to_end(&mut bytes).unwrap();
        bytes
    }

    /// Waits for an answer that is text.
    #[track_caller]
    pub fn text(self) -> String {
        String::from_utf8(self.bytes()).unwrap()
    }

    /// Waits for the answer: its status and its body.
    #[track_caller]
    pub fn answer(self) -> (u16, String) {
        let text = self.text();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }
}
