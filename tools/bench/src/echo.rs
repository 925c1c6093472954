//! The bare TCP echo server: what this machine can answer at most when a server does nothing at
//! all. One thread, one epoll loop; per readiness one read and one write with all answers of that
//! read. Or, when asked to sync, what it can answer at most when it is on disk: all that came in a
//! turn is written and synced once, then answered.

use crate::cli::EchoServer;
use anyhow::{Context, Result};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

const LISTENER: Token = Token(usize::MAX);
const READ_BYTES: usize = 64 * 1024;
/// A client that does not read its answers is not read from either.
const UNSENT_BYTES_MAX: usize = 1 << 20;
/// What is written goes round in a file of this size, as a log does in prepared segments.
const FILE_BYTES: usize = 16 << 20;
/// Unit and alignment of writes past the page cache.
const BLOCK_BYTES: usize = 4096;

/// Serves until killed.
pub(crate) fn serve(args: &EchoServer) -> Result<()> {
    let mut listener = TcpListener::bind(args.listen)
        .with_context(|| format!("cannot listen on {}", args.listen))?;
    println!("listening on {}", listener.local_addr()?);
    let mut poll = Poll::new()?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut events = Events::with_capacity(1024);
    let mut connections: HashMap<Token, Connection> = HashMap::new();
    let mut scratch = vec![0; READ_BYTES];
    let mut accepted = 0;
    let mut disk = args.synced.as_deref().map(Disk::open).transpose()?;
    let mut answering: Vec<Token> = vec![];
    loop {
        match poll.poll(&mut events, None) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            outcome => outcome?,
        }
        for event in &events {
            if event.token() == LISTENER {
                while let Some(connection) = Connection::accept(&listener)? {
                    let token = Token(accepted);
                    accepted += 1;
                    let connection = connections.entry(token).or_insert(connection);
                    let both = Interest::READABLE | Interest::WRITABLE;
                    poll.registry().register(&mut connection.stream, token, both)?;
                }
            } else if let Some(connection) = connections.get_mut(&event.token()) {
                match connection.answer(args, &mut scratch) {
                    Ok(Some(taken)) => {
                        if let Some(disk) = &mut disk
                            && taken > 0
                        {
                            disk.turn_bytes += taken;
                            answering.push(event.token());
                        }
                    }
                    Ok(None) | Err(_) => drop(connections.remove(&event.token())),
                }
            }
        }
        if let Some(disk) = &mut disk {
            disk.end_turn()?;
        }
        for token in answering.drain(..) {
            if connections.get_mut(&token).is_some_and(|connection| connection.flush().is_err()) {
                connections.remove(&token);
            }
        }
    }
}

struct Connection {
    stream: TcpStream,
    /// Bytes of the frame that has not fully arrived.
    partial_bytes: usize,
    unsent: Vec<u8>,
}

impl Connection {
    fn accept(listener: &TcpListener) -> io::Result<Option<Self>> {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nodelay(true)?;
                Ok(Some(Self { stream, partial_bytes: 0, unsent: vec![] }))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Takes what came and answers every whole frame, at once unless that has to be on disk first.
    /// The bytes that came; none when the client is gone.
    fn answer(&mut self, args: &EchoServer, scratch: &mut [u8]) -> io::Result<Option<usize>> {
        let mut taken = 0;
        if args.synced.is_none() {
            self.flush()?;
        }
        while self.unsent.len() < UNSENT_BYTES_MAX {
            let count = match self.stream.read(scratch) {
                Ok(0) => return Ok(None),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            taken += count;
            if args.whole {
                self.unsent.extend_from_slice(&scratch[..count]);
            } else {
                let frames = (self.partial_bytes + count) / args.frame_bytes;
                self.partial_bytes = (self.partial_bytes + count) % args.frame_bytes;
                for _ in 0..frames {
                    self.unsent.extend_from_slice(args.answer.as_bytes());
                }
            }
            if args.synced.is_none() {
                self.flush()?;
            }
            // A read that did not fill the buffer emptied the socket; more is a new event.
            if count < scratch.len() {
                break;
            }
        }
        Ok(Some(taken))
    }

    fn flush(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(sent) => drop(self.unsent.drain(..sent)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The file of an echo server that syncs.
struct Disk {
    file: File,
    /// What is written is zeros: their number is what costs.
    zeros: Vec<u8>,
    offset: usize,
    turn_bytes: usize,
}

impl Disk {
    fn open(folder: &Path) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let path = folder.join("echo");
        std::fs::write(&path, vec![0; FILE_BYTES])?;
        File::open(&path)?.sync_all()?;
        let direct = nix::fcntl::OFlag::O_DIRECT.bits();
        let file = File::options().write(true).custom_flags(direct).open(&path);
        let file = file.with_context(|| format!("no direct writes to {}", path.display()))?;
        let zeros = vec![0; (1 << 20) + BLOCK_BYTES];
        Ok(Self { file, zeros, offset: 0, turn_bytes: 0 })
    }

    /// Writes as many bytes as came in this turn, and syncs them.
    fn end_turn(&mut self) -> Result<()> {
        let mut left = std::mem::take(&mut self.turn_bytes).next_multiple_of(BLOCK_BYTES);
        if left == 0 {
            return Ok(());
        }
        let aligned = self.zeros.as_ptr().align_offset(BLOCK_BYTES);
        while left > 0 {
            let len = left.min(self.zeros.len() - BLOCK_BYTES).min(FILE_BYTES - self.offset);
            let blocks = &self.zeros[aligned..aligned + len];
            self.file.write_all_at(blocks, self.offset as u64)?;
            self.offset = (self.offset + len) % FILE_BYTES;
            left -= len;
        }
        Ok(self.file.sync_data()?)
    }
}
