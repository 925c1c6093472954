//! Authentication at a server: its tokens, its rule for addresses, and what the commands present.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use spindle_testkit::{Certificates, HttpRequest, SpindleServer};
use spindle_tls::ServerFiles;
use tempfile::TempDir;

use crate::{
    fake_workq::{Fake, ok, spindle, stderr, stdout},
    serve::{Served, serve},
};
use spindle_workq::wire::Request;

const PORTS: [&str; 9] = [
    "--memory",
    "--workq",
    "127.0.0.1:0",
    "--gearman",
    "127.0.0.1:0",
    "--http",
    "127.0.0.1:0",
    "--jobd-master",
    "127.0.0.1:0",
];

/// Files that only their owner may read.
struct Files(TempDir);

impl Files {
    fn new() -> Files {
        Files(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Replaces a file in one step.
    fn write(&self, name: &str, text: &str) -> String {
        let new = self.path("new");
        fs::write(&new, text).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).unwrap();
        fs::rename(new, self.path(name)).unwrap();
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Makes a token, and puts its entry into the tokens file.
    fn token(&self, name: &str, more: &[&str]) -> String {
        let made = spindle(&[&["token", "new", name][..], more].concat()).unwrap();
        let text = stdout(&made);
        let (token, entry) = text.split_once("\n\n").unwrap();
        let before = fs::read_to_string(self.path("tokens")).unwrap_or_default();
        self.write("tokens", &(before + entry));
        token.to_owned()
    }

    fn tokens(&self) -> String {
        self.path("tokens").to_str().unwrap().to_owned()
    }
}

fn http(served: &Served, token: &str, head: &str, body: &Value) -> u16 {
    let text = if body.is_null() { String::new() } else { body.to_string() };
    status(&served.address_of("http"), token, head, &text)
}

fn status(address: &str, token: &str, head: &str, body: &str) -> u16 {
    let headers = format!("Host: {address}\r\nAuthorization: Bearer {token}\r\n");
    HttpRequest::send_with(address, head, &headers, body).answer().0
}

/// The server refuses these arguments at its start, with a message that has this part.
#[track_caller]
fn refused(arguments: &[&str], part: &str) {
    let output = spindle(&[&["serve"][..], arguments].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains(part), "{}", stderr(&output));
}

#[test]
fn commands_say_who_they_are_through_both_doors() {
    let files = Files::new();
    let token = files.token("all", &["--role", "admin", "--queue", "*"]);
    let limited = files.token("mailer", &["--role", "submit,inspect", "--queue", "mail.*"]);
    let password = files.write("password", "open\n");
    let tokens = files.tokens();
    let guarded = ["--require-auth", "--tokens", &tokens, "--jobd-master-password-file", &password];
    let served = serve(&[&PORTS[..], &guarded].concat());
    let token_file = files.write("token", &format!("{token}\n"));
    let url = format!("http://{}", served.address_of("http"));
    let workq = served.address_of("workq");
    for door in [["--url", &*url], ["--workq", &*workq]] {
        let run = |arguments: &[&str]| spindle(&[arguments, &door].concat());
        let output = run(&["add", "mail.a", "x"]).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains("this needs a token"), "{}", stderr(&output));
        run(&["add", "mail.a", "x", "--token-file", &token_file]).assert().success();
        run(&["queues"]).env("SPINDLE_TOKEN_FILE", &token_file).assert().success();
        run(&["queues"]).env("SPINDLE_TOKEN", &token).assert().success();
        run(&["add", "mail.a", "x"]).env("SPINDLE_TOKEN", &limited).assert().success();
        for (queue, token, part) in [
            ("other", &limited, "not for this queue"),
            ("mail.a", &"wrong".to_owned(), "not known"),
        ] {
            let output = run(&["add", queue, "x"]).env("SPINDLE_TOKEN", token).output().unwrap();
            assert!(stderr(&output).contains(part), "{}", stderr(&output));
            assert!(!stderr(&output).contains(&**token), "{}", stderr(&output));
        }
    }
    let worker = files.token("worker", &["--role", "work", "--queue", "mail.*"]);
    served.said.await_line("read anew: 3 entries");
    for door in [["--url", &*url], ["--workq", &*workq]] {
        let mut work =
            spindle(&[&["work", "mail.a", "--max-jobs", "1"], &door[..], &["--", "true"]].concat());
        work.env("SPINDLE_TOKEN", &worker).assert().success();
    }
    assert!(http(&served, "x", "GET /metrics", &Value::Null) == 401);
    assert!(http(&served, &token, "GET /metrics", &Value::Null) == 200);
    assert!(http(&served, "x", "GET /healthz", &Value::Null) == 200);
}

#[test]
fn a_token_that_will_not_do_is_told_without_being_shown() {
    let files = Files::new();
    let open = files.write("open", "sesame");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).unwrap();
    let long = "sesame".repeat(40);
    for (file, environment, part) in [
        (Some(open.clone()), "", "chmod 600"),
        (Some(files.write("empty", "\n")), "", "is empty"),
        (Some(files.write("two", "sesame sesame")), "", "without spaces"),
        (Some(files.path("none").to_str().unwrap().to_owned()), "", "cannot read"),
        (None, &*long, "too long"),
        (None, "open sesame", "without spaces"),
    ] {
        let mut command = spindle(&["queues", "--url", "http://127.0.0.1:1"]);
        command.args(file.iter().flat_map(|file| ["--token-file", file]));
        let output = command.env("SPINDLE_TOKEN", environment).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains(part), "{}", stderr(&output));
        assert!(!stderr(&output).contains("sesame"), "{}", stderr(&output));
    }
}

