//! Connections that can be hung up while a request waits. The HTTP library's own offer only to be
//! cut off, which would lose a lease that is on its way.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
};

use ureq::{
    Error,
    unversioned::transport::{
        Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
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
        if details.needs_tls() {
            return Err(Error::TlsRequired);
        }
        let stream = first_that_answers(&details.addrs, details.timeout)?;
        stream.set_nodelay(true)?;
        self.0.carries(stream.try_clone()?);
        let config = details.config;
        let buffers = LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
        Ok(Some(Wire { stream, buffers }))
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
}

impl Transport for Wire {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let timeout = timeout.for_write();
        self.stream.set_write_timeout(timeout.not_zero().map(|within| *within))?;
        let output = self.buffers.output().get(..amount).unwrap_or_default();
        self.stream.write_all(output).map_err(|error| told(error, timeout))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let timeout = timeout.for_read();
        self.stream.set_read_timeout(timeout.not_zero().map(|within| *within))?;
        let input = self.buffers.input_append_buf();
        let amount = loop {
            match self.stream.read(input) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => break other.map_err(|error| told(error, timeout))?,
            }
        };
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

fn told(error: io::Error, timeout: NextTimeout) -> Error {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Error::Timeout(timeout.reason),
        _ => error.into(),
    }
}
