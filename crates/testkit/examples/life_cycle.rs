//! Measures what jobs cost from the bytes of a request to the bytes of its answer, without sockets:
//! `life_cycle <workq|gearman|gearman-unique> <submit|cycle> [jobs] [TOKENS_FILE TOKEN]`. With a
//! token, every connection presents it first, and the door checks it at each request.
//!
//! 8 producers submit jobs of 256 bytes into a queue of some thousand. With `cycle`, 8 workers take
//! one and complete it, in two turns; with `submit`, each producer sends 4 in a read. In a turn every
//! connection is read, then the turn is committed to a log in memory, then the answers leave.
//!
//! It prints nothing: it is meant to be run under a profiler that counts instructions, which are
//! the same from run to run, unlike times. The difference between a run with 2N jobs and one with
//! N, divided by N, is the cost of one job without the start:
//!
//! ```text
//! cargo build --release -p spindle-testkit --example life_cycle --features "access engine"
//! valgrind --tool=callgrind target/release/examples/life_cycle workq cycle 20000
//! ```

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use spindle_access::Access;
use spindle_engine::{Committer, Door, Engine, Gate, Options, Outbox, Session, SystemClock};
use spindle_gearman::GearmanDoor;
use spindle_gearman::client::Encode;
use spindle_gearman::wire::{GrabKind, Priority, Request, Submit, SubmitKind};
use spindle_log::MemoryLog;
use spindle_testkit::Sessions;
use spindle_workq::WorkqDoor;

const PRODUCERS: usize = 8;
const WORKERS: usize = 8;
const PAYLOAD: &[u8] = &[b'x'; 256];
/// Jobs that wait all the time.
const WAITING: u64 = 4000;
/// Requests in a read of a producer that only submits.
const DEEP: usize = 4;

/// What is sent through a door: requests in its words.
struct Words {
    /// What a worker says first.
    hello: Bytes,
    submit: fn(&mut BytesMut, u64),
    lease: Bytes,
    /// Appends the completion of the job in this answer to `lease`.
    complete: fn(&mut BytesMut, &[u8]),
}

fn workq() -> Words {
    Words {
        hello: Bytes::new(),
        submit: |out, number| {
            // What a client prints is not measured: a few digits are enough.
            let mut line = *b"add 6ba7b810-9dad-41d1-80b4-00c000000000 bench 60000 3600000 256\r\n";
            line[32..40].copy_from_slice(&digits(number));
            out.extend_from_slice(&line);
            out.extend_from_slice(PAYLOAD);
            out.extend_from_slice(b"\r\n");
        },
        lease: Bytes::from_static(b"lease bench 60000\r\n"),
        complete: |out, leased| {
            let id = leased.strip_prefix(b"+OK 1\r\n").and_then(|rest| rest.get(..36));
            out.extend_from_slice(b"complete ");
            out.extend_from_slice(id.expect("there are always jobs"));
            out.extend_from_slice(b" 2\r\nok\r\n");
        },
    }
}

/// Eight hexadecimal digits.
fn digits(number: u64) -> [u8; 8] {
    std::array::from_fn(|at| b"0123456789abcdef"[(number >> (28 - 4 * at) & 15) as usize])
}

fn encoded(request: Request) -> Bytes {
    let mut out = BytesMut::new();
    request.encode(&mut out);
    out.freeze()
}

fn gearman() -> Words {
    let function = Bytes::from_static(b"bench");
    Words {
        hello: encoded(Request::CanDo { function }),
        submit: |out, _| put_submit(out, Bytes::new()),
        lease: encoded(Request::Grab(GrabKind::Plain)),
        complete: |out, assigned| {
            let handle = assigned.get(12..).and_then(|body| body.split(|byte| *byte == 0).next());
            let handle = Bytes::copy_from_slice(handle.expect("there are always jobs"));
            Request::WorkComplete { handle, result: Bytes::from_static(b"ok") }.encode(out);
        },
    }
}

/// As [`gearman`], and each job has a unique of its own, as random as a UUID.
fn gearman_unique() -> Words {
    let submit = |out: &mut BytesMut, number: u64| {
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        put_submit(out, Bytes::from([digits(mixed), digits(number)].concat()));
    };
    Words { submit, ..gearman() }
}

fn put_submit(out: &mut BytesMut, unique: Bytes) {
    let submit = Submit {
        kind: SubmitKind::Background(Priority::Normal),
        function: Bytes::from_static(b"bench"),
        unique,
        payload: Bytes::from_static(PAYLOAD),
    };
    Request::Submit(submit).encode(out);
}

