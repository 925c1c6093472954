//! TLS of a server that runs: every door, its settings, SIGHUP.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use spindle_testkit::{
    Certificates, PATIENCE, Program, Said, SpindleServer, TlsClient, wait_until,
};
use spindle_tls::{ServerFiles, client::Identity};

use crate::fake_workq::{spindle, stderr};

struct Secured {
    server: SpindleServer,
    certificates: Certificates,
}

/// All doors on free ports, with TLS.
fn secured(more: &[&str]) -> Secured {
    let certificates = Certificates::new();
    let files = certificates.server();
    let (cert, key) = (files.certificate.to_str().unwrap(), files.key.to_str().unwrap());
    let mut arguments = vec!["--memory", "--tls-cert", cert, "--tls-key", key];
    for door in DOORS {
        arguments.extend([door.0, "127.0.0.1:0"]);
    }
    arguments.extend(more);
    let server = SpindleServer::start(env!("CARGO_BIN_EXE_spindle"), &arguments, "workq");
    Secured { server, certificates }
}

const DOORS: [(&str, &str); 4] = [
    ("--workq", "workq"),
    ("--gearman", "gearman"),
    ("--http", "http"),
    ("--jobd-master", "jobd-master"),
];

impl Secured {
    fn socket(&self, door: &str) -> TcpStream {
        let stream = TcpStream::connect(self.server.address_of(door)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    fn client(&self, door: &str) -> TlsClient {
        self.certificates.connect(self.socket(door), None)
    }
}

/// What a door says first, as much as is expected.
#[track_caller]
fn says(mut stream: impl Read + Write, request: &[u8], answer: &[u8]) {
    stream.write_all(request).unwrap();
    let mut said = vec![0; answer.len()];
    if let Err(error) = stream.read_exact(&mut said) {
        panic!("{error} instead of {}", String::from_utf8_lossy(answer));
    }
    assert_eq!(String::from_utf8_lossy(&said), String::from_utf8_lossy(answer));
}

/// A request of each door, and how its answer begins.
fn requests() -> [(&'static str, Vec<u8>, Vec<u8>); 5] {
    let get = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec();
    let echo = b"\0REQ\0\0\0\x10\0\0\0\x05hello".to_vec();
    [
        ("workq", b"inspect server\r\n".to_vec(), b"+OK 1\r\n".to_vec()),
        ("gearman", b"version\n".to_vec(), b"OK ".to_vec()),
        ("gearman", echo, b"\0RES\0\0\0\x11\0\0\0\x05hello".to_vec()),
        ("http", get, b"HTTP/1.1 200 OK\r\n".to_vec()),
        ("jobd-master", b"[2]\x04".to_vec(), b"[3]\x04".to_vec()),
    ]
}

#[test]
fn every_door_serves_plain_and_encrypted_clients_on_one_port() {
    let secured = secured(&[]);
    for (door, request, answer) in requests() {
        says(secured.socket(door), &request, &answer);
        says(secured.client(door), &request, &answer);
    }
}

#[test]
fn every_door_refuses_plain_clients_in_its_own_words_where_tls_is_required() {
    let secured = secured(&[
        "--workq-tls",
        "required",
        "--gearman-tls",
        "required",
        "--http-tls",
        "required",
        "--jobd-master-tls",
        "required",
    ]);
    for (door, request, refusal) in [
        ("workq", &b"inspect server\r\n"[..], &b"-CLIENT-ERROR this port takes encrypted"[..]),
        ("gearman", b"version\n", b"ERR TLS_REQUIRED this+port+takes+encrypted"),
        (
            "gearman",
            b"\0REQ\0\0\0\x10\0\0\0\x05hello",
            b"\0RES\0\0\0\x13\0\0\0\x49TLS_REQUIRED\0this",
        ),
        ("gearman", b"\x01SPD\0\0\0\0", b"\x01SPD\x7f"),
        ("http", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"HTTP/1.1 400 Bad Request\r\n"),
        ("jobd-master", b"[2]\x04", b"[1,{\"no\":0,\"error\":\"this port takes encrypted"),
    ] {
        says(secured.socket(door), request, refusal);
    }
    for (door, request, answer) in requests() {
        says(secured.client(door), &request, &answer);
    }
}

#[test]
fn a_client_of_tls_is_a_stranger_where_tls_is_off() {
    let secured = secured(&["--workq-tls", "off"]);
    let mut socket = secured.socket("workq");
    socket.write_all(b"\x16\x03\x01\x02\0").unwrap();
    assert_eq!(socket.read(&mut [0]).unwrap_or(0), 0);
}

#[test]
fn curl_and_gearadmin_and_openssl_speak_with_it() {
    let secured = secured(&["--http-tls", "required", "--gearman-tls", "required"]);
    let ca = secured.certificates.ca();
    let port = |door: &str| secured.server.address_of(door).rsplit(':').next().unwrap().to_owned();
    let url = format!("https://localhost:{}/healthz", port("http"));
    let curl =
        |more: &[&str]| Command::new("curl").args(["-sSf", &url]).args(more).output().unwrap();
    let trusted = curl(&["--cacert", ca.to_str().unwrap()]);
    assert!(trusted.status.success(), "{trusted:?}");
    let untrusted = curl(&[]);
    assert!(!untrusted.status.success(), "{untrusted:?}");
    let mut openssl = Command::new("openssl")
        .args(["s_client", "-quiet", "-verify_return_error", "-CAfile", ca.to_str().unwrap()])
        .args(["-servername", "localhost", "-connect", &secured.server.address_of("gearman")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    openssl.stdin.as_mut().unwrap().write_all(b"version\n").unwrap();
    let mut said = [0; 3];
    openssl.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
    assert_eq!(&said, b"OK ");
    openssl.kill().unwrap();
    openssl.wait().unwrap();
}

#[test]
fn a_renegotiation_is_refused_and_the_doors_serve_on() {
    let secured = secured(&[]);
    for (door, request, answer) in requests() {
        let mut client = Command::new("openssl")
            .args(["s_client", "-tls1_2", "-connect", &secured.server.address_of(door)])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = client.stdin.take().unwrap();
        let mut of_master = secured.socket("jobd-master");
        let status = |ask: bool| {
            format!("[0,{{\"no\":2,\"type\":\"status\",\"data\":{{\"poll_workers\":{ask}}}}}]\x04")
        };
        if door == "jobd-master" {
            let data = "{\"name\":\"renegotiates\"}";
            let worker =
                format!("[0,{{\"no\":1,\"type\":\"register-worker\",\"data\":{data}}}]\x04\n");
            input.write_all(worker.as_bytes()).unwrap();
            // R is a command only at the beginning of a read.
            wait_until("the worker", || {
                let mut answer = [0; 4096];
                of_master.write_all(status(false).as_bytes()).unwrap();
                let count = of_master.read(&mut answer).unwrap();
                String::from_utf8_lossy(&answer[..count]).contains("renegotiates")
            });
        }
        input.write_all(b"R\n").unwrap();
        // The client looks at the answer when it has something to send. The jobd master sends the
        // refusal with its next message, so another client asks for the status of all workers.
        wait_until("it has ended", || {
            let _ = of_master.write_all(status(true).as_bytes());
            let _ = input.write_all(b"x\n");
            client.try_wait().unwrap().is_some()
        });
        let output = client.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        // The message that comes before the refusal may end it too: no handshake has that in it.
        let ended = said.contains("no renegotiation")
            || door == "jobd-master" && said.contains("unexpected record");
        assert!(ended, "{door}: {said}");
        says(secured.client(door), &request, &answer);
    }
}

#[test]
fn a_new_certificate_is_read_on_sighup_and_a_wrong_one_leaves_the_old_one_in_force() {
    let secured = secured(&[]);
    let shown = |client: &TlsClient| client.conn.peer_certificates().unwrap()[0].clone();
    let connected = || {
        let mut client = secured.client("workq");
        client.conn.complete_io(&mut client.sock).unwrap();
        client
    };
    let hang_up = || {
        let pid = Pid::from_raw(secured.server.id().try_into().unwrap());
        kill(pid, Signal::SIGHUP).unwrap();
    };
    let first = connected();
    let others = fs::read(Certificates::new().server().key).unwrap();
    for wrong in [&b"no key"[..], &others] {
        fs::write(secured.certificates.server().key, wrong).unwrap();
        hang_up();
        secured.server.said.await_line("the old certificate stays in force");
        assert_eq!(shown(&first), shown(&connected()));
    }
    secured.certificates.renew_server();
    hang_up();
    secured.server.said.await_line("new connections get the certificate");
    assert_ne!(shown(&first), shown(&connected()));
    says(first, b"inspect server\r\n", b"+OK 1\r\n");
}

#[test]
fn a_certificate_that_is_not_valid_now_takes_no_valid_ones_place_at_sighup() {
    let secured = secured(&[]);
    let mine = secured.certificates.server();
    let pid = Pid::from_raw(secured.server.id().try_into().unwrap());
    let place = |new: &Identity| {
        fs::copy(&new.certificate, &mine.certificate).unwrap();
        fs::copy(&new.key, &mine.key).unwrap();
        kill(pid, Signal::SIGHUP).unwrap();
    };
    let expires = || {
        let text = metrics(&secured);
        let name = "\nspindle_tls_certificate_expires_timestamp_seconds ";
        let (_, behind) = text.split_once(name).unwrap_or_else(|| panic!("{text}"));
        behind.lines().next().unwrap().parse::<u64>().unwrap()
    };
    let shown = || {
        let mut client = secured.client("workq");
        client.conn.complete_io(&mut client.sock).unwrap();
        client.conn.peer_certificates().unwrap()[0].clone()
    };
    let (first, until) = (shown(), expires());
    let certificates = &secured.certificates;
    for (new, wrong) in [
        (certificates.expired_server(), "has expired on 2021-01-01T00:00:00Z"),
        (certificates.early_server(), "is not valid before 2120-01-01T00:00:00Z"),
    ] {
        place(&new);
        let line = secured.server.said.await_line("the old certificate stays in force");
        assert!(line.contains(&format!("{} {wrong}", mine.certificate.display())), "{line}");
        assert_eq!((shown(), expires()), (first.clone(), until));
    }
    place(&certificates.authority_as_a_server());
    let line = secured.server.said.await_line("the server's certificate");
    assert!(line.contains("WARN") && line.contains("may sign others (CA:TRUE)"), "{line}");
    place(&certificates.server_named("localhost"));
    secured.server.said.await_line("new connections get the certificate");
    assert_ne!(shown(), first);
}

#[test]
fn a_server_starts_with_an_expired_certificate_and_warns_of_it() {
    let certificates = Certificates::new();
    let old = certificates.expired_server();
    let (cert, key) = (old.certificate.to_str().unwrap(), old.key.to_str().unwrap());
    let doors = ["--workq", "127.0.0.1:0", "--http", "off", "--gearman", "off", "--jobd-master"];
    let arguments = ["off", "--memory", "--tls-cert", cert, "--tls-key", key];
    let mut serve = Command::new(env!("CARGO_BIN_EXE_spindle"));
    serve.arg("serve").args(doors).args(arguments);
    let mut server = Program::start(serve.stderr(Stdio::piped()));
    let said = Said::by(server.stderr.take().unwrap());
    let line = said.await_line("the server's certificate");
    let expired = format!("{cert} has expired on 2021-01-01");
    assert!(line.contains("WARN") && line.contains(&expired), "{line}");
    let greeting = said.await_line("workq on ");
    let (_, address) = greeting.split_once("workq on ").unwrap();
    let address = address.split(',').next().unwrap();
    says(TcpStream::connect(address).unwrap(), b"inspect server\r\n", b"+OK 1\r\n");
    let early = certificates.early_server();
    fs::copy(&early.certificate, &old.certificate).unwrap();
    fs::copy(&early.key, &old.key).unwrap();
    kill(Pid::from_raw(server.id().try_into().unwrap()), Signal::SIGHUP).unwrap();
    said.await_line("new connections get the certificate");
    said.await_line("is not valid before 2120");
}

/// A tokens file with this text that only its owner may read, in a folder of its own.
fn tokens(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens.toml");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let shown = path.to_str().unwrap().to_owned();
    (folder, shown)
}

const MAILER: &str = "[[token]]\nname = 'mailer'\ncertificate = 'mailer'\n\
                      roles = ['submit']\nqueues = ['mail.*']\n";

#[test]
fn a_server_without_tls_reads_its_tokens_at_sighup_and_says_nothing_of_certificates() {
    let (_folder, path) = tokens(MAILER);
    let arguments = ["--memory", "--workq", "127.0.0.1:0", "--gearman", "off", "--http", "off"];
    let arguments = [&arguments[..], &["--jobd-master", "off", "--tokens", &path]].concat();
    let server = SpindleServer::start(env!("CARGO_BIN_EXE_spindle"), &arguments, "workq");
    kill(Pid::from_raw(server.id().try_into().unwrap()), Signal::SIGHUP).unwrap();
    let line = server.said.next_line();
    assert!(line.contains("the tokens file was read anew: 1 entries"), "{line}");
    let stream = TcpStream::connect(server.address_of("workq")).unwrap();
    says(stream, b"inspect server\r\n", b"+OK 1\r\n");
}

/// Sends a request and reads until this was said.
#[track_caller]
fn hears(mut stream: impl Read + Write, request: &[u8], part: &str) {
    stream.write_all(request).unwrap();
    let (mut heard, mut bytes) = (String::new(), [0; 4096]);
    while !heard.contains(part) {
        match stream.read(&mut bytes) {
            Ok(count @ 1..) => heard += &String::from_utf8_lossy(&bytes[..count]),
            end => panic!("{end:?} behind {heard:?} instead of {part}"),
        }
    }
}

/// The request of a new job at each door, and parts of the answers: it is taken; the queue is of
/// others; nobody is known by that certificate.
fn submits(queue: &str) -> [(&'static str, Vec<u8>, [&'static str; 3]); 3] {
    let id = uuid::Uuid::new_v4();
    let workq = format!("add {id} {queue} 1000 600000 1\r\nx\r\n");
    let submitted = format!("{queue}\0\0x");
    let head = [&b"\0REQ\0\0\0\x12\0\0\0"[..], &[u8::try_from(submitted.len()).unwrap()]];
    let gearman = [&head.concat()[..], submitted.as_bytes()].concat();
    let body = format!("{{\"queue\":\"{queue}\"}}");
    let http = format!(
        "POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    [
        ("workq", workq.into(), ["+OK\r\n", "not for this queue", "this needs a token"]),
        ("gearman", gearman, ["\0RES\0\0\0\x08", "PERMISSION_DENIED", "AUTHENTICATION_REQUIRED"]),
        ("http", http.into(), ["HTTP/1.1 201", "HTTP/1.1 403", "HTTP/1.1 401"]),
    ]
}

#[test]
fn a_client_is_who_its_certificate_says_at_every_door() {
    let (_folder, path) = tokens(MAILER);
    let certificates = Certificates::new();
    let (files, ca) = (certificates.server(), certificates.ca());
    let (cert, key) = (files.certificate.to_str().unwrap(), files.key.to_str().unwrap());
    let mut arguments = vec!["--memory", "--tls-cert", cert, "--tls-key", key];
    arguments.extend(["--tls-client-ca", ca.to_str().unwrap(), "--tokens", &path]);
    arguments.extend(["--require-auth", "--jobd-master", "off"]);
    for door in ["--workq", "--gearman", "--http"] {
        arguments.extend([door, "127.0.0.1:0"]);
    }
    let server = SpindleServer::start(env!("CARGO_BIN_EXE_spindle"), &arguments, "workq");
    let connect = |door: &str, name: &str| {
        let stream = TcpStream::connect(server.address_of(door)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        certificates.connect(stream, Some(certificates.client(name)))
    };
    for (door, request, [taken, _, stranger]) in submits("mail.a") {
        hears(connect(door, "mailer"), &request, taken);
        hears(connect(door, "postman"), &request, stranger);
    }
    for (door, request, [_, refused, _]) in submits("sms") {
        hears(connect(door, "mailer"), &request, refused);
    }
}

#[test]
fn who_vouches_for_clients_is_read_anew_at_sighup() {
    let (_folder, path) = tokens(MAILER);
    let (old, new) = (Certificates::new(), Certificates::new());
    let (files, folder) = (old.server(), tempfile::tempdir().unwrap());
    let ca = folder.path().join("clients.pem");
    fs::copy(old.ca(), &ca).unwrap();
    let (cert, key) = (files.certificate.to_str().unwrap(), files.key.to_str().unwrap());
    let mut arguments = vec!["--memory", "--tls-cert", cert, "--tls-key", key];
    arguments.extend(["--tls-client-ca", ca.to_str().unwrap(), "--tokens", &path]);
    arguments.extend(["--require-auth", "--jobd-master", "off", "--gearman", "off"]);
    arguments.extend(["--http", "off", "--workq", "127.0.0.1:0"]);
    let server = SpindleServer::start(env!("CARGO_BIN_EXE_spindle"), &arguments, "workq");
    let hang_up = || kill(Pid::from_raw(server.id().try_into().unwrap()), Signal::SIGHUP).unwrap();
    // As itself, by a certificate that one of the two has signed.
    let is_served = |authority: &Certificates| {
        let (_, request, [taken, ..]) = &submits("mail.a")[0];
        let stream = TcpStream::connect(server.address_of("workq")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut client = old.connect(stream, Some(authority.client("mailer")));
        let mut answer = vec![0; taken.len()];
        let asked = client.write_all(request).and_then(|()| client.read_exact(&mut answer));
        assert!(asked.is_err() || answer == taken.as_bytes(), "{}", answer.escape_ascii());
        asked.is_ok()
    };
    assert_eq!([&old, &new].map(is_served), [true, false]);
    fs::write(&ca, "no certificate").unwrap();
    hang_up();
    server.said.await_line("the old certificate stays in force");
    assert_eq!([&old, &new].map(is_served), [true, false]);
    fs::copy(new.ca(), &ca).unwrap();
    hang_up();
    server.said.await_line("new connections get the certificate");
    assert_eq!([&old, &new].map(is_served), [false, true]);
}

/// What `/metrics` says.
fn metrics(secured: &Secured) -> String {
    let get = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let (mut stream, mut text) = (secured.socket("http"), String::new());
    stream.write_all(get).unwrap();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn handshakes_are_counted_by_how_they_end() {
    let secured = secured(&[]);
    let count = |outcome: &str, count: u64| {
        let line = format!("spindle_tls_handshakes_total{{outcome=\"{outcome}\"}} {count}\n");
        wait_until(&line, || metrics(&secured).contains(&line));
    };
    count("done", 0);
    for (door, request, answer) in requests() {
        says(secured.client(door), &request, &answer);
    }
    for door in ["workq", "http", "jobd-master"] {
        let mut stranger = secured.socket(door);
        stranger.write_all(b"\x16\x03\x01\0\x08\x01\0\0\x04junk").unwrap();
        let mut alert = Vec::new();
        stranger.read_to_end(&mut alert).unwrap();
        assert_eq!(alert.first(), Some(&0x15), "{door}");
    }
    count("done", 5);
    count("failed", 3);
}

#[test]
fn a_server_with_wrong_files_does_not_start_and_says_which() {
    let certificates = Certificates::new();
    let files = certificates.server();
    let (cert, key) = (files.certificate.to_str().unwrap(), files.key.to_str().unwrap());
    let refused = |cert: &str, key: &str, what: &str| {
        let arguments = ["serve", "--memory", "--workq", "127.0.0.1:0", "--http", "off"];
        let tls =
            ["--gearman", "off", "--jobd-master", "off", "--tls-cert", cert, "--tls-key", key];
        let output = spindle(&[&arguments[..], &tls].concat()).output().unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(what), "{said}");
    };
    refused("/nowhere/cert.pem", key, "cannot read /nowhere/cert.pem");
    refused(key, key, "there is no certificate in");
    fs::write(&files.key, "no key").unwrap();
    refused(cert, key, "there is no private key in");
    let others = Certificates::new();
    refused(cert, others.server().key.to_str().unwrap(), "does not fit");
    fs::set_permissions(&files.key, fs::Permissions::from_mode(0o644)).unwrap();
    refused(cert, key, "chmod o-rwx");
}

#[test]
fn the_commands_speak_tls_through_both_doors_and_show_a_certificate() {
    let ca = Certificates::new();
    let files = ca.server_for_clients();
    let text = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let given = [text(&files.certificate), text(&files.key), text(&ca.ca())];
    let [cert, key, ca_file] = given.each_ref().map(String::as_str);
    let arguments = ["--memory", "--workq", "127.0.0.1:0", "--http", "127.0.0.1:0", "--gearman"];
    let tls = ["off", "--jobd-master", "off", "--tls-cert", cert, "--tls-key", key];
    let clients = ["--tls-client-ca", ca_file, "--workq-tls", "required"];
    let arguments = [&arguments[..], &tls, &clients].concat();
    let server = SpindleServer::start(env!("CARGO_BIN_EXE_spindle"), &arguments, "workq");
    let (workq, url) = (server.address_of("workq"), server.address_of("http"));
    let url = format!("https://{url}");
    let doors = [&["--workq", &workq, "--tls"][..], &["--url", &url]];
    for door in doors {
        let run = |more: &[&str]| {
            spindle(&[&["add", "mail", "hello", "--ca-file", ca_file], door, more].concat())
                .output()
                .unwrap()
        };
        let added = run(&[]);
        assert!(added.status.success(), "{}", stderr(&added));
        let mailer = ca.client("mailer");
        let (cert, key) = (text(&mailer.certificate), text(&mailer.key));
        let shown = run(&["--cert", &cert, "--key", &key]);
        assert!(shown.status.success(), "{}", stderr(&shown));
        let old = ca.expired_client("old");
        let (cert, key) = (text(&old.certificate), text(&old.key));
        assert!(!run(&["--cert", &cert, "--key", &key]).status.success());
        let half = run(&["--cert", &cert]);
        assert!(stderr(&half).contains("--cert needs --key"), "{}", stderr(&half));
    }
    let untrusted =
        spindle(&["add", "mail", "hello", "--workq", &workq, "--tls"]).output().unwrap();
    assert!(stderr(&untrusted).contains("is not trusted"), "{}", stderr(&untrusted));
    let plain = spindle(&["add", "mail", "hello", "--workq", &workq]).output().unwrap();
    assert!(stderr(&plain).contains("connect with TLS"), "{}", stderr(&plain));
}

#[test]
fn the_commands_say_what_is_wrong_with_a_servers_certificate() {
    let [ca, others] = [Certificates::new(), Certificates::new()];
    let text = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let ServerFiles { certificate, key, .. } = ca.server();
    for (served, trusted, wrong) in [
        (Identity { certificate, key }, &others, "signed by nobody who is trusted"),
        (ca.expired_server(), &ca, "expired"),
        (ca.early_server(), &ca, "not valid yet"),
        (ca.server_with_a_clients_certificate(), &ca, "extended key usage"),
        (ca.server_named("q.example"), &ca, "not valid for name"),
        (ca.authority_as_a_server(), &ca, "basicConstraints=critical,CA:FALSE"),
    ] {
        let (cert, key) = (text(&served.certificate), text(&served.key));
        let doors = ["--workq", "127.0.0.1:0", "--http", "127.0.0.1:0", "--gearman", "off"];
        let tls = ["--jobd-master", "off", "--tls-cert", &cert, "--tls-key", &key];
        let arguments = [&["--memory"][..], &doors, &tls].concat();
        let server = SpindleServer::start(env!("CARGO_BIN_EXE_spindle"), &arguments, "workq");
        let (workq, url) = (server.address_of("workq"), server.address_of("http"));
        let url = format!("https://{url}");
        for door in [&["--workq", &workq, "--tls"][..], &["--url", &url]] {
            let asked = ["add", "mail", "hello", "--ca-file", &text(&trusted.ca())];
            let output = spindle(&[&asked, door].concat()).output().unwrap();
            let said = stderr(&output);
            assert!(!output.status.success() && said.contains("is not trusted"), "{said}");
            assert!(said.contains(wrong), "{said}");
        }
    }
}
