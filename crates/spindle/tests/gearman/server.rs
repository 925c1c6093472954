//! A server of the real program, and what tests say to it themselves.

use std::io::{BufRead, BufReader, Write};

use bytes::Bytes;
use spindle_gearman::client::Connection;
use spindle_gearman::wire::{GrabKind, Request, Response};
use spindle_testkit::{PATIENCE, SpindleServer, wait_until};

/// Says something in the test's log, also when the test passes.
pub fn note(text: &str) {
    writeln!(std::io::stderr(), "{text}").unwrap();
}

/// A running server; dropping it kills it.
pub struct Served {
    pub gearman: String,
    pub workq: String,
    /// Where HTTP is spoken, if it is.
    pub http: Option<String>,
    _server: SpindleServer,
}

impl Served {
    pub fn new() -> Served {
        Served::with_http_on("off", &[])
    }

    /// With more flags.
    pub fn with(flags: &[&str]) -> Served {
        Served::with_http_on("off", flags)
    }

    pub fn with_http() -> Served {
        Served::with_http_on("127.0.0.1:0", &[])
    }

    fn with_http_on(http: &str, flags: &[&str]) -> Served {
        let doors = ["--memory", "--gearman", "127.0.0.1:0", "--workq", "127.0.0.1:0"];
        let others = ["--http", http, "--jobd-master", "off"];
        let arguments = [&doors[..], &others, flags].concat();
        let server = SpindleServer::start(env!("CARGO_BIN_EXE_spindle"), &arguments, "gearman");
        let http = (http != "off").then(|| server.address_of("http"));
        let (gearman, workq) = (server.address_of("gearman"), server.address_of("workq"));
        Served { gearman, workq, http, _server: server }
    }

    pub fn gearman_port(&self) -> &str {
        self.gearman.rsplit(':').next().unwrap()
    }

    pub fn connect(&self) -> Peer {
        Peer(Connection::open(&self.gearman, PATIENCE, usize::MAX).unwrap())
    }

    /// Waits until a line of `status` begins like this.
    pub fn await_status(&self, start: &str) {
        wait_until(&format!("a line of status that begins with {start:?}"), || {
            self.connect().list("status").iter().any(|line| line.starts_with(start))
        });
    }
}

/// A connection to the Gearman door.
pub struct Peer(Connection);

impl Peer {
    pub fn send(&mut self, request: &Request) {
        self.0.send(request).unwrap();
    }

    pub fn hear(&mut self) -> Response {
        self.0.receive().unwrap()
    }

    pub fn can_do(&mut self, function: &str) {
        self.send(&Request::CanDo { function: Bytes::copy_from_slice(function.as_bytes()) });
    }

    /// Grabs a job that must be there: its handle and its payload.
    #[track_caller]
    pub fn take(&mut self) -> (Bytes, String) {
        self.send(&Request::Grab(GrabKind::Plain));
        match self.hear() {
            Response::JobAssign(job) => {
                (job.handle, String::from_utf8(job.payload.to_vec()).unwrap())
            }
            other => panic!("expected a job and got {other:?}"),
        }
    }

    pub fn complete(&mut self, handle: &Bytes, result: &str) {
        let result = Bytes::copy_from_slice(result.as_bytes());
        self.send(&Request::WorkComplete { handle: handle.clone(), result });
    }

    /// The lines of a list, without the one that ends it.
    pub fn list(&mut self, command: &str) -> Vec<String> {
        let stream = self.0.stream();
        stream.write_all(format!("{command}\n").as_bytes()).unwrap();
        let lines = BufReader::new(stream).lines();
        lines.map(Result::unwrap).take_while(|line| line != ".").collect()
    }
}
