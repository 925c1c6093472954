//! A blocking HTTP client for the torture only: one request at a time over one connection.

use std::io::{self, BufRead, BufReader, Read};

use serde_json::Value;

use crate::torture::client::{connect, odd};
use crate::torture::papers::{Entrance, Stream, TOKEN};

/// Longer bodies and heads cannot be answers of this server.
const BODY_BYTES_MAX: u64 = 8 << 20;
const HEAD_BYTES_MAX: u64 = 64 << 10;
/// A node's answers for a shard that is gone: the request is as much in doubt as when a connection
/// ends.
const SHARD_IS_GONE: [&str; 2] = ["shard_unavailable", "shard_broke_off"];

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub status: u16,
    /// Null when there was no body.
    pub body: Value,
}

/// A connection that is kept alive.
pub struct Http {
    stream: BufReader<Stream>,
    /// A line of the head of each request, if the door wants it.
    authorization: String,
}

impl Http {
    pub fn connect(to: impl Into<Entrance>) -> io::Result<Self> {
        let to = to.into();
        let authorization = to.papers.map(|_| format!("Authorization: Bearer {TOKEN}\r\n"));
        let authorization = authorization.unwrap_or_default();
        Ok(Self { stream: BufReader::new(connect(to)?), authorization })
    }

    pub fn get(&mut self, path: &str) -> io::Result<Answer> {
        self.ask("GET", path, "", None)
    }

    pub fn post(&mut self, path: &str, body: &Value) -> io::Result<Answer> {
        self.ask("POST", path, "", Some(body))
    }

    /// `headers` are whole lines.
    pub fn ask(
        &mut self,
        method: &str,
        path: &str,
        headers: &str,
        body: Option<&Value>,
    ) -> io::Result<Answer> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let mut bytes = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}");
        bytes.push_str(&self.authorization);
        bytes.push_str("Accept: application/json\r\nContent-Type: application/json\r\n");
        bytes.push_str(&format!("Content-Length: {}\r\n\r\n{body}", body.len()));
        self.stream.get_mut().say(bytes.as_bytes())?;
        self.hear()
    }

    fn hear(&mut self) -> io::Result<Answer> {
        let mut head = (&mut self.stream).take(HEAD_BYTES_MAX);
        let mut line = String::new();
        let mut next = || {
            line.clear();
            head.read_line(&mut line)?;
            match line.strip_suffix("\r\n") {
                Some(line) => Ok(line.to_owned()),
                None => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            }
        };
        let first = next()?;
        let status = first.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.ok_or_else(|| odd(&first))?;
        let mut len = 0;
        loop {
            let line = next()?;
            match line.split_once(':') {
                None => break,
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    len = value.trim().parse().map_err(|_| odd(value))?;
                }
                Some(_) => {}
            }
        }
        if len > BODY_BYTES_MAX {
            return Err(odd("a body of many megabytes"));
        }
        let mut body = vec![0; len as usize];
        self.stream.read_exact(&mut body)?;
        let body = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body)? };
        if SHARD_IS_GONE.iter().any(|code| body["code"] == *code) {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, body.to_string()));
        }
        Ok(Answer { status, body })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    #[test]
    fn answers_on_one_connection_are_told_apart_and_half_a_one_is_none() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream
                .write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 8\r\nx: y\r\n\r\n{\"id\":1}")
                .unwrap();
            stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
            stream
                .write_all(
                    b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 26\r\n\r\n{\"code\":\"shard_broke_off\"}",
                )
                .unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{\"i").unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let mut http = Http::connect(address).unwrap();
        let created = Answer { status: 201, body: serde_json::json!({"id": 1}) };
        assert_eq!(http.post("/a", &Value::Null).unwrap(), created);
        assert_eq!(http.get("/b").unwrap(), Answer { status: 204, body: Value::Null });
        assert_eq!(http.get("/c").unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
        assert_eq!(http.get("/d").unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
