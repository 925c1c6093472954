//! The echo that syncs: the most that a server with one thread can answer from this disk. It parses
//! nothing and keeps nothing, but every request it answers has been written past the page cache and
//! synced.
//!
//! One thread, one epoll loop, in batches. A batch begins with the first request that comes. Then
//! the sockets are polled without blocking until every client that the last batch answered has
//! asked again, for a short time at most: a client that is about to ask shares this sync instead of
//! waiting for the next one. Then the batch is written, synced and answered.

use crate::cli::EchoServer;
use crate::load::flush;
use anyhow::{Context, Result};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a batch is gathered at most.
const GATHER_TIME_MAX: Duration = Duration::from_micros(60);
/// What Workq answers to a submit.
const ANSWER: &[u8] = b"+OK\r\n";
const LISTENER: Token = Token(usize::MAX);
/// Unit and alignment of writes past the page cache.
const BLOCK_BYTES: usize = 4096;
/// The size of the buffer that requests are read into and written to disk from.
const BUFFER_BYTES: usize = 1 << 20;
/// With less room than this the buffer is written before the next read.
const READ_BYTES_MIN: usize = 64 * 1024;
/// What is written goes round in a file of this size, as a log does in prepared segments.
const FILE_BYTES: u64 = 16 << 20;

/// Serves until killed.
pub(crate) fn serve(args: &EchoServer) -> Result<()> {
    let address = (Ipv4Addr::LOCALHOST, args.port).into();
    let mut echo = Echo::open(address, args.request_bytes, &args.data)?;
    loop {
        echo.answer_batch(GATHER_TIME_MAX)?;
    }
}

struct Echo {
    poll: Poll,
    events: Events,
    listener: TcpListener,
    connections: HashMap<Token, Connection>,
    accepted: usize,
    request_bytes: usize,
    disk: Disk,
    /// Connections with requests in this batch.
    asking: Vec<Token>,
    /// How many connections the last batch has answered that have not asked again.
    awaited: usize,
}

impl Echo {
    fn open(address: SocketAddr, request_bytes: usize, folder: &Path) -> Result<Self> {
        let mut listener =
            TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
        let poll = Poll::new()?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        Ok(Self {
            poll,
            events: Events::with_capacity(1024),
            listener,
            connections: HashMap::new(),
            accepted: 0,
            request_bytes,
            disk: Disk::open(folder)?,
            asking: vec![],
            awaited: 0,
        })
    }

    /// Waits for a request, gathers a batch and answers it: how many connections were in it.
    fn answer_batch(&mut self, gather_time_max: Duration) -> Result<usize> {
        while self.asking.is_empty() {
            self.receive(None)?;
        }
        let began = Instant::now();
        while self.awaited > 0 && began.elapsed() < gather_time_max {
            self.receive(Some(Duration::ZERO))?;
        }
        self.disk.commit()?;
        for connection in self.connections.values_mut() {
            connection.is_awaited = false;
        }
        self.awaited = 0;
        let asking = self.asking.len();
        for token in self.asking.drain(..) {
            let Some(connection) = self.connections.get_mut(&token) else { continue };
            if connection.answer().is_ok() {
                connection.is_awaited = true;
                self.awaited += 1;
            } else {
                self.connections.remove(&token);
            }
        }
        Ok(asking)
    }

    /// Takes what has come.
    fn receive(&mut self, timeout: Option<Duration>) -> Result<()> {
        match self.poll.poll(&mut self.events, timeout) {
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(()),
            outcome => outcome?,
        }
        for event in &self.events {
            let token = event.token();
            if token == LISTENER {
                while let Some(mut connection) = Connection::accept(&self.listener)? {
                    let both = Interest::READABLE | Interest::WRITABLE;
                    let token = Token(self.accepted);
                    self.poll.registry().register(&mut connection.stream, token, both)?;
                    self.connections.insert(token, connection);
                    self.accepted += 1;
                }
                continue;
            }
            let Some(connection) = self.connections.get_mut(&token) else { continue };
            let asked_before = connection.unanswered > 0;
            let is_open = connection.take(self.request_bytes, &mut self.disk)?;
            let asks = connection.unanswered > 0;
            if asks && !asked_before {
                self.asking.push(token);
            }
            if connection.is_awaited && (asks || !is_open) {
                connection.is_awaited = false;
                self.awaited -= 1;
            }
            if !is_open {
                self.connections.remove(&token);
            }
        }
        Ok(())
    }
}

