//! The client that an address stands for.

use std::net::{IpAddr, Ipv6Addr};

/// The client for which connections and requests from an address are counted. None for an address
/// of this machine, because each has many clients behind it. An IPv4 address that is written as
/// IPv6 is the IPv4 address; any other IPv6 address stands for its /64 network, all of which one
/// client may have.
pub fn client_at(address: IpAddr) -> Option<IpAddr> {
    let address = address.to_canonical();
    if address.is_loopback() {
        return None;
    }
    Some(match address {
        IpAddr::V6(address) => {
            let network = u128::from(address) >> HOST_BITS << HOST_BITS;
            IpAddr::V6(Ipv6Addr::from(network))
        }
        address => address,
    })
}

/// The bits of an IPv6 address that the owner of its network gives out.
const HOST_BITS: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_machine_are_nobody_and_a_network_of_ipv6_is_one_client() {
        let client = |text: &str| client_at(text.parse().unwrap()).map(|it| it.to_string());
        for local in ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"] {
            assert_eq!(client(local), None, "{local}");
        }
        for (address, expected) in [
            ("192.0.2.1", "192.0.2.1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("2001:db8::1", "2001:db8::"),
            ("2001:db8::ffff:0:0:2", "2001:db8::"),
            ("2001:db8:0:1::1", "2001:db8:0:1::"),
            ("::2", "::"),
        ] {
            assert_eq!(client(address).as_deref(), Some(expected), "{address}");
        }
    }
}
