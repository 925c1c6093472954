//! The doors there are, and what the settings say of each.

use std::net::SocketAddr;

use spindle_limits::PlaceLimits;

use super::address::{Loopback, loopback};
use super::table::Config;
use spindle_tls::TlsMode;

impl Config {
    /// Each door that is on, with its address.
    pub fn doors(&self) -> impl Iterator<Item = (&'static str, SocketAddr)> {
        [
            ("workq", self.workq),
            ("gearman", self.gearman),
            ("http", self.http),
            ("jobd-master", self.jobd_master),
        ]
        .into_iter()
        .filter_map(|(door, addr)| Some((door, addr?)))
    }

    /// Whether a door that listens on this address requires clients to authenticate.
    pub fn asks(&self, addr: SocketAddr) -> bool {
        self.require_auth || (self.tokens.is_some() && loopback(addr) == Loopback::No)
    }

    /// Whether a door may listen on an address that is not loopback without tokens and TLS.
    pub fn is_insecure(&self, door: &str) -> bool {
        self.insecure.iter().any(|named| named == door)
    }

    /// Where other nodes hand clients on, if others could read that on the way. Connections to that address
    /// must present a key in any case.
    pub fn cluster_in_clear(&self) -> Option<SocketAddr> {
        let is_open = |at: &SocketAddr| loopback(*at) == Loopback::No;
        self.cluster_listen.filter(is_open).filter(|_| self.cluster_tls() != TlsMode::Required)
    }

    /// Which connections of other nodes are accepted. With `insecure`, plain ones are accepted beside
    /// encrypted ones, for the time while nodes get certificates one after the other.
    pub fn cluster_tls(&self) -> TlsMode {
        match (&self.cluster_ca_file, self.is_insecure(CLUSTER)) {
            (None, _) => TlsMode::Off,
            (Some(_), true) => TlsMode::Optional,
            (Some(_), false) => TlsMode::Required,
        }
    }

    /// What a door lacks to listen on an address that other machines reach; `None`: nothing is
    /// missing.
    pub fn missing(&self, door: &'static str, addr: SocketAddr) -> Option<Missing> {
        let asks = if door == JOBD_MASTER {
            self.jobd_master_password_file.is_some()
        } else {
            self.tokens.is_some()
        };
        if loopback(addr) == Loopback::Yes {
            let is_asked = self.require_auth && door == JOBD_MASTER;
            return (is_asked && !asks).then_some(Missing::Identity);
        }
        match (asks, self.tls_mode(door, addr) == TlsMode::Required) {
            (true, true) => None,
            (false, true) => Some(Missing::Identity),
            (true, false) => Some(Missing::Tls),
            (false, false) => Some(Missing::Both),
        }
    }

    /// How many connections there may be, if the system allows that number in all.
    pub fn place_limits(&self, total: usize) -> PlaceLimits {
        PlaceLimits::with(total, self.door_connections_max, self.address_connections_max)
    }

    /// What a setting says of a door's connections; `None` if none does.
    pub fn tls_setting(&self, door: &str) -> Option<TlsMode> {
        match door {
            "workq" => self.workq_tls,
            "gearman" => self.gearman_tls,
            "http" => self.http_tls,
            _ => self.jobd_master_tls,
        }
    }

    /// Which connections a door takes that listens on this address.
    pub fn tls_mode(&self, door: &str, addr: SocketAddr) -> TlsMode {
        match (&self.tls_cert, self.tls_setting(door)) {
            (None, _) => TlsMode::Off,
            (Some(_), Some(mode)) => mode,
            (Some(_), None) => TlsMode::usual(addr),
        }
    }
}

/// What a door lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// It does not require clients to authenticate.
    Identity,
    /// It does not insist on TLS.
    Tls,
    /// Both.
    Both,
}

/// The door that knows no tokens: it has a password.
pub const JOBD_MASTER: &str = "jobd-master";

/// The doors there are.
pub const DOORS: &[&str] = &["workq", "gearman", "http", "jobd-master"];

/// What `--insecure` calls the address where nodes hand clients on.
pub const CLUSTER: &str = "cluster";
