//! Doors over TLS.

#![expect(clippy::unwrap_used, reason = "tests, though clippy sees only helpers here")]

#[expect(dead_code, reason = "each test file uses a part of it")]
mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, SystemTime};

use common::{Client, Served, one_reactor, serve_with};
use rustls::version::{TLS12, TLS13};
use spindle_core::JobId;
use spindle_engine::door::LeaseRef;
use spindle_net::{Limits, NetConfig};
use spindle_testkit::{Certificates, PATIENCE, TlsClient, wait_until};
use spindle_tls::client::Identity;
use spindle_tls::{ListenerTls, ServerFiles, ServerTls};

struct Secured {
    served: Served,
    certificates: Certificates,
    tls: Arc<ServerTls>,
}

impl Secured {
    fn optional() -> Secured {
        Secured::with(one_reactor(), ListenerTls::Optional)
    }

    fn required() -> Secured {
        Secured::with(one_reactor(), ListenerTls::Required)
    }

    fn with(config: NetConfig, listener: fn(Arc<ServerTls>) -> ListenerTls) -> Secured {
        let certificates = Certificates::new();
        let tls = certificates.loaded();
        Secured { served: serve_with(config, listener(tls.clone())), certificates, tls }
    }

    /// Asks clients for certificates.
    fn for_clients() -> Secured {
        let certificates = Certificates::new();
        let tls = Arc::new(ServerTls::load(certificates.server_for_clients()).unwrap());
        let served = serve_with(one_reactor(), ListenerTls::Required(tls.clone()));
        Secured { served, certificates, tls }
    }

