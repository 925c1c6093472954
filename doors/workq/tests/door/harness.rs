//! A server that a test starts, and clients that say exactly what they are told.

#![expect(clippy::unwrap_used, reason = "only tests use this")]

use std::fmt::{Display, Formatter};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use spindle_access::Access;
use spindle_core::Policy;
use spindle_core::job::Origin;
use spindle_engine::{Engine, Options, SystemClock};
use spindle_log::{Log, MemoryLog};
use spindle_testkit::{ManualClock, ManualEngine, TcpServer, spawn, wait_until};
use spindle_workq::WorkqDoor;
use spindle_workq::wire::Limits;

/// When the clocks of these tests start.
pub const START_MS: u64 = 1_471_830_651_000;
/// The same as `inspect` prints it.
pub const START: &str = "2016-08-22T01:50:51Z";

/// The engine's options, with jobs of another door that are tried once.
fn options() -> Options {
    let mut options = Options::default();
    let policies = [spindle_workq::policy(), (Origin::Jobq, Policy::ONCE)];
    options.defaults.policies = policies.into_iter().collect();
    options
}

/// A server with this one door.
pub struct TestServer {
    pub clock: Arc<ManualClock>,
    server: TcpServer<WorkqDoor>,
}

impl Deref for TestServer {
    type Target = TcpServer<WorkqDoor>;

    fn deref(&self) -> &TcpServer<WorkqDoor> {
        &self.server
    }
}

fn door(engine: &Engine) -> WorkqDoor {
    WorkqDoor::new(engine.clone(), Limits::default())
}

impl TestServer {
    /// On a new log in memory.
    pub fn new() -> TestServer {
        TestServer::on(Arc::new(MemoryLog::new()), START_MS)
    }

    /// On this log, from this time on.
    pub fn on(log: Arc<dyn Log>, now_ms: u64) -> TestServer {
        let ManualEngine { engine, clock } = ManualEngine::open(log, now_ms, options());
        spawn(&engine);
        TestServer::start(&engine, clock)
    }

    /// For those whom `access` lets in.
    pub fn guarded(access: Access) -> TestServer {
        let log = Arc::new(MemoryLog::new());
        let ManualEngine { engine, clock } = ManualEngine::open(log, START_MS, options());
        spawn(&engine);
        let door = door(&engine).with_access(access);
        TestServer { clock, server: TcpServer::start(&engine, door) }
    }

    /// Without the engine's threads: nothing is durable, and no time is noticed, until the test
    /// does the engine's steps.
    pub fn stepped() -> TestServer {
        let log = Arc::new(MemoryLog::new());
        let ManualEngine { engine, clock } = ManualEngine::open(log, START_MS, options());
        TestServer { clock, server: TcpServer::stepped(&engine, door(&engine)) }
    }

    /// With the time of the machine.
    pub fn with_real_time() -> TestServer {
        let (log, clock) = (Arc::new(MemoryLog::new()), Arc::new(SystemClock::new()));
        let engine = Engine::open(log, clock, options()).unwrap();
        spawn(&engine);
        TestServer::start(&engine, Arc::default())
    }

    fn start(engine: &Engine, clock: Arc<ManualClock>) -> TestServer {
        TestServer { clock, server: TcpServer::start(engine, door(engine)) }
    }

