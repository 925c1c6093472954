//! A server of the real program, and what tests say to it themselves.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use spindle_gearman::wire::{GrabKind, Request, Response, decode_response};

/// How long something may take that should take no time.
pub const WITHIN: Duration = Duration::from_secs(60);

/// Says something in the test's log, also when the test passes.
pub fn note(text: &str) {
    writeln!(std::io::stderr(), "{text}").unwrap();
}

/// A running server; dropping it kills it.
pub struct Served {
    child: Child,
    pub gearman: String,
    pub workq: String,
    /// Where HTTP is spoken, if it is.
    pub http: Option<String>,
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
        let mut child = Command::new(env!("CARGO_BIN_EXE_spindle"))
            .args(["serve", "--memory", "--gearman", "127.0.0.1:0", "--workq", "127.0.0.1:0"])
            .args(["--http", http, "--jobd-master", "off"])
            .args(flags)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let greeting = lines
            .find_map(|line| line.ok().filter(|line| line.contains("gearman on ")))
            .expect("the server greets");
        // Read on, so that the server never writes to nobody.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        let address = |door: &str| {
            let (_, behind) = greeting.split_once(&format!("{door} on ")).unwrap();
            behind.split(',').next().unwrap().to_owned()
        };
        let http = (http != "off").then(|| address("http"));
        Served { gearman: address("gearman"), workq: address("workq"), http, child }
    }

    pub fn gearman_port(&self) -> &str {
        self.gearman.rsplit(':').next().unwrap()
    }

    pub fn connect(&self) -> Peer {
        let stream = TcpStream::connect(&self.gearman).unwrap();
        stream.set_read_timeout(Some(WITHIN)).unwrap();
        Peer { stream, input: BytesMut::new() }
    }

    /// Waits until a line of `status` begins like this.
    pub fn await_status(&self, start: &str) {
        let deadline = Instant::now() + WITHIN;
        loop {
            let status = self.connect().list("status");
            if status.iter().any(|line| line.starts_with(start)) {
                return;
            }
            assert!(Instant::now() < deadline, "waited in vain for {start:?} in {status:?}");
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection to the Gearman door.
pub struct Peer {
    stream: TcpStream,
    input: BytesMut,
}

impl Peer {
    pub fn send(&mut self, request: &Request) {
        let mut bytes = BytesMut::new();
        request.encode(&mut bytes);
        self.stream.write_all(&bytes).unwrap();
    }

    pub fn hear(&mut self) -> Response {
        let mut buffer = [0; 64 * 1024];
        loop {
            if let Some(response) = decode_response(&mut self.input, usize::MAX).unwrap() {
                return response;
            }
            let count = self.stream.read(&mut buffer).unwrap();
            assert!(count > 0, "the server closed");
            self.input.extend_from_slice(&buffer[..count]);
        }
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
        self.stream.write_all(format!("{command}\n").as_bytes()).unwrap();
        let lines = BufReader::new(&self.stream).lines();
        lines.map(Result::unwrap).take_while(|line| line != ".").collect()
    }
}
