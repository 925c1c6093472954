//! The bare TCP echo server: what this machine can answer at most when a server does nothing at
//! all. One thread, one epoll loop; per readiness one read and one write with all answers of that
//! read.

use crate::cli::EchoServer;
use anyhow::{Context, Result};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};

const LISTENER: Token = Token(usize::MAX);
const READ_BYTES: usize = 64 * 1024;
/// A client that does not read its answers is not read from either.
const UNSENT_BYTES_MAX: usize = 1 << 20;

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
            } else if let Some(connection) = connections.get_mut(&event.token())
                && !connection.answer(args, &mut scratch).unwrap_or(false)
            {
                connections.remove(&event.token());
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

    /// Takes what came and answers every whole frame; false when the client is gone.
    fn answer(&mut self, args: &EchoServer, scratch: &mut [u8]) -> io::Result<bool> {
        self.flush()?;
        while self.unsent.len() < UNSENT_BYTES_MAX {
            let count = match self.stream.read(scratch) {
                Ok(0) => return Ok(false),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if args.whole {
                self.unsent.extend_from_slice(&scratch[..count]);
            } else {
                let frames = (self.partial_bytes + count) / args.frame_bytes;
                self.partial_bytes = (self.partial_bytes + count) % args.frame_bytes;
                for _ in 0..frames {
                    self.unsent.extend_from_slice(args.answer.as_bytes());
                }
            }
            self.flush()?;
            // A read that did not fill the buffer emptied the socket; more is a new event.
            if count < scratch.len() {
                break;
            }
        }
        Ok(true)
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