    fn socket(&self) -> TcpStream {
        let stream = TcpStream::connect(self.served.addr).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    fn client(&self) -> TlsClient {
        self.certificates.connect(self.socket(), None)
    }

    fn client_with(&self, identity: Identity) -> TlsClient {
        self.certificates.connect(self.socket(), Some(identity))
    }

    fn failed(&self) -> u64 {
        self.tls.handshakes().failed.load(Relaxed)
    }

    /// Another client is served, whatever has been done to the server.
    #[track_caller]
    fn still_serves(&self) {
        asks(&mut self.client(), "echo well", "well");
    }
}

fn line(client: &mut impl Read) -> String {
    let mut line = String::new();
    let mut byte = [0];
    while client.read(&mut byte).unwrap() == 1 && byte != *b"\n" {
        line.push(char::from(byte[0]));
    }
    line
}

#[track_caller]
fn asks(client: &mut (impl Read + Write), request: &str, answer: &str) {
    client.write_all(format!("{request}\n").as_bytes()).unwrap();
    assert_eq!(line(client), answer);
}

/// Whatever else the server says before it closes. An end that was not announced is an error.
fn rest(client: &mut TlsClient) -> Result<String, ErrorKind> {
    let mut rest = String::new();
    client.read_to_string(&mut rest).map(|_| rest).map_err(|error| error.kind())
}

/// Writes what rustls has to send. Returns how many bytes that were.
fn write_pending(client: &mut TlsClient) -> u64 {
    let mut pending = Vec::new();
    while client.conn.wants_write() {
        client.conn.write_tls(&mut pending).unwrap();
    }
    client.sock.write_all(&pending).unwrap();
    pending.len() as u64
}

/// Everything a client sends to open a connection and ask for something, in records as it makes
/// them, with the answers of a server that is not there left out: only a first flight.
fn client_hello(certificates: &Certificates, socket: TcpStream) -> Vec<u8> {
    let mut client = certificates.connect(socket, None);
    let mut hello = Vec::new();
    client.conn.write_tls(&mut hello).unwrap();
    hello
}

#[test]
fn one_port_serves_plain_and_encrypted_clients() {
    let secured = Secured::optional();
    let mut plain = secured.served.client();
    let mut encrypted = secured.client();
    for _ in 0..3 {
        plain.asks("echo plain", "plain");
        asks(&mut encrypted, "echo hidden", "hidden");
    }
    let peers = secured.served.toy.seen().peers.clone();
    let encrypted: Vec<_> = peers.iter().map(|peer| peer.encrypted).collect();
    assert_eq!(encrypted, [false, true]);
    assert!(peers.iter().all(|peer| peer.address.ip().is_loopback() && peer.certificate.is_none()));
}

#[test]
fn both_versions_of_tls_are_served() {
    let secured = Secured::required();
    for version in [&TLS12, &TLS13] {
        let mut client = secured.certificates.connect_by(secured.socket(), version);
        asks(&mut client, "echo hello", "hello");
        assert_eq!(client.conn.protocol_version(), Some(version.version));
    }
}

#[test]
fn a_session_is_opened_when_it_is_known_how_the_client_speaks() {
    let secured = Secured::optional();
    let silent = secured.socket();
    let mut shaking = secured.socket();
    shaking.write_all(&client_hello(&secured.certificates, secured.socket())).unwrap();
    shaking.read_exact(&mut [0; 5]).unwrap();
    secured.served.let_turn_pass();
    assert_eq!(secured.served.toy.seen().opened, 1, "of the client that let the turn pass");
    drop((silent, shaking));
    secured.still_serves();
}

#[test]
fn plain_bytes_are_refused_in_words_where_tls_is_required() {
    let secured = Secured::required();
    let mut plain = secured.served.client();
    plain.send("echo hello\n");
    assert_eq!(plain.rest(), "not in plain: echo hello\n");
    assert_eq!(secured.served.toy.seen().opened, 0);
    secured.still_serves();
}

#[test]
fn large_requests_and_answers_travel_both_ways() {
    let secured = Secured::optional();
    let mut client = secured.client();
    // Longer than a record, and than what is read at once.
    for size in [16_383, 16_384, 16_385, 60_000, 95_000] {
        let word = "y".repeat(size);
        asks(&mut client, &format!("echo {word}"), &word);
    }
    client.write_all(b"big 3000000\n").unwrap();
    assert_eq!(line(&mut client).len(), 2_999_999);
    asks(&mut client, "echo after", "after");
}

#[test]
fn records_of_one_byte_and_sockets_that_give_one_byte_at_a_time_are_served() {
    let secured = Secured::required();
    let mut client = secured.client();
    for byte in b"echo hello\n" {
        client.write_all(&[*byte]).unwrap();
    }
    assert_eq!(line(&mut client), "hello");
    // The handshake and a request, each byte in a packet of its own.
    let mut slow = secured.client();
    slow.conn.writer().write_all(b"echo slowly\n").unwrap();
    while slow.conn.is_handshaking() || slow.conn.wants_write() {
        let mut bytes = Vec::new();
        slow.conn.write_tls(&mut bytes).unwrap();
        for byte in bytes {
            slow.sock.write_all(&[byte]).unwrap();
        }
        if slow.conn.is_handshaking() && slow.conn.wants_read() {
            slow.conn.read_tls(&mut slow.sock).unwrap();
            slow.conn.process_new_packets().unwrap();
        }
    }
    assert_eq!(line(&mut slow), "slowly");
}

#[test]
fn a_handshake_that_is_cut_anywhere_leaves_nothing() {
    let secured = Secured::required();
    let hello = client_hello(&secured.certificates, secured.socket());
    for cut in 0..hello.len() {
        let mut socket = secured.socket();
        socket.write_all(&hello[..cut]).unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        // An alert, or a reset: no answer to a hello that is not whole.
        let _ = socket.read_to_end(&mut answer);
        assert!(answer.first() != Some(&0x16), "{cut}");
    }
    secured.still_serves();
    let open = || secured.served.handle.counters().open.load(Relaxed);
    wait_until("the connections to be gone", || open() == 0);
    assert_eq!(secured.served.toy.seen().opened, 1);
}

#[test]
fn garbage_behind_the_first_bytes_of_a_handshake_gets_an_alert() {
    let secured = Secured::optional();
    for garbage in [
        &b"\x16\x03"[..],
        b"\x16\x03\x01\x00\x05hello",
        b"\x16\x03\x01\xff\xff",
        b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc",
        b"\x16\x16\x16\x16\x16\x16\x16\x16",
        &[0x16; 5000],
    ] {
        let mut socket = secured.socket();
        socket.write_all(garbage).unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        assert!(answer.is_empty() || answer[0] == 0x15, "{garbage:?}: {answer:?}");
    }
    let whole = b"\x16\x03\x01\x00\x08\x01\x00\x00\x04junk";
    let mut socket = secured.socket();
    socket.write_all(whole).unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap();
    assert_eq!(answer.first(), Some(&0x15), "an alert");
    wait_until("the failures to be counted", || secured.failed() == 7);
    assert_eq!(secured.served.toy.seen().opened, 0);
    secured.still_serves();
}

#[test]
fn a_broken_record_ends_its_connection_with_an_alert() {
    let secured = Secured::required();
    let mut client = secured.client();
    asks(&mut client, "echo hello", "hello");
    client.sock.write_all(b"\x17\x03\x03\x00\x20aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa").unwrap();
    assert_eq!(rest(&mut client), Err(ErrorKind::InvalidData), "an alert");
    secured.served.toy.until("the end", |seen| seen.closed.len() == 1);
    secured.still_serves();
}

fn with_limits(change: impl FnOnce(&mut Limits)) -> NetConfig {
    let mut config = one_reactor();
    change(&mut config.limits);
    config
}

#[test]
fn a_handshake_that_stalls_is_closed() {
    let config = with_limits(|limits| limits.handshake_timeout = Duration::from_millis(50));
    let secured = Secured::with(config, ListenerTls::Required);
    let hello = client_hello(&secured.certificates, secured.socket());
    for begun in [&hello[..1], &hello[..hello.len() - 1], &hello[..]] {
        let mut socket = secured.socket();
        socket.write_all(begun).unwrap();
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
    }
    wait_until("the failures to be counted", || secured.failed() == 3);
    secured.still_serves();
}

#[test]
fn a_handshake_is_not_prolonged_by_a_byte_now_and_then() {
    let config = with_limits(|limits| limits.handshake_timeout = Duration::from_millis(100));
    let secured = Secured::with(config, ListenerTls::Required);
    let hello = client_hello(&secured.certificates, secured.socket());
    let mut socket = secured.socket();
    // Far more bytes than fit into the time, each of them sooner than the limit.
    let ended = hello.iter().any(|byte| {
        thread::sleep(Duration::from_millis(10));
        socket.write_all(&[*byte]).is_err()
    });
    assert!(ended, "{} bytes of a hello were taken", hello.len());
}

#[test]
fn who_does_not_encrypt_in_time_is_closed_where_it_has_to() {
    let config = with_limits(|limits| limits.login_timeout = Duration::from_secs(1));
    let secured = Secured::with(config, ListenerTls::Required);
    // With its handshake a client has done what the door asks for. A busy machine may take too long.
    let mut done = loop {
        let mut client = secured.client();
        if client.write_all(b"echo hello\n").is_ok() {
            assert_eq!(line(&mut client), "hello");
            break client;
        }
    };
    let failed = secured.failed();
    let mut silent = secured.socket();
    assert_eq!(silent.read(&mut [0]).unwrap(), 0);
    assert_eq!(secured.failed(), failed, "it had begun no handshake");
    let mut shaking = secured.socket();
    shaking.write_all(b"\x16").unwrap();
    assert_eq!(shaking.read(&mut [0]).unwrap(), 0);
    assert_eq!(secured.failed(), failed + 1);
    asks(&mut done, "echo well", "well");
}

#[test]
fn who_is_silent_where_it_may_choose_is_closed_only_if_the_door_asks_who_it_is() {
    let config = with_limits(|limits| limits.login_timeout = Duration::from_millis(100));
    let secured = Secured::with(config, ListenerTls::Optional);
    let mut free = secured.client();
    asks(&mut free, "echo one", "one");
    let asks_who = &secured.served.toy.asks_who;
    asks_who.store(true, Relaxed);
    let mut silent = secured.socket();
    assert_eq!(silent.read(&mut [0]).unwrap(), 0);
    asks_who.store(false, Relaxed);
    let mut stays = secured.socket();
    thread::sleep(Duration::from_millis(250));
    stays.write_all(b"echo late\n").unwrap();
    assert_eq!(line(&mut stays), "late");
    asks(&mut free, "echo two", "two");
}

#[test]
fn a_record_that_is_begun_and_not_ended_is_an_unfinished_request() {
    let config = with_limits(|limits| limits.partial_request_timeout = Duration::from_millis(50));
    let secured = Secured::with(config, ListenerTls::Required);
    let mut client = secured.client();
    asks(&mut client, "echo hello", "hello");
    client.sock.write_all(b"\x17\x03\x03\x00").unwrap();
    assert_eq!(rest(&mut client), Err(ErrorKind::UnexpectedEof));
    // One between two requests is idle, and stays.
    let mut idle = secured.client();
    asks(&mut idle, "echo one", "one");
    thread::sleep(Duration::from_millis(150));
    asks(&mut idle, "echo two", "two");
}

#[test]
fn an_orderly_end_is_announced_by_both_sides() {
    let secured = Secured::required();
    let mut quits = secured.client();
    quits.write_all(b"quit\n").unwrap();
    assert_eq!(rest(&mut quits).unwrap(), "bye\n");
    let mut ends = secured.client();
    ends.write_all(b"echo last\n").unwrap();
    ends.conn.send_close_notify();
    assert_eq!(rest(&mut ends).unwrap(), "last\n");
    secured.served.toy.until("both ends", |seen| seen.closed.len() == 2);
}

#[test]
fn an_end_that_nobody_announces_is_the_end_of_input() {
    let secured = Secured::required();
    let mut client = secured.client();
    client.write_all(b"echo last\n").unwrap();
    client.sock.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(&mut client).unwrap(), "last\n");
    secured.served.toy.until("the end", |seen| seen.closed.len() == 1);
}

