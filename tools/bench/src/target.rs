//! Where load may go: loopback, and nowhere else.

use crate::wire::Wire;
use crate::wire::http::Submits;
use std::net::SocketAddr;
use std::str::FromStr;
use thiserror::Error;

/// A server somebody else started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// What it speaks.
    pub(crate) wire: Wire,
    /// Where it listens.
    pub(crate) address: SocketAddr,
}

/// Why a target is not taken.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum TargetError {
    /// Not of the form PROTOCOL:HOST:PORT.
    #[error("a peer is written as workq:, beanstalkd: or gearman:HOST:PORT, not {0:?}")]
    Form(String),
    /// Not an address.
    #[error("{0:?} is not an IP address and a port")]
    Address(String),
    /// An address of another machine.
    #[error("{0} is not a loopback address; load is only ever sent to this machine")]
    NotLoopback(SocketAddr),
}

/// Which door of Spindle is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Door {
    /// Workq's protocol.
    Workq,
    /// Gearman's protocol.
    Gearman,
    /// The native API, submits only.
    Api,
    /// The native API, submits of a hundred jobs a request only.
    ApiBatch,
    /// LightJQ, submits only.
    Lightjq,
    /// Jobq, creates only.
    Jobq,
}

impl Door {
    /// What it speaks.
    pub(crate) fn wire(self) -> Wire {
        match self {
            Self::Workq => Wire::Workq,
            Self::Gearman => Wire::Gearman,
            Self::Api => Wire::Http(Submits::Api),
            Self::ApiBatch => Wire::Http(Submits::Batch),
            Self::Lightjq => Wire::Http(Submits::Lightjq),
            Self::Jobq => Wire::Http(Submits::JobqCreate),
        }
    }

    /// The flag of `spindle serve` that says where it listens.
    pub(crate) fn flag(self) -> &'static str {
        match self {
            Self::Workq => "--workq",
            Self::Gearman => "--gearman",
            Self::Api | Self::ApiBatch | Self::Lightjq | Self::Jobq => "--http",
        }
    }
}

/// Reads an address and refuses those that lead off this machine.
pub(crate) fn loopback(text: &str) -> Result<SocketAddr, TargetError> {
    let numeric = text.replace("localhost:", "127.0.0.1:");
    let address: SocketAddr =
        numeric.parse().map_err(|_not_an_address| TargetError::Address(text.to_owned()))?;
    if address.ip().is_loopback() { Ok(address) } else { Err(TargetError::NotLoopback(address)) }
}

impl FromStr for Peer {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let (wire, address) = match text.split_once(':') {
            Some(("workq", address)) => (Wire::Workq, address),
            Some(("beanstalkd", address)) => (Wire::Beanstalkd, address),
            Some(("gearman", address)) => (Wire::Gearman, address),
            _ => return Err(TargetError::Form(text.to_owned())),
        };
        Ok(Self { wire, address: loopback(address)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_name_their_protocol_and_a_loopback_address() {
        let peer: Peer = "workq:127.0.0.1:9922".parse().unwrap();
        assert_eq!(peer, Peer { wire: Wire::Workq, address: ([127, 0, 0, 1], 9922).into() });
        let peer: Peer = "beanstalkd:[::1]:11300".parse().unwrap();
        assert!(peer.address.is_ipv6());
        let peer: Peer = "gearman:127.0.0.1:4730".parse().unwrap();
        assert_eq!(peer.wire, Wire::Gearman);
        assert!("workq:localhost:1".parse::<Peer>().is_ok());
    }

    #[test]
    fn other_machines_are_refused() {
        for address in ["192.0.2.1:9922", "0.0.0.0:9922", "[2001:db8::1]:1"] {
            let refusal = format!("workq:{address}").parse::<Peer>();
            assert!(matches!(refusal, Err(TargetError::NotLoopback(_))), "{address}");
        }
        assert!(matches!("workq:example.org:1".parse::<Peer>(), Err(TargetError::Address(_))));
        assert!(matches!("127.0.0.1:1".parse::<Peer>(), Err(TargetError::Form(_))));
    }
}
