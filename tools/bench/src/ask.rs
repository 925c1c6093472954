//! One kept HTTP connection that asks one thing at a time and waits for the answer: for what is
//! asked while a load runs, and for what is answered with more than a line.

use anyhow::{Context, Result, ensure};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// A list of jobs is far shorter.
const BODY_BYTES_MAX: usize = 16 << 20;
const READ_BYTES: usize = 64 * 1024;
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);

/// A connection.
pub(crate) struct Asker {
    stream: TcpStream,
    input: Vec<u8>,
}

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Told<'a> {
    /// The status.
    pub(crate) status: u16,
    /// The body.
    pub(crate) body: &'a [u8],
    /// From the first byte of the request to the last of the answer.
    pub(crate) latency: Duration,
}

impl Asker {
    /// Connects.
    pub(crate) fn connect(address: SocketAddr) -> Result<Self> {
        let stream =
            TcpStream::connect(address).with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
        Ok(Self { stream, input: vec![] })
    }

    /// Asks for what is at a path.
    pub(crate) fn get(&mut self, path: &str) -> Result<Told<'_>> {
        self.ask(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes())
    }

    /// Sends JSON to a path.
    pub(crate) fn post(&mut self, path: &str, body: &str) -> Result<Told<'_>> {
        self.post_with(path, "", body)
    }

    /// The same with header lines of one's own, each with its line end.
    pub(crate) fn post_with(&mut self, path: &str, lines: &str, body: &str) -> Result<Told<'_>> {
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             {lines}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.ask(request.as_bytes())
    }

    fn ask(&mut self, request: &[u8]) -> Result<Told<'_>> {
        let began = Instant::now();
        self.stream.write_all(request)?;
        self.input.clear();
        let mut bytes = [0; READ_BYTES];
        let (status, from) = loop {
            if let Some(head) = whole_answer(&self.input)? {
                break head;
            }
            let count = self.stream.read(&mut bytes)?;
            ensure!(count > 0, "the server closed the connection instead of answering");
            self.input.extend_from_slice(&bytes[..count]);
        };
        Ok(Told { status, body: &self.input[from..], latency: began.elapsed() })
    }
}

/// The status, and where the body begins, once all of an answer is there.
fn whole_answer(input: &[u8]) -> Result<Option<(u16, usize)>> {
    let Some(end) = input.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = String::from_utf8_lossy(&input[..end]).to_ascii_lowercase();
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|first| first.strip_prefix("http/1.1 ")?.get(..3));
    let status = status.and_then(|status| status.parse().ok());
    let status = status.with_context(|| format!("not the head of an answer: {head}"))?;
    let len = lines.find_map(|line| line.strip_prefix("content-length:"));
    let len: usize = len.map_or(Ok(0), |len| len.trim().parse())?;
    ensure!(len <= BODY_BYTES_MAX, "an answer of {len} bytes");
    let body = input.len() - end - 4;
    ensure!(body <= len, "an answer that goes on behind its end");
    Ok((body == len).then_some((status, end + 4)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn an_answer_is_whole_with_its_last_byte() {
        let bytes = b"HTTP/1.1 404 Not Found\r\nX: y\r\nContent-Length: 3\r\n\r\nabc";
        for end in 0..bytes.len() {
            assert_eq!(whole_answer(&bytes[..end]).unwrap(), None, "after {end} bytes");
        }
        assert_eq!(whole_answer(bytes).unwrap(), Some((404, bytes.len() - 3)));
        assert_eq!(whole_answer(b"HTTP/1.1 204 No\r\n\r\n").unwrap(), Some((204, 19)));
        assert!(whole_answer(b"+OK\r\n\r\n\r\n").is_err());
        assert!(whole_answer(b"HTTP/1.1 204 No\r\n\r\nmore").is_err());
    }

    #[test]
    fn one_connection_asks_again_and_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            for answer in ["HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi", "no HTTP\r\n\r\n"] {
                let mut request = vec![0; 1024];
                let count = stream.read(&mut request).unwrap();
                assert!(request[..count].ends_with(b"\r\n\r\n{}"));
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        let mut asker = Asker::connect(address).unwrap();
        let told = asker.post("/x", "{}").unwrap();
        assert_eq!((told.status, told.body), (200, b"hi".as_slice()));
        assert!(asker.post("/x", "{}").is_err());
        server.join().unwrap();
    }
}
