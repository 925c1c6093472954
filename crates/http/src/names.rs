//! The names a server answers to. A web page can bend a name of its own to the server's address
//! (DNS rebinding) and would then be of the same origin; it cannot choose what its browser sends as
//! `Host`. So a request whose `Host` is no name of the server is refused.

use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;
use std::sync::Arc;

use thiserror::Error;

/// A name in DNS has at most so many bytes.
const NAME_BYTES_MAX: usize = 253;
/// Between two dots at most so many.
const LABEL_BYTES_MAX: usize = 63;

/// A name or an address by which a server is called, in the one form that names are compared in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HostName {
    /// A name, in small letters and without the dot of the root.
    Dns(String),
    /// An address.
    Ip(IpAddr),
}

/// Why a text is no name of a host.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum HostNameError {
    /// There is nothing.
    #[error("write a name, such as build-server, or `*` for every name")]
    Empty,
    /// There is more than a name.
    #[error("write the name alone, without scheme and path, such as build-server")]
    Url,
    /// A pattern.
    #[error("`*` stands for every name and stands alone; list the names one by one")]
    Pattern,
    /// It is not written as clients send it.
    #[error("browsers send names in ASCII: write the form that begins with xn--")]
    NotAscii,
    /// It can be no name.
    #[error("a name is letters, digits, `-` and `_`, with dots between; an IPv6 address is in []")]
    Malformed,
}

impl HostName {
    /// Reads a `Host` header or the authority of a URL: the name, and the port if one is given.
    pub(crate) fn with_port(text: &str) -> Option<(HostName, Option<u16>)> {
        let (name, port) = match text.rsplit_once(':') {
            // The colons of an address stand in brackets.
            Some((name, port)) if !port.ends_with(']') => (name, port),
            _ => (text, ""),
        };
        let port = match port {
            "" => None,
            digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                Some(digits.parse().ok()?)
            }
            _ => return None,
        };
        Some((HostName::alone(name)?, port))
    }

    fn alone(name: &str) -> Option<HostName> {
        if let Some(rest) = name.strip_prefix('[') {
            let inside: Ipv6Addr = rest.strip_suffix(']')?.parse().ok()?;
            return Some(HostName::Ip(IpAddr::V6(inside).to_canonical()));
        }
        let name = name.strip_suffix('.').unwrap_or(name);
        if let Ok(ip) = name.parse::<IpAddr>() {
            return ip.is_ipv4().then_some(HostName::Ip(ip));
        }
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let label =
            |label: &str| (1..=LABEL_BYTES_MAX).contains(&label.len()) && label.bytes().all(letter);
        let is_name = name.len() <= NAME_BYTES_MAX && name.split('.').all(label);
        is_name.then(|| HostName::Dns(name.to_ascii_lowercase()))
    }
}

/// Reads a name as people write it in settings. A port may follow it, and is not compared.
impl FromStr for HostName {
    type Err = HostNameError;

    fn from_str(text: &str) -> Result<HostName, HostNameError> {
        if text.is_empty() {
            return Err(HostNameError::Empty);
        }
        if let Ok(ip) = text.parse::<IpAddr>() {
            return Ok(HostName::Ip(ip.to_canonical()));
        }
        match HostName::with_port(text) {
            Some((name, _)) => Ok(name),
            None if text.contains('/') => Err(HostNameError::Url),
            None if text.contains('*') => Err(HostNameError::Pattern),
            None if !text.is_ascii() => Err(HostNameError::NotAscii),
            None => Err(HostNameError::Malformed),
        }
    }
}

/// Which names a setting lists.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HostNames {
    /// These, besides the server's address, loopback addresses and `localhost`.
    Listed(Vec<HostName>),
    /// Every name.
    Every,
}

impl Default for HostNames {
    fn default() -> HostNames {
        HostNames::Listed(Vec::new())
    }
}

impl HostNames {
    /// Adds one name, or `*` for every name.
    pub fn add(&mut self, text: &str) -> Result<(), HostNameError> {
        if text == "*" {
            *self = HostNames::Every;
            return Ok(());
        }
        let name = text.parse()?;
        if let HostNames::Listed(names) = self {
            names.push(name);
        }
        Ok(())
    }
}

/// The names by which a server may be called. Clones are the same.
#[derive(Clone, Debug)]
pub struct Names {
    listen: IpAddr,
    hosts: Arc<HostNames>,
}

impl Names {
    /// The address it listens on, any loopback address, and `localhost`.
    pub fn new(listen: IpAddr) -> Names {
        Names { listen: listen.to_canonical(), hosts: Arc::default() }
    }

