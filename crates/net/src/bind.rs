//! Claims an address for a door, before anything is served.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use spindle_engine::door::Door;
use spindle_tls::ListenerTls;

/// Why a door has no address.
#[derive(Debug, thiserror::Error)]
#[error("{door}: cannot listen on {addr}")]
pub struct BindError {
    /// The door's name.
    pub door: &'static str,
    /// The address asked for.
    pub addr: SocketAddr,
    /// What the system said; `AddrInUse` for a taken port.
    #[source]
    pub source: io::Error,
}

/// A door with its claimed address. Clients can connect already; they wait until
/// [`Server::start`](crate::Server::start).
pub struct BoundDoor {
    pub(crate) door: Arc<dyn Door>,
    /// None: the door serves only the connections that it is given.
    pub(crate) listener: Option<TcpListener>,
    pub(crate) connections: Arc<AtomicUsize>,
    pub(crate) tls: ListenerTls,
    local_addr: SocketAddr,
}

impl BoundDoor {
    /// The same with TLS; without this call, its connections are plain.
    pub fn with_tls(self, tls: ListenerTls) -> BoundDoor {
        BoundDoor { tls, ..self }
    }

    /// The address claimed: with port 0 asked for, the port the system chose. Of a door that listens
    /// nowhere, the address it was given.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// How many sessions of this door are open now.
    pub fn connections(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.connections)
    }
}

/// Claims `addr` for `door`.
pub fn bind(door: Arc<dyn Door>, addr: SocketAddr) -> Result<BoundDoor, BindError> {
    match listen(addr) {
        Ok((listener, local_addr)) => {
            let (connections, tls) = (Arc::default(), ListenerTls::Off);
            Ok(BoundDoor { door, listener: Some(listener), connections, tls, local_addr })
        }
        Err(source) => Err(BindError { door: door.name(), addr, source }),
    }
}

/// Gives `door` an address that [`listen`] has claimed before: for a process that keeps its addresses
/// while it opens and closes its doors.
///
/// # Errors
///
/// When the listener does not say where it listens.
pub fn bound(door: Arc<dyn Door>, listener: TcpListener) -> io::Result<BoundDoor> {
    let local_addr = listener.local_addr()?;
    let (connections, tls) = (Arc::default(), ListenerTls::Off);
    Ok(BoundDoor { door, listener: Some(listener), connections, tls, local_addr })
}

/// A door that listens nowhere: it serves the connections that it is given
/// ([`adopt`](crate::ServerHandle::adopt)). `local_addr` is where its clients have come to.
pub fn inner(door: Arc<dyn Door>, local_addr: SocketAddr) -> BoundDoor {
    let (connections, tls) = (Arc::default(), ListenerTls::Off);
    BoundDoor { door, listener: None, connections, tls, local_addr }
}

/// Claims `addr` for any listener, and says which address it is. Accepted sockets inherit the
/// listener's options, so that an accept costs no call for them.
///
/// # Errors
///
/// What the system said; `AddrInUse` for a taken port.
pub fn listen(addr: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    socket.set_tcp_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_TIME)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_RETRIES);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    let listener = TcpListener::from(socket);
    let local_addr = listener.local_addr()?;
    Ok((listener, local_addr))
}

/// Whether [`listen`] would get this address now. Does not listen, and keeps it from nobody.
///
/// # Errors
///
/// What the system said; `AddrInUse` for a taken port.
pub fn may_listen(addr: SocketAddr) -> io::Result<()> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&addr.into())
}

const BACKLOG: i32 = 1024;
/// A peer whose machine is gone is noticed after two minutes: a bound lease must not hang longer.
const KEEPALIVE_TIME: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_RETRIES: u32 = 4;

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use socket2::SockRef;

    use super::*;

    #[test]
    fn an_address_is_free_until_somebody_listens_there() {
        let (listener, addr) = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        assert_eq!(may_listen(addr).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        may_listen(addr).unwrap();
        // TEST-NET-1 is nobody's.
        let elsewhere = may_listen("192.0.2.1:1".parse().unwrap()).unwrap_err();
        assert_eq!(elsewhere.kind(), io::ErrorKind::AddrNotAvailable);
    }

    #[test]
    fn accepted_sockets_have_the_listeners_options() {
        let (listener, addr) = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        listener.set_nonblocking(false).unwrap();
        let _client = TcpStream::connect(addr).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        assert!(accepted.nodelay().unwrap());
        let socket = SockRef::from(&accepted);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEPALIVE_TIME);
    }
}
