//! The socket of a connection, plain or encrypted.

use super::plan::LoadError;
use mio::net::TcpStream;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);

/// The address of a server, and how to talk to it.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    /// Connections are encrypted with this.
    pub(crate) tls: Option<Arc<ClientConfig>>,
    /// What Workq's clients present first.
    pub(crate) token: Option<String>,
}

/// A socket: blocking until [`Socket::begin`].
pub(crate) struct Socket {
    pub(super) stream: TcpStream,
    tls: Option<Box<ClientConnection>>,
}

impl Socket {
    /// Connects; the handshake, if there is one, is done. Reads and writes wait.
    pub(crate) fn connect(target: &Target) -> Result<Socket, LoadError> {
        let address = target.address;
        let mut stream = std::net::TcpStream::connect_timeout(&address, CONNECT_TIME_MAX)
            .map_err(|source| LoadError::Connect { address, source })?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(CONNECT_TIME_MAX))?;
        let mut tls = None;
        if let Some(config) = &target.tls {
            let name = ServerName::from(address.ip());
            let session = ClientConnection::new(Arc::clone(config), name);
            let mut session = session.map_err(io::Error::other)?;
            while session.is_handshaking() {
                session.complete_io(&mut stream)?;
            }
            tls = Some(Box::new(session));
        }
        Ok(Socket { stream: TcpStream::from_std(stream), tls })
    }

    /// From now on no call blocks.
    pub(super) fn begin(self) -> io::Result<Socket> {
        let stream: std::net::TcpStream = self.stream.into();
        stream.set_nonblocking(true)?;
        Ok(Socket { stream: TcpStream::from_std(stream), tls: self.tls })
    }

    /// Sends the encrypted bytes that are left.
    fn send_sealed(&mut self) -> io::Result<()> {
        let Some(session) = &mut self.tls else { return Ok(()) };
        while session.wants_write() {
            match session.write_tls(&mut self.stream) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                sent => sent?,
            };
        }
        Ok(())
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(session) = &mut self.tls else { return self.stream.read(buffer) };
        loop {
            match session.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => return read,
            }
            if session.read_tls(&mut self.stream)? == 0 {
                return Ok(0);
            }
            session.process_new_packets().map_err(io::Error::other)?;
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(session) = &mut self.tls else { return self.stream.write(bytes) };
        let count = session.writer().write(bytes)?;
        self.send_sealed()?;
        if count == 0 { Err(ErrorKind::WouldBlock.into()) } else { Ok(count) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send_sealed()
    }
}
