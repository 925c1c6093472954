//! A toy door of text lines, and a client for it.
//!
//! `echo X` answers X; `count` answers how many requests came before it; `gate N X` answers X once
//! N is durable; `lease N J` hands out job J behind gate N; `add N` answers ok once a commit has
//! made N durable; `big N` answers N bytes; `wait` and `run` wait for the test to answer (at
//! shutdown `wait` gives up at once, `run` at the last moment); `answered-and-gone` is answered a
//! lease by the engine in the moment its connection breaks; `work` makes the client one that works
//! and is silent meanwhile; `swallow` takes everything that follows without an answer; `quit` says
//! bye and closes; `die` aborts.

#![expect(clippy::unwrap_used, reason = "tests, though clippy sees only helpers here")]

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use bytes::BytesMut;
use spindle_core::JobId;
use spindle_engine::{
    Answer, Committer, ConnectionId, Delivery, Door, Flow, Gate, Gated, LeaseRef, Mailbox, Outbox,
    Peer, Session, Ticket, Unread,
};
use spindle_net::{NetConfig, Server, ServerHandle, bind};
use spindle_testkit::PATIENCE;
use spindle_tls::ListenerTls;

pub const INPUT_BYTES_MAX: usize = 100_000;

#[derive(Default)]
pub struct Seen {
    pub opened: usize,
    pub peers: Vec<Peer>,
    pub requests: usize,
    /// (connection, ticket, mailbox), in the order of asking.
    pub waits: Vec<(ConnectionId, Ticket, Arc<dyn Mailbox>)>,
    pub closed: Vec<(ConnectionId, Vec<LeaseRef>)>,
    pub shutdowns: Vec<bool>,
    pub mailboxes: Vec<Arc<dyn Mailbox>>,
    /// Commits begun.
    pub commits: usize,
    /// Commits take until this is false again.
    pub disk_stalls: bool,
    pub input_bytes_max: usize,
    pub pending_bytes_max: usize,
}

#[derive(Default)]
pub struct Toy {
    durable: AtomicU64,
    /// What is durable after the next commit.
    decided: AtomicU64,
    /// What the newest commit has taken.
    on_its_way: AtomicU64,
    /// It does not lead: nothing is to be answered. A test that changes this also sets the durable position, so
    /// that the change is noticed.
    pub follows: AtomicBool,
    /// Its clients have to say who they are. Those that came before this was set count as known.
    pub asks_who: AtomicBool,
    seen: Mutex<Seen>,
    changed: Condvar,
}

impl Toy {
    pub fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }

    fn note(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.seen());
        self.changed.notify_all();
    }

    /// Waits for something to be seen.
    pub fn until(&self, what: &str, condition: impl Fn(&Seen) -> bool) {
        let (_seen, timeout) = self
            .changed
            .wait_timeout_while(self.seen(), PATIENCE, |seen| !condition(seen))
            .unwrap();
        assert!(!timeout.timed_out(), "waited in vain for: {what}");
    }

    /// The disk stalls, or goes on.
    pub fn stall_disk(&self, stalls: bool) {
        self.note(|seen| seen.disk_stalls = stalls);
    }

    pub fn set_durable(&self, position: u64) {
        self.durable.store(position, Ordering::SeqCst);
        let mailboxes = self.seen().mailboxes.clone();
        for mailbox in mailboxes {
            mailbox.durable_moved();
        }
    }

    /// Answers the oldest wait.
    pub fn answer(&self, gate: u64) {
        let (connection, ticket, mailbox) = self.seen().waits.remove(0);
        let answer = Gated::new(Answer::TimedOut, Gate(gate));
        mailbox.deliver(Delivery { connection, ticket, answer });
    }
}

impl Committer for Toy {
    fn attach(&self, mailbox: &Arc<dyn Mailbox>) {
        self.note(|seen| seen.mailboxes.push(Arc::clone(mailbox)));
    }
    fn durable(&self) -> Gate {
        Gate(self.durable.load(Ordering::SeqCst))
    }
    fn released(&self) -> Option<Gate> {
        (!self.follows.load(Ordering::SeqCst)).then(|| self.durable())
    }
    fn end_turn(&self) -> bool {
        self.decided.load(Ordering::SeqCst) > self.on_its_way.load(Ordering::SeqCst)
    }
    fn commit(&self) {
        let decided = self.decided.load(Ordering::SeqCst);
        self.on_its_way.store(decided, Ordering::SeqCst);
        self.note(|seen| seen.commits += 1);
        self.until("the disk", |seen| !seen.disk_stalls);
        self.set_durable(decided);
    }
    fn commit_if_quick(&self) {
        self.commit();
    }
    fn sync_time(&self) -> Duration {
        Duration::ZERO
    }
}

