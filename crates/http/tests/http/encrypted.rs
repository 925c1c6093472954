//! The listener over TLS.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use spindle_http::listen::{HttpConfig, Limits};
use spindle_testkit::{Certificates, PATIENCE, TlsClient};
use spindle_tls::client::Identity;
use spindle_tls::{ListenerTls, ServerFiles, ServerTls};

use crate::listener::{LARGE, Served};

struct Secured {
    served: Served,
    certificates: Certificates,
    tls: Arc<ServerTls>,
}

impl Secured {
    fn new(limits: Limits, listener: fn(Arc<ServerTls>) -> ListenerTls) -> Secured {
        let certificates = Certificates::new();
        let tls = Arc::new(ServerTls::load(certificates.server_for_clients()).unwrap());
        let config = HttpConfig { threads: 2, limits, ..HttpConfig::default() };
        Secured { served: Served::with_tls(config, listener(tls.clone())), certificates, tls }
    }

    fn socket(&self) -> TcpStream {
        let stream = TcpStream::connect(self.served.handle.local_addr()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    fn client(&self) -> TlsClient {
        self.certificates.connect(self.socket(), None)
    }
}

/// What the server answers, its head and body, until it closes.
fn answer(mut stream: impl Read + Write, path: &str) -> Result<String, ErrorKind> {
    let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let _ = stream.write_all(head.as_bytes());
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map(|_| answer).map_err(|error| error.kind())
}

#[track_caller]
fn answers(stream: impl Read + Write, path: &str, body: &str) {
    let answer = answer(stream, path).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(answer.split_once("\r\n\r\n").unwrap().1, body);
}

#[test]
fn one_port_serves_plain_and_encrypted_clients() {
    let secured = Secured::new(Limits::default(), ListenerTls::Optional);
    answers(secured.socket(), "/name", "false None");
    answers(secured.client(), "/name", "true None");
    let large = answer(secured.client(), "/large").unwrap();
    assert_eq!(large.split_once("\r\n\r\n").unwrap().1.len(), LARGE);
}

#[test]
fn plain_requests_are_refused_in_words_where_tls_is_required() {
    let secured = Secured::new(Limits::default(), ListenerTls::Required);
    let refused = answer(secured.socket(), "/small").unwrap();
    assert!(refused.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{refused}");
    assert!(refused.contains("encrypted connections only"), "{refused}");
    answers(secured.client(), "/small", "small");
}

#[test]
fn clients_that_know_http_2_are_answered_in_http_1() {
    let secured = Secured::new(Limits::default(), ListenerTls::Required);
    let mut config = secured.certificates.trusting(None).config().unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut client = TlsClient::new(connection, secured.socket());
    client.conn.complete_io(&mut client.sock).unwrap();
    assert_eq!(client.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
    answers(client, "/small", "small");
}

#[test]
fn certificates_of_clients_are_verified_and_name_them() {
    let secured = Secured::new(Limits::default(), ListenerTls::Required);
    let certificates = &secured.certificates;
    let with = |identity| certificates.connect(secured.socket(), Some(identity));
    answers(with(certificates.client("mailer")), "/name", "true Some(\"mailer\")");
    let others = Certificates::new();
    let ServerFiles { certificate, key, .. } = certificates.server();
    let for_servers = Identity { certificate, key };
    let (old, early) = (certificates.expired_client("old"), certificates.early_client("new"));
    for wrong in [old, early, others.client("mailer"), for_servers] {
        assert_eq!(answer(with(wrong), "/name"), Err(ErrorKind::InvalidData), "an alert");
    }
    answers(secured.client(), "/small", "small");
}

#[test]
fn handshakes_that_stall_or_break_off_are_closed() {
    let handshake_time = Duration::from_millis(100);
    let secured =
        Secured::new(Limits { handshake_time, ..Limits::default() }, ListenerTls::Optional);
    let mut hello = Vec::new();
    secured.client().conn.write_tls(&mut hello).unwrap();
    for begun in [&b"\x16"[..], b"\x16\x03", &hello[..100], &hello] {
        for ends in [false, true] {
            let mut socket = secured.socket();
            socket.write_all(begun).unwrap();
            if ends {
                socket.shutdown(Shutdown::Write).unwrap();
            }
            // An alert or a hello, then the end, or a reset.
            let _ = socket.read_to_end(&mut Vec::new());
        }
    }
    secured.served.await_open(0);
    answers(secured.client(), "/small", "small");
}

#[test]
fn connections_that_say_nothing_are_closed_like_idle_ones() {
    let head_time = Duration::from_millis(100);
    let secured = Secured::new(Limits { head_time, ..Limits::default() }, ListenerTls::Optional);
    assert_eq!(secured.socket().read(&mut [0]).unwrap(), 0);
    let mut idle = secured.client();
    idle.conn.complete_io(&mut idle.sock).unwrap();
    assert!(idle.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::UnexpectedEof));
}

#[test]
fn a_flood_of_handshakes_leaves_the_others_their_turns() {
    let secured = Secured::new(Limits::default(), ListenerTls::Optional);
    let mut hello = Vec::new();
    secured.client().conn.write_tls(&mut hello).unwrap();
    let flood: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut socket = secured.socket();
            socket.write_all(&hello).unwrap();
            socket
        })
        .collect();
    answers(secured.socket(), "/small", "small");
    for mut socket in flood {
        let mut first = [0];
        socket.read_exact(&mut first).unwrap();
        assert_eq!(first, [0x16]);
    }
}

#[test]
fn a_new_certificate_is_shown_to_new_clients_and_open_connections_stay() {
    let secured = Secured::new(Limits::default(), ListenerTls::Required);
    let mut before = secured.client();
    before.conn.complete_io(&mut before.sock).unwrap();
    secured.certificates.renew_server();
    secured.tls.reload(SystemTime::now()).unwrap();
    let mut after = secured.client();
    after.conn.complete_io(&mut after.sock).unwrap();
    let shown = |client: &TlsClient| client.conn.peer_certificates().unwrap()[0].clone();
    assert_ne!(shown(&before), shown(&after));
    answers(before, "/small", "small");
    answers(after, "/small", "small");
}
