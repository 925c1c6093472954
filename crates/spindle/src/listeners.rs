//! Addresses that a server keeps while its doors open and close.

use std::{
    io,
    net::{SocketAddr, TcpListener},
};

/// Listeners of doors, by the doors' names. A server that is not one of several keeps none: its doors
/// claim their addresses when they open.
#[derive(Debug, Default)]
pub struct Listeners {
    kept: Vec<(&'static str, TcpListener)>,
    elsewhere: Vec<(&'static str, SocketAddr)>,
}

impl Listeners {
    /// The same for doors that do not listen: their clients connect to routers at these addresses.
    pub fn with_elsewhere(self, doors: Vec<(&'static str, SocketAddr)>) -> Self {
        Self { elsewhere: doors, ..self }
    }

    /// Whether no socket is kept.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// The router's address that the clients of a door connect to, if there is one.
    pub fn elsewhere(&self, door: &str) -> Option<SocketAddr> {
        self.elsewhere.iter().find(|(name, _)| *name == door).map(|(_, at)| *at)
    }

    /// Claims an address for a door, and keeps it.
    pub fn keep(&mut self, door: &'static str, addr: SocketAddr) -> io::Result<SocketAddr> {
        let (listener, local_addr) = spindle_net::listen(addr)?;
        self.kept.push((door, listener));
        Ok(local_addr)
    }

    /// A listener for a door: another handle of the socket that is kept, or else a new one.
    pub fn claim(&self, door: &str, addr: SocketAddr) -> io::Result<TcpListener> {
        match self.kept.iter().find(|(name, _)| *name == door) {
            Some((_, listener)) => listener.try_clone(),
            None => spindle_net::listen(addr).map(|(listener, _)| listener),
        }
    }

    /// Another handle of each socket that is kept.
    pub fn handles(&self) -> io::Result<Vec<(&'static str, TcpListener)>> {
        self.kept.iter().map(|(door, listener)| Ok((*door, listener.try_clone()?))).collect()
    }
}
