//! A blocking client of the Workq protocol, for the torture only.
//!
//! It is deliberately separate from the server's own code: an error in shared protocol code would
//! look right from both ends.

use std::io::{self, BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::papers::{Entrance, Stream, TOKEN};

/// The longest any answer may take. A server that is alive and does not answer for that long hangs.
const ANSWER_WITHIN: Duration = Duration::from_secs(120);
const CONNECT_WITHIN: Duration = Duration::from_secs(30);

/// A connection of any client of the torture: an answer that takes too long is an error.
pub fn connect(to: Entrance) -> io::Result<Stream> {
    let stream = TcpStream::connect_timeout(&to.address, CONNECT_WITHIN)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    stream.set_write_timeout(Some(ANSWER_WITHIN))?;
    Stream::over(stream, to.papers)
}

/// The answers when the log has no room.
const NO_ROOM: [&str; 2] = ["-SERVER-ERROR disk full", "-SERVER-ERROR the log cannot grow"];

/// What the server answered to a command that changes something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// `+OK`
    Done,
    /// `-NOT-FOUND`
    NotFound,
    /// `-CLIENT-ERROR Duplicate job` or `Duplicate result`
    Duplicate,
    /// Any other error line.
    Refused(String),
}

impl Answer {
    /// The log has no room for what was sent, in the words that say so.
    pub fn has_no_room(&self) -> bool {
        matches!(self, Self::Refused(line) if NO_ROOM.contains(&&**line))
    }

    /// A stopping server takes no more jobs, and says so while connections are still open.
    pub fn is_stopping(&self) -> bool {
        matches!(self, Self::Refused(line) if line == "-TIMEOUT")
    }
}

/// A job as a lease gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The job's UUID.
    pub id: String,
    pub payload: Vec<u8>,
}

/// What `inspect job` shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspection {
    pub attempts: u32,
    pub fails: u32,
    /// Workq's number: 0 new, 1 completed, 2 failed, 3 pending, 4 leased.
    pub state: u8,
    pub payload: Vec<u8>,
}

/// The outcome that `result` shows: success and bytes.
pub type Outcome = (bool, Vec<u8>);

/// One connection, one command at a time (or several `ask` before the `hear`s).
pub struct Client {
    stream: BufReader<Stream>,
}

impl Client {
    /// Connects, without waiting for a server that is not there.
    pub fn connect(to: impl Into<Entrance>) -> io::Result<Self> {
        let to = to.into();
        let mut client = Self { stream: BufReader::new(connect(to)?) };
        if to.papers.is_some() {
            client.ask(&format!("auth {TOKEN}"))?;
            expect(&client.line()?, "+OK")?;
        }
        Ok(client)
    }

    /// The same for a client that does not wait for long.
    pub fn impatient(address: SocketAddr, answer_within: Duration) -> io::Result<Self> {
        let client = Self::connect(address)?;
        client.stream.get_ref().tcp().set_read_timeout(Some(answer_within))?;
        Ok(client)
    }

    /// `add`, `schedule`, `complete`, `fail`: a line that ends in the payload's size, the payload.
    pub fn send(&mut self, head: &str, payload: &[u8], flags: &str) -> io::Result<Answer> {
        let mut bytes = format!("{head} {}{flags}\r\n", payload.len()).into_bytes();
        bytes.extend_from_slice(payload);
        bytes.extend_from_slice(b"\r\n");
        self.stream.get_mut().say(&bytes)?;
        self.hear_answer()
    }

    /// `delete`
    pub fn delete(&mut self, id: &str) -> io::Result<Answer> {
        self.ask(&format!("delete {id}"))?;
        self.hear_answer()
    }

    /// `lease`; `None` when nothing came within `wait_ms`, or the log has no room for the record of a durable lease.
    pub fn lease(&mut self, queues: &str, wait_ms: u64) -> io::Result<Option<Delivery>> {
        self.ask(&format!("lease {queues} {wait_ms}"))?;
        let line = self.line()?;
        if line == "-TIMEOUT" || NO_ROOM.contains(&&*line) {
            return Ok(None);
        }
        expect(&line, "+OK 1")?;
        let head = self.line()?;
        match head.split(' ').collect::<Vec<_>>()[..] {
            [id, _queue, _ttr, size] => {
                let payload = self.block(number(size)?)?;
                Ok(Some(Delivery { id: id.to_owned(), payload }))
            }
            _ => Err(odd(&head)),
        }
    }

    /// Whether the server answers at all.
    pub fn greet(&mut self) -> io::Result<()> {
        self.ask("inspect server")?;
        expect(&self.line()?, "+OK 1")
    }

    /// `ready-len` and `scheduled-len` of a queue; zeroes for one that does not exist.
    pub fn queue_lens(&mut self, queue: &str) -> io::Result<(u64, u64)> {
        self.ask(&format!("inspect queue {queue}"))?;
        let line = self.line()?;
        if line == "-NOT-FOUND" {
            return Ok((0, 0));
        }
        expect(&line, "+OK 1")?;
        let mut lens = (0, 0);
        for _ in 0..keys_announced(&self.line()?)? {
            let line = self.line()?;
            match line.split_once(' ') {
                Some(("ready-len", n)) => lens.0 = number(n)?,
                Some(("scheduled-len", n)) => lens.1 = number(n)?,
                _ => {}
            }
        }
        Ok(lens)
    }

