//! Limits on connections of a real server: which clients are refused, and what the others notice.

use std::{
    fs,
    io::{BufRead, BufReader, ErrorKind, Read, Write},
    net::TcpStream,
};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use spindle_testkit::{HttpRequest, PATIENCE, SpindleServer, wait_until, write_script};

use crate::serve::{data, serve};

/// A connection to the Workq door.
struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(address: &str) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client(BufReader::new(stream))
    }

    /// The first line of the answer; none: the connection is closed.
    fn ask(&mut self, request: &str) -> Option<String> {
        let mut line = String::new();
        let asked = self.0.get_mut().write_all(request.as_bytes());
        let answered = asked.and_then(|()| self.0.read_line(&mut line));
        match answered {
            Ok(count) => (count > 0).then(|| line.trim_end().to_owned()),
            Err(error) => {
                let closed = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
                assert!(closed.contains(&error.kind()), "{error}");
                None
            }
        }
    }

    fn add(&mut self, number: u128, payload: &str) -> Option<String> {
        let id = uuid::Uuid::from_u128(number);
        self.ask(&format!("add {id} q 60000 3600000 {}\r\n{payload}\r\n", payload.len()))
    }

    fn is_served(&mut self) -> bool {
        let is_served = self.ask("inspect server\r\n").is_some();
        if is_served {
            // The rest of the answer.
            let _ = self.0.fill_buf();
            let count = self.0.buffer().len();
            self.0.consume(count);
        }
        is_served
    }
}

/// Asks over HTTP, and leaves the connection open. Returns the begin of the answer.
fn keep_open(address: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut begin = [0; 64];
    let count = stream.read(&mut begin).unwrap_or(0);
    let answer = String::from_utf8_lossy(&begin[..count]).into_owned();
    (stream, answer)
}

fn metric(address: &str, name: &str) -> Option<u64> {
    let (status, text) = HttpRequest::send(address, "GET /metrics", "").answer();
    assert_eq!(status, 200, "{text}");
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.map(|value| value.parse().unwrap())
}

fn refused(door: &str, limit: &str) -> String {
    format!("spindle_connections_refused_total{{door=\"{door}\",limit=\"{limit}\"}}")
}

#[test]
fn each_limit_on_connections_holds_and_says_which_it_was() {
    let given = ["--memory", "--workq", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    let limits = ["--connections-max", "4", "--door-connections-max", "3"];
    let served = serve(&[&given[..], &limits].concat());
    let (workq, http) = (served.address_of("workq"), served.address_of("http"));
    let mut clients: Vec<Client> = (0..3).map(|_| Client::connect(&workq)).collect();
    assert!(clients.iter_mut().all(Client::is_served));
    assert!(!Client::connect(&workq).is_served(), "one too many at its door");
    assert_eq!(metric(&http, &refused("workq", "door")), Some(1));
    assert_eq!(metric(&http, &refused("workq", "server")), Some(0));
    // The server's fourth and last place is at the other door, and one more is refused there.
    let mut fourth = None;
    wait_until("the last place", || {
        let (stream, answer) = keep_open(&http);
        fourth = Some(stream);
        answer.starts_with("HTTP/1.1 200 ")
    });
    let (_, answer) = keep_open(&http);
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    clients.pop();
    wait_until("the place", || Client::connect(&workq).is_served());
    drop((clients, fourth));
    wait_until("places", || keep_open(&http).1.starts_with("HTTP/1.1 200 "));
    assert!(metric(&http, &refused("http", "server")) >= Some(1));
    let line = served.said.await_line("connections refused");
    assert!(line.contains("workq") && line.contains("all 3 places of this door"), "{line}");
}

/// The server may have 256 files open, and a thousand connections come.
#[test]
fn a_flood_of_connections_takes_nothing_from_the_log() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    let (folder, data) = data();
    let program = folder.path().join("few-files");
    let script =
        format!("#!/bin/sh\nulimit -n 256\nexec {} \"$@\"\n", env!("CARGO_BIN_EXE_spindle"));
    write_script(&program, &script);
    let given = ["--data", &data, "--segment-size", "64KiB", "--workq", "127.0.0.1:0"];
    let more = ["--http", "127.0.0.1:0", "--gearman", "off", "--jobd-master", "off"];
    let given = [&given[..], &more].concat();
    let mut server = SpindleServer::start(program.to_str().unwrap(), &given, "workq");
    let (workq, http) = (server.address_of("workq"), server.address_of("http"));
    let payload = "x".repeat(20_000);
    let mut open = Client::connect(&workq);
    // More files of the log than are kept for it beside connections.
    for number in 1..=100 {
        assert_eq!(open.add(number, &payload).as_deref(), Some("+OK"), "job {number}");
    }
    let segments = || {
        let names = fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().ends_with(".segment")).count()
    };
    let before = segments();
    assert!(before > 32, "{before} segments");

    let flood: Vec<TcpStream> = (0..1000)
        .map(|n| TcpStream::connect(if n % 2 == 0 { &workq } else { &http }).unwrap())
        .collect();
    // Jobs of the open connection go on, over several segments of the log.
    for number in 101..140 {
        assert_eq!(open.add(number, &payload).as_deref(), Some("+OK"), "job {number}");
    }
    assert!(segments() > before + 5, "{} segments", segments());
    drop(flood);
    wait_until("a place at each door", || {
        let is_served = Client::connect(&workq).is_served();
        is_served && keep_open(&http).1.starts_with("HTTP/1.1 200 ")
    });
    assert_eq!(metric(&http, "spindle_disk_full"), Some(0));
    let all = ["workq", "http"].map(|door| {
        ["server", "door", "address"].map(|limit| metric(&http, &refused(door, limit)).unwrap())
    });
    let count: u64 = all.iter().flatten().sum();
    assert!((700..1000).contains(&count), "{all:?} were refused");
    drop(open);
    server.ask_to_end();
    assert_eq!(server.await_end().code(), Some(0));
    let said = server.said.await_end();
    for trouble in ["another segment", "cannot accept", "Too many open files", "full"] {
        assert!(!said.contains(trouble), "{trouble}:\n{said}");
    }
}

#[test]
fn the_soft_limit_of_open_files_is_raised_to_the_hard_one() {
    let (folder, _) = data();
    let program = folder.path().join("few-at-first");
    let script =
        format!("#!/bin/sh\nulimit -S -n 100\nexec {} \"$@\"\n", env!("CARGO_BIN_EXE_spindle"));
    write_script(&program, &script);
    let given = ["--memory", "--workq", "127.0.0.1:0", "--http", "off", "--gearman", "off"];
    let given = [&given[..], &["--jobd-master", "off"]].concat();
    let server = SpindleServer::start(program.to_str().unwrap(), &given, "workq");
    let limits = fs::read_to_string(format!("/proc/{}/limits", server.id())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let [soft, hard] = [3, 4].map(|nth| line.split_whitespace().nth(nth).unwrap());
    assert!(soft == hard && hard != "100", "{line}");
}