/// The door as a reactor sees it.
pub struct ToyDoor(pub Arc<Toy>);

impl Door for ToyDoor {
    fn name(&self) -> &'static str {
        "toy"
    }
    fn requires_identity(&self) -> bool {
        self.0.asks_who.load(Ordering::SeqCst)
    }
    fn open(
        &self,
        connection: ConnectionId,
        peer: &Peer,
        mailbox: &Arc<dyn Mailbox>,
    ) -> Box<dyn Session> {
        self.0.note(|seen| {
            seen.opened += 1;
            seen.peers.push(peer.clone());
        });
        let (toy, mailbox) = (Arc::clone(&self.0), Arc::clone(mailbox));
        Box::new(ToySession {
            toy,
            connection,
            mailbox,
            waits: None,
            tickets: 0,
            swallows: false,
            works: false,
            is_known: !self.requires_identity(),
            closed: false,
        })
    }
    fn refuse(&self, why: Unread, first: &[u8], out: &mut BytesMut) {
        match why {
            Unread::Plain => {
                let first = String::from_utf8_lossy(first);
                out.extend_from_slice(format!("not in plain: {first}").as_bytes());
            }
            Unread::TooMuch => out.extend_from_slice(b"too much\n"),
        }
    }
}

struct ToySession {
    toy: Arc<Toy>,
    connection: ConnectionId,
    mailbox: Arc<dyn Mailbox>,
    waits: Option<(Ticket, &'static str)>,
    tickets: u64,
    swallows: bool,
    works: bool,
    is_known: bool,
    closed: bool,
}

impl ToySession {
    fn request(&mut self, line: &str, out: &mut Outbox) -> Flow {
        let words: Vec<&str> = line.trim_end().splitn(3, ' ').collect();
        let number = || words[1].parse::<u64>().unwrap();
        let mut say = |gate: u64, text: &str| {
            out.open(Gated::new((), Gate(gate)));
            out.put(|bytes| bytes.extend_from_slice(format!("{text}\n").as_bytes()));
        };
        match words[0] {
            "echo" => say(0, words[1]),
            "count" => {
                let before = self.toy.seen().requests;
                say(0, &before.to_string());
            }
            "gate" => say(number(), words[2]),
            "add" => {
                say(number(), "ok");
                self.toy.decided.fetch_max(number(), Ordering::SeqCst);
            }
            "big" => say(0, &"x".repeat(number() as usize - 1)),
            "lease" => {
                let job = JobId(words[2].parse().unwrap());
                let lease = Gated::new(LeaseRef { job, attempt: 1 }, Gate(number()));
                let lease = out.open(lease);
                out.put_lease(lease, |bytes| bytes.extend_from_slice(b"job\n"));
            }
            "wait" | "run" => {
                self.tickets += 1;
                let ticket = Ticket(self.tickets);
                self.waits = Some((ticket, if words[0] == "run" { "run" } else { "wait" }));
                let wait = (self.connection, ticket, Arc::clone(&self.mailbox));
                self.toy.note(|seen| seen.waits.push(wait));
                return Flow::Wait;
            }
            "answered-and-gone" => {
                self.waits = Some((Ticket(77), "lease"));
                self.mailbox.deliver(Delivery {
                    connection: self.connection,
                    ticket: Ticket(77),
                    answer: Gated::open(Answer::TimedOut),
                });
                return Flow::Abort;
            }
            "quit" => {
                say(0, "bye");
                return Flow::Close;
            }
            "swallow" => self.swallows = true,
            "work" => self.works = true,
            "die" => return Flow::Abort,
            other => panic!("not a toy command: {other}"),
        }
        Flow::Continue
    }
}

impl Session for ToySession {
    fn on_bytes(&mut self, input: &mut BytesMut, out: &mut Outbox) -> Flow {
        assert!(!self.closed && self.waits.is_none(), "called while waiting or closed");
        self.toy.note(|seen| seen.input_bytes_max = seen.input_bytes_max.max(input.len()));
        let mut flow = Flow::Continue;
        if self.swallows {
            input.clear();
        }
        while flow == Flow::Continue && out.pending_bytes() <= 64 * 1024 {
            let Some(end) = input.iter().position(|byte| *byte == b'\n') else { break };
            let line = input.split_to(end + 1);
            flow = self.request(std::str::from_utf8(&line).unwrap(), out);
            self.toy.note(|seen| {
                seen.requests += 1;
                seen.pending_bytes_max = seen.pending_bytes_max.max(out.pending_bytes());
            });
        }
        flow
    }