struct Connection {
    stream: TcpStream,
    /// Bytes of the request that has not fully arrived.
    partial_bytes: usize,
    /// Requests in this batch.
    unanswered: usize,
    /// Whether the last batch has answered it and it has not asked again.
    is_awaited: bool,
    unsent: Vec<u8>,
}

impl Connection {
    fn accept(listener: &TcpListener) -> io::Result<Option<Self>> {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        };
        stream.set_nodelay(true)?;
        Ok(Some(Self {
            stream,
            partial_bytes: 0,
            unanswered: 0,
            is_awaited: false,
            unsent: vec![],
        }))
    }

    /// Reads what came into the buffer that is written to disk; false when the client is gone.
    fn take(&mut self, request_bytes: usize, disk: &mut Disk) -> Result<bool> {
        if flush(&mut self.stream, &mut self.unsent).is_err() {
            return Ok(false);
        }
        loop {
            let room = disk.room()?;
            let count = match self.stream.read(room) {
                Ok(0) => return Ok(false),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return Ok(false),
            };
            let is_emptied = count < room.len();
            disk.filled += count;
            self.partial_bytes += count;
            self.unanswered += self.partial_bytes / request_bytes;
            self.partial_bytes %= request_bytes;
            // A read that left room emptied the socket; more is a new event.
            if is_emptied {
                return Ok(true);
            }
        }
    }

    fn answer(&mut self) -> io::Result<()> {
        for _ in 0..std::mem::take(&mut self.unanswered) {
            self.unsent.extend_from_slice(ANSWER);
        }
        flush(&mut self.stream, &mut self.unsent)
    }
}

/// The file, and what is to be written to it.
struct Disk {
    file: File,
    offset: u64,
    buffer: Vec<u8>,
    /// Where the buffer is aligned.
    start: usize,
    filled: usize,
}

impl Disk {
    fn open(folder: &Path) -> Result<Self> {
        let path = folder.join("echo");
        std::fs::write(&path, vec![0; FILE_BYTES as usize])?;
        File::open(&path)?.sync_all()?;
        let direct = nix::fcntl::OFlag::O_DIRECT.bits();
        let file = File::options().write(true).custom_flags(direct).open(&path);
        let file = file.with_context(|| format!("no direct writes to {}", path.display()))?;
        let buffer = vec![0; BUFFER_BYTES + BLOCK_BYTES];
        let start = buffer.as_ptr().align_offset(BLOCK_BYTES);
        Ok(Self { file, offset: 0, buffer, start, filled: 0 })
    }

    /// Where requests go next.
    fn room(&mut self) -> io::Result<&mut [u8]> {
        if BUFFER_BYTES - self.filled < READ_BYTES_MIN {
            self.write()?;
        }
        Ok(&mut self.buffer[self.start..][self.filled..BUFFER_BYTES])
    }

    fn write(&mut self) -> io::Result<()> {
        let blocks = &self.buffer[self.start..][..self.filled.next_multiple_of(BLOCK_BYTES)];
        if self.offset + blocks.len() as u64 > FILE_BYTES {
            self.offset = 0;
        }
        self.file.write_all_at(blocks, self.offset)?;
        self.offset += blocks.len() as u64;
        self.filled = 0;
        Ok(())
    }

