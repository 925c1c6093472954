//! Connections that can be hung up while a request waits. The HTTP library's own offer only to be
//! cut off, which would lose a lease that is on its way. TLS is put around them by the library.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
};

use ureq::{
    Error,
    config::Config,
    http::Uri,
    unversioned::{
        resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver},
        transport::{Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport},
    },
};

use crate::client::line::Line;

/// Makes connections and tells a line of them.
#[derive(Debug)]
pub struct Dial(pub Line);

impl Connector for Dial {
    type Out = Wire;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        _: Option<()>,
    ) -> Result<Option<Wire>, Error> {
        let stream = first_that_answers(&details.addrs, details.timeout)?;
        stream.set_nodelay(true)?;
        self.0.carries(stream.try_clone()?);
        let config = details.config;
        let buffers = LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
        Ok(Some(Wire { stream, buffers, is_silent_http: !details.needs_tls() }))
    }
}

/// Why what was heard is no answer to a request over plain HTTP.
#[derive(Debug, thiserror::Error)]
pub enum NotHttp {
    /// The other side speaks TLS.
    #[error("it speaks TLS")]
    Tls,
    /// It speaks something else, which begins like this.
    #[error("it does not speak HTTP: {}", String::from_utf8_lossy(.0))]
    Other(Vec<u8>),
}

impl NotHttp {
    /// Judges the first bytes of an answer.
    fn check(bytes: &[u8]) -> Result<(), Self> {
        // An alert or a handshake of version 3.
        if let [21 | 22, 3, ..] = bytes {
            return Err(Self::Tls);
        }
        let begin = b"HTTP/";
        let known = bytes.len().min(begin.len());
        if bytes.get(..known) == begin.get(..known) {
            return Ok(());
        }
        Err(Self::Other(bytes.to_vec()))
    }
}

/// Finds addresses. A name that has none is an error of its own kind.
#[derive(Debug, Default)]
pub struct Lookup(DefaultResolver);

impl Resolver for Lookup {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        self.0.resolve(uri, config, timeout).map_err(|error| match error {
            Error::Io(error) => io::Error::new(ErrorKind::HostUnreachable, error).into(),
            Error::HostNotFound => {
                io::Error::new(ErrorKind::HostUnreachable, "the name has no address").into()
            }
            other => other,
        })
    }
}

fn first_that_answers(addrs: &[SocketAddr], timeout: NextTimeout) -> Result<TcpStream, Error> {
    let mut last = io::Error::from(ErrorKind::AddrNotAvailable);
    for addr in addrs {
        let connected = match timeout.not_zero() {
            Some(within) => TcpStream::connect_timeout(addr, *within),
            None => TcpStream::connect(addr),
        };
        match connected {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last.into())
}

/// A connection.
#[derive(Debug)]
pub struct Wire {
    stream: TcpStream,
    buffers: LazyBuffers,
    /// Nothing was heard yet, and what comes is not encrypted.
    is_silent_http: bool,
}

impl Transport for Wire {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let timeout = timeout.for_write();
        self.stream.set_write_timeout(timeout.not_zero().map(|within| *within))?;
        let output = self.buffers.output().get(..amount).unwrap_or_default();
        self.stream.write_all(output).map_err(|error| timeout_or(error, timeout))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let timeout = timeout.for_read();
        self.stream.set_read_timeout(timeout.not_zero().map(|within| *within))?;
        let input = self.buffers.input_append_buf();
        let amount = loop {
            match self.stream.read(input) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => break other.map_err(|error| timeout_or(error, timeout))?,
            }
        };
        if std::mem::take(&mut self.is_silent_http) {
            let heard = input.get(..amount).unwrap_or_default();
            NotHttp::check(heard).map_err(io::Error::other)?;
        }
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        // Nothing may come unasked: either it would block, or the connection is of no use.
        let probe = |stream: &mut TcpStream| {
            stream.set_nonblocking(true)?;
            let peeked = stream.peek(&mut [0]);
            stream.set_nonblocking(false)?;
            peeked
        };
        probe(&mut self.stream).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }
}

fn timeout_or(error: io::Error, timeout: NextTimeout) -> Error {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Error::Timeout(timeout.reason),
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_known_by_its_first_bytes() {
        for bytes in [&b"HTTP/1.1 200 OK"[..], b"HTTP/", b"H", b""] {
            assert!(NotHttp::check(bytes).is_ok(), "{bytes:?}");
        }
        for bytes in [&b"\x15\x03\x03\0\x02\x02\x46"[..], b"\x16\x03"] {
            assert!(matches!(NotHttp::check(bytes), Err(NotHttp::Tls)), "{bytes:?}");
        }
        for bytes in [&b"-CLIENT-ERROR"[..], b"HTTX", b"\x15\x02", b"\x15"] {
            assert!(matches!(NotHttp::check(bytes), Err(NotHttp::Other(_))), "{bytes:?}");
        }
    }
}