#[test]
fn the_token_goes_before_everything_else_through_workq() {
    let fake = Fake::start(|_| ok());
    fake.spindle(&["add", "mail", "x"]).env("SPINDLE_TOKEN", "sesame").assert().success();
    let requests = fake.requests();
    assert!(matches!(&requests[..], [Request::Auth { token }, Request::Add(_)]
        if &token.0[..] == b"sesame"));
}

#[test]
fn a_tokens_file_that_will_not_do_is_refused_at_the_start() {
    let files = Files::new();
    refused(&["--memory", "--tokens", "/nowhere/tokens"], "cannot read /nowhere/tokens");
    let malformed = files.write("tokens", "[[token]]\nname = 'a'\nsha256 = 'sesame'\n");
    refused(&["--memory", "--tokens", &malformed], "tokens, line 1: the entry has no roles");
    let path = Path::new(&malformed);
    fs::set_permissions(path, fs::Permissions::from_mode(0o604)).unwrap();
    refused(&["--memory", "--tokens", &malformed], "(mode 0604)");
    refused(&["--memory", "--require-auth"], "--require-auth");
    let empty = files.write("password", "");
    refused(&["--memory", "--jobd-master-password-file", &empty], "it is empty");
}

#[test]
fn a_change_of_the_tokens_file_counts_without_a_restart() {
    let files = Files::new();
    let first = files.token("first", &["--role", "read", "--queue", "*"]);
    let mut served = serve(&[&PORTS[..], &["--tokens", &files.tokens()]].concat());
    assert_eq!(http(&served, &first, "GET /api/v1/queues", &Value::Null), 200);
    files.write("tokens", "broken");
    let said = served.said.await_line("stay in force");
    assert!(said.contains("line 1"), "{said}");
    assert_eq!(http(&served, &first, "GET /api/v1/queues", &Value::Null), 200);
    fs::remove_file(files.path("tokens")).unwrap();
    served.said.await_line("cannot read");
    let second = files.token("second", &["--role", "submit", "--queue", "*"]);
    served.said.await_line("read anew: 1 entries");
    assert_eq!(http(&served, &first, "GET /api/v1/queues", &Value::Null), 401);
    let job = json!({ "queue": "q" });
    assert_eq!(http(&served, &second, "POST /api/v1/jobs", &job), 201);
    served.ask_to_end();
    assert_eq!(served.await_end().code(), Some(0));
}

