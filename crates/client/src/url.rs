//! The URL under which a server's HTTP door is reached.

use std::{fmt, sync::Arc};

use hyper::{Uri, header::HeaderValue, http::uri::Scheme};
use rustls::ClientConfig;
use spindle_access::Token;
use spindle_tls::{FileError, client::ClientFiles};

/// Where an HTTP door is: scheme, host, port, and the path that a proxy puts before its own paths.
#[derive(Debug, Clone)]
pub struct BaseUrl {
    /// Without a slash at its end.
    text: String,
    is_https: bool,
    tls: Option<Arc<ClientConfig>>,
    token: Option<Token>,
}

impl BaseUrl {
    /// Reads a URL. The error says what is wrong with it and how to write it.
    pub fn parse(url: &str) -> Result<Self, String> {
        let Some((scheme, rest)) = url.split_once("://") else {
            return Err(match checked("http", url.trim_start_matches('/')) {
                Ok(meant) => format!("`{url}` has no scheme: write {meant}"),
                Err(_) => no_url(url),
            });
        };
        // Nothing that may be a password is shown.
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        if authority.contains('@') {
            let message = "a URL has no user name and no password, a token says who you are: leave \
                           out what stands before the @";
            return Err(message.to_owned());
        }
        let scheme = scheme.to_ascii_lowercase();
        if scheme != "http" && scheme != "https" {
            return Err(match checked("http", rest) {
                Ok(meant) => format!("`{url}` is neither http nor https: write {meant}"),
                Err(()) => no_url(url),
            });
        }
        if let Some(mark) = rest.find(['?', '#']) {
            let kept = rest.get(..mark).unwrap_or_default();
            return Err(format!(
                "`{url}` has a query or a fragment: write {scheme}://{kept}; each request adds \
                 its own path and query"
            ));
        }
        let text = checked(&scheme, rest).map_err(|()| no_url(url))?;
        Ok(Self { text, is_https: scheme == "https", tls: None, token: None })
    }

    /// With the token that identifies the client.
    pub fn with_token(self, token: Option<Token>) -> Self {
        Self { token, ..self }
    }

    /// The header with which requests identify the client.
    pub(crate) fn authorization(&self) -> Option<HeaderValue> {
        bearer(self.token.as_ref()?)
    }

    /// Encrypts with these files, which are read for https only.
    pub fn with_files(mut self, files: &ClientFiles) -> Result<Self, FileError> {
        if self.is_https {
            let mut config = files.config()?;
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
            self.tls = Some(Arc::new(config));
        }
        Ok(self)
    }

    /// Whether the connection is encrypted.
    pub fn is_https(&self) -> bool {
        self.is_https
    }

    /// The path that a proxy puts before the server's own paths; mostly there is none.
    pub fn prefix(&self) -> &str {
        let rest = self.text.split_once("://").map_or("", |(_, rest)| rest);
        rest.find('/').and_then(|slash| rest.get(slash..)).unwrap_or_default()
    }

    /// The same for people, with the port even if the URL did not name it.
    pub fn with_port(&self) -> String {
        let port = if self.is_https { 443 } else { 80 };
        match self.text.parse::<Uri>() {
            Ok(uri) if uri.port().is_none() => format!("{self} (port {port})"),
            _ => self.text.clone(),
        }
    }

    /// The same with the other scheme.
    pub fn with_other_scheme(&self) -> String {
        let rest = self.text.split_once("://").map_or("", |(_, rest)| rest);
        format!("{}://{rest}", if self.is_https { "http" } else { "https" })
    }

    /// What connections are encrypted with; none over plain HTTP.
    pub(crate) fn tls(&self) -> Option<&Arc<ClientConfig>> {
        self.tls.as_ref()
    }

