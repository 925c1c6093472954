//! A connection to a Gearman server that waits for each answer.

use std::{
    io::{self, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    time::Duration,
};

use bytes::BytesMut;

use super::{Encode, decode_response};
use crate::wire::{Request, Response};

/// The most bytes of one read from the socket.
const READ_BYTES: usize = 64 * 1024;

/// A blocking connection. After an error it is of no further use.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    input: BytesMut,
    packet_bytes_max: usize,
}

impl Connection {
    /// Connects. Each read and each write takes `timeout` at most; a packet with more than
    /// `packet_bytes_max` bytes is refused.
    ///
    /// # Errors
    ///
    /// The address is not valid, or nothing accepts connections there.
    pub fn open(
        address: impl ToSocketAddrs,
        timeout: Duration,
        packet_bytes_max: usize,
    ) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        Ok(Self { stream, input: BytesMut::new(), packet_bytes_max })
    }

    /// The socket, for callers that send or read other bytes.
    #[must_use]
    pub fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Sends a request, and waits for nothing.
    ///
    /// # Errors
    ///
    /// The connection is closed, or the server does not read.
    pub fn send(&mut self, request: &Request) -> io::Result<()> {
        let mut bytes = BytesMut::new();
        request.encode(&mut bytes);
        self.stream.write_all(&bytes)
    }

    /// Waits for the next packet.
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` when the server has closed, `InvalidData` with a
    /// [`ResponseError`](super::ResponseError) when it does not keep to the protocol, `WouldBlock`
    /// or `TimedOut` when it sends nothing.
    pub fn receive(&mut self) -> io::Result<Response> {
        let mut buffer = [0; READ_BYTES];
        loop {
            let read = decode_response(&mut self.input, self.packet_bytes_max);
            let read = read.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            if let Some(response) = read {
                return Ok(response);
            }
            match self.stream.read(&mut buffer)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => self.input.extend_from_slice(buffer.get(..count).unwrap_or_default()),
            }
        }
    }
}
