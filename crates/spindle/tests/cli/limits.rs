//! Checks that settings of limits reach what they limit, each at the limit and one above, and that
//! docs/limits.md has the fixed ones. Other effects of a limit are tested where it applies.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    thread,
};

use serde_json::{Value, json};
use spindle_http::BodyLimits;
use spindle_testkit::{Certificates, HttpRequest, PATIENCE, TokensFile, wait_until};
use spindle_tls::ServerFiles;

use crate::serve::{Served, data, serve};

const DOORS: [&str; 4] = ["--workq", "127.0.0.1:0", "--http", "127.0.0.1:0"];

fn limited(arguments: &[&str]) -> Served {
    serve(&[&DOORS[..], arguments].concat())
}

/// The status of an answer, and its code if it is a problem.
fn ask(served: &Served, head: &str, body: &Value) -> (u16, String) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let (status, text) = HttpRequest::send(&served.address_of("http"), head, &body).answer();
    let answer: Value = serde_json::from_str(&text).unwrap_or_default();
    (status, answer["code"].as_str().unwrap_or_default().to_owned())
}

fn add(served: &Served, queue: &str, payload: &Value) -> (u16, String) {
    ask(served, "POST /api/v1/jobs", &json!({ "queue": queue, "payload": payload }))
}

fn taken() -> (u16, String) {
    (201, String::new())
}