#[test]
fn leases_whose_records_never_left_are_named_when_the_connection_goes() {
    let secured = Secured::required();
    let lease = |job| LeaseRef { job: JobId(job), attempt: 1 };
    let mut client = secured.client();
    client.write_all(b"lease 0 1\nlease 5 2\n").unwrap();
    assert_eq!(line(&mut client), "job");
    client.write_all(b"die\n").unwrap();
    secured
        .served
        .toy
        .until("the end", |seen| seen.closed.iter().any(|(_, unsent)| *unsent == [lease(2)]));
}

#[test]
fn every_lease_has_either_arrived_or_is_named_as_unsent() {
    let secured = Secured::required();
    let mut client = secured.client();
    let counters = secured.served.handle.counters();
    let (sent, read) = (|| counters.bytes_out.load(Relaxed), || counters.bytes_in.load(Relaxed));
    let mut written = 0;
    while client.conn.is_handshaking() {
        written += write_pending(&mut client);
        client.conn.read_tls(&mut client.sock).unwrap();
        client.conn.process_new_packets().unwrap();
    }
    // More than the buffers of the sockets take.
    let lines: String = (0..4000).map(|job| format!("big 5000\nlease 0 {job}\n")).collect();
    client.conn.set_buffer_limit(None);
    client.conn.writer().write_all(lines.as_bytes()).unwrap();
    written += write_pending(&mut client);
    // A socket that is closed with bytes unread would lose what is on its way to the client.
    wait_until("the requests to be read", || read() == written);
    wait_until("a part to be sent", || sent() > 1_000_000);
    // Most likely the sockets are full then, with a part of a record in them. What is asserted holds
    // at any time.
    wait_until("the sockets to be full", || {
        let before = sent();
        thread::sleep(Duration::from_millis(50));
        sent() == before
    });
    secured.served.handle.abort();
    secured.served.toy.until("the end", |seen| seen.closed.len() == 1);
    let mut arrived = Vec::new();
    // It was not announced.
    assert!(client.read_to_end(&mut arrived).is_err());
    let arrived = arrived.split(|byte| *byte == b'\n').filter(|line| *line == b"job").count();
    let seen = secured.served.toy.seen();
    let unsent = &seen.closed[0].1;
    let leased = seen.requests / 2;
    assert!(arrived > 0);
    assert_eq!(arrived + unsent.len(), leased, "{unsent:?}");
}

