//! A request as it came, and the requests to shards that are made from it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, header};
use bytes::Bytes;
use spindle_engine::Peer;
use spindle_http::{Answered, BodyError, BodyLimits, Problem, Visitor, read_body, text_of};

use super::shards::{connection_words, remove_hop_by_hop};
use crate::{Placement, Shard};

/// The parameter by which a request names its shard. Doors do not know it, so the router removes it.
const SHARD: &str = "shard";

/// A client's request without its body.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub method: Method,
    /// As it came, percent-encoded.
    pub path: String,
    /// What stands behind the question mark, as it came, without the shard; empty if there is none.
    pub query: String,
    /// Without headers that are about the client's connection.
    headers: HeaderMap,
    /// Who asks.
    pub peer: Peer,
    /// The shard that the request names.
    pub shard: Option<Shard>,
}

impl Head {
    /// Reads what a request asks.
    pub fn of(request: &Request<Body>, placement: &Placement) -> Answered<Head> {
        let peer = request.extensions().get::<Peer>().cloned();
        let mut peer = peer
            .unwrap_or_else(|| Peer::plain(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0)));
        if let Some(Visitor(login)) = request.extensions().get() {
            peer.page_of = Some(login.digest().into());
        }
        let uri = request.uri();
        let (shard, query) = shard_of(uri.query().unwrap_or_default(), placement)?;
        let headers = headers_of(request);
        let (method, path) = (request.method().clone(), uri.path().to_owned());
        Ok(Head { method, path, query, headers, peer, shard })
    }

    /// A header that is text.
    pub fn header(&self, name: &HeaderName) -> Option<&str> {
        text_of(&self.headers, name)
    }

    /// The values of a parameter of the query, decoded.
    pub fn params<'a>(&'a self, name: &'a str) -> impl Iterator<Item = Vec<u8>> + 'a {
        let pairs = form_urlencoded::parse(self.query.as_bytes());
        pairs.filter(move |(key, _)| key == name).map(|(_, value)| value.into_owned().into_bytes())
    }

    /// The same request, with this body as it comes.
    pub fn with_body(&self, body: Body) -> Request<Body> {
        self.request(self.method.clone(), &self.target(&self.query), body)
    }

    /// The same request with a body that was read, perhaps with another one than came.
    pub fn with_bytes(&self, bytes: Bytes) -> Request<Body> {
        self.with_query_and_bytes(&self.query, bytes)
    }

    /// The same with another query.
    pub fn with_query(&self, query: &str) -> Request<Body> {
        self.with_query_and_bytes(query, Bytes::new())
    }

    /// The same with another query and a body.
    pub fn with_query_and_bytes(&self, query: &str, bytes: Bytes) -> Request<Body> {
        let mut request = self.request(self.method.clone(), &self.target(query), Body::from(bytes));
        request.headers_mut().remove(header::CONTENT_LENGTH);
        request
    }

    /// Another request of the same client.
    pub fn other(&self, method: Method, target: &str, bytes: Bytes) -> Request<Body> {
        let mut request = self.request(method, target, Body::from(bytes));
        let headers = request.headers_mut();
        headers.remove(header::CONTENT_LENGTH);
        for condition in CONDITIONS {
            headers.remove(condition);
        }
        request
    }

    /// The same head with another query.
    pub fn asking(&self, query: String) -> Head {
        Head { query, ..self.clone() }
    }

    /// Without the headers that set conditions.
    pub fn unconditional(&self) -> Head {
        let mut head = self.clone();
        for condition in CONDITIONS {
            head.headers.remove(condition);
        }
        head
    }

    /// With another value of a header, or none.
    pub fn with_header(&self, name: HeaderName, value: Option<HeaderValue>) -> Head {
        let mut head = self.clone();
        head.headers.remove(&name);
        if let Some(value) = value {
            head.headers.insert(name, value);
        }
        head
    }

    fn target(&self, query: &str) -> String {
        match query {
            "" => self.path.clone(),
            query => format!("{}?{query}", self.path),
        }
    }

    fn request(&self, method: Method, target: &str, body: Body) -> Request<Body> {
        let mut request = Request::new(body);
        *request.method_mut() = method;
        // The target was part of a valid one, or is made of letters and digits.
        *request.uri_mut() = target.parse().unwrap_or_else(|_| Uri::from_static("/"));
        *request.headers_mut() = self.headers.clone();
        request
    }
}

const CONDITIONS: [HeaderName; 2] = [header::IF_MATCH, header::IF_NONE_MATCH];

/// The shard that a query names, and the rest of it.
fn shard_of(query: &str, placement: &Placement) -> Answered<(Option<Shard>, String)> {
    let mut named = None;
    let mut rest = Vec::new();
    for pair in query.split('&') {
        match form_urlencoded::parse(pair.as_bytes()).next() {
            Some((key, value)) if key == SHARD => {
                let shard = value.parse().ok().map(Shard).filter(|shard| placement.has(*shard));
                let shard = shard.filter(|shard| named.is_none_or(|named| named == *shard));
                named = Some(shard.ok_or_else(|| no_such_shard(placement))?);
            }
            _ => rest.push(pair),
        }
    }
    Ok((named, rest.join("&")))
}

fn no_such_shard(placement: &Placement) -> Problem {
    let last = placement.shards().last().unwrap_or(Shard::FIRST);
    Problem::out_of_range(format!("shard is the number of one shard, 0 to {last}"))
}

fn headers_of(request: &Request<Body>) -> HeaderMap {
    let mut headers = request.headers().clone();
    let of_connection = connection_words(&headers);
    remove_hop_by_hop(&mut headers, &of_connection);
    // The header was answered when the body was asked for.
    headers.remove(header::EXPECT);
    // A target in absolute form takes precedence over the header (RFC 9112, 3.2.2).
    let authority = request.uri().authority();
    let named = authority.and_then(|name| HeaderValue::from_str(name.as_str()).ok());
    if let Some(host) = named {
        headers.insert(header::HOST, host);
    }
    // Clients of HTTP/1.0 need not say it.
    headers.entry(header::HOST).or_insert(HeaderValue::from_static("localhost"));
    headers
}

/// A request, with its body still to come.
pub(super) struct Asked {
    pub head: Head,
    request: Request<Body>,
}

impl Asked {
    /// # Errors
    ///
    /// It names a shard that is not there, or says that its body is too large.
    pub fn new(
        request: Request<Body>,
        placement: &Placement,
        limits: BodyLimits,
    ) -> Answered<Asked> {
        let head = Head::of(&request, placement)?;
        let announced = text_of(request.headers(), &header::CONTENT_LENGTH);
        let announced = announced.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        if announced > limits.bytes_max as u64 {
            // A shard that refuses it unread would close a connection that further requests could use.
            return Err(BodyError::TooLarge { bytes_max: limits.bytes_max }.into());
        }
        Ok(Asked { head, request })
    }

    /// The request as it is to be sent on, whose body comes as the client sends it.
    pub fn into_streamed(self) -> (Head, Request<Body>) {
        let request = self.head.with_body(self.request.into_body());
        (self.head, request)
    }

    /// Reads the body.
    pub async fn read(self, limits: BodyLimits) -> Answered<(Head, Bytes)> {
        let bytes = read_body(self.request, limits).await?;
        Ok((self.head, bytes))
    }
}
