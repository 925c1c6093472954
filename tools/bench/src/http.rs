//! One kept connection to an HTTP door: a request, then its answer, whole.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A wait longer than this is a failure.
pub(crate) const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);

/// A connection that waits for each answer.
pub(crate) struct HttpClient {
    stream: BufReader<TcpStream>,
}

/// Status and body.
pub(crate) type HttpAnswer = (u16, Vec<u8>);

impl HttpClient {
    /// Connects.
    pub(crate) fn connect(address: SocketAddr) -> Result<Self> {
        Ok(Self { stream: BufReader::new(connect(address)?) })
    }

    /// Sends a request with a JSON body, which may be empty, in one write, and reads the answer.
    pub(crate) fn ask(&mut self, method: &str, path: &str, body: &str) -> Result<HttpAnswer> {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.stream.get_mut().write_all(request.as_bytes())?;
        self.answer()
    }

    /// The same with JSON on both sides, which must succeed. No content is null.
    pub(crate) fn ask_json(&mut self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let (status, answer) = self.ask(method, path, &body.to_string())?;
        let said = String::from_utf8_lossy(&answer);
        ensure!((200..300).contains(&status), "{method} {path} was answered {status}: {said}");
        Ok(serde_json::from_slice(&answer).unwrap_or_default())
    }

    fn answer(&mut self) -> Result<HttpAnswer> {
        let status = self.line()?;
        let status = status.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.context("an answer that does not begin with a status")?;
        let mut len = 0;
        loop {
            let line = self.line()?.to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                len = value.trim().parse()?;
            }
        }
        let mut body = vec![0; len];
        self.stream.read_exact(&mut body)?;
        Ok((status, body))
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        ensure!(line.ends_with('\n'), "the server closed a connection");
        Ok(line.trim_end().to_owned())
    }
}

/// Connects, with a limit on every wait.
pub(crate) fn connect(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// A client of a server that says this to one request, and what it was asked.
    fn client_of(said: &'static str) -> (HttpClient, std::thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut bytes = [0; 1024];
            let count = stream.read(&mut bytes).unwrap();
            stream.write_all(said.as_bytes()).unwrap();
            String::from_utf8_lossy(&bytes[..count]).into_owned()
        });
        (HttpClient::connect(address).unwrap(), asked)
    }

    #[test]
    fn an_answer_is_read_whole_and_a_request_says_its_length() {
        let said = "HTTP/1.1 201 Created\r\nX: y\r\nContent-Length: 3\r\n\r\nabcHTTP";
        let (mut client, asked) = client_of(said);
        assert_eq!(client.ask("POST", "/x", "{}").unwrap(), (201, b"abc".to_vec()));
        let asked = asked.join().unwrap();
        assert!(asked.starts_with("POST /x HTTP/1.1\r\n"), "{asked}");
        assert!(asked.ends_with("Content-Length: 2\r\n\r\n{}"), "{asked}");
        let (mut client, _) = client_of("HTTP/1.1 204 No Content\r\n\r\n");
        assert_eq!(client.ask("GET", "/x", "").unwrap(), (204, vec![]));
    }

    #[test]
    fn what_is_no_whole_answer_is_an_error() {
        for said in ["", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", "+OK\r\n\r\n"] {
            let (mut client, _) = client_of(said);
            assert!(client.ask("GET", "/x", "").is_err(), "{said}");
        }
    }
}
