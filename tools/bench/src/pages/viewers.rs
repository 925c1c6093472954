//! Open feeds, and pages that are read again when a feed reports a change.

use super::get;
use crate::http::{HttpClient, connect};
use anyhow::{Context, Result, ensure};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const REQUEST: &[u8] = b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n";
const HEAD_END: &[u8] = b"\r\n\r\n";
/// The event that a feed sends when something happened.
const MOVED: &[u8] = b"event: moved";
const POLL: Duration = Duration::from_millis(50);
/// The longest delay of that event.
const LATENESS_MAX: Duration = Duration::from_secs(10);

/// Viewers, in a thread of their own.
pub(super) struct Watch {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Result<()>>,
}

impl Watch {
    /// Opens `feeds` feeds. Each has one of `paths`, in turn, which is read when the feed reports
    /// that something moved; without paths nothing is read.
    pub(super) fn begin(http: SocketAddr, feeds: usize, paths: Vec<String>) -> Result<Self> {
        let asked = (0..feeds).map(|_| Feed::ask(http)).collect::<Result<Vec<_>>>()?;
        let open = asked.into_iter().map(Feed::begin).collect::<Result<_>>()?;
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = thread::spawn(move || watch(open, http, &paths, &over, LATENESS_MAX));
        Ok(Self { is_over, thread })
    }

    /// Closes them, once each has reported that something moved.
    pub(super) fn end(self) -> Result<()> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().ok().context("the viewers panicked")?
    }
}

/// Follows the feeds until it is over and each has reported that something moved.
fn watch(
    mut feeds: Vec<Feed>,
    http: SocketAddr,
    paths: &[String],
    is_over: &AtomicBool,
    lateness_max: Duration,
) -> Result<()> {
    let mut poll = Poll::new()?;
    for (index, feed) in feeds.iter_mut().enumerate() {
        poll.registry().register(&mut feed.stream, Token(index), Interest::READABLE)?;
    }
    let mut client = HttpClient::connect(http)?;
    let mut events = Events::with_capacity(1024);
    let mut over_at = None;
    loop {
        let silent = feeds.iter().filter(|feed| feed.heard == 0).count();
        if is_over.load(Ordering::Relaxed) {
            let over_at = *over_at.get_or_insert_with(Instant::now);
            if silent == 0 {
                return Ok(());
            }
            let is_late = over_at.elapsed() > lateness_max;
            ensure!(!is_late, "{silent} of {} feeds said nothing while jobs ran", feeds.len());
        }
        match poll.poll(&mut events, Some(POLL)) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            outcome => outcome?,
        }
        for event in &events {
            let index = event.token().0;
            let moved = feeds[index].hear()?;
            if moved && !paths.is_empty() {
                get(&mut client, &paths[index % paths.len()])?;
            }
        }
    }
}

/// One open feed.
struct Feed {
    stream: TcpStream,
    /// Bytes that came in and were not yet searched.
    bytes: Vec<u8>,
    heard: u64,
}

impl Feed {
    fn ask(http: SocketAddr) -> Result<std::net::TcpStream> {
        let mut stream = connect(http)?;
        stream.write_all(REQUEST)?;
        Ok(stream)
    }

    /// Waits for the head of the answer: from then on the feed reports events. Otherwise the last
    /// of a thousand feeds might begin only after a short load is over.
    fn begin(mut stream: std::net::TcpStream) -> Result<Self> {
        let (mut bytes, mut chunk) = (vec![], [0; 4096]);
        while !bytes.windows(HEAD_END.len()).any(|part| part == HEAD_END) {
            let count = stream.read(&mut chunk).context("a feed does not begin")?;
            ensure!(count > 0, "the server refused a feed");
            bytes.extend_from_slice(&chunk[..count]);
        }
        stream.set_nonblocking(true)?;
        Ok(Self { stream: TcpStream::from_std(stream), bytes, heard: 0 })
    }

    /// Reads what is there; returns whether it reports that something moved.
    fn hear(&mut self) -> Result<bool> {
        let mut chunk = [0; 4096];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => anyhow::bail!("the server closed a feed"),
                Ok(count) => self.bytes.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        let before = self.heard;
        while let Some(at) = self.bytes.windows(MOVED.len()).position(|part| part == MOVED) {
            self.bytes.drain(..at + MOVED.len());
            self.heard += 1;
        }
        Ok(self.heard > before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::sync::mpsc;

    const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n";

    /// A server of one feed, which says these one after the other, when told to.
    fn feed_of(said: &'static [&'static [u8]]) -> (Feed, mpsc::Sender<()>, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let asked = Feed::ask(listener.local_addr().unwrap()).unwrap();
        let (go, next) = mpsc::channel();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut [0; REQUEST.len()]).unwrap();
            stream.write_all(HEAD).unwrap();
            for part in said {
                next.recv().unwrap();
                stream.write_all(part).unwrap();
            }
            next.recv().unwrap_err();
        });
        (Feed::begin(asked).unwrap(), go, server)
    }

    fn await_bytes(feed: &mut Feed) -> Result<bool> {
        let before = feed.bytes.len() as u64 + feed.heard;
        loop {
            let moved = feed.hear()?;
            if moved || feed.bytes.len() as u64 + feed.heard > before {
                return Ok(moved);
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_feed_is_heard_even_if_its_word_comes_in_two_parts() {
        let (mut feed, go, server) = feed_of(&[b"event: mo", b"ved\n\n"]);
        go.send(()).unwrap();
        assert!(!await_bytes(&mut feed).unwrap());
        go.send(()).unwrap();
        assert!(await_bytes(&mut feed).unwrap());
        assert_eq!(feed.heard, 1);
        drop(go);
        server.join().unwrap();
        assert!(await_bytes(&mut feed).is_err());
    }

    #[test]
    fn a_feed_that_says_nothing_fails_the_run() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let http = listener.local_addr().unwrap();
        let asked = [Feed::ask(http).unwrap(), Feed::ask(http).unwrap()];
        let mut held = vec![];
        for _ in &asked {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(HEAD).unwrap();
            held.push(stream);
        }
        let feeds = asked.map(|stream| Feed::begin(stream).unwrap()).into();
        let ended = watch(feeds, http, &[], &AtomicBool::new(true), Duration::ZERO);
        let said = ended.unwrap_err().to_string();
        assert_eq!(said, "2 of 2 feeds said nothing while jobs ran");
    }

    #[test]
    fn a_feed_that_is_refused_fails_the_run() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let asked = Feed::ask(listener.local_addr().unwrap()).unwrap();
        drop(listener.accept().unwrap());
        assert!(Feed::begin(asked).is_err());
    }
}