    fn commit(&mut self) -> io::Result<()> {
        self.write()?;
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpStream as Client;
    use std::sync::mpsc::{Receiver, channel};

    const REQUEST: &[u8] = b"request!";
    /// Clients wait so long for an answer: less than a batch that is gathered for too long.
    const ANSWER_TIME_MAX: Duration = Duration::from_secs(20);
    const LONG: Duration = Duration::from_secs(3_600);

    /// A folder on a disk: that for temporary files may be in memory.
    fn folder() -> tempfile::TempDir {
        let here = std::env::current_exe().unwrap();
        tempfile::tempdir_in(here.parent().unwrap()).unwrap()
    }

    /// An echo that answers as many batches as there are gather times, and how many connections
    /// were in each.
    fn echo(gather_times: Vec<Duration>) -> (SocketAddr, Receiver<usize>) {
        let folder = folder();
        let any = (Ipv4Addr::LOCALHOST, 0).into();
        let mut echo = Echo::open(any, REQUEST.len(), folder.path()).unwrap();
        let address = echo.listener.local_addr().unwrap();
        let (answered, batches) = channel();
        std::thread::spawn(move || {
            for gather_time_max in gather_times {
                answered.send(echo.answer_batch(gather_time_max).unwrap()).unwrap();
            }
            drop(folder);
        });
        (address, batches)
    }

    fn client(address: SocketAddr) -> Client {
        let client = Client::connect(address).unwrap();
        client.set_read_timeout(Some(ANSWER_TIME_MAX)).unwrap();
        client
    }

    fn ask(mut client: &Client, requests: usize) {
        client.write_all(&REQUEST.repeat(requests)).unwrap();
    }

    #[track_caller]
    fn check_answers(mut client: &Client, count: usize) {
        let mut answers = vec![0; ANSWER.len() * count];
        client.read_exact(&mut answers).unwrap();
        assert_eq!(answers, ANSWER.repeat(count));
    }

    /// Checks that no answer comes before another client has asked.
    #[track_caller]
    fn check_silence(mut client: &Client) {
        client.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let error = client.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        client.set_read_timeout(Some(ANSWER_TIME_MAX)).unwrap();
    }

    #[track_caller]
    fn check_batches(batches: &Receiver<usize>, expected: &[usize]) {
        assert_eq!(batches.iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn every_request_is_answered_once_it_is_whole() {
        let (address, batches) = echo(vec![LONG; 2]);
        let mut client = client(address);
        client.write_all(&[&REQUEST.repeat(3), &REQUEST[..3]].concat()).unwrap();
        check_answers(&client, 3);
        client.write_all(&REQUEST[3..]).unwrap();
        check_answers(&client, 1);
        check_batches(&batches, &[1, 1]);
    }

    #[test]
    fn what_comes_is_written_in_blocks_however_much_it_is() {
        let folder = folder();
        let mut disk = Disk::open(folder.path()).unwrap();
        let mut taken = 0;
        while taken <= FILE_BYTES {
            let room = disk.room().unwrap();
            assert!(room.len() >= READ_BYTES_MIN);
            let count = READ_BYTES_MIN - 1;
            room[..count].fill(7);
            disk.filled += count;
            taken += count as u64;
        }
        disk.commit().unwrap();
        let written = std::fs::read(folder.path().join("echo")).unwrap();
        assert_eq!(written.len() as u64, FILE_BYTES);
        assert!(written.iter().filter(|byte| **byte == 7).count() as u64 > FILE_BYTES * 15 / 16);
    }

    #[test]
    fn a_batch_waits_for_those_whom_the_last_one_answered() {
        let (address, batches) = echo(vec![LONG; 2]);
        let (first, second) = (client(address), client(address));
        ask(&first, 1);
        check_answers(&first, 1);
        ask(&second, 1);
        check_silence(&second);
        ask(&first, 1);
        check_answers(&second, 1);
        check_answers(&first, 1);
        check_batches(&batches, &[1, 2]);
    }

    #[test]
    fn a_batch_does_not_wait_for_those_who_are_gone() {
        let (address, batches) = echo(vec![LONG; 2]);
        let (first, second) = (client(address), client(address));
        ask(&first, 1);
        check_answers(&first, 1);
        drop(first);
        ask(&second, 1);
        check_answers(&second, 1);
        check_batches(&batches, &[1, 1]);
    }

    #[test]
    fn a_batch_waits_no_longer_than_the_gather_time() {
        let (address, batches) = echo(vec![LONG, Duration::ZERO]);
        let (first, second) = (client(address), client(address));
        ask(&first, 1);
        check_answers(&first, 1);
        ask(&second, 1);
        check_answers(&second, 1);
        check_batches(&batches, &[1, 1]);
    }
}
