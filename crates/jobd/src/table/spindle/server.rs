//! Where a Spindle server's native API is.

use std::fmt;

use crate::table::settings::Tls;

/// A Spindle server's native API.
#[derive(Clone, PartialEq, Eq)]
pub struct SpindleServer {
    /// Host name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// What stands in the URL behind the port, without a slash at its end.
    pub path: String,
    /// How its certificate is looked at, when the URL begins with `https:`.
    pub tls: Option<Tls>,
    /// `spindle_token`: sent as a bearer token.
    pub token: Option<String>,
    /// The worker's name in lease requests.
    pub worker: String,
}

/// A `spindle_url`, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpindleUrl {
    /// Whether it begins with `https:`.
    pub is_https: bool,
    /// Host name or address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// What stands behind the port, without a slash at its end.
    pub path: String,
}

impl SpindleUrl {
    /// The parts of `http[s]://HOST[:PORT][/PATH]`.
    ///
    /// # Errors
    /// What should stand there instead.
    pub fn parse(url: &str) -> Result<Self, String> {
        const EXAMPLE: &str = "such as http://127.0.0.1:7420";
        let Some((scheme, rest)) = url.split_once("://") else {
            return Err(format!("http:// or https:// in front of the host, {EXAMPLE}"));
        };
        let is_https = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err(format!("http:// or https:// at the beginning, {EXAMPLE}")),
        };
        if !rest.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("only ASCII letters, digits and signs, and no space".to_owned());
        }
        if rest.contains(['?', '#']) {
            return Err(format!("no ? and no # in it, {EXAMPLE}"));
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err("no user and no password in it; spindle_token is what is sent".to_owned());
        }
        let (host, port) = host_and_port(authority, if is_https { 443 } else { 80 })?;
        if host.is_empty() {
            return Err(format!("a host behind ://, {EXAMPLE}"));
        }
        let path = path.trim_end_matches('/').to_owned();
        Ok(Self { is_https, host: host.to_owned(), port, path })
    }
}

/// An IPv6 address stands in brackets, and has colons of its own.
fn host_and_port(authority: &str, default: u16) -> Result<(&str, u16), String> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']').ok_or("a ] behind the address that begins with [")?,
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let port = match port.strip_prefix(':') {
        Some(port) if port.contains(':') => {
            return Err("[ and ] around an IPv6 address, such as http://[::1]:7420".to_owned());
        }
        Some(port) => port.parse().ok().filter(|port| *port != 0),
        None if port.is_empty() => Some(default),
        None => None,
    };
    Ok((host, port.ok_or("a port from 1 to 65535 behind the host")?))
}

impl SpindleServer {
    /// `HOST:PORT` as a URL and the `Host` header write it.
    pub fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

impl fmt::Debug for SpindleServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart() {
        for (url, is_https, host, port, path) in [
            ("http://127.0.0.1:7420", false, "127.0.0.1", 7420, ""),
            ("http://[::1]:7420/", false, "::1", 7420, ""),
            ("http://[::1]", false, "::1", 80, ""),
            ("http://queue.example/spindle/", false, "queue.example", 80, "/spindle"),
            ("https://queue.example", true, "queue.example", 443, ""),
            ("HTTPS://[::1]:7443/a/b@c", true, "::1", 7443, "/a/b@c"),
        ] {
            let expected = SpindleUrl { is_https, host: host.into(), port, path: path.into() };
            assert_eq!(SpindleUrl::parse(url), Ok(expected), "{url}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_url_is_told() {
        for (wrong, expected) in [
            ("", "http:// or https:// in front of the host"),
            ("127.0.0.1:7420", "http:// or https:// in front of the host"),
            ("http:/a", "http:// or https:// in front of the host"),
            ("ftp://a:1", "http:// or https:// at the beginning"),
            ("://a:1", "http:// or https:// at the beginning"),
            ("http://", "a host behind ://"),
            ("http://:1", "a host behind ://"),
            ("http:///a", "a host behind ://"),
            ("http://a:b", "a port from 1 to 65535"),
            ("http://a:", "a port from 1 to 65535"),
            ("http://a:0", "a port from 1 to 65535"),
            ("http://a:65536", "a port from 1 to 65535"),
            ("http://[::1]7420", "a port from 1 to 65535"),
            ("http://[::1", "a ] behind"),
            ("http://::1:7420", "[ and ] around an IPv6 address"),
            ("http://a b", "no space"),
            ("http://ä", "only ASCII"),
            ("http://u:p@a:1", "no user and no password in it; spindle_token"),
            ("http://a/?x", "no ? and no #"),
            ("http://a#x", "no ? and no #"),
        ] {
            let error = SpindleUrl::parse(wrong).unwrap_err();
            assert!(error.contains(expected), "{wrong}: {error}");
        }
    }

    #[test]
    fn an_address_goes_back_into_the_header_it_came_from() {
        let mut server = SpindleServer {
            host: "::1".to_owned(),
            port: 7420,
            path: "/a".to_owned(),
            tls: None,
            token: Some("t".to_owned()),
            worker: "w".to_owned(),
        };
        assert_eq!(server.authority(), "[::1]:7420");
        assert_eq!(format!("{server:?}"), "http://[::1]:7420/a");
        server.tls = Some(Tls::default());
        assert_eq!(format!("{server:?}"), "https://[::1]:7420/a");
    }
}