    /// The host as it is looked up, without the brackets of an IPv6 address, and the port.
    pub(crate) fn host_and_port(&self) -> (&str, u16) {
        let rest = self.text.split_once("://").map_or("", |(_, rest)| rest);
        let authority = rest.split('/').next().unwrap_or_default();
        let default = if self.is_https { 443 } else { 80 };
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port.parse().unwrap_or(default)),
            _ => (authority, default),
        };
        (host.trim_start_matches('[').trim_end_matches(']'), port)
    }

    /// What the `Host` field of a request says.
    pub(crate) fn authority(&self) -> &str {
        let rest = self.text.split_once("://").map_or("", |(_, rest)| rest);
        rest.split('/').next().unwrap_or_default()
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The header with which requests present this token.
pub(crate) fn bearer(token: &Token) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(format!("Bearer {}", token.reveal())).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// `http://host:port/prefix`, if the text has this form.
fn checked(scheme: &str, rest: &str) -> Result<String, ()> {
    let text = format!("{scheme}://{}", rest.trim_end_matches('/'));
    let uri: Uri = text.parse().map_err(|_| ())?;
    let authority = uri.authority().ok_or(())?;
    let has_bad_port =
        authority.as_str().len() > authority.host().len() && uri.port_u16().is_none();
    let is_known = uri.scheme().is_some_and(|known| [Scheme::HTTP, Scheme::HTTPS].contains(known));
    if authority.host().is_empty() || has_bad_port || uri.query().is_some() || !is_known {
        return Err(());
    }
    Ok(text)
}

fn no_url(url: &str) -> String {
    format!("`{url}` is no URL of a server: write it as http://127.0.0.1:7420")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scheme_host_port_and_prefix_are_taken() {
        for (url, text, prefix) in [
            ("http://127.0.0.1:7420", "http://127.0.0.1:7420", ""),
            ("http://127.0.0.1:7420/", "http://127.0.0.1:7420", ""),
            ("HTTPS://jobs.example", "https://jobs.example", ""),
            ("http://[::1]:1", "http://[::1]:1", ""),
            ("http://localhost/", "http://localhost", ""),
            ("https://host:8443/jobs/spindle//", "https://host:8443/jobs/spindle", "/jobs/spindle"),
        ] {
            let base = BaseUrl::parse(url).unwrap();
            assert_eq!((base.to_string().as_str(), base.prefix()), (text, prefix));
            assert_eq!(base.is_https(), text.starts_with("https"));
        }
    }

    #[test]
    fn the_host_and_the_port_are_those_to_connect_to() {
        let parts = |url: &str| {
            let base = BaseUrl::parse(url).unwrap();
            let (host, port) = base.host_and_port();
            (host.to_owned(), port, base.authority().to_owned())
        };
        assert_eq!(parts("http://[::1]:9/x"), ("::1".to_owned(), 9, "[::1]:9".to_owned()));
        assert_eq!(parts("https://[::1]"), ("::1".to_owned(), 443, "[::1]".to_owned()));
        assert_eq!(parts("http://h"), ("h".to_owned(), 80, "h".to_owned()));
        assert_eq!(parts("http://h:7420"), ("h".to_owned(), 7420, "h:7420".to_owned()));
    }

    #[test]
    fn a_port_that_nobody_named_is_told_to_people() {
        let message = |url: &str| BaseUrl::parse(url).unwrap().with_port();
        assert_eq!(message("http://h/x"), "http://h/x (port 80)");
        assert_eq!(message("https://h"), "https://h (port 443)");
        assert_eq!(message("http://[::1]:80"), "http://[::1]:80");
    }

    #[test]
    fn the_other_scheme_is_the_same_place() {
        let other = |url: &str| BaseUrl::parse(url).unwrap().with_other_scheme();
        assert_eq!(other("http://h:1/x"), "https://h:1/x");
        assert_eq!(other("https://h:1"), "http://h:1");
    }

    #[track_caller]
    fn refused(url: &str, part: &str) {
        let message = BaseUrl::parse(url).unwrap_err();
        assert!(message.contains(part), "{url}: {message}");
        assert!(!message.contains('\n') && !message.contains("secret"), "{url}: {message}");
    }

    #[test]
    fn what_will_not_do_is_told_with_what_would() {
        refused("localhost:7420", "write http://localhost:7420");
        refused("//localhost:7420", "write http://localhost:7420");
        refused("127.0.0.1:7420/jobs/", "write http://127.0.0.1:7420/jobs");
        refused("ftp://127.0.0.1:7420", "neither http nor https");
        refused("http://127.0.0.1:7420/?a=b", "write http://127.0.0.1:7420/;");
        refused("http://127.0.0.1:7420#top", "query or a fragment");
        refused("https://me:secret@127.0.0.1:7420", "leave out what stands before the @");
        refused("ftp://me:secret@127.0.0.1", "leave out what stands before the @");
        let unreadable = [
            "",
            "http://",
            "http:///x",
            "http://:7420",
            "http://a:b",
            "http://a:65536",
            "http://a:",
        ];
        for url in unreadable.into_iter().chain(["http://a b", "http://a/b c", "://", "?"]) {
            refused(url, "http://127.0.0.1:7420");
        }
    }
}
