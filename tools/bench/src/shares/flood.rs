//! The floods, each a process of its own (`spindle-bench flood`) that goes on until it is killed or
//! has nothing left to do.

use crate::cli::FloodArgs;
use crate::http::{ANSWER_TIME_MAX, HttpClient, connect};
use crate::load::{self, Checker, Jobs, Plan, Target};
use crate::suite::Door;
use crate::wire::Wire;
use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// More than any flood gets done.
const ENDLESS: u64 = 100_000_000;
/// Requests that the one connection keeps outstanding.
const DEPTH: usize = 1_000;
/// Connections of [`Flood::Large`].
const LARGE_CONNECTIONS: usize = 4;
/// Connections of [`Flood::Connects`] that are open at a time.
const CONNECTING: usize = 16;
/// Connections of [`Flood::Scan`].
const SCANNING: usize = 4;
/// The number of addresses that connections come from.
const ADDRESSES: u32 = 250;
/// The pause while the system has no port left.
const PORTS_PAUSE: Duration = Duration::from_millis(5);

/// What a client does that has no regard for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Flood {
    /// Submits over one connection, very deep.
    Deep,
    /// Submits over many connections, each as fast as it is answered.
    Many,
    /// Submits with payloads of megabytes.
    Large,
    /// Connections that ask one thing and close.
    Connects,
    /// Purges of queues with many jobs.
    Purge,
    /// Bulk deletes of as many.
    Delete,
    /// Lists that look through all jobs.
    Scan,
}

impl Flood {
    /// Those that a door can be flooded with.
    pub(crate) fn of(door: Door) -> &'static [Self] {
        const EVERYWHERE: [Flood; 4] = [Flood::Deep, Flood::Many, Flood::Large, Flood::Connects];
        const API: [Flood; 7] = {
            let [a, b, c, d] = EVERYWHERE;
            [a, b, c, d, Flood::Purge, Flood::Delete, Flood::Scan]
        };
        if door == Door::Api { &API } else { &EVERYWHERE }
    }

    /// For people.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Deep => "one connection, 1,000 submits deep",
            Self::Many => "submits over 64 connections",
            Self::Large => "payloads of megabytes",
            Self::Connects => "a connection for each request",
            Self::Purge => "purges",
            Self::Delete => "bulk deletes",
            Self::Scan => "lists that look at all jobs",
        }
    }

    /// Whether it needs jobs that wait.
    pub(super) fn needs_jobs(self) -> bool {
        matches!(self, Self::Purge | Self::Delete | Self::Scan)
    }

    /// Whether it ends by itself.
    pub(super) fn ends(self) -> bool {
        matches!(self, Self::Purge | Self::Delete)
    }
}

/// The body of the process.
pub(crate) fn run(args: &FloodArgs) -> Result<()> {
    let (door, address) = (args.door, args.address);
    match args.flood {
        Flood::Deep => submit(door, address, 1, DEPTH),
        Flood::Many => submit(door, address, 64, 1),
        Flood::Large => at_once(LARGE_CONNECTIONS, move |_| large(door, address)),
        Flood::Connects => at_once(CONNECTING, move |_| connects(door, address)),
        Flood::Purge => args.queues.iter().try_for_each(|queue| purge(address, queue)),
        Flood::Delete => args.queues.iter().try_for_each(|queue| delete(address, queue)),
        Flood::Scan => at_once(SCANNING, move |number| scan(address, number)),
    }
}

fn wire(door: Door) -> Wire {
    match door {
        Door::Workq => Wire::Workq,
        Door::Gearman => Wire::Gearman,
        Door::Api => Wire::Api,
        Door::Jobq => Wire::Jobq,
    }
}

fn submit(door: Door, address: SocketAddr, connections: usize, depth: usize) -> Result<()> {
    let jobs = Jobs::fresh(wire(door));
    let plan = Plan::submits(ENDLESS, connections, depth);
    load::run(&Target { address, tls: None, token: None }, &jobs, plan, &mut Checker::default())?;
    Ok(())
}

/// Does the same on several threads, until one fails.
fn at_once(
    count: usize,
    work: impl Fn(usize) -> Result<()> + Clone + Send + 'static,
) -> Result<()> {
    let (ended, outcome) = channel();
    for number in 0..count {
        let (ended, work) = (ended.clone(), work.clone());
        thread::spawn(move || {
            // The receiver exists until the first of them ends.
            let _ = ended.send(work(number));
        });
    }
    outcome.recv()?
}