    /// Sends a command without a payload; its answer is heard later.
    pub fn ask(&mut self, line: &str) -> io::Result<()> {
        self.stream.get_mut().say(format!("{line}\r\n").as_bytes())
    }

    /// The answer to `inspect job`.
    pub fn hear_inspection(&mut self) -> io::Result<Option<Inspection>> {
        let line = self.line()?;
        if line == "-NOT-FOUND" {
            return Ok(None);
        }
        expect(&line, "+OK 1")?;
        let (mut found, mut size) = (Inspection::default(), 0);
        for _ in 0..keys_announced(&self.line()?)? {
            let mut key = Vec::new();
            (&mut self.stream).take(64).read_until(b' ', &mut key)?;
            if key == b"payload " {
                found.payload = self.block(size)?;
                continue;
            }
            let value = self.line()?;
            match key.as_slice() {
                b"payload-size " => size = number(&value)?,
                b"attempts " => found.attempts = number(&value)? as u32,
                b"fails " => found.fails = number(&value)? as u32,
                b"state " => found.state = number(&value)? as u8,
                _ => {}
            }
        }
        Ok(Some(found))
    }

    /// The answer to `result`; `None` when there is none (yet).
    pub fn hear_result(&mut self) -> io::Result<Option<Outcome>> {
        let line = self.line()?;
        if line == "-NOT-FOUND" || line == "-TIMEOUT" {
            return Ok(None);
        }
        expect(&line, "+OK 1")?;
        let head = self.line()?;
        match head.split(' ').collect::<Vec<_>>()[..] {
            [_id, success, size] => Ok(Some((success == "1", self.block(number(size)?)?))),
            _ => Err(odd(&head)),
        }
    }

    /// The answer to a command that changes something.
    pub fn hear_answer(&mut self) -> io::Result<Answer> {
        let line = self.line()?;
        Ok(match line.as_str() {
            "+OK" => Answer::Done,
            "-NOT-FOUND" => Answer::NotFound,
            _ if line.starts_with("-CLIENT-ERROR Duplicate") => Answer::Duplicate,
            _ if line.starts_with('-') => Answer::Refused(line),
            _ => return Err(odd(&line)),
        })
    }

    fn line(&mut self) -> io::Result<String> {
        let mut bytes = Vec::new();
        (&mut self.stream).take(4_096).read_until(b'\n', &mut bytes)?;
        match bytes.strip_suffix(b"\r\n") {
            Some(line) => Ok(String::from_utf8_lossy(line).into_owned()),
            None if bytes.is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
            None => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "half a line")),
        }
    }

    fn block(&mut self, size: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; size as usize + 2];
        self.stream.read_exact(&mut bytes)?;
        bytes.truncate(size as usize);
        Ok(bytes)
    }
}

fn keys_announced(line: &str) -> io::Result<u64> {
    number(line.rsplit(' ').next().unwrap_or_default())
}

fn expect(line: &str, wanted: &str) -> io::Result<()> {
    if line == wanted { Ok(()) } else { Err(odd(line)) }
}

fn number(text: &str) -> io::Result<u64> {
    text.parse().map_err(|_| odd(text))
}

/// An answer that the protocol does not allow: `InvalidData`, unlike a connection that broke.
pub fn odd(line: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("unexpected answer {line:?}"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// A client whose server answers any request with these bytes, and closes.
    fn hearing(bytes: &'static [u8]) -> Client {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(bytes).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let _ = stream.read_to_end(&mut Vec::new());
        });
        Client::connect(address).unwrap()
    }

    #[test]
    fn an_inspected_payload_may_hold_line_ends() {
        let mut client = hearing(
            b"+OK 1\r\nid 6\r\nname q\r\npayload-size 4\r\npayload \r\n\r\n\r\nattempts 2\r\n\
              fails 1\r\nstate 3\r\n-NOT-FOUND\r\n",
        );
        let expected =
            Inspection { attempts: 2, fails: 1, state: 3, payload: b"\r\n\r\n".to_vec() };
        assert_eq!(client.hear_inspection().unwrap(), Some(expected));
        assert_eq!(client.hear_inspection().unwrap(), None);
        let gone = client.hear_inspection().unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn leases_results_and_refusals_are_told_apart() {
        let mut client = hearing(
            b"+OK 1\r\nabc q 1000 2\r\nhi\r\n-TIMEOUT\r\n-CLIENT-ERROR Duplicate result\r\n\
              -CLIENT-ERROR Invalid ID\r\n+OK\r\n+OK 1\r\nabc 0 3\r\nbad\r\n+WHAT\r\n",
        );
        let delivery = Delivery { id: "abc".into(), payload: b"hi".to_vec() };
        assert_eq!(client.lease("q", 10).unwrap(), Some(delivery));
        assert_eq!(client.lease("q", 10).unwrap(), None);
        assert_eq!(client.delete("abc").unwrap(), Answer::Duplicate);
        let refused = Answer::Refused("-CLIENT-ERROR Invalid ID".into());
        assert_eq!(client.send("complete abc", b"", "").unwrap(), refused);
        assert_eq!(client.delete("abc").unwrap(), Answer::Done);
        assert_eq!(client.hear_result().unwrap(), Some((false, b"bad".to_vec())));
        assert_eq!(client.delete("abc").unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
