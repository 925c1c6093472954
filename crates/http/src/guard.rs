//! Who may come in: a web page of somebody else must not be able to use a server on loopback.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::problem::{Answered, Code, Problem};

/// What browsers say about where a request comes from.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The names by which a server may be called. Clones are the same.
#[derive(Clone, Debug)]
pub struct Names {
    listen: IpAddr,
    hosts: Arc<[String]>,
}

impl Names {
    /// The address it listens on, any loopback address, and `localhost`.
    pub fn new(listen: IpAddr) -> Names {
        Names { listen: listen.to_canonical(), hosts: Arc::default() }
    }

    /// Other names that are its own: those behind which a proxy or a name server shows it.
    #[must_use]
    pub fn with_hosts(self, hosts: impl IntoIterator<Item = String>) -> Names {
        Names { hosts: hosts.into_iter().collect(), ..self }
    }

    /// Rebinding a name to a loopback address takes a name: an address is what it says.
    fn has(&self, host: &str) -> bool {
        let name = without_port(host);
        if name.eq_ignore_ascii_case("localhost")
            || self.hosts.iter().any(|own| own.eq_ignore_ascii_case(name))
        {
            return true;
        }
        let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let ip = match bare {
            Some(inside) => inside.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
            None => name.parse().ok().filter(IpAddr::is_ipv4),
        };
        ip.map(|ip| ip.to_canonical())
            .is_some_and(|ip| ip.is_loopback() || ip == self.listen || self.listen.is_unspecified())
    }
}

/// Lets in what calls the server by a name of its own, and no writes of foreign pages.
pub(crate) async fn guard(State(names): State<Names>, request: Request, next: Next) -> Response {
    let checked = check(&request, &names);
    let mut response = match checked {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

fn check(request: &Request, names: &Names) -> Answered<()> {
    let host = host_of(request.uri(), request.headers())?;
    if !names.has(host) {
        let detail = format!("`{host}` is no name of this server; use its address, or localhost");
        return Err(Problem::new(Code::UnknownHost, detail));
    }
    let reads = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    if reads || is_own_page(request.headers(), host) {
        Ok(())
    } else {
        let detail = "the request comes from a page of another origin, which must not write here";
        Err(Problem::new(Code::ForeignOrigin, detail))
    }
}

fn host_of<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Answered<&'a str> {
    if let Some(authority) = uri.authority() {
        return Ok(authority.as_str());
    }
    let mut hosts = headers.get_all(header::HOST).iter();
    match (hosts.next().map(HeaderValue::to_str), hosts.next()) {
        (Some(Ok(host)), None) => Ok(host),
        _ => Err(Problem::new(Code::BadRequest, "the request needs one Host header")),
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Programs say nothing about where they come from; browsers always do.
fn is_own_page(headers: &HeaderMap, host: &str) -> bool {
    let same_origin = headers.get_all(header::ORIGIN).iter().all(|origin| {
        let origin = origin.to_str().unwrap_or_default();
        let rest = origin.strip_prefix("http://").or(origin.strip_prefix("https://"));
        rest.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
    });
    let same_site = headers
        .get_all(SEC_FETCH_SITE)
        .iter()
        .all(|site| matches!(site.as_bytes(), b"same-origin" | b"none"));
    same_origin && same_site
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_names_reach_the_server() {
        let names = Names::new("127.0.0.1".parse().unwrap());
        for host in
            ["localhost", "LOCALHOST:7420", "127.0.0.1", "127.3.2.1:1", "[::1]:7420", "[::1]"]
        {
            assert!(names.has(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "::1",
            "[::1",
            "[127.0.0.1]",
            "127.1",
            "0x7f000001",
            "2130706433",
            "[::2]:1",
        ] {
            assert!(!names.has(host), "{host}");
        }
        let other = Names::new("10.0.0.1".parse().unwrap());
        assert!(other.has("10.0.0.1:7420") && !other.has("10.0.0.2:7420"));
        let every = Names::new("0.0.0.0".parse().unwrap());
        assert!(every.has("10.0.0.2:7420") && !every.has("evil.example:7420"));
        let named = names.with_hosts(["Spindle.Example".to_owned()]);
        assert!(named.has("spindle.example:443") && named.has("localhost"));
        assert!(!named.has("other.spindle.example") && !named.has("example"));
    }

    #[test]
    fn pages_of_other_origins_are_told_by_their_headers() {
        let own = |pairs: &[(&'static str, &'static str)]| {
            let headers = pairs.iter().map(|(name, value)| {
                (HeaderName::from_static(name), HeaderValue::from_static(value))
            });
            is_own_page(&headers.collect(), "localhost:7420")
        };
        assert!(own(&[]));
        assert!(own(&[("origin", "http://localhost:7420"), ("sec-fetch-site", "same-origin")]));
        assert!(own(&[("sec-fetch-site", "none")]));
        for origin in
            ["null", "", "http://localhost:3000", "https://evil.example", "localhost:7420"]
        {
            assert!(!own(&[("origin", origin)]), "{origin}");
        }
        for site in ["cross-site", "same-site", ""] {
            assert!(!own(&[("sec-fetch-site", site)]), "{site}");
        }
    }
}
