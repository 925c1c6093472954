//! Addresses that a server keeps while its doors open and close.

use std::{
    io,
    net::{SocketAddr, TcpListener},
};

/// Listeners of doors, by the doors' names. A server that leads for as long as it runs keeps none: its
/// doors claim their addresses when they open.
#[derive(Debug, Default)]
pub struct Listeners(Vec<(&'static str, TcpListener)>);

impl Listeners {
    /// Claims an address for a door, and keeps it.
    pub fn keep(&mut self, door: &'static str, addr: SocketAddr) -> io::Result<SocketAddr> {
        let (listener, local_addr) = spindle_net::listen(addr)?;
        self.0.push((door, listener));
        Ok(local_addr)
    }

    /// A listener for a door: another handle of the socket that is kept, or else a new one.
    pub fn claim(&self, door: &str, addr: SocketAddr) -> io::Result<TcpListener> {
        match self.0.iter().find(|(name, _)| *name == door) {
            Some((_, listener)) => listener.try_clone(),
            None => spindle_net::listen(addr).map(|(listener, _)| listener),
        }
    }

    /// Another handle of each socket that is kept.
    pub fn handles(&self) -> io::Result<Vec<(&'static str, TcpListener)>> {
        self.0.iter().map(|(door, listener)| Ok((*door, listener.try_clone()?))).collect()
    }
}
