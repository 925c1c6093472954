//! Where a door listens.

use std::net::{SocketAddr, ToSocketAddrs};

/// Reads `off`, `ADDRESS:PORT` or `HOST:PORT`. `None` is off.
pub fn parse_listen(text: &str) -> Result<Option<SocketAddr>, String> {
    if text == "off" {
        return Ok(None);
    }
    if let Ok(addr) = text.parse() {
        return Ok(Some(addr));
    }
    let Some((host, port)) = text.rsplit_once(':') else {
        return Err("write ADDRESS:PORT, such as 127.0.0.1:9922, or off".to_owned());
    };
    if host.is_empty() {
        return Err(format!("write the address too: 127.0.0.1:{port}, or 0.0.0.0:{port} for all"));
    }
    if port.parse::<u16>().is_err() {
        return Err(format!("`{port}` is no port, use 0 to 65535"));
    }
    let mut addrs = text.to_socket_addrs().map_err(|error| format!("{host}: {error}"))?;
    addrs.next().map(Some).ok_or_else(|| format!("{host} has no address"))
}

/// Whom an address lets in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loopback {
    /// Only programs of this machine.
    Yes,
    /// Others too.
    No,
}

/// Whether only this machine can reach an address.
pub fn loopback(addr: SocketAddr) -> Loopback {
    if addr.ip().to_canonical().is_loopback() { Loopback::Yes } else { Loopback::No }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_in_every_usual_form() {
        assert_eq!(parse_listen("off"), Ok(None));
        for text in ["127.0.0.1:0", "[::1]:9922", "0.0.0.0:1", "localhost:9922"] {
            assert!(matches!(parse_listen(text), Ok(Some(_))), "{text}");
        }
        for text in ["", "9922", ":9922", "127.0.0.1", "127.0.0.1:65536", "127.0.0.1:x", "no one:1"]
        {
            assert!(parse_listen(text).is_err(), "{text}");
        }
    }

    #[test]
    fn only_loopback_counts_as_loopback() {
        for (text, is) in [
            ("127.0.0.1:1", Loopback::Yes),
            ("127.9.9.9:1", Loopback::Yes),
            ("[::1]:1", Loopback::Yes),
            ("[::ffff:127.0.0.1]:1", Loopback::Yes),
            ("0.0.0.0:1", Loopback::No),
            ("[::]:1", Loopback::No),
            ("10.0.0.1:1", Loopback::No),
            ("[::ffff:10.0.0.1]:1", Loopback::No),
        ] {
            assert_eq!(loopback(text.parse().unwrap()), is, "{text}");
        }
    }
}