    /// All that a connection hears that says this and no more.
    pub fn answers(&self, said: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(said.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut heard = String::new();
        stream.read_to_string(&mut heard).unwrap();
        heard
    }

    pub fn client(&self) -> Client {
        Client { stream: self.connect(), read_ahead: Vec::new() }
    }

    /// Lets time pass, and runs what is due.
    pub fn pass(&self, ms: u64) {
        self.clock.advance(ms);
        self.engine.tick_once();
    }

    /// Waits for a condition that needs no time to come.
    pub fn until(&self, what: &str, condition: impl Fn(&TestServer) -> bool) {
        wait_until(what, || condition(self));
    }

    /// Ends the server as an orderly stop does.
    pub fn stop(self) {
        self.engine.stop_leasing();
        self.net.shutdown(Duration::ZERO);
    }
}

/// One connection.
pub struct Client {
    stream: TcpStream,
    read_ahead: Vec<u8>,
}

impl Client {
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// Sends what the server may refuse to read to its end.
    pub fn send_in_vain(&mut self, bytes: impl AsRef<[u8]>) {
        // The server closes in the middle of it: whether that is an error here is a race.
        self.stream.write_all(bytes.as_ref()).ok();
    }

    /// The very next bytes from the server must be these.
    #[track_caller]
    pub fn expect(&mut self, bytes: impl AsRef<[u8]>) {
        let expected = bytes.as_ref();
        let mut buffer = vec![0; 64 * 1024];
        while self.read_ahead.len() < expected.len() && expected.starts_with(&self.read_ahead) {
            match self.stream.read(&mut buffer) {
                Ok(count) if count > 0 => self.read_ahead.extend_from_slice(&buffer[..count]),
                _ => break,
            }
        }
        let end = expected.len().min(self.read_ahead.len());
        if self.read_ahead[..end] != *expected {
            let came = &self.read_ahead[..self.read_ahead.len().min(2000)];
            let wanted = &expected[..expected.len().min(2000)];
            panic!("expected\n{}\nand got\n{}", Shown(wanted), Shown(came));
        }
        self.read_ahead.drain(..end);
    }

    /// The rest of the line that comes next.
    pub fn line(&mut self) -> String {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            match self.read_ahead.is_empty() {
                false => line.push(self.read_ahead.remove(0)),
                true => {
                    let mut byte = [0];
                    self.stream.read_exact(&mut byte).unwrap();
                    line.push(byte[0]);
                }
            }
        }
        String::from_utf8(line).unwrap().trim_end().to_owned()
    }

    /// A request and its answer.
    #[track_caller]
    pub fn ask(&mut self, request: impl AsRef<[u8]>, answer: impl AsRef<[u8]>) {
        self.send(request);
        self.expect(answer);
    }

    /// Plays a conversation: lines behind `>` are sent, then those behind `<` expected, each with
    /// its CR LF. `#7` is the seventh id of [`id`].
    #[track_caller]
    pub fn talk(&mut self, script: &str) {
        let mut sending = String::new();
        let mut expected = String::new();
        let mut lines = script.lines().map(str::trim_start).filter(|line| !line.is_empty());
        loop {
            let line = lines.next();
            match line.map(|line| line.split_at(1)) {
                Some((">", text)) => {
                    if !expected.is_empty() {
                        self.play(&mut sending, &mut expected);
                    }
                    sending.push_str(&with_ids(text.strip_prefix(' ').unwrap_or(text)));
                    sending.push_str("\r\n");
                }
                Some(("<", text)) => {
                    expected.push_str(&with_ids(text.strip_prefix(' ').unwrap_or(text)));
                    expected.push_str("\r\n");
                }
                Some(_) => panic!("no line of a conversation: {line:?}"),
                None => return self.play(&mut sending, &mut expected),
            }
        }
    }

    #[track_caller]
    fn play(&mut self, sending: &mut String, expected: &mut String) {
        self.send(&*sending);
        self.expect(&*expected);
        sending.clear();
        expected.clear();
    }

    /// Sends a request that will wait, and returns when it does: the answer to a question that was
    /// sent together with it is there.
    #[track_caller]
    pub fn begin(&mut self, script: &str) {
        let request: String = script
            .lines()
            .map(str::trim_start)
            .filter_map(|line| line.strip_prefix('>'))
            .map(|text| with_ids(text.strip_prefix(' ').unwrap_or(text)) + "\r\n")
            .collect();
        self.send(format!("inspect queue nobody-knows-it\r\n{request}"));
        self.expect("-NOT-FOUND\r\n");
    }

