//! A server that is one of several: answers wait while it does not lead, and connections come that others
//! have accepted.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[expect(dead_code, reason = "each test file uses a part of it")]
mod common;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering;

use common::{Client, one_reactor, serve};
use spindle_limits::{PlaceLimits, Places};
use spindle_net::{AdoptError, NetConfig};

/// Two ends of a connection that was accepted elsewhere.
fn accepted() -> (Client, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (Client::new(client), listener.accept().unwrap().0)
}

const ELSEWHERE: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 1, 2, 3)), 4711);

#[test]
fn nothing_is_answered_while_the_server_does_not_lead() {
    let served = serve(one_reactor());
    let mut client = served.client();
    client.asks("echo first", "first");
    served.toy.follows.store(true, Ordering::SeqCst);
    client.send("echo second\n");
    let mut other = served.client();
    other.send("gate 1 third\n");
    served.toy.until("both came", |seen| seen.opened == 2);
    served.toy.set_durable(1);
    let written = served.handle.counters().bytes_out.load(Ordering::Relaxed);
    served.toy.follows.store(false, Ordering::SeqCst);
    served.toy.set_durable(1);
    assert_eq!((client.line(), other.line()), ("second".to_owned(), "third".to_owned()));
    assert_eq!(written, "first\n".len() as u64);
}

#[test]
fn a_connection_that_was_accepted_elsewhere_is_served_with_its_clients_address() {
    let served = serve(NetConfig { reactors: 2, ..one_reactor() });
    for _ in 0..3 {
        let (mut client, stream) = accepted();
        served.handle.adopt("toy", stream, ELSEWHERE).unwrap();
        client.asks("echo hello", "hello");
    }
    assert!(served.toy.seen().peers.iter().all(|peer| peer.address == ELSEWHERE));
    let (mut client, stream) = accepted();
    assert_eq!(served.handle.adopt("none", stream, ELSEWHERE), Err(AdoptError::NoDoor));
    assert_eq!(client.rest(), "");
}

#[test]
fn limits_by_address_hold_for_the_clients_own_address() {
    let limits = PlaceLimits::with(100, None, Some(1));
    let served = serve(NetConfig { places: Places::new(limits), ..one_reactor() });
    let (mut first, stream) = accepted();
    served.handle.adopt("toy", stream, ELSEWHERE).unwrap();
    first.asks("echo in", "in");
    let (mut second, stream) = accepted();
    let refused = served.handle.adopt("toy", stream, ELSEWHERE);
    assert!(matches!(refused, Err(AdoptError::NoPlace(_))), "{refused:?}");
    assert_eq!(second.rest(), "");
    served.client().asks("echo another", "another");
}
