//! Clients that come to a follower, and reach the leader.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use parking_lot::Mutex;
use spindle_cluster::{
    Admit, Arriving, Carrier, HeldDoor, Leadership, Node, NodeOptions, NodeTls, Passage, Reply,
    Role, Threshold,
};
use spindle_engine::{Options, SystemClock};
use spindle_log::SharedLog;
use spindle_testkit::shared_log::{SharedLogHandle, SharedMemoryLog};
use spindle_testkit::{Certificates, PATIENCE, wait_until};
use spindle_tls::ListenerTls;
use spindle_tls::client::Trust;

/// A door that says to each line who sent it, and to which door.
struct Echo;

impl Admit for Echo {
    fn admit(&self, door: &str, stream: TcpStream, client: Arriving) {
        let (door, client) = (door.to_owned(), client.address());
        stream.set_nonblocking(false).unwrap();
        std::thread::spawn(move || {
            let mut lines = BufReader::new(stream.try_clone().unwrap());
            let mut line = String::new();
            while lines.read_line(&mut line).is_ok_and(|count| count > 0) {
                let answer = format!("{door} {client} {line}");
                if (&stream).write_all(answer.as_bytes()).is_err() {
                    return;
                }
                line.clear();
            }
        });
    }
}

struct Server {
    node: Node,
    passage: Passage,
    threshold: Threshold,
    _carrier: Carrier,
    /// Where clients of its door come.
    door: SocketAddr,
    cluster: SocketAddr,
    log: Arc<Mutex<Option<Arc<SharedLogHandle>>>>,
}

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

impl Server {
    fn start(shared: &SharedMemoryLog, name: &str) -> Server {
        Server::with_tls(shared, name, NodeTls::default(), |cluster| cluster)
    }

    /// `reached` is where others reach its cluster's address.
    fn with_tls(
        shared: &SharedMemoryLog,
        name: &str,
        tls: NodeTls,
        reached: impl FnOnce(SocketAddr) -> SocketAddr,
    ) -> Server {
        let ((doors, door), (others, cluster)) = (listener(), listener());
        let log = Arc::<Mutex<Option<Arc<SharedLogHandle>>>>::default();
        let (shared, opened) = (shared.clone(), Arc::clone(&log));
        let node = Node::start(NodeOptions {
            tls,
            shard: None,
            name: name.to_owned(),
            advertise: Some(reached(cluster).to_string()),
            version: "test".to_owned(),
            clock: Arc::new(SystemClock::new()),
            open: Box::new(move || {
                let handle = shared.open();
                *opened.lock() = Some(Arc::clone(&handle));
                Ok(handle as Arc<dyn SharedLog>)
            }),
        })
        .unwrap();
        let own = name.to_owned();
        let answer = move |path: &str| {
            let body = own.clone();
            let content_type = "text/plain";
            (path == "/readyz").then_some(Reply { status: "200 OK", content_type, body })
        };
        let held = HeldDoor { name: "echo", listener: doors, answer: Some(Arc::new(answer)) };
        let (carrier, threshold) = (Carrier::start().unwrap(), Threshold::of(&node));
        carrier.let_in(others, &[&threshold]).unwrap();
        let passage = Passage::start(&carrier, &threshold, vec![held], 100).unwrap();
        Server { node, passage, threshold, _carrier: carrier, door, cluster, log }
    }

    /// Follows until it leads, and opens its doors.
    fn lead(&self) -> Leadership {
        let leadership = self.node.follow(&Options::default()).unwrap();
        self.passage.end_following();
        self.threshold.open(Arc::new(Echo));
        leadership
    }

    /// Follows on a thread until it is stopped.
    fn follow(&self) {
        let node = self.node.clone();
        std::thread::spawn(move || drop(node.follow(&Options::default())));
    }

    /// Is heard by the others from now on, and hears them.
    fn knows(&self, leader: &str) {
        wait_until("the leader is heard", || self.node.status().leader.as_deref() == Some(leader));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.node.stop();
    }
}

fn connect(to: SocketAddr) -> TcpStream {
    let client = TcpStream::connect(to).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client
}

fn ask(client: &TcpStream, line: &str) -> String {
    let mut to = client;
    to.write_all(format!("{line}\n").as_bytes()).unwrap();
    let mut answer = String::new();
    BufReader::new(client).read_line(&mut answer).unwrap();
    answer.trim_end().to_owned()
}

#[test]
fn a_client_of_a_follower_is_served_by_the_leader_that_knows_its_address() {
    let shared = SharedMemoryLog::new();
    let (one, two) = (Server::start(&shared, "one"), Server::start(&shared, "two"));
    let leadership = one.lead();
    two.follow();
    two.knows("one");
    let client = connect(two.door);
    let own = client.local_addr().unwrap();
    assert_eq!(ask(&client, "hello"), format!("echo {own} hello"));
    assert_eq!(ask(&client, "again"), format!("echo {own} again"));

    // The follower answers itself what is about it.
    let mut http = connect(two.door);
    http.write_all(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    http.read_to_string(&mut answer).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\ntwo"),
        "{answer}"
    );
    let other = connect(two.door);
    assert!(ask(&other, "GET /other HTTP/1.1").ends_with(" GET /other HTTP/1.1"));

    // When the leader is lost, so are connections to it.
    one.threshold.close();
    drop(leadership);
    let mut rest = Vec::new();
    assert_eq!((&client).read_to_end(&mut rest).unwrap_or_default(), 0);
}