#[test]
fn a_server_for_everybody_takes_nobody_without_tls_and_a_token() {
    let files = Files::new();
    let token = files.token("reader", &["--role", "read", "--queue", "*"]);
    let tokens = files.tokens();
    let certificates = Certificates::new();
    let ServerFiles { certificate, key, .. } = certificates.server();
    let [certificate, key] = [certificate, key].map(|path| path.display().to_string());
    let mut arguments = vec!["--memory", "--http", "0.0.0.0:0", "--tokens", &tokens];
    arguments.extend(["--tls-cert", &certificate, "--tls-key", &key]);
    let others = ["--workq", "--gearman", "--jobd-master"].into_iter();
    arguments.extend(others.flat_map(|door| [door, "off"]));
    let served = SpindleServer::start(env!("CARGO_BIN_EXE_spindle"), &arguments, "http");
    let port = served.address_of("http").rsplit(':').next().unwrap().to_owned();
    let address = format!("127.0.0.1:{port}");

    assert_eq!(status(&address, &token, "GET /api/v1/queues", ""), 400);
    let encrypted = |head: &str, token: &str| {
        let stream = TcpStream::connect(&address).unwrap();
        let mut stream = certificates.connect(stream, None);
        let request =
            format!("{head} HTTP/1.1\r\nHost: localhost\r\n{token}Connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().to_owned()
    };
    let shown = format!("Authorization: Bearer {token}\r\n");
    assert_eq!(encrypted("GET /api/v1/queues", ""), "401");
    assert_eq!(encrypted("GET /api/v1/queues", "Authorization: Bearer wrong\r\n"), "401");
    assert_eq!(encrypted("GET /api/v1/queues", &shown), "200");
    assert_eq!(encrypted("POST /api/v1/queues/mail/pause", &shown), "403");
    assert_eq!(encrypted("GET /healthz", ""), "200");
}

#[test]
fn insecure_doors_are_warned_of_and_ask_for_tokens_all_the_same() {
    let files = Files::new();
    let token = files.token("a", &["--role", "read", "--queue", "*"]);
    let tokens = files.tokens();
    let far = ["--memory", "--workq", "off", "--gearman", "off", "--jobd-master", "off"];
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_spindle"));
    command.args(["serve", "--http", "0.0.0.0:0", "--insecure", "http", "--tokens", &tokens]);
    let mut program =
        spindle_testkit::Program::start(command.args(far).stderr(std::process::Stdio::piped()));
    let said = spindle_testkit::Said::by(program.stderr.take().unwrap());
    let warning = said.await_line("is not guarded");
    assert!(warning.contains("--insecure http: 0.0.0.0:0"), "{warning}");
    let greeting = said.await_line("http on ");
    let port = greeting.split("http on 0.0.0.0:").nth(1).unwrap().split(',').next().unwrap();
    let address = format!("127.0.0.1:{port}");
    assert_eq!(HttpRequest::send(&address, "GET /api/v1/queues", "").answer().0, 401);
    assert_eq!(status(&address, &token, "GET /api/v1/queues", ""), 200);
}

#[test]
fn the_jobd_master_asks_for_its_password() {
    let files = Files::new();
    let password = files.write("password", "open sesame\n");
    let guarded = ["--jobd-master-password-file", &password];
    let served = serve(&[&PORTS[..], &guarded].concat());
    let ask = |password: &str| {
        let mut stream = TcpStream::connect(served.address_of("jobd-master")).unwrap();
        let request = json!([0, { "no": 1, "type": "status", "password": password }]);
        stream.write_all(format!("{request}\x04").as_bytes()).unwrap();
        let mut heard = Vec::new();
        let mut byte = [0];
        while heard.last() != Some(&4) && std::io::Read::read(&mut stream, &mut byte).unwrap() > 0 {
            heard.push(byte[0]);
        }
        String::from_utf8(heard).unwrap()
    };
    assert!(ask("sesame").contains("invalid password"));
    assert!(ask("open sesame").contains("workers"));
}

#[test]
fn tokens_are_made_and_checked() {
    let files = Files::new();
    let mut made =
        spindle(&["token", "new", "a b", "--role", "submit", "--queue", "q\"'*", "--json"]);
    let made: Value = serde_json::from_str(&stdout(&made.unwrap())).unwrap();
    assert!(made["token"].as_str().unwrap().starts_with("spindle_"));
    let path = files.write("tokens", made["entry"].as_str().unwrap());
    let checked = stdout(&spindle(&["token", "check", &path]).unwrap());
    assert_eq!(checked, "a b\tsubmit\tq\"'*\tnever\n");
    files.write("tokens", "[[token]]\nname = 7\n");
    let output = spindle(&["token", "check", &path]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("line 2: name is a text"), "{}", stderr(&output));
    for (more, part) in [
        (&["--role", "boss", "--queue", "*"][..], "roles are read"),
        (&["--role", "read", "--queue", ""], "queues are 1 to 64"),
        (&["--role", "read", "--queue", "*", "--expires", "soon"], "90d"),
        (&["--role", "read", "--queue", "*", "--expires", "2020-01-01T00:00:00Z"], "has passed"),
        (&["--queue", "*"], "--role"),
    ] {
        let output = spindle(&[&["token", "new", "x"][..], more].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{more:?}");
        assert!(stderr(&output).contains(part), "{}", stderr(&output));
        assert!(stdout(&output).is_empty());
    }
}
