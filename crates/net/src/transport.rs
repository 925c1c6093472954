//! The socket of a connection, and how bytes travel over it: as they are, or encrypted.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;

use bytes::BytesMut;
use mio::event::Event;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use rustls::ServerConfig;

use crate::tls::{Opened, Tls};

/// A socket with its encryption.
pub(crate) struct Transport {
    stream: TcpStream,
    security: Security,
    /// The socket may have something to read.
    readable: bool,
    /// The client sends no more: when all is read, a read shows its end, for which no further event
    /// comes.
    read_closed: bool,
}

enum Security {
    /// The first byte is to come.
    Undecided,
    Plain,
    Tls(Box<Tls>),
}

/// What one read has brought.
#[derive(Debug)]
pub(crate) struct Arrival {
    /// Bytes from the socket.
    pub(crate) raw: usize,
    pub(crate) after: After,
}

/// What may come after a read.
#[derive(Debug)]
pub(crate) enum After {
    More,
    /// The client sends no more.
    End,
    /// The client has sent what no client of TLS sends.
    Failed(rustls::Error),
}

/// What one write has moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Departure {
    /// Bytes to the socket.
    pub(crate) raw: usize,
    /// Bytes of the outbox that have left with them.
    pub(crate) plain: usize,
}

impl Transport {
    /// `is_plain`: no first byte is needed to know it.
    pub(crate) fn new(stream: TcpStream, is_plain: bool) -> Transport {
        let security = if is_plain { Security::Plain } else { Security::Undecided };
        Transport { stream, security, readable: false, read_closed: false }
    }

    /// Lets the reactor's poll speak of the socket.
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut self.stream, token, Interest::READABLE | Interest::WRITABLE)
    }

    /// Takes note of what the socket said.
    pub(crate) fn note(&mut self, event: &Event) {
        self.readable |= event.is_readable();
        self.read_closed |= event.is_read_closed() || event.is_error();
    }

    pub(crate) fn is_readable(&self) -> bool {
        self.readable || self.read_closed
    }

    /// Whether the first byte is to come.
    pub(crate) fn is_undecided(&self) -> bool {
        matches!(self.security, Security::Undecided)
    }

    /// Looks at the first bytes, which stay to be read.
    pub(crate) fn peek<'a>(&mut self, first: &'a mut [u8]) -> io::Result<&'a [u8]> {
        let seen = self.stream.peek(first);
        if seen.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            self.readable = false;
        }
        Ok(&first[..seen?])
    }

    /// The client speaks in plain bytes.
    pub(crate) fn go_plain(&mut self) {
        self.security = Security::Plain;
    }

    /// The client begins a handshake.
    pub(crate) fn begin_handshake(
        &mut self,
        config: Arc<ServerConfig>,
    ) -> Result<(), rustls::Error> {
        self.security = Security::Tls(Box::new(Tls::new(config)?));
        Ok(())
    }

    /// The encryption, if there is one.
    pub(crate) fn tls(&self) -> Option<&Tls> {
        match &self.security {
            Security::Tls(tls) => Some(tls),
            Security::Undecided | Security::Plain => None,
        }
    }

    /// Whether a handshake is under way.
    pub(crate) fn is_shaking(&self) -> bool {
        self.tls().is_some_and(Tls::is_shaking)
    }

    /// Whether what came last is incomplete in itself.
    pub(crate) fn is_mid_record(&self) -> bool {
        self.tls().is_some_and(Tls::is_mid_record)
    }

    /// Whether nothing but the last alert can be sent any more.
    pub(crate) fn has_failed(&self) -> bool {
        self.tls().is_some_and(Tls::has_failed)
    }

    /// One read of at most `room` bytes, into `raw`. Its plain bytes are appended to `target`.
    pub(crate) fn read(
        &mut self,
        room: usize,
        target: &mut BytesMut,
        raw: &mut [u8],
    ) -> io::Result<Arrival> {
        let len = room.min(raw.len());
        let outcome = self.stream.read(&mut raw[..len]);
        // A read that left room has emptied the socket: an event comes when there is more.
        self.readable &= outcome.as_ref().map_or(true, |count| *count == len);
        let count = outcome?;
        let after = match &mut self.security {
            _ if count == 0 => After::End,
            Security::Undecided | Security::Plain => {
                target.extend_from_slice(&raw[..count]);
                After::More
            }
            Security::Tls(tls) => match tls.open(&raw[..count], target) {
                Ok(Opened::More) => After::More,
                Ok(Opened::End) => After::End,
                Err(error) => After::Failed(error),
            },
        };
        Ok(Arrival { raw: count, after })
    }

    /// One read whose bytes are thrown away.
    pub(crate) fn discard(&mut self, raw: &mut [u8]) -> io::Result<Arrival> {
        let count = self.stream.read(raw)?;
        self.readable &= count == raw.len();
        Ok(Arrival { raw: count, after: if count == 0 { After::End } else { After::More } })
    }

    /// The socket has nothing more for now.
    pub(crate) fn is_drained(&mut self) {
        self.readable = false;
    }

    /// One write: of what waits for the socket or, if nothing does, of the first of these bytes.
    /// None if there is nothing to write.
    pub(crate) fn write(&mut self, released: &[u8]) -> io::Result<Option<Departure>> {
        let Security::Tls(tls) = &mut self.security else {
            if released.is_empty() {
                return Ok(None);
            }
            let count = taken(self.stream.write(released)?)?;
            return Ok(Some(Departure { raw: count, plain: count }));
        };
        tls.seal(released);
        if tls.sealed().is_empty() {
            return Ok(None);
        }
        let raw = taken(self.stream.write(tls.sealed())?)?;
        Ok(Some(Departure { raw, plain: tls.sent(raw) }))
    }

    /// Whether encrypted bytes wait for the socket: of the handshake, an alert, or a record whose bytes
    /// are still in the outbox.
    pub(crate) fn has_unsent(&self) -> bool {
        self.tls().is_some_and(Tls::has_unsent)
    }

    /// Announces that nothing more follows, if the connection is encrypted.
    pub(crate) fn seal_end(&mut self) {
        if let Security::Tls(tls) = &mut self.security {
            tls.seal_end();
        }
    }

    /// Shuts our side.
    pub(crate) fn shut(&mut self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }
}

/// A socket that takes nothing and does not say why is broken.
fn taken(count: usize) -> io::Result<usize> {
    if count > 0 { Ok(count) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// One read takes at most this much.
pub(crate) const READ_BYTES: usize = 64 * 1024;
