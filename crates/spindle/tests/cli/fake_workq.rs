//! A Workq server that answers as a test tells it to, and remembers what it was asked.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex},
    thread,
};

use assert_cmd::Command;
use bytes::{Bytes, BytesMut};
use spindle_testkit::PATIENCE;
pub use spindle_testkit::{Said, await_exit};
use spindle_workq::wire::{Decoder, Limits, Request, Uuid, encode};

/// What to do about a request.
pub enum Answer {
    /// Send these bytes.
    Bytes(Vec<u8>),
    /// Close the connection without a word.
    HangUp,
}

type Script = dyn Fn(&Request) -> Answer + Send + Sync;

/// A server that a test wrote.
pub struct Fake {
    addr: SocketAddr,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    requests: Mutex<Vec<Request>>,
    changed: Condvar,
}

impl Fake {
    /// Starts a server on a free port.
    pub fn start(script: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let seen = Arc::<Seen>::default();
        let script: Arc<Script> = Arc::new(script);
        let remembers = Arc::clone(&seen);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (script, seen) = (Arc::clone(&script), Arc::clone(&remembers));
                thread::spawn(move || serve(stream.unwrap(), &*script, &seen));
            }
        });
        Self { addr, seen }
    }

    /// The command line of `spindle`, told to use this server.
    pub fn spindle(&self, arguments: &[&str]) -> Command {
        let mut command = spindle(arguments);
        command.env("SPINDLE_WORKQ", self.addr.to_string());
        command
    }

    /// Where it listens.
    pub fn address(&self) -> String {
        self.addr.to_string()
    }

    /// Everything that was asked so far.
    pub fn requests(&self) -> Vec<Request> {
        self.seen.requests.lock().unwrap().clone()
    }

    /// Waits until something was asked.
    pub fn await_request(&self, is_it: impl Fn(&Request) -> bool) {
        let requests = self.seen.requests.lock().unwrap();
        let missing = |requests: &mut Vec<Request>| !requests.iter().any(&is_it);
        let waited = self.seen.changed.wait_timeout_while(requests, PATIENCE, missing).unwrap();
        assert!(!waited.1.timed_out(), "it was never asked");
    }
}

/// The command line of `spindle`, with nothing in its environment that could lead it elsewhere.
pub fn spindle(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spindle"));
    command.args(arguments).timeout(PATIENCE).env_remove("SPINDLE_WORKQ");
    for name in ["SPINDLE_URL", "SPINDLE_TOKEN", "SPINDLE_TOKEN_FILE"] {
        command.env_remove(name);
    }
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("SPINDLE_SERVE_") {
            command.env_remove(name);
        }
    }
    command
}

fn serve(mut stream: TcpStream, script: &Script, seen: &Seen) {
    let mut decoder = Decoder::new(Limits::default());
    let mut input = BytesMut::new();
    let mut buffer = [0; 16 * 1024];
    loop {
        while let Some(request) = decoder.decode(&mut input).expect("a client that speaks Workq") {
            seen.requests.lock().unwrap().push(request.clone());
            seen.changed.notify_all();
            match script(&request) {
                Answer::Bytes(bytes) => {
                    // A client that was killed reads nothing any more.
                    if stream.write_all(&bytes).is_err() {
                        return;
                    }
                }
                Answer::HangUp => {
                    let _ = stream.shutdown(Shutdown::Both);
                    return;
                }
            }
        }
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(count) => input.extend_from_slice(&buffer[..count]),
        }
    }
}

fn answer(write: impl FnOnce(&mut BytesMut)) -> Answer {
    let mut bytes = BytesMut::new();
    write(&mut bytes);
    Answer::Bytes(bytes.to_vec())
}

/// `+OK`
pub fn ok() -> Answer {
    answer(encode::ok)
}

/// `-NOT-FOUND`
pub fn not_found() -> Answer {
    answer(encode::not_found)
}

/// `-TIMEOUT`
pub fn timeout() -> Answer {
    answer(encode::timeout)
}

/// `-CLIENT-ERROR`
pub fn refused(text: &str) -> Answer {
    answer(|out| encode::client_error(out, text))
}

/// A job to work on.
pub fn lease(id: Uuid, queue: &str, ttr_ms: u64, payload: &[u8]) -> Answer {
    answer(|out| encode::lease(out, id, queue.as_bytes(), ttr_ms, payload))
}

/// A result.
pub fn result(id: Uuid, success: bool, bytes: &[u8]) -> Answer {
    answer(|out| encode::result(out, id, success, bytes))
}

/// Several jobs or queues.
pub fn list<T>(items: &[T], write: impl Fn(&mut BytesMut, &T)) -> Answer {
    answer(|out| {
        encode::count(out, items.len());
        items.iter().for_each(|item| write(out, item));
    })
}

/// The id `number` stands for in these tests.
pub fn id(number: u8) -> Uuid {
    Uuid::from_random([number; 16])
}

/// What was printed on standard output.
pub fn stdout(output: &std::process::Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// What was printed on standard error.
pub fn stderr(output: &std::process::Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A name as bytes.
pub fn name(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}