#[test]
fn a_client_that_reads_nothing_is_not_read_from_and_closed() {
    let config = with_limits(|limits| {
        limits.write_stall_timeout = Duration::from_millis(100);
        limits.outbox_bytes_max = 100_000;
    });
    let secured = Secured::with(config, ListenerTls::Required);
    let mut client = secured.client();
    let sent = (0..200).take_while(|_| client.write_all(b"big 1000000\n").is_ok()).count();
    assert!(sent > 0);
    secured.served.toy.until("the end", |seen| seen.closed.len() == 1);
    let pending = secured.served.toy.seen().pending_bytes_max;
    assert!(pending < 2_000_000, "{pending} bytes were kept for it");
    secured.still_serves();
}

/// The server's alert ends the connection. In TLS 1.3 the client thinks itself connected before.
#[track_caller]
fn is_refused(client: &mut TlsClient) {
    let _ = client.write_all(b"echo hello\n");
    assert_eq!(rest(client), Err(ErrorKind::InvalidData), "an alert");
}

#[test]
fn certificates_of_clients_are_verified_and_name_them() {
    let secured = Secured::for_clients();
    let certificates = &secured.certificates;
    asks(&mut secured.client_with(certificates.client("mailer")), "echo hello", "hello");
    asks(&mut secured.client(), "echo hello", "hello");
    let peers = secured.served.toy.seen().peers.clone();
    let names: Vec<_> = peers.iter().map(|peer| peer.certificate.as_deref()).collect();
    assert_eq!(names, [Some("mailer"), None]);
    let ServerFiles { certificate, key, .. } = certificates.server();
    let for_servers = Identity { certificate, key };
    for wrong in [certificates.expired_client("old"), certificates.early_client("new"), for_servers]
    {
        is_refused(&mut secured.client_with(wrong));
    }
    assert_eq!(secured.served.toy.seen().opened, 2);
}