/// The largest payloads that all requests of a door may have, up to 4 MiB.
fn large_payload_bytes(door: Door) -> usize {
    if door == Door::Workq { 1 << 20 } else { 4 << 20 }
}

fn large(door: Door, address: SocketAddr) -> Result<()> {
    let (wire, bytes) = (wire(door), large_payload_bytes(door));
    // Only its ids are needed.
    let jobs = Jobs::fresh(wire);
    let parts = wire.submit_parts(jobs.queue(), bytes);
    let payload = vec![b'p'; bytes];
    let mut stream = connect(address)?;
    let mut input = vec![];
    for number in 0.. {
        let mut head = parts.head.clone();
        if wire == Wire::Workq {
            head.extend_from_slice(&jobs.id(number));
        }
        head.extend_from_slice(&parts.tail);
        for part in [&head[..], &payload, parts.end] {
            stream.write_all(part)?;
        }
        while wire.decode(&input)?.is_none() {
            let mut bytes = [0; 4096];
            let count = stream.read(&mut bytes)?;
            ensure!(count > 0, "the server closed a connection");
            input.extend_from_slice(&bytes[..count]);
        }
        input.clear();
    }
    Ok(())
}

fn connects(door: Door, address: SocketAddr) -> Result<()> {
    let question: &[u8] = match door {
        Door::Workq => b"inspect server\r\n",
        Door::Gearman => b"version\n",
        Door::Api | Door::Jobq => {
            b"GET /api/v1/queues/none HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        }
    };
    for number in 0u32.. {
        let asked = connect_from(number, address).and_then(|mut stream| {
            stream.write_all(question)?;
            // The first bytes are enough.
            Ok(stream.read(&mut [0; 4096])?)
        });
        match asked {
            Ok(count) => ensure!(count > 0, "the server closed a connection"),
            Err(error) => match error.downcast_ref::<std::io::Error>().map(|error| error.kind()) {
                Some(ErrorKind::AddrNotAvailable) => thread::sleep(PORTS_PAUSE),
                _ => return Err(error),
            },
        }
    }
    Ok(())
}

/// A connection from one of many addresses, as if from many machines: with a single address the
/// kernel would soon spend its time searching for a free port.
fn connect_from(number: u32, to: SocketAddr) -> Result<TcpStream> {
    let [_, second, third, fourth] = (number % ADDRESSES + 2).to_be_bytes();
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from(([127, second, third, fourth], 0)).into())?;
    socket.connect(&to.into())?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
    Ok(stream)
}

fn purge(address: SocketAddr, queue: &str) -> Result<()> {
    let path = format!("/api/v1/queues/{queue}/purge");
    let answer = asked(&mut HttpClient::connect(address)?, "POST", &path, "")?;
    ensure!(answer["deleted"].as_u64() > Some(0), "a purge deleted nothing: {answer}");
    Ok(())
}

fn delete(address: SocketAddr, queue: &str) -> Result<()> {
    let mut http = HttpClient::connect(address)?;
    let mut body = json!({"filter": {"queue": queue}, "action": "delete"});
    let mut deleted = 0;
    loop {
        let answer = asked(&mut http, "POST", "/api/v1/jobs/bulk", &body.to_string())?;
        deleted += answer["changed"].as_u64().context("no number of jobs")?;
        match &answer["next_cursor"] {
            Value::Null => break,
            cursor => body["cursor"] = cursor.clone(),
        }
    }
    ensure!(deleted > 0, "a bulk delete deleted nothing");
    Ok(())
}

fn scan(address: SocketAddr, number: usize) -> Result<()> {
    let paths = [
        "/api/v1/jobs?tag=none&count=true",
        "/api/v1/jobs?text=none&limit=1000",
        "/api/v1/jobs?limit=1000&order=desc",
        "/api/v1/jobs?door=jobq&count=true",
    ];
    let mut http = HttpClient::connect(address)?;
    loop {
        asked(&mut http, "GET", paths[number % paths.len()], "")?;
    }
}

fn asked(http: &mut HttpClient, method: &str, path: &str, body: &str) -> Result<Value> {
    let (status, answer) = http.ask(method, path, body)?;
    let said = String::from_utf8_lossy(&answer);
    ensure!(status == 200, "{path} was answered {status}: {said}");
    Ok(serde_json::from_slice(&answer)?)
}
