//! Imports through connections that are held up at a certain request, so that something can be
//! killed there.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    process::{Command, Stdio},
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::Duration,
};

use nix::sys::signal::Signal;
use spindle_testkit::Program;

use crate::{
    native::{served, url},
    serve::Served,
};

/// How long an import may take until it is held up.
const PATIENCE: Duration = Duration::from_secs(120);

/// What is killed while an import is held up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Victim {
    /// The import itself.
    Import,
    /// The server that the jobs go to. It is started again afterwards.
    New,
    /// The server that the jobs come from.
    Old,
    /// Only the connections to the server that the jobs come from.
    Connections,
}

/// An import that fails in the middle.
pub struct Interrupted<'a> {
    /// The kind of the server that the jobs come from.
    pub kind: &'static str,
    /// Its address.
    pub old: &'a str,
    /// What stands in the bytes of the request at which the import is held up, and the number of
    /// that request, from 1 on.
    pub mark: &'static str,
    pub request: usize,
    pub victim: Victim,
}

impl Interrupted<'_> {
    /// Runs the import to `new`, whose arguments are `arguments`. `kill_old` kills the server that
    /// the jobs come from.
    pub fn run(self, new: &mut Served, arguments: &[&str], kill_old: impl FnOnce()) {
        let Self { kind, old, mark, request, victim } = self;
        let held = Held::at(request, mark, old);
        let mut command = Command::new(env!("CARGO_BIN_EXE_spindle"));
        command.args(["import", "--from", kind, &held.address]).env("SPINDLE_URL", url(new));
        let mut import = Program::start(command.stdout(Stdio::null()).stderr(Stdio::null()));
        held.await_request();
        match victim {
            Victim::Import => import.signal(Signal::SIGKILL),
            Victim::New => new.kill(),
            Victim::Old => kill_old(),
            Victim::Connections => {}
        }
        held.release(victim == Victim::New);
        assert!(!import.await_end().success(), "{request}, {victim:?}");
        if victim == Victim::New {
            *new = served(arguments);
        }
    }
}

/// Passes the bytes of connections on to a server, up to a request.
pub struct Held {
    /// Where to connect.
    pub address: String,
    reached: Receiver<()>,
    go: Sender<bool>,
}

/// What all connections share.
struct Gate {
    words: &'static [u8],
    number: usize,
    seen: usize,
    /// Gone once it was reached.
    told: Option<Sender<()>>,
    may_go: Receiver<bool>,
    streams: Vec<TcpStream>,
}

impl Held {
    /// Holds up the request of this number, from 1 on, in whose bytes this is.
    pub fn at(number: usize, words: &'static str, server: &str) -> Held {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, server) = (listener.local_addr().unwrap().to_string(), server.to_owned());
        let ((told, reached), (go, may_go)) = (channel(), channel());
        let (words, told) = (words.as_bytes(), Some(told));
        let gate = Gate { words, number, seen: 0, told, may_go, streams: vec![] };
        let gate = Arc::new(Mutex::new(gate));
        thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let Ok(server) = TcpStream::connect(&server) else { return };
                let both = [client.try_clone().unwrap(), server.try_clone().unwrap()];
                gate.lock().unwrap().streams.extend(both);
                let gate = Arc::clone(&gate);
                thread::spawn(move || carry(client, server, &gate));
            }
        });
        Held { address, reached, go }
    }

    /// Waits until the request is there.
    pub fn await_request(&self) {
        self.reached.recv_timeout(PATIENCE).expect("the import comes as far as that request");
    }

    /// Lets it pass, or closes all connections.
    pub fn release(self, passes: bool) {
        self.go.send(passes).unwrap();
    }
}

fn carry(mut client: TcpStream, mut server: TcpStream, gate: &Mutex<Gate>) {
    let (mut answers, mut back) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    let answering = thread::spawn(move || {
        // Both fail when one side is gone, and the other side has to notice that.
        let _ = io::copy(&mut answers, &mut back);
        let _ = back.shutdown(Shutdown::Both);
    });
    let mut bytes = vec![0; 1024 * 1024];
    while let Ok(count @ 1..) = client.read(&mut bytes) {
        if !gate.lock().unwrap().passes(&bytes[..count])
            || server.write_all(&bytes[..count]).is_err()
        {
            break;
        }
    }
    let _ = server.shutdown(Shutdown::Both);
    answering.join().unwrap();
}

impl Gate {
    fn passes(&mut self, bytes: &[u8]) -> bool {
        let words = self.words;
        self.seen += bytes.windows(words.len()).filter(|window| *window == words).count();
        if self.seen < self.number {
            return true;
        }
        let Some(told) = self.told.take() else { return true };
        told.send(()).unwrap();
        let passes = self.may_go.recv().unwrap_or(false);
        if !passes {
            // It fails where the other side has closed already.
            self.streams.iter().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
        }
        passes
    }
}