    fn on_answer(&mut self, ticket: Ticket, answer: Gated<Answer>, out: &mut Outbox) -> Flow {
        assert!(!self.closed);
        match self.waits.take() {
            Some((waits_for, "lease")) if waits_for == ticket => {
                out.open(answer);
                let lease = LeaseRef { job: JobId(77), attempt: 1 };
                out.put_lease(lease, |bytes| bytes.extend_from_slice(b"job\n"));
            }
            Some((waits_for, _)) if waits_for == ticket => {
                out.open(answer);
                out.put(|bytes| bytes.extend_from_slice(b"answered\n"));
            }
            waits => self.waits = waits,
        }
        if self.waits.is_some() { Flow::Wait } else { Flow::Continue }
    }

    fn is_engaged(&self) -> bool {
        self.works
    }

    fn lacks_identity(&mut self) -> bool {
        !self.is_known
    }

    fn on_end_of_input(&mut self, _input: &mut BytesMut, _out: &mut Outbox) -> Flow {
        assert!(!self.closed);
        self.waits = None;
        Flow::Close
    }

    fn on_shutdown(&mut self, last: bool, out: &mut Outbox) -> Flow {
        assert!(!self.closed);
        self.toy.note(|seen| seen.shutdowns.push(last));
        match self.waits {
            Some((_, "run")) if !last => Flow::Wait,
            Some(_) => {
                self.waits = None;
                out.put(|bytes| bytes.extend_from_slice(b"timeout\n"));
                Flow::Close
            }
            None => Flow::Continue,
        }
    }

    fn on_closed(&mut self, unsent: &[LeaseRef]) {
        assert!(!self.closed, "closed twice");
        self.closed = true;
        let closed = (self.connection, unsent.to_vec());
        self.toy.note(|seen| seen.closed.push(closed));
    }

    fn input_bytes_max(&self) -> usize {
        INPUT_BYTES_MAX
    }
}

/// A served toy door.
pub struct Served {
    pub toy: Arc<Toy>,
    pub handle: ServerHandle,
    pub addr: SocketAddr,
}

pub fn serve(config: NetConfig) -> Served {
    serve_with(config, ListenerTls::Off)
}

pub fn serve_with(config: NetConfig, tls: ListenerTls) -> Served {
    let toy = Arc::new(Toy::default());
    let door = Arc::new(ToyDoor(Arc::clone(&toy)));
    let bound = bind(door, SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let handle = Server::start(toy.clone(), vec![bound.with_tls(tls)], config).unwrap();
    let addr = handle.local_addrs()[0].1;
    Served { toy, handle, addr }
}

pub fn one_reactor() -> NetConfig {
    NetConfig { reactors: 1, ..NetConfig::default() }
}

impl Served {
    pub fn client(&self) -> Client {
        Client::new(TcpStream::connect(self.addr).unwrap())
    }

    /// When this returns, everything that the (only) reactor had begun before is done, its writes included.
    pub fn let_turn_pass(&self) {
        self.client().asks("echo turn", "turn");
    }
}

pub struct Client {
    pub stream: BufReader<TcpStream>,
}

impl Client {
    pub fn new(stream: TcpStream) -> Client {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream: BufReader::new(stream) }
    }

    pub fn send(&mut self, text: &str) {
        self.stream.get_mut().write_all(text.as_bytes()).unwrap();
    }

    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub fn asks(&mut self, request: &str, answer: &str) {
        self.send(&format!("{request}\n"));
        assert_eq!(self.line(), answer);
    }

    pub fn half_close(&mut self) {
        self.stream.get_ref().shutdown(Shutdown::Write).unwrap();
    }

    /// Everything until the server closes in order.
    pub fn rest(&mut self) -> String {
        let mut rest = String::new();
        self.stream.read_to_string(&mut rest).unwrap();
        rest
    }

    /// Whether the server has closed: end of input, or a reset when it closed abruptly.
    pub fn is_cut_off(&mut self) -> bool {
        let mut byte = [0];
        match self.stream.read(&mut byte) {
            Ok(count) => count == 0,
            Err(error) => {
                matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
            }
        }
    }

    pub fn has_nothing_to_read(&mut self) -> bool {
        let stream = self.stream.get_ref();
        stream.set_nonblocking(true).unwrap();
        let nothing =
            stream.peek(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        stream.set_nonblocking(false).unwrap();
        nothing && self.stream.buffer().is_empty()
    }
}