#[test]
fn a_client_of_another_authority_is_refused() {
    let secured = Secured::for_clients();
    let others = Certificates::new();
    let mut client = secured.client_with(others.client("mailer"));
    is_refused(&mut client);
    wait_until("the failure to be counted", || secured.failed() == 1);
    assert_eq!(secured.served.toy.seen().opened, 0);
}

#[test]
fn a_new_certificate_is_shown_to_new_clients_and_open_connections_stay() {
    let secured = Secured::required();
    let shown = |client: &TlsClient| client.conn.peer_certificates().unwrap()[0].clone();
    let mut before = secured.client();
    asks(&mut before, "echo one", "one");
    secured.certificates.renew_server();
    secured.tls.reload(SystemTime::now()).unwrap();
    let mut after = secured.client();
    asks(&mut after, "echo two", "two");
    asks(&mut before, "echo three", "three");
    assert_ne!(shown(&before), shown(&after));
}

#[test]
fn a_flood_of_handshakes_leaves_the_others_their_turns() {
    let secured = Secured::optional();
    let hello = client_hello(&secured.certificates, secured.socket());
    let flood: Vec<TcpStream> = (0..200)
        .map(|_| {
            let mut socket = secured.socket();
            socket.write_all(&hello).unwrap();
            socket
        })
        .collect();
    let mut plain = Client::new(TcpStream::connect(secured.served.addr).unwrap());
    plain.asks("echo between", "between");
    // All of them get their hello, too.
    for mut socket in flood {
        let mut answer = [0];
        socket.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [0x16]);
    }
}

#[test]
fn a_server_that_stops_ends_encrypted_connections_in_order() {
    let secured = Secured::required();
    let mut idle = secured.client();
    asks(&mut idle, "echo hello", "hello");
    let mut waits = secured.client();
    waits.write_all(b"wait\n").unwrap();
    secured.served.toy.until("the wait", |seen| seen.waits.len() == 1);
    let mut shaking = secured.socket();
    shaking.write_all(b"\x16").unwrap();
    let reader = thread::spawn(move || (rest(&mut idle), rest(&mut waits)));
    assert!(secured.served.handle.shutdown(PATIENCE));
    assert_eq!(reader.join().unwrap(), (Ok(String::new()), Ok("timeout\n".to_owned())));
}
