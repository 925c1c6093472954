//! A server that a test starts, and a client of the draft that says exactly what it is told.

#![expect(clippy::unwrap_used, reason = "only tests use this")]

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::ops::Deref;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use spindle_engine::Options as EngineOptions;
use spindle_gearman::client::{Encode, decode_reply, decode_response};
use spindle_gearman::wire::draft::{ErrorCode, JobKind, NewJob, Progress, Reply, Request};
use spindle_gearman::wire::{self, Response};
use spindle_gearman::{GearmanDoor, Options, policies};
use spindle_log::MemoryLog;
use spindle_testkit::{ManualClock, ManualEngine, TcpServer, spawn};

/// When the clocks of these tests start.
pub const START_MS: u64 = 1_471_830_651_000;
const PACKET_BYTES_MAX: usize = 1 << 20;

/// A server with this one door, whose clock stands still until a test moves it.
pub struct TestServer {
    clock: Arc<ManualClock>,
    server: TcpServer<GearmanDoor>,
}

impl Deref for TestServer {
    type Target = TcpServer<GearmanDoor>;

    fn deref(&self) -> &TcpServer<GearmanDoor> {
        &self.server
    }
}

impl TestServer {
    pub fn new() -> TestServer {
        TestServer::with(EngineOptions::default())
    }

    pub fn with(mut options: EngineOptions) -> TestServer {
        options.defaults.policies = policies(0).into_iter().collect();
        let log = Arc::new(MemoryLog::new());
        let ManualEngine { engine, clock } = ManualEngine::open(log, START_MS, options);
        spawn(&engine);
        let door = GearmanDoor::new(engine.clone(), Options::default());
        TestServer { clock, server: TcpServer::start(&engine, door) }
    }

    pub fn client(&self) -> Client {
        Client { stream: self.connect(), heard: BytesMut::new() }
    }

    /// A worker that can do these, and says so.
    pub fn worker(&self, names: &[&str]) -> Client {
        let mut worker = self.client();
        worker.connect(names);
        worker
    }

    /// Lets time pass, and runs what is due.
    pub fn pass(&self, ms: u64) {
        self.clock.advance(ms);
        self.engine.tick_once();
    }
}

/// A client of the draft: worker, application or both.
pub struct Client {
    stream: TcpStream,
    heard: BytesMut,
}

impl Client {
    pub fn send(&mut self, request: &Request) {
        let mut bytes = BytesMut::new();
        request.encode(&mut bytes);
        self.raw(&bytes);
    }

    pub fn raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// The next packet.
    #[track_caller]
    pub fn hear(&mut self) -> Reply {
        loop {
            if let Some(reply) = decode_reply(&mut self.heard, PACKET_BYTES_MAX).unwrap() {
                return reply;
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(count) if count > 0 => self.heard.extend_from_slice(&bytes[..count]),
                other => panic!("a packet was to come, not {other:?}"),
            }
        }
    }

    /// The next bytes, whatever they mean.
    pub fn hear_bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    #[track_caller]
    pub fn ask(&mut self, request: &Request) -> Reply {
        self.send(request);
        self.hear()
    }

    #[track_caller]
    pub fn hears_error(&mut self, code: ErrorCode) {
        assert_eq!(self.hear(), Reply::error(code));
    }

    /// A question that always has exactly one answer; packets that come before it do not answer it.
    #[track_caller]
    pub fn hears_nothing(&mut self) {
        let handle = Bytes::from_static(b"nobody");
        match self.ask(&Request::JobStatus { handle }) {
            Reply::Error { code, .. }
                if code == ErrorCode::UnknownJob.to_byte()
                    || code == ErrorCode::SyncJobOpen.to_byte() => {}
            other => panic!("nothing was to come, and this came: {other:?}"),
        }
    }

