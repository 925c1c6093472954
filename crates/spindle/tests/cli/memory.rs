//! What clients make a server hold: floods of unfinished requests do not end it, and its memory goes
//! back.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::thread;

use spindle_testkit::{HttpRequest, PATIENCE, SpindleServer, wait_until};

const MIB: usize = 1 << 20;

/// A small server, and an honest client of its Workq door.
struct Small {
    server: SpindleServer,
    honest: BufReader<TcpStream>,
    jobs: usize,
}

impl Small {
    fn start() -> Small {
        let arguments = ["--memory", "--unfinished-input-max", "64MiB", "--jobd-master", "off"];
        let ports = ["--workq", "127.0.0.1:0", "--gearman", "127.0.0.1:0", "--http", "127.0.0.1:0"];
        let arguments = [&arguments[..], &ports].concat();
        let server = SpindleServer::start(env!("CARGO_BIN_EXE_spindle"), &arguments, "http");
        let honest = BufReader::new(connect(&server, "workq"));
        Small { server, honest, jobs: 0 }
    }

    /// Submits a job, which is taken at once.
    fn submit(&mut self) {
        self.jobs += 1;
        let id = format!("6ba7b810-9dad-41d1-80b4-{:012x}", self.jobs);
        let request = format!("add {id} mail 60000 3600000 5\r\nhello\r\n");
        self.honest.get_mut().write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        self.honest.read_line(&mut answer).unwrap();
        assert_eq!(answer, "+OK\r\n");
    }

    /// A number of `/proc/PID/status`, in bytes.
    fn memory(&self, field: &str) -> usize {
        let status = fs::read_to_string(format!("/proc/{}/status", self.server.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        let kib = line.trim_start_matches(':').trim().trim_end_matches(" kB");
        kib.parse::<usize>().unwrap() * 1024
    }

    /// Clients closed because they held the most.
    fn closed(&self) -> usize {
        let http = self.server.address_of("http");
        let (status, text) = HttpRequest::send(&http, "GET /metrics", "").answer();
        assert_eq!(status, 200);
        let line = "spindle_held_closed_total{budget=\"unfinished_input\"} ";
        text.lines().find_map(|it| it.strip_prefix(line)).unwrap().parse().unwrap()
    }
}

fn connect(server: &SpindleServer, door: &str) -> TcpStream {
    let stream = TcpStream::connect(server.address_of(door)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// The beginning of a Gearman packet of 48 MiB, unless the server closes meanwhile.
fn send_most_of_a_packet(mut stream: &TcpStream) {
    let length = (48 * MIB) as u32;
    let mut header = b"\0REQ\0\0\0\x12".to_vec();
    header.extend(length.to_be_bytes());
    header.extend(b"mail\0\0");
    let piece = vec![b'x'; MIB];
    let _ =
        stream.write_all(&header).and_then(|()| (0..40).try_for_each(|_| stream.write_all(&piece)));
}

#[test]
fn thirty_unfinished_packets_do_not_end_a_small_server() {
    let mut small = Small::start();
    small.submit();
    let mut streams: Vec<_> = (0..30).map(|_| connect(&small.server, "gearman")).collect();
    thread::scope(|scope| {
        let flood: Vec<_> = streams
            .chunks(6)
            .map(|streams| scope.spawn(|| streams.iter().for_each(send_most_of_a_packet)))
            .collect();
        while flood.iter().any(|thread| !thread.is_finished()) {
            small.submit();
        }
        // A client that was closed may go on sending for a while, and nobody reads it.
        flood.into_iter().for_each(|thread| thread.join().unwrap());
    });
    small.submit();
    let closed = small.closed();
    assert!(closed >= 28, "{closed} of 30 were closed");
    let most = small.memory("VmHWM");
    assert!(most < 400 * MIB, "the server took up to {} MiB", most / MIB);
    // At least one had the time to read why.
    let mut why = String::new();
    for stream in &mut streams {
        let mut bytes = Vec::new();
        let _ = stream.set_nonblocking(true);
        let _ = stream.read_to_end(&mut bytes);
        why.push_str(&String::from_utf8_lossy(&bytes));
    }
    assert!(why.contains("SERVER_ERROR\0the server holds too many unfinished requests"), "{why}");
}

/// A Gearman worker that says as much as one may.
fn says_all_it_can(stream: &mut TcpStream, number: usize) {
    let can_do = |function: usize| {
        let name = format!("{number:08}{function:056}");
        [&b"\0REQ\0\0\0\x01\0\0\0\x40"[..], name.as_bytes()].concat()
    };
    let mut all: Vec<u8> = (0..1024).flat_map(can_do).collect();
    // One more, which is refused after the others have been taken.
    all.extend(can_do(1024));
    stream.write_all(&all).unwrap();
    let mut error = [0; 12];
    stream.read_exact(&mut error).unwrap();
    assert_eq!(error[..8], *b"\0RES\0\0\0\x13");
}

/// No budget counts what workers have said.
#[test]
fn memory_goes_back_when_many_connections_have_closed() {
    let mut small = Small::start();
    small.submit();
    let before = small.memory("VmRSS");
    let flood: Vec<_> = (0..300)
        .map(|number| {
            let mut stream = connect(&small.server, "gearman");
            says_all_it_can(&mut stream, number);
            small.submit();
            stream
        })
        .collect();
    let most = small.memory("VmRSS");
    assert!(most > before + 40 * MIB, "only {} MiB", (most - before) / MIB);
    assert!(most < before + 300 * MIB, "{} MiB", (most - before) / MIB);
    drop(flood);
    wait_until("the memory", || small.memory("VmRSS") < before + 24 * MIB);
    small.submit();
}

#[test]
fn memory_goes_back_after_a_flood() {
    let mut small = Small::start();
    for _ in 0..100 {
        small.submit();
    }
    let before = small.memory("VmRSS");
    // Requests of many sizes, and jobs between them that stay, so that the freed memory is
    // fragmented.
    let flood: Vec<_> = (0..300)
        .map(|number| {
            let mut stream = connect(&small.server, "workq");
            let bytes = 150_000 + number * 100;
            let id = format!("6ba7b810-9dad-41d1-80b4-f{number:011x}");
            let head = format!("add {id} mail 60000 3600000 1000000\r\n{}", "x".repeat(bytes));
            stream.write_all(head.as_bytes()).unwrap();
            small.submit();
            stream
        })
        .collect();
    wait_until("the flood", || small.memory("VmRSS") > before + 40 * MIB);
    drop(flood);
    wait_until("the memory", || small.memory("VmRSS") < before + 16 * MIB);
    small.submit();
}
