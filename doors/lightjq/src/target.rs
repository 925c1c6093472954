//! Where jobs are pushed to, and where they must not be.

use std::net::IpAddr;

use axum::http::Uri;
use axum::http::uri::{Authority, PathAndQuery, Scheme};
use thiserror::Error;

/// The address of a worker's own server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Target {
    /// As it was given, without a slash at its end.
    url: String,
    /// Where a job is posted.
    uri: Uri,
}

/// Why an address is not taken.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub(crate) enum TargetError {
    /// Not a URL of this kind.
    #[error("`url` must be like http://127.0.0.1:9000, with a path or without")]
    Malformed,
    /// A server that posts to any address could be used against others.
    #[error(
        "`url` must be at the address you call from, {0}; the server's setting \
         lightjq-allow-urls lifts that"
    )]
    NotOwn(IpAddr),
}

impl Target {
    /// Reads an address; where `peer` is given, only the peer's own is taken.
    pub fn read(url: &str, peer: Option<IpAddr>) -> Result<Target, TargetError> {
        let url = url.trim_end_matches('/');
        let given: Uri = url.parse().map_err(|_| TargetError::Malformed)?;
        let authority = given.authority().filter(|authority| !authority.as_str().contains('@'));
        let authority = authority.ok_or(TargetError::Malformed)?;
        let is_port_wrong = authority.host() != authority.as_str() && authority.port().is_none();
        let is_plain = given.scheme() == Some(&Scheme::HTTP) && given.query().is_none();
        if !is_plain || is_port_wrong || url.contains('#') {
            return Err(TargetError::Malformed);
        }
        if let Some(peer) = peer.map(|peer| peer.to_canonical())
            && !is_at(authority, peer)
        {
            return Err(TargetError::NotOwn(peer));
        }
        let path = format!("{}/worker-job", given.path().trim_end_matches('/'));
        let mut parts = given.into_parts();
        parts.path_and_query =
            Some(PathAndQuery::try_from(path).map_err(|_| TargetError::Malformed)?);
        let uri = Uri::from_parts(parts).map_err(|_| TargetError::Malformed)?;
        Ok(Target { url: url.to_owned(), uri })
    }

    /// As it was given.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where a job is posted.
    pub fn uri(&self) -> &Uri {
        &self.uri
    }
}

/// Only an IP address is accepted, because this server does not control how names are resolved;
/// `localhost` is accepted if the peer is this machine.
fn is_at(authority: &Authority, peer: IpAddr) -> bool {
    let host = authority.host();
    if host.eq_ignore_ascii_case("localhost") {
        return peer.is_loopback();
    }
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    bare.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical() == peer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str, peer: &str) -> Result<String, TargetError> {
        Target::read(url, Some(peer.parse().unwrap())).map(|target| target.uri().to_string())
    }

    #[test]
    fn jobs_are_posted_below_the_peers_own_address() {
        for (url, uri) in [
            ("http://127.0.0.1:9000", "http://127.0.0.1:9000/worker-job"),
            ("http://127.0.0.1:9000/", "http://127.0.0.1:9000/worker-job"),
            ("http://127.0.0.1:9000/a/b/", "http://127.0.0.1:9000/a/b/worker-job"),
            ("http://localhost:9000", "http://localhost:9000/worker-job"),
            ("http://127.0.0.1", "http://127.0.0.1/worker-job"),
        ] {
            assert_eq!(read(url, "127.0.0.1"), Ok(uri.to_owned()), "{url}");
        }
        let uri = Ok("http://[::1]:9000/worker-job".to_owned());
        assert_eq!(read("http://[::1]:9000", "::1"), uri);
        assert!(read("http://127.0.0.1:9000", "::ffff:127.0.0.1").is_ok());
    }

    #[test]
    fn addresses_of_others_are_refused_and_taken_only_where_that_is_allowed() {
        for url in [
            "http://10.0.0.1:9000",
            "http://127.0.0.2:9000",
            "http://evil.example",
            "http://127.0.0.1.evil.example",
            "http://2130706433",
            "http://0x7f000001",
            "http://[::1]:9000",
        ] {
            let peer: IpAddr = "127.0.0.1".parse().unwrap();
            assert_eq!(read(url, "127.0.0.1"), Err(TargetError::NotOwn(peer)), "{url}");
            assert!(Target::read(url, None).is_ok(), "{url}");
        }
        assert!(read("http://localhost", "10.0.0.1").is_err());
    }

    #[test]
    fn what_is_no_plain_http_address_is_malformed() {
        for url in [
            "",
            "127.0.0.1:9000",
            "/worker",
            "https://127.0.0.1:9000",
            "ftp://127.0.0.1",
            "http://user@127.0.0.1",
            "http://127.0.0.1/?a=b",
            "http://127.0.0.1/#a",
            "http://",
            "http://127.0.0.1:99999999",
            "http://a b",
        ] {
            assert_eq!(Target::read(url, None), Err(TargetError::Malformed), "{url}");
        }
    }
}
