//! Shards with Gearman's door, and clients of the router before them.

#![expect(clippy::unwrap_used, reason = "only tests use this")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use bytes::{Bytes, BytesMut};
use spindle_access::Access;
use spindle_core::address::from_gearman_handle;
use spindle_gearman::client::{Encode, decode_response};
use spindle_gearman::wire::{
    Assignment, GrabKind, JobStatus, Priority, Request, Response, Submit, SubmitKind,
};
use spindle_gearman::{GearmanDoor, Options};
use spindle_router::Shard;
use spindle_router::gearman::{GearmanOptions, GearmanRouter};

use crate::shards::Sharded;

pub const SHARDS: u8 = 3;

pub fn start() -> Sharded {
    start_with(Access::open())
}

pub fn start_with(access: Access) -> Sharded {
    Sharded::start(
        SHARDS,
        |engine| {
            let access = access.clone();
            GearmanDoor::new(engine, Options { access, ..Options::default() })
        },
        |network, placement| GearmanRouter::new(network, placement, GearmanOptions::default()),
    )
}

/// A connection that reads packets and lines.
pub struct Client {
    pub stream: TcpStream,
    pub input: BufReader<TcpStream>,
}

impl Client {
    pub fn of(sharded: &Sharded) -> Client {
        let stream = sharded.connect();
        let input = BufReader::new(stream.try_clone().unwrap());
        Client { stream, input }
    }

    pub fn send(&mut self, request: &Request) {
        self.send_all(std::slice::from_ref(request));
    }

    /// Sends them all in one piece.
    pub fn send_all(&mut self, requests: &[Request]) {
        let mut bytes = BytesMut::new();
        requests.iter().for_each(|request| request.encode(&mut bytes));
        self.stream.write_all(&bytes).unwrap();
    }

    #[track_caller]
    pub fn hear(&mut self) -> Response {
        let mut packet = vec![0; 12];
        self.input.read_exact(&mut packet).unwrap();
        let length = u32::from_be_bytes(*packet.last_chunk().unwrap()) as usize;
        packet.resize(12 + length, 0);
        self.input.read_exact(&mut packet[12..]).unwrap();
        decode_response(&mut BytesMut::from(&packet[..]), length).unwrap().unwrap()
    }

    #[track_caller]
    pub fn ask(&mut self, request: &Request) -> Response {
        self.send(request);
        self.hear()
    }

    /// All that was sent before is done.
    #[track_caller]
    pub fn settle(&mut self) {
        let data = Bytes::from_static(b"done?");
        assert_eq!(self.ask(&Request::Echo { data: data.clone() }), Response::Echo { data });
    }

    #[track_caller]
    pub fn hear_line(&mut self) -> String {
        let mut line = String::new();
        self.input.read_line(&mut line).unwrap();
        line
    }

    /// A text command with one line for an answer.
    #[track_caller]
    pub fn command(&mut self, line: &str) -> String {
        self.stream.write_all(format!("{line}\n").as_bytes()).unwrap();
        self.hear_line()
    }

    /// A text command with a list for an answer.
    #[track_caller]
    pub fn list(&mut self, line: &str) -> Vec<String> {
        let mut next = Some(self.command(line));
        let mut lines = std::iter::from_fn(|| next.take().or_else(|| Some(self.hear_line())));
        let lines = lines.by_ref().take_while(|line| line != ".\n");
        lines.map(|line| line.trim_end().to_owned()).collect()
    }

    /// The connection is closed, and nothing more came.
    #[track_caller]
    pub fn hears_end(&mut self) {
        let mut rest = Vec::new();
        // A connection that is cut off may end with an error too.
        let _ = self.input.read_to_end(&mut rest);
        assert!(rest.is_empty(), "{}", rest.escape_ascii());
    }

    // ---- clients ----

    #[track_caller]
    pub fn created(&mut self) -> Bytes {
        match self.hear() {
            Response::JobCreated { handle } => handle,
            other => panic!("expected JOB_CREATED and got {other:?}"),
        }
    }

    #[track_caller]
    pub fn add(&mut self, function: &str, unique: &str, payload: &str) -> Bytes {
        self.send(&background(function, unique, payload));
        self.created()
    }

    #[track_caller]
    pub fn run(&mut self, function: &str, payload: &str) -> Bytes {
        self.send(&foreground(function, payload));
        self.created()
    }

    #[track_caller]
    pub fn status(&mut self, handle: &Bytes) -> JobStatus {
        match self.ask(&Request::GetStatus { handle: handle.clone() }) {
            Response::Status { handle: same, status } if same == *handle => status,
            other => panic!("expected STATUS_RES and got {other:?}"),
        }
    }

    #[track_caller]
    pub fn hear_code(&mut self) -> String {
        match self.hear() {
            Response::Error { code, .. } => String::from_utf8(code.to_vec()).unwrap(),
            other => panic!("expected an ERROR and got {other:?}"),
        }
    }

    // ---- workers ----

    pub fn can_do(&mut self, function: &str) {
        self.send(&Request::CanDo { function: bytes(function) });
    }

    #[track_caller]
    pub fn grab(&mut self) -> Option<Assignment> {
        match self.ask(&Request::Grab(GrabKind::Uniq)) {
            Response::JobAssign(job) => Some(job),
            Response::NoJob => None,
            other => panic!("expected a job or none and got {other:?}"),
        }
    }

    #[track_caller]
    pub fn take(&mut self) -> Assignment {
        self.grab().expect("a job was to be there")
    }

    pub fn complete(&mut self, handle: &Bytes, result: &str) {
        self.send(&Request::WorkComplete { handle: handle.clone(), result: bytes(result) });
    }
}

pub fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

pub fn submit(kind: SubmitKind, function: &str, unique: &str, payload: &str) -> Request {
    let [function, unique, payload] = [function, unique, payload].map(bytes);
    Request::Submit(Submit { kind, function, unique, payload })
}

pub fn background(function: &str, unique: &str, payload: &str) -> Request {
    submit(SubmitKind::Background(Priority::Normal), function, unique, payload)
}

pub fn foreground(function: &str, payload: &str) -> Request {
    submit(SubmitKind::Foreground(Priority::Normal), function, "", payload)
}

pub fn shard_of(handle: &Bytes) -> u8 {
    Shard::of_job(from_gearman_handle(handle).unwrap()).0
}

/// One function on each shard.
pub fn functions(sharded: &Sharded) -> Vec<String> {
    (0..SHARDS).map(|shard| sharded.queue_on(shard, 0)).collect()
}

/// A worker that can do them all.
pub fn worker(sharded: &Sharded, functions: &[String]) -> Client {
    let mut worker = Client::of(sharded);
    functions.iter().for_each(|function| worker.can_do(function));
    worker
}