    /// The server has closed, without another word.
    #[track_caller]
    pub fn expect_closed(mut self) {
        assert!(self.read_ahead.is_empty(), "left: {}", Shown(&self.read_ahead));
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => panic!("still open: {error}"),
        }
        assert!(rest.is_empty(), "before it closed came: {}", Shown(&rest));
    }

    /// All lines until the server closes.
    pub fn lines_to_the_end(mut self) -> Vec<String> {
        let mut bytes = std::mem::take(&mut self.read_ahead);
        self.stream.read_to_end(&mut bytes).unwrap();
        String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
    }

    /// Says that it will send no more; it still reads.
    pub fn end_sending(&mut self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// Ends the conversation; the server must have nothing left to say.
    #[track_caller]
    pub fn finish(mut self) {
        self.end_sending();
        self.expect_closed();
    }

    /// Breaks the connection off: the server is told at once, and nothing more can be sent to us.
    pub fn reset(self) {
        socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).unwrap();
    }
}

struct Shown<'a>(&'a [u8]);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} bytes)", self.0.escape_ascii(), self.0.len())
    }
}

/// The ids that the tests give their jobs.
pub fn id(number: u64) -> String {
    format!("{number:08x}-0000-4000-8000-{number:012x}")
}

/// The same as the engine's bytes.
pub fn id_bytes(number: u64) -> [u8; 16] {
    *spindle_workq::wire::Uuid::parse(id(number).as_bytes()).unwrap().as_bytes()
}

/// Writes ids for `#1`, `#2` and so on.
pub fn with_ids(text: &str) -> String {
    let mut parts = text.split('#');
    let mut written = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        written.push_str(&id(part[..digits].parse().unwrap_or(0)));
        written.push_str(&part[digits..]);
    }
    written
}

/// A job as `inspect` shows it.
#[derive(Clone)]
pub struct Job<'a> {
    pub id: u64,
    pub name: &'a str,
    pub ttr: u64,
    pub ttl: u64,
    pub payload: &'a str,
    pub max_attempts: u64,
    pub attempts: u64,
    pub max_fails: u64,
    pub fails: u64,
    pub priority: i64,
    pub state: u64,
    pub created: &'a str,
    pub time: Option<&'a str>,
}

/// A job as most of these tests add it: TTR 1000, TTL 60000, payload `a`.
pub fn job(id: u64, name: &str) -> Job<'_> {
    Job {
        id,
        name,
        ttr: 1000,
        ttl: 60_000,
        payload: "a",
        max_attempts: 0,
        attempts: 0,
        max_fails: 0,
        fails: 0,
        priority: 0,
        state: 0,
        created: START,
        time: None,
    }
}

impl Display for Job<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let keys = if self.time.is_some() { 13 } else { 12 };
        write!(f, "{} {keys}\r\nname {}\r\n", id(self.id), self.name)?;
        write!(f, "ttr {}\r\nttl {}\r\n", self.ttr, self.ttl)?;
        write!(f, "payload-size {}\r\npayload {}\r\n", self.payload.len(), self.payload)?;
        write!(f, "max-attempts {}\r\nattempts {}\r\n", self.max_attempts, self.attempts)?;
        write!(f, "max-fails {}\r\nfails {}\r\n", self.max_fails, self.fails)?;
        write!(f, "priority {}\r\nstate {}\r\n", self.priority, self.state)?;
        write!(f, "created {}\r\n", self.created)?;
        self.time.map_or(Ok(()), |time| write!(f, "time {time}\r\n"))
    }
}

impl Client {
    /// `inspect job` must show this.
    #[track_caller]
    pub fn inspect(&mut self, job: &Job<'_>) {
        self.ask(format!("inspect job {}\r\n", id(job.id)), format!("+OK 1\r\n{job}"));
    }
}
