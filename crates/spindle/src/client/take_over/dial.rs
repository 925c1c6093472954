//! Connections to other servers.

use std::{
    net::{SocketAddr, TcpStream, ToSocketAddrs},
    time::Duration,
};

use anyhow::anyhow;

use crate::exit::{Code, Failure};

const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);

/// The addresses of HOST:PORT, or of the usual port of a host.
pub fn resolve(address: &str, port: u16) -> anyhow::Result<Vec<SocketAddr>> {
    let found = if address.contains(':') {
        address.to_socket_addrs()
    } else {
        (address, port).to_socket_addrs()
    };
    let found = found.map_err(|error| {
        Failure::with(Code::Usage, format!("{address} is no HOST:PORT: {error}"))
    })?;
    Ok(found.collect())
}

/// Connects to the first of these that accepts. Each read and each write takes `time_max` at most.
pub fn dial(addresses: &[SocketAddr], time_max: Duration) -> anyhow::Result<TcpStream> {
    let mut failure = anyhow!("the name has no address");
    for address in addresses {
        match TcpStream::connect_timeout(address, CONNECT_TIME_MAX) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(time_max))?;
                stream.set_write_timeout(Some(time_max))?;
                return Ok(stream);
            }
            Err(error) => failure = anyhow!("cannot connect to {address}: {error}"),
        }
    }
    Err(failure)
}
