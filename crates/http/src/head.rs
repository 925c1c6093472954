//! How long the head of a request is.
//!
//! hyper refuses a head that its buffer does not hold, but reads up to twice as much into it: the
//! documented limit is checked here, to the byte. White space around values is not counted, because
//! hyper has dropped it: with that, a head may have twice as much.

use axum::http::Request;

/// The bytes of a request's head, with the empty line behind it, as clients write it: each header as
/// `Name: value`.
pub(crate) fn head_bytes<B>(request: &Request<B>) -> usize {
    let uri = request.uri();
    let target = uri.path_and_query().map_or(0, |path| path.as_str().len());
    let scheme = uri.scheme_str().map_or(0, |scheme| scheme.len() + "://".len());
    let authority = uri.authority().map_or(0, |authority| authority.as_str().len());
    let line = request.method().as_str().len() + scheme + authority + target;
    let fields = request.headers().iter();
    let fields = fields.map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len());
    line + "  HTTP/1.1\r\n".len() + fields.sum::<usize>() + "\r\n".len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_has_the_bytes_that_were_sent() {
        let request = Request::get("/a?b=c").header("Host", "localhost").header("X", "");
        let sent = "GET /a?b=c HTTP/1.1\r\nHost: localhost\r\nX: \r\n\r\n";
        assert_eq!(head_bytes(&request.body(()).unwrap()), sent.len());
        let request = Request::put("http://localhost:7420/a").body(()).unwrap();
        assert_eq!(head_bytes(&request), "PUT http://localhost:7420/a HTTP/1.1\r\n\r\n".len());
    }
}