/// A connection.
struct Line {
    session: Box<dyn Session>,
    input: BytesMut,
    out: Outbox,
    /// The bytes that its client has received and not read.
    got: BytesMut,
}

impl Line {
    /// The session is given what was read.
    fn feed(&mut self) {
        self.session.on_bytes(&mut self.input, &mut self.out);
    }

    /// Sends the answers that may leave.
    fn flush(&mut self, durable: Gate) {
        let released = self.out.released(durable);
        self.got.clear();
        self.got.extend_from_slice(released);
        let count = released.len();
        self.out.advance(count);
    }
}

struct Run<D> {
    sessions: Sessions<D>,
    words: Words,
    submitted: u64,
    producers: Vec<Line>,
    workers: Vec<Line>,
}

impl<D: Door> Run<D> {
    /// `auth` is the line that presents a token, if there is one.
    fn new(engine: &Engine, door: D, words: Words, auth: &[u8]) -> Run<D> {
        let sessions = Sessions::new(engine, door);
        let open = |_| {
            let (_, session) = sessions.open();
            let mut input = BytesMut::with_capacity(64 * 1024);
            input.extend_from_slice(auth);
            let mut line = Line { session, input, out: Outbox::default(), got: BytesMut::new() };
            line.feed();
            line.flush(Gate::OPEN);
            line.got.clear();
            line
        };
        let producers = (0..PRODUCERS).map(open).collect();
        let mut workers: Vec<Line> = (0..WORKERS).map(open).collect();
        for worker in &mut workers {
            worker.input.extend_from_slice(&words.hello);
            worker.feed();
        }
        Run { sessions, words, submitted: 0, producers, workers }
    }

    /// So many producers submit so many jobs each.
    fn submit(&mut self, producers: usize, each: usize) {
        for line in &mut self.producers[..producers] {
            line.input.reserve(64 * 1024);
            for _ in 0..each {
                self.submitted += 1;
                (self.words.submit)(&mut line.input, self.submitted);
            }
            line.feed();
        }
    }

    /// Half of the workers take a job, the others complete theirs.
    fn work(&mut self, turn: u64) {
        for (at, line) in self.workers.iter_mut().enumerate() {
            line.input.reserve(64 * 1024);
            if (at as u64 + turn).is_multiple_of(2) {
                line.input.extend_from_slice(&self.words.lease);
            } else if !line.got.is_empty() {
                (self.words.complete)(&mut line.input, &line.got);
            }
            line.feed();
        }
    }

    /// What was read is decided: it is committed, and the answers leave.
    fn end_turn(&mut self) {
        self.sessions.engine.end_turn();
        self.sessions.engine.commit();
        for line in self.producers.iter_mut().chain(&mut self.workers) {
            line.flush(self.sessions.engine.durable());
        }
    }

    fn run(&mut self, cycles: bool, jobs: u64) {
        while self.submitted < WAITING {
            self.submit(PRODUCERS, DEEP);
            self.end_turn();
        }
        let (producers, each) = if cycles { (PRODUCERS / 2, 1) } else { (PRODUCERS, DEEP) };
        for turn in 0.. {
            if self.submitted >= WAITING + jobs {
                return;
            }
            self.submit(producers, each);
            if cycles {
                self.work(turn);
            }
            self.end_turn();
        }
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let (door, kind) = (args.next().unwrap_or_default(), args.next().unwrap_or_default());
    let jobs = args.next().map_or(100_000, |jobs| jobs.parse().expect("a number"));
    let (access, auth) = match args.next() {
        Some(file) => {
            let access = Access::of_file(file.as_ref()).expect("a tokens file").required(true);
            (access, format!("auth {}\r\n", args.next().expect("a token")))
        }
        None => (Access::open(), String::new()),
    };
    let mut options = Options::default();
    let policies = spindle_gearman::policies(0).into_iter().chain([spindle_workq::policy()]);
    options.defaults.policies = policies.collect();
    let log = Arc::new(MemoryLog::new());
    let engine = Engine::open(log, Arc::new(SystemClock::new()), options).expect("starts");
    let cycles = kind == "cycle";
    if door == "workq" {
        let door = WorkqDoor::new(engine.clone(), Default::default()).with_access(access);
        Run::new(&engine, door, workq(), auth.as_bytes()).run(cycles, jobs);
    } else {
        let words = if door == "gearman" { gearman() } else { gearman_unique() };
        let options = spindle_gearman::Options { access, ..Default::default() };
        let door = GearmanDoor::new(engine.clone(), options);
        Run::new(&engine, door, words, auth.as_bytes()).run(cycles, jobs);
    }
}