    /// The server closes the connection, and says nothing more.
    #[track_caller]
    pub fn is_closed(&mut self) {
        assert!(self.heard.is_empty(), "there was more: {}", self.heard.escape_ascii());
        let mut bytes = [0; 64];
        match self.stream.read(&mut bytes) {
            Ok(0) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            other => panic!("the connection was to be closed, not {other:?}"),
        }
    }

    // ---- applications ----

    /// Creates a job and hears its handle.
    #[track_caller]
    pub fn create(&mut self, kind: JobKind, name: &str, key: &str, payload: &str) -> Bytes {
        match self.ask(&create(kind, name, key, payload)) {
            Reply::JobCreated { handle } => handle,
            other => panic!("expected job_create_res and got {other:?}"),
        }
    }

    #[track_caller]
    pub fn status(&mut self, handle: &Bytes) -> (u32, u32, u32) {
        match self.ask(&Request::JobStatus { handle: handle.clone() }) {
            Reply::JobStatus(Progress { numerator, denominator, remaining_s }) => {
                (numerator, denominator, remaining_s)
            }
            other => panic!("expected job_status_res and got {other:?}"),
        }
    }

    /// Elapsed seconds, code and result.
    #[track_caller]
    pub fn completion(&mut self, handle: &Bytes) -> (u32, u8, String) {
        self.send(&Request::JobComplete { handle: handle.clone() });
        self.hears_completion()
    }

    #[track_caller]
    pub fn hears_completion(&mut self) -> (u32, u8, String) {
        match self.hear() {
            Reply::JobComplete { elapsed_s, code, result } => {
                (elapsed_s, code, String::from_utf8(result.to_vec()).unwrap())
            }
            other => panic!("expected job_complete_res and got {other:?}"),
        }
    }

    // ---- workers ----

    pub fn connect(&mut self, names: &[&str]) {
        let names = names.iter().map(|name| Bytes::copy_from_slice(name.as_bytes())).collect();
        self.send(&Request::WorkerConnect { names });
    }

    /// Asks for a job; none is a noop.
    #[track_caller]
    pub fn job(&mut self) -> Option<(String, String)> {
        let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        match self.ask(&Request::JobAssign) {
            Reply::JobAssigned { name, payload } => Some((text(name), text(payload))),
            Reply::Noop => None,
            other => panic!("expected a job or a noop and got {other:?}"),
        }
    }

    #[track_caller]
    pub fn takes(&mut self, name: &str, payload: &str) {
        assert_eq!(self.job(), Some((name.to_owned(), payload.to_owned())));
    }

    pub fn announce(&mut self, numerator: u32, denominator: u32, remaining_s: u32) {
        let progress = Progress { numerator, denominator, remaining_s };
        self.send(&Request::JobStatusAnnounce(progress));
    }

    pub fn complete(&mut self, code: u8, result: &str) {
        let result = Bytes::copy_from_slice(result.as_bytes());
        self.send(&Request::JobCompleteAnnounce { code, result });
    }
}

pub fn create(kind: JobKind, name: &str, key: &str, payload: &str) -> Request {
    let [name, duplicate_key, payload] =
        [name, key, payload].map(|text| Bytes::copy_from_slice(text.as_bytes()));
    Request::JobCreate(NewJob { name, duplicate_key, flags: 0, kind, payload })
}

/// Sends packets of the published protocol and hears so many answers.
pub fn published(server: &TestServer, requests: &[wire::Request], answers: usize) -> Vec<Response> {
    let mut stream = server.connect();
    let mut bytes = BytesMut::new();
    for request in requests {
        request.encode(&mut bytes);
    }
    stream.write_all(&bytes).unwrap();
    let mut heard = BytesMut::new();
    let mut responses = Vec::new();
    while responses.len() < answers {
        let mut buffer = [0; 4096];
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "closed after {responses:?}");
        heard.extend_from_slice(&buffer[..count]);
        while let Some(response) = decode_response(&mut heard, 1 << 20).unwrap() {
            responses.push(response);
        }
    }
    responses
}
