//! A server whose folder or whose clock is not what it was.

use std::fs;

use serde_json::Value;
use spindle_testkit::{HookReceiver, HttpRequest, PATIENCE, wait_until};

use crate::{
    fake_workq::{spindle, stderr, stdout},
    serve::{data, serve},
};

#[test]
fn a_server_ends_when_its_lock_file_is_removed_and_says_why() {
    let (_folder, data) = data();
    let mut served = serve(&["--workq", "127.0.0.1:0", "--data", &data]);
    served.spindle(&["add", "mail", "kept"]).assert().success();
    fs::remove_file(format!("{data}/lock")).unwrap();
    // It checks by itself, without any request.
    assert_eq!(served.await_end().code(), Some(1));
    let said = served.said.await_end();
    assert!(said.contains("its lock file was removed"), "{said}");
    assert!(said.contains("bring it back, or see which server works on it"), "{said}");
    let served = serve(&["--workq", "127.0.0.1:0", "--data", &data]);
    assert_eq!(stdout(&served.spindle(&["queues"]).unwrap()), "mail\t1\t0\n");
}

#[test]
fn a_clock_that_is_later_than_the_log_allows_is_held_until_it_is_accepted() {
    let (_folder, data) = data();
    let arguments = ["--workq", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data", &data];
    let mut served = serve(&arguments);
    served.spindle(&["add", "mail", "x"]).assert().success();
    assert_eq!(served.end().code(), Some(0));
    // The next start is later than zero seconds, however quick it is.
    let mut served = serve(&[&arguments[..], &["--away-max", "0s"]].concat());
    let url = format!("http://{}", served.address_of("http"));
    let is_held = || {
        let status = stdout(&spindle(&["status", "--json", "--url", &url]).unwrap());
        let status: Value = serde_json::from_str(&status).unwrap();
        assert_eq!(status["ready"], true, "{status}");
        status["server"]["clock_held"] == true
    };
    assert!(is_held());
    spindle(&["clock", "accept", "--url", &url]).unwrap();
    assert!(!is_held());
    assert_eq!(served.end().code(), Some(0));
}

/// A server whose wall clock is off by what a file says.
#[cfg(target_arch = "x86_64")]
struct Clock {
    folder: tempfile::TempDir,
}

#[cfg(target_arch = "x86_64")]
impl Clock {
    fn new() -> Clock {
        let folder = tempfile::tempdir().unwrap();
        for name in ["data", "commands"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        Clock { folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn serve(&self, seconds_off: i64, arguments: &[&str]) -> crate::serve::Served {
        fs::write(self.path("clock"), seconds_off.to_le_bytes()).unwrap();
        let data = self.path("data");
        let arguments =
            [&["--workq", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data", &data], arguments];
        let environment = self.environment("data");
        let environment = environment.each_ref().map(|(name, value)| (*name, value.as_str()));
        crate::serve::serve_with(&arguments.concat(), &environment)
    }

    /// With this a program has the clock; what it writes to this folder is watched.
    fn environment(&self, folder: &str) -> [(&'static str, String); 4] {
        let program = std::path::Path::new(env!("CARGO_BIN_EXE_spindle"));
        let library = program.with_file_name("libspindle_powercut.so");
        assert!(library.exists(), "it is made by `cargo build -p spindle-powercut`");
        [
            ("LD_PRELOAD", library.display().to_string()),
            ("SPINDLE_POWERCUT_DIR", self.path(folder)),
            ("SPINDLE_POWERCUT_SHADOW", self.path(&format!("{folder}.shadow"))),
            ("SPINDLE_POWERCUT_CLOCK", self.path("clock")),
        ]
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_server_lives_with_any_clock_and_deletes_nothing_by_one_that_has_jumped() {
    const DAY: i64 = 24 * 3600;
    let clock = Clock::new();
    let get = |served: &crate::serve::Served, path: &str| {
        let address = served.address_of("http");
        let (status, answer) = HttpRequest::send(&address, &format!("GET {path}"), "").answer();
        (status, serde_json::from_str::<Value>(&answer).unwrap_or_default(), answer)
    };
    let is_held = |served: &_| get(served, "/api/v1/server").1["clock_held"] == true;
    let ready = |served: &_| get(served, "/api/v1/queues/mail").1["jobs"]["ready"].clone();
    let mut served = clock.serve(0, &[]);
    served.spindle(&["add", "mail", "kept", "--ttl", "1h"]).assert().success();
    assert!(!is_held(&served));
    assert!(served.end().success());

    // As far ahead as a battery that has run out sends it, and before there was time.
    for (seconds_off, is_before_1970) in [(400 * DAY, false), (-60 * 365 * DAY, true)] {
        let mut served = clock.serve(seconds_off, &[]);
        assert_eq!(ready(&served), 1, "{seconds_off}");
        assert!(is_held(&served), "{seconds_off}");
        let mut socket = std::net::TcpStream::connect(served.address_of("http")).unwrap();
        let request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        std::io::Write::write_all(&mut socket, request).unwrap();
        let answer = std::io::read_to_string(socket).unwrap().to_lowercase();
        assert!(answer.starts_with("http/1.1 200 ok\r\n"), "{answer}");
        assert_eq!(answer.contains("\r\ndate: "), !is_before_1970, "{answer}");
        served.spindle(&["add", "mail", "more"]).assert().success();
        served.spindle(&["work", "mail", "--max-jobs", "1", "--", "true"]).assert().success();
        assert_eq!(ready(&served), 1);
        assert!(served.end().success());
    }
}

/// The commands show how long ago things were, and a webhook signs its time.
#[test]
#[cfg(target_arch = "x86_64")]
fn commands_and_webhooks_work_after_the_year_9999() {
    let clock = Clock::new();
    let receiver = HookReceiver::start(|_, _| 204);
    let secret = clock.path("secret");
    fs::write(&secret, "sixteen bytes and more").unwrap();
    let year_ten_thousand_and_more = 8100 * 365 * 24 * 3600;
    let flags = ["--webhook", &receiver.url, "--webhook-secret-file", &secret];
    let mut served = clock.serve(year_ten_thousand_and_more, &flags);
    let url = format!("http://{}", served.address_of("http"));
    for command in [
        &["add", "mail", "x"][..],
        &["queues"],
        &["jobs"],
        &["job", "1"],
        &["why", "1"],
        &["audit"],
        &["workers"],
        &["work", "mail", "--max-jobs", "1", "--", "true"],
        &["add", "dead", "x", "--tries", "1"],
    ] {
        let mut program = spindle(command);
        let program = program.env("SPINDLE_URL", &url).envs(clock.environment("commands"));
        program.assert().success();
    }
    let mut program = spindle(&["work", "dead", "--once", "--", "false"]);
    program.env("SPINDLE_URL", &url).envs(clock.environment("commands")).assert().code(5);
    let (head, _) = receiver.posts.recv_timeout(PATIENCE).unwrap();
    assert!(head.to_lowercase().contains("spindle-signature: t=2"), "{head}");
    assert!(served.end().success());
    let said = served.said.await_end();
    assert!(!said.contains("panicked"), "{said}");
}

/// Of all ways in which a file cannot be made, one that a test can begin and end: its name is taken.
#[test]
fn a_log_that_cannot_grow_is_said_everywhere_until_it_can() {
    let (_folder, data) = data();
    let arguments = ["--workq", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data", &data];
    let mut served = serve(&[&arguments[..], &["--segment-size", "64KiB"]].concat());
    let http = served.address_of("http");
    let taken_names = (0..200).map(|number| format!("{data}/{number}.filling"));
    let taken_names: Vec<String> =
        taken_names.filter(|name| fs::create_dir(name).is_ok()).collect();
    let payload = "x".repeat(10_000);
    let add = || served.spindle(&["add", "mail", &payload]).output().unwrap();
    let refused = (0..100).map(|_| add()).find(|output| !output.status.success());
    let refused = stderr(&refused.expect("a job that is refused"));
    assert!(refused.contains("the log cannot grow"), "{refused}");

    let ready = || HttpRequest::send(&http, "GET /readyz", "").answer();
    assert_eq!(ready(), (503, "{\"status\":\"log_cannot_grow\"}".to_owned()));
    let status = spindle(&["status", "--url", &format!("http://{http}")]).output().unwrap();
    assert_eq!(status.status.code(), Some(1));
    assert!(stdout(&status).contains("not ready: the log cannot grow"), "{}", stdout(&status));
    // Requests that free space still work.
    served.spindle(&["work", "mail", "--once", "--", "cat"]).assert().success();

    taken_names.iter().for_each(|name| fs::remove_dir(name).unwrap());
    wait_until("a log that grows", || ready().0 == 200);
    assert!(add().status.success());
    assert_eq!(served.end().code(), Some(0));
    let said = served.said.await_end();
    for line in ["cannot prepare another segment", "another segment could be prepared again"] {
        assert_eq!(said.matches(line).count(), 1, "{line}:\n{said}");
    }
}