fn refused(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

fn connect(served: &Served, door: &str) -> TcpStream {
    let stream = TcpStream::connect(served.address_of(door)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

#[test]
fn a_queue_and_the_server_have_their_unfinished_jobs_and_not_one_more() {
    let limits = ["--unfinished-jobs-max", "3", "--queue-unfinished-jobs-max", "2"];
    let served = limited(&[&["--memory"], &limits[..]].concat());
    let add = |queue: &str| add(&served, queue, &Value::Null);
    assert_eq!([add("a"), add("a")], [taken(), taken()]);
    assert_eq!(add("a"), refused(429, "queue_full"));
    assert_eq!(add("b"), taken());
    assert_eq!(add("b"), refused(429, "server_full"));
}

#[test]
fn a_constraint_has_its_values_and_not_one_more() {
    let served = limited(&["--memory", "--constraint-values-max", "2"]);
    let each = json!({ "queue": "mail", "per": "/user", "running_max": 1 });
    assert_eq!(ask(&served, "PUT /api/v1/constraints/each", &each).0, 201);
    let add = |user: u32| add(&served, "mail", &json!({ "user": user })).0;
    assert_eq!([add(1), add(2), add(2)], [201, 201, 201]);
    assert_eq!(add(3), 429);
}

#[test]
fn finished_jobs_are_kept_up_to_their_number_and_not_one_more() {
    let served = limited(&["--memory", "--finished-max", "2"]);
    let is_kept = |id: u32| ask(&served, &format!("GET /api/v1/jobs/{id}"), &Value::Null).0 == 200;
    for _ in 0..2 {
        served.spindle(&["add", "q", "x"]).assert().success();
        served.spindle(&["work", "q", "--once", "--", "true"]).assert().success();
    }
    assert!(is_kept(1) && is_kept(2));
    served.spindle(&["add", "q", "x"]).assert().success();
    served.spindle(&["work", "q", "--once", "--", "true"]).assert().success();
    wait_until("the oldest to go", || !is_kept(1));
    assert!(is_kept(2) && is_kept(3));
}

#[test]
fn a_log_has_its_bytes_and_new_jobs_are_refused_beyond() {
    let (_folder, data) = data();
    let limits = ["--segment-size", "64KiB", "--log-bytes-max", "256KiB"];
    let served = limited(&[&["--data", &data], &limits[..]].concat());
    let payload = json!("x".repeat(4096));
    let count = (1..100).find(|_| add(&served, "q", &payload) != taken());
    // Sixty of them fill it, less what else is in a segment.
    assert!((30..=64).contains(&count.unwrap()), "{count:?}");
    assert_eq!(add(&served, "q", &payload), refused(507, "log_full"));
}

#[test]
fn a_list_of_jobqs_has_its_bytes_and_a_longer_one_is_refused() {
    let served = limited(&["--memory", "--jobq-list-size", "1KiB"]);
    let list = || ask(&served, "GET /api/v0/job", &Value::Null);
    let create = |bytes: usize| ask(&served, "POST /api/v0/job/create", &json!("x".repeat(bytes)));
    assert_eq!(create(600).0, 200);
    assert_eq!(list().0, 200);
    assert_eq!(create(600).0, 200);
    assert_eq!(list(), refused(400, "query_too_costly"));
}

/// Requests that come in one piece, so that no time passes between them.
#[test]
fn a_token_has_its_requests_a_second_whatever_they_are() {
    let tokens = TokensFile::of(&TokensFile::entry("sesame", "admin", "*", ""));
    let tokens = tokens.path();
    let files = ["--tokens", tokens.to_str().unwrap(), "--token-requests-max", "2"];
    let long = format!("X: {}\r\n", "x".repeat(64 * 1024));
    for (line, more, status) in [
        ("GET /api/v1/queues", "", 200),
        ("GET /nowhere", "", 404),
        ("DELETE /api/v1/queues", "", 405),
        ("GET /api/v1/queues", &*long, 431),
    ] {
        let served = limited(&[&["--memory"], &files[..]].concat());
        let mut stream = connect(&served, "http");
        let request = |more: &str| {
            format!(
                "{line} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer sesame\r\n{more}\r\n"
            )
        };
        let last = request(&format!("Connection: close\r\n{more}"));
        stream.write_all([request(more), request(more), last].concat().as_bytes()).unwrap();
        let mut answers = String::new();
        stream.read_to_string(&mut answers).unwrap();
        let answers = answers.split("HTTP/1.1 ").skip(1);
        let statuses: Vec<u16> = answers.map(|answer| answer[..3].parse().unwrap()).collect();
        assert_eq!(statuses, [status, status, 429], "{line}");
    }
}

#[test]
fn connections_that_are_idle_for_too_long_are_closed_at_every_door() {
    let doors = ["--gearman", "127.0.0.1:0", "--jobd-master", "127.0.0.1:0"];
    let limits = ["--idle-timeout", "1s", "--http-idle-timeout", "1s"];
    let served = limited(&[&["--memory"], &doors[..], &limits].concat());
    let http = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let open: Vec<_> = [
        ("workq", "inspect server\r\n", "+OK"),
        ("workq", "", ""),
        ("gearman", "version\n", "OK"),
        ("gearman", "", ""),
        ("jobd-master", "[2]\x04", "[3]\x04"),
        ("jobd-master", "", ""),
        ("http", http, "HTTP/1.1 200"),
        ("http", "", ""),
    ]
    .map(|(door, request, answer)| {
        let mut stream = connect(&served, door);
        stream.write_all(request.as_bytes()).unwrap();
        (door, stream, answer)
    })
    .into_iter()
    .collect();
    // Connections that wait for an answer are not idle.
    let mut waiting = connect(&served, "workq");
    waiting.write_all(b"lease q 2500\r\n").unwrap();
    for (door, mut stream, answer) in open {
        let mut said = String::new();
        let ended = stream.read_to_string(&mut said);
        assert!(ended.is_ok() && said.starts_with(answer), "{door}: {ended:?} {said}");
    }
    let mut said = [0; 10];
    waiting.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"-TIMEOUT\r\n", "{}", said.escape_ascii());
}

/// What each door but HTTP asks for before it serves: with tokens and a password, with TLS, or nothing.
#[test]
fn clients_that_do_not_log_in_in_time_are_closed_where_they_have_to() {
    let doors = ["--memory", "--gearman", "127.0.0.1:0", "--jobd-master", "127.0.0.1:0"];
    let start = |more: &[&str]| limited(&[&doors[..], &["--login-timeout", "1s"], more].concat());
    let files = tempfile::tempdir().unwrap();
    let password = files.path().join("password");
    fs::write(&password, "sesame").unwrap();
    fs::set_permissions(&password, fs::Permissions::from_mode(0o600)).unwrap();
    let tokens = TokensFile::of(&TokensFile::entry("known", "admin", "*", ""));
    let (tokens, password) = (tokens.path(), password.to_str().unwrap());
    let tokens = tokens.to_str().unwrap();
    let asking = ["--require-auth", "--tokens", tokens, "--jobd-master-password-file", password];
    let (asking, open) = (start(&asking), start(&[]));
    let certificates = Certificates::new();
    let ServerFiles { certificate, key, .. } = certificates.server();
    let [certificate, key] = [certificate, key].map(|path| path.to_str().unwrap().to_owned());
    let secured = ["--tls-cert", &certificate, "--tls-key", &key];
    let required = ["workq", "gearman", "jobd-master"].map(|door| format!("--{door}-tls"));
    let required = required.iter().flat_map(|flag| [flag.as_str(), "required"]);
    let secured = start(&secured.into_iter().chain(required).collect::<Vec<_>>());
    let login = "[0,{\"no\":1,\"type\":\"status\",\"password\":\"sesame\"}]\x04";
    for (door, login, idle, request, answer, end) in [
        ("workq", "auth known\r\n", "auth unknown\r\n", "inspect server\r\n", "+OK", b'\n'),
        ("gearman", "auth known\n", "version\n", "getpid\n", "OK", b'\n'),
        ("jobd-master", login, "[2]\x04", "[2]\x04", "[3]", 4),
    ] {
        let ask = |stream: &mut TcpStream, request: &str| {
            let (mut heard, mut byte) = (Vec::new(), [0]);
            stream.write_all(request.as_bytes()).ok()?;
            while heard.last() != Some(&end) {
                stream.read_exact(&mut byte).ok()?;
                heard.push(byte[0]);
            }
            String::from_utf8(heard).ok()
        };
        let mut free = connect(&open, door);
        // A busy machine may need more than one try to be in time.
        let mut known = loop {
            let mut stream = connect(&asking, door);
            if ask(&mut stream, login).is_some() {
                break stream;
            }
        };
        for (served, sent) in [(&asking, ""), (&asking, idle), (&secured, "")] {
            let mut stranger = connect(served, door);
            stranger.write_all(sent.as_bytes()).unwrap();
            let ended = stranger.read_to_end(&mut Vec::new());
            assert!(ended.is_ok(), "{door} {sent}: {ended:?}");
        }
        for stays in [&mut free, &mut known] {
            let heard = ask(stays, request).unwrap_or_default();
            assert!(heard.starts_with(answer), "{door}: {heard}");
        }
    }
}

/// A client that asks for much and reads nothing holds at most 4 MiB by itself: the limit that is
/// exceeded here is the one on the sum.
#[test]
fn answers_that_nobody_reads_have_their_bytes_and_who_has_the_most_is_closed() {
    let given = ["--memory", "--gearman", "127.0.0.1:0", "--unread-output-max", "1MiB"];
    let served = limited(&given);
    let closed = || {
        let (_, text) = HttpRequest::send(&served.address_of("http"), "GET /metrics", "").answer();
        let line = "spindle_held_closed_total{budget=\"unread_output\"} ";
        text.lines().find_map(|it| it.strip_prefix(line)).unwrap().parse::<u64>().unwrap()
    };
    let echo = |bytes: usize| {
        let length = u32::try_from(bytes).unwrap().to_be_bytes();
        [&b"\0REQ\0\0\0\x10"[..], &length, &vec![b'x'; bytes]].concat()
    };
    let mut modest = connect(&served, "gearman");
    modest.write_all(&echo(512 << 10)).unwrap();
    modest.read_exact(&mut vec![0; (512 << 10) + 12]).unwrap();
    assert_eq!(closed(), 0);
    let mut greedy = connect(&served, "gearman");
    let piece = echo(1 << 20);
    thread::spawn(move || while greedy.write_all(&piece).is_ok() {});
    wait_until("its end", || closed() == 1);
    modest.write_all(&echo(5)).unwrap();
    modest.read_exact(&mut [0; 17]).unwrap();
}

const PAGE: &str = include_str!("../../../../docs/limits.md");

/// The default of a row: its third cell.
#[track_caller]
fn default_of(what: &str) -> &'static str {
    let begin = format!("| {what} |");
    let row = PAGE.lines().find(|line| line.starts_with(&begin));
    let row = row.unwrap_or_else(|| panic!("the page has no row of {what}"));
    row.split('|').nth(3).expect("a row has five cells").trim()
}

/// The core, the engine and the jobd master have tests of their own.
#[test]
fn the_page_of_limits_says_what_the_doors_allow() {
    let lines = spindle_net::Limits::default();
    let http = spindle_http::listen::Limits::default();
    let body = BodyLimits::default();
    let workq = spindle_workq::wire::Limits::default();
    let gearman = spindle_gearman::wire::Limits::default();
    let payload = spindle_engine::Options::default().payload_bytes_max;
    let whole = |bytes: usize, unit: usize| {
        assert_eq!(bytes % unit, 0, "{bytes}");
        bytes / unit
    };
    let (kib, mib) = (|bytes| whole(bytes, 1 << 10), |bytes| whole(bytes, 1 << 20));
    for (what, limit) in [
        (
            "time without a byte in the middle of a request or message",
            format!("{} s", lines.partial_request_timeout.as_secs()),
        ),
        ("time to log in", format!("`{}m`", lines.login_timeout.as_secs() / 60)),
        ("time for a request's body", format!("{} s", body.time.as_secs())),
        (
            "time for the rest of a body whose request is refused",
            format!("{} s", http.unread_body_time.as_secs()),
        ),
        ("time for a TLS handshake", format!("{} s", lines.handshake_timeout.as_secs())),
        ("time for a TLS handshake", format!("{} s", http.handshake_time.as_secs())),
        (
            "time without taking a byte of an answer",
            format!(
                "{} s; H and J {} s",
                lines.write_stall_timeout.as_secs(),
                http.write_time.as_secs()
            ),
        ),
        (
            "answers that a client has not read",
            format!("{} MiB; J 1 MiB", mib(lines.outbox_bytes_max)),
        ),
        (
            "what a client sends ahead while its request is answered",
            format!(
                "{} KiB of a connection, beside the limit before this one",
                kib(http.head_bytes_max)
            ),
        ),
        ("a request's head", format!("{} KiB, 100 fields", kib(http.head_bytes_max))),
        ("a request's body", format!("{} MiB", mib(body.bytes_max))),
        ("a command line", format!("{} KiB", kib(workq.line_bytes_max))),
        ("queues in one lease", "1,024".to_owned()),
        ("a text line", format!("{} KiB", kib(gearman.line_bytes_max))),
        (
            "payload, result",
            format!(
                "W {} MiB; H {} MiB (the body); G {} MiB",
                mib(workq.payload_bytes_max),
                mib(body.bytes_max),
                mib(payload)
            ),
        ),
    ] {
        assert_eq!(default_of(what), limit, "{what}");
    }
    assert_eq!(workq.lease_names_max, 1024);
    assert_eq!(workq.result_bytes_max, workq.payload_bytes_max);
    // A packet has room for the arguments before the longest payload.
    assert_eq!(gearman.packet_bytes_max, payload + 1024);
}