/// Carries one connection to an address, and keeps what is sent there.
struct Tap {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Tap {
    fn before(to: SocketAddr) -> Tap {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, seen) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<u8>>>::default());
        let kept = Arc::clone(&seen);
        std::thread::spawn(move || {
            let (mut near, _) = listener.accept().unwrap();
            let far = TcpStream::connect(to).unwrap();
            let (mut back, mut from) = (near.try_clone().unwrap(), far.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut from, &mut back));
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = near.read(&mut bytes) {
                kept.lock().extend_from_slice(&bytes[..count]);
                (&far).write_all(&bytes[..count]).unwrap();
            }
        });
        Tap { address, seen }
    }

    fn has_seen(&self, text: &str) -> bool {
        self.seen.lock().windows(text.len()).any(|part| part == text.as_bytes())
    }
}

#[test]
fn with_tls_nobody_on_the_way_sees_what_nodes_say() {
    for is_encrypted in [false, true] {
        let certificates = Certificates::new();
        let tls = || match is_encrypted {
            false => NodeTls::default(),
            true => {
                let listener = ListenerTls::Required(certificates.loaded());
                NodeTls::new(listener, Trust::File(certificates.ca())).unwrap()
            }
        };
        let (shared, mut tap) = (SharedMemoryLog::new(), None);
        let one = Server::with_tls(&shared, "one", tls(), |cluster| {
            tap.insert(Tap::before(cluster)).address
        });
        let two = Server::with_tls(&shared, "two", tls(), |cluster| cluster);
        let leadership = one.lead();
        two.follow();
        two.knows("one");
        let client = connect(two.door);
        let own = client.local_addr().unwrap();
        assert_eq!(ask(&client, "a word"), format!("echo {own} a word"));
        let tap = tap.unwrap();
        assert_eq!(tap.has_seen("a word"), !is_encrypted);
        assert_eq!(tap.has_seen("SPNODE"), !is_encrypted);
        drop(leadership);
    }
}

#[test]
fn a_leader_that_steps_down_serves_clients_of_others_to_the_end() {
    let shared = SharedMemoryLog::new();
    let (one, two) = (Server::start(&shared, "one"), Server::start(&shared, "two"));
    let leadership = one.lead();
    two.follow();
    two.knows("one");
    let client = connect(two.door);
    let own = client.local_addr().unwrap();
    assert_eq!(ask(&client, "hello"), format!("echo {own} hello"));

    one.threshold.close();
    leadership.begin_step_down();
    wait_until("that is heard", || {
        let nodes = two.node.status().nodes;
        nodes.iter().any(|it| it.node == "one" && it.role == Role::SteppingDown)
    });
    assert_eq!(ask(&client, "under way"), format!("echo {own} under way"));
    leadership.stepped_down();
    let mut rest = Vec::new();
    assert_eq!((&client).read_to_end(&mut rest).unwrap_or_default(), 0);
}

#[test]
fn who_comes_before_somebody_leads_waits() {
    let shared = SharedMemoryLog::new();
    let one = Server::start(&shared, "one");
    let client = connect(one.door);
    (&client).write_all(b"early\n").unwrap();
    let leadership = one.lead();
    let mut answer = String::new();
    BufReader::new(&client).read_line(&mut answer).unwrap();
    assert_eq!(answer, format!("echo {} early\n", client.local_addr().unwrap()));
    assert_eq!(one.node.role(), Role::Leader);
    drop(leadership);
}

#[test]
fn strangers_at_the_clusters_address_get_nothing() {
    let shared = SharedMemoryLog::new();
    let one = Server::start(&shared, "one");
    let leadership = one.lead();
    let body = br#"{"key":"guessed","door":"echo","client":"10.0.0.1:1"}"#;
    let mut guessed = b"SPNODE\x01".to_vec();
    guessed.extend_from_slice(&u16::try_from(body.len()).unwrap().to_be_bytes());
    guessed.extend_from_slice(body);
    for said in
        [&guessed[..], b"GET / HTTP/1.1\r\n\r\n", b"SPNODE\x02\x00\x00", b"SPNODE\x01\xff\xff"]
    {
        let mut stranger = connect(one.cluster);
        stranger.write_all(said).unwrap();
        let mut answer = Vec::new();
        assert_eq!(stranger.read_to_end(&mut answer).unwrap_or_default(), 0);
    }
    assert!(one.log.lock().is_some());
    drop(leadership);
}