    /// Adds other names of the server: those by which a proxy or a name server makes it known.
    #[must_use]
    pub fn with_hosts(self, hosts: HostNames) -> Names {
        Names { hosts: Arc::new(hosts), ..self }
    }

    /// Whether a `Host` header, or what stands in its place, names this server. Rebinding needs a name: an
    /// address always means itself.
    pub(crate) fn has(&self, host: &str) -> bool {
        let HostNames::Listed(hosts) = &*self.hosts else { return true };
        let Some((name, _)) = HostName::with_port(host) else { return false };
        let own = match &name {
            HostName::Dns(name) => name == "localhost",
            HostName::Ip(ip) => {
                ip.is_loopback() || *ip == self.listen || self.listen.is_unspecified()
            }
        };
        own || hosts.contains(&name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(listen: &str, hosts: &[&str]) -> Names {
        let mut listed = HostNames::default();
        for host in hosts {
            listed.add(host).unwrap();
        }
        Names::new(listen.parse().unwrap()).with_hosts(listed)
    }

    #[test]
    fn only_its_own_names_reach_the_server() {
        let plain = names("127.0.0.1", &[]);
        for host in [
            "localhost",
            "LOCALHOST:7420",
            "localhost.",
            "localhost.:7420",
            "127.0.0.1",
            "127.3.2.1:1",
            "[::1]:7420",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "localhost:",
        ] {
            assert!(plain.has(host), "{host}");
        }
        for host in [
            "",
            ":7420",
            ".",
            "evil.example",
            "localhost.evil.example",
            "localhost..",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "::1",
            "[::1",
            "[::1]]",
            "[127.0.0.1]",
            "127.1",
            "0x7f000001",
            "2130706433",
            "[::2]:1",
            "localhost:x",
            "localhost:65536",
            "localhost@evil.example",
            "localhost:7420@evil.example",
            "localhost, evil.example",
        ] {
            assert!(!plain.has(host), "{host}");
        }
        let other = names("10.0.0.1", &[]);
        assert!(other.has("10.0.0.1:7420") && !other.has("10.0.0.2:7420"));
        let every = names("0.0.0.0", &[]);
        assert!(every.has("10.0.0.2:7420") && !every.has("evil.example:7420"));
    }

    #[test]
    fn names_that_are_listed_are_its_own_however_they_are_written() {
        let listed =
            ["Spindle.Example", "build-server:7420", "dot.example.", "[2001:db8::1]", "10.9.8.7"];
        let named = names("127.0.0.1", &listed);
        for host in [
            "spindle.example",
            "SPINDLE.EXAMPLE:443",
            "spindle.example.:80",
            "build-server",
            "build-server:1",
            "dot.example",
            "[2001:DB8:0::1]:7420",
            "10.9.8.7",
            "localhost",
        ] {
            assert!(named.has(host), "{host}");
        }
        for host in [
            "other.spindle.example",
            "example",
            "spindle.example.evil",
            "10.9.8.6",
            "[2001:db8::2]",
        ] {
            assert!(!named.has(host), "{host}");
        }
        let every = names("127.0.0.1", &["one.example", "*", "two.example"]);
        for host in ["one.example", "evil.example:7420", "10.0.0.1", "", "no name"] {
            assert!(every.has(host), "{host}");
        }
    }

    #[test]
    fn what_is_no_name_is_refused_with_what_to_write() {
        for (text, error) in [
            ("", HostNameError::Empty),
            ("http://x", HostNameError::Url),
            ("x/", HostNameError::Url),
            ("*.x", HostNameError::Pattern),
            ("x*", HostNameError::Pattern),
            ("b\u{fc}cher.example", HostNameError::NotAscii),
            (" ", HostNameError::Malformed),
            ("two words", HostNameError::Malformed),
            ("a..b", HostNameError::Malformed),
            (".", HostNameError::Malformed),
            ("x:port", HostNameError::Malformed),
            ("x:65536", HostNameError::Malformed),
            ("[::1", HostNameError::Malformed),
            ("user@x", HostNameError::Malformed),
        ] {
            assert_eq!(HostNames::default().add(text), Err(error), "{text}");
        }
        let label = "a".repeat(LABEL_BYTES_MAX);
        assert!(label.parse::<HostName>().is_ok());
        assert!(format!("{label}a").parse::<HostName>().is_err());
        let longest = [&label[..], &label, &label, &label[2..]].join(".");
        assert_eq!(longest.len(), NAME_BYTES_MAX);
        assert!(longest.parse::<HostName>().is_ok());
        assert!(format!("{longest}a").parse::<HostName>().is_err());
        let bare: HostName = "2001:db8::1".parse().unwrap();
        assert_eq!(Ok(bare), "[2001:db8::1]".parse());
    }
}
