//! Which requests are let in: a foreign web page must not be able to use a server on loopback.

use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version, header};
use axum::response::Response;

use crate::names::{HostName, Names};
use crate::problem::{Answered, Code, Problem};

/// What browsers say about where a request comes from.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Adds headers that every answer has: its type is not guessed, and caches do not store it.
pub(crate) fn closed_to_others(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Lets in requests that call the server by one of its names, except writes of foreign pages.
pub(crate) fn check(request: &Request, names: &Names) -> Answered<()> {
    let host = host_of(request.version(), request.uri(), request.headers())?;
    if let Some(host) = host
        && !names.has(host)
    {
        return Err(unknown(host));
    }
    let reads = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    if reads || is_own_page(request.headers(), host) {
        Ok(())
    } else {
        let detail = format!(
            "the request comes from a page of another origin, which must not write here; this \
             server was called `{}`: a proxy in front of it must pass on the Host it got",
            host.unwrap_or_default()
        );
        Err(Problem::new(Code::ForeignOrigin, detail))
    }
}

fn unknown(host: &str) -> Problem {
    let advice = match HostName::with_port(host) {
        Some((HostName::Dns(name), _)) => format!("--http-host {name}"),
        Some((HostName::Ip(ip), _)) => format!("--http-host {ip}"),
        None => "--http-host NAME".to_owned(),
    };
    let detail = format!(
        "this server does not answer to the name `{host}`: call it by its address or as \
         localhost, or start it with `{advice}`"
    );
    Problem::new(Code::UnknownHost, detail)
}

/// The name by which the server is called. A target in absolute form takes precedence over the Host
/// header, which must still be there once (RFC 9112, 3.2); what a proxy says in other headers proves
/// nothing. `HTTP/1.0` needs no Host: load balancers check servers that way, and no browser uses it.
fn host_of<'a>(
    version: Version,
    uri: &'a Uri,
    headers: &'a HeaderMap,
) -> Answered<Option<&'a str>> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = match (hosts.next().map(HeaderValue::to_str), hosts.next()) {
        (Some(Ok(host)), None) => Some(host),
        (None, None) if version < Version::HTTP_11 => None,
        _ => return Err(Problem::new(Code::BadRequest, "the request needs one Host header")),
    };
    Ok(uri.authority().map(Authority::as_str).or(host))
}

/// Whether the request comes from the server's own pages, or from a program: browsers always say which page
/// a request comes from, programs do not.
fn is_own_page(headers: &HeaderMap, host: Option<&str>) -> bool {
    let same_origin = headers
        .get_all(header::ORIGIN)
        .iter()
        .all(|origin| host.is_some_and(|host| is_own_origin(origin.as_bytes(), host)));
    let same_site = headers
        .get_all(SEC_FETCH_SITE)
        .iter()
        .all(|site| matches!(site.as_bytes(), b"same-origin" | b"none"));
    same_origin && same_site
}

/// Whether an origin is that of the server's own pages under this name. The scheme may differ, since a
/// proxy may speak TLS in front of the server. Name and port must be the same; a port that is left out
/// is that of the origin's scheme.
fn is_own_origin(origin: &[u8], host: &str) -> bool {
    let Ok(origin) = std::str::from_utf8(origin) else { return false };
    let (authority, usual) = if let Some(rest) = origin.strip_prefix("http://") {
        (rest, 80)
    } else if let Some(rest) = origin.strip_prefix("https://") {
        (rest, 443)
    } else {
        return false;
    };
    let (Some((from, from_port)), Some((own, own_port))) =
        (HostName::with_port(authority), HostName::with_port(host))
    else {
        return false;
    };
    from == own && from_port.unwrap_or(usual) == own_port.unwrap_or(usual)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(pairs: &[(&'static str, &'static str)], host: Option<&str>) -> bool {
        let headers = pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        is_own_page(&headers.collect(), host)
    }

    #[test]
    fn pages_of_other_origins_are_told_by_their_headers() {
        let own = |pairs: &[(&'static str, &'static str)]| own(pairs, Some("localhost:7420"));
        assert!(own(&[]));
        assert!(own(&[("origin", "http://localhost:7420"), ("sec-fetch-site", "same-origin")]));
        assert!(own(&[("sec-fetch-site", "none")]));
        for origin in [
            "null",
            "",
            "http://localhost:3000",
            "http://localhost",
            "https://evil.example",
            "localhost:7420",
            "file://localhost:7420",
            "http://localhost:7420/",
            "http://localhost:7420@evil.example",
            "http://localhost:7420.evil.example",
        ] {
            assert!(!own(&[("origin", origin)]), "{origin}");
        }
        for site in ["cross-site", "same-site", ""] {
            assert!(!own(&[("sec-fetch-site", site)]), "{site}");
        }
        let two = [("origin", "http://localhost:7420"), ("origin", "http://evil.example")];
        assert!(!own(&two));
    }

    #[test]
    fn a_request_without_a_host_has_no_origin_of_its_own() {
        assert!(own(&[], None));
        assert!(!own(&[("origin", "http://localhost:7420")], None));
        assert!(!own(&[("sec-fetch-site", "cross-site")], None));
    }

    #[test]
    fn pages_that_a_proxy_shows_over_tls_are_its_own() {
        for (origin, host, is_own) in [
            ("https://build-server", "build-server", true),
            ("https://BUILD-server", "build-server.", true),
            ("https://build-server", "build-server:443", true),
            ("https://build-server:8443", "build-server:8443", true),
            ("http://build-server", "build-server", true),
            ("http://build-server", "build-server:80", true),
            ("http://[2001:db8::1]:7420", "[2001:DB8::1]:7420", true),
            // The proxy left the port out: another site may be there.
            ("https://build-server:8443", "build-server", false),
            // The proxy did not pass on what it was called.
            ("https://build-server", "127.0.0.1:7420", false),
            ("https://build-server", "build-server:7420", false),
            ("http://build-server:7420", "build-server:443", false),
            ("https://other", "build-server", false),
        ] {
            assert_eq!(own(&[("origin", origin)], Some(host)), is_own, "{origin} {host}");
        }
    }
}
