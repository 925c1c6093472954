//! `spindle import --from beanstalkd`.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use spindle_testkit::{Program, free_address};

use super::{
    counts,
    held::{Interrupted, Victim},
    import_from, jobs, payload, payloads,
};
use crate::{
    native::{output_of, served},
    serve::{Served, data},
};

/// A beanstalkd on a free port. It ends with its handle.
struct Beanstalkd {
    address: String,
    program: Program,
}

impl Beanstalkd {
    fn start() -> Beanstalkd {
        Beanstalkd::with(&[])
    }

    fn with(arguments: &[&str]) -> Beanstalkd {
        let address = free_address();
        let (host, port) = address.split_once(':').unwrap();
        let mut command = Command::new("beanstalkd");
        command.args(["-l", host, "-p", port]).args(arguments).stdin(Stdio::null());
        let program = Program::start(&mut command);
        while TcpStream::connect(&address).is_err() {
            thread::sleep(Duration::from_millis(5));
        }
        Beanstalkd { address, program }
    }

    fn kill(&mut self) {
        self.program.signal(Signal::SIGKILL);
        self.program.await_end();
    }

    fn connect(&self) -> Client {
        Client(BufReader::new(TcpStream::connect(&self.address).unwrap()))
    }
}

struct Client(BufReader<TcpStream>);

impl Client {
    /// The first line that answers a command.
    fn ask(&mut self, command: &str) -> String {
        self.0.get_mut().write_all(format!("{command}\r\n").as_bytes()).unwrap();
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn put(&mut self, tube: &str, how: &str, payload: &str) {
        self.ask(&format!("use {tube}"));
        let said = self.ask(&format!("put {how} {}\r\n{payload}", payload.len()));
        assert!(said.starts_with("INSERTED "), "{said}");
    }

    /// How many jobs there are.
    fn jobs(&mut self) -> u64 {
        let said = self.ask("stats");
        let len: usize = said.strip_prefix("OK ").unwrap().parse().unwrap();
        let mut body = vec![0; len + 2];
        self.0.read_exact(&mut body).unwrap();
        let text = String::from_utf8(body).unwrap();
        let number = |name: &str| -> u64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim_start_matches(": ").parse().unwrap()
        };
        ["ready", "reserved", "delayed", "buried"]
            .map(|state| number(&format!("current-jobs-{state}")))
            .iter()
            .sum()
    }
}

fn import(served: &Served, address: &str, more: &[&str]) -> (i32, Value, String) {
    import_from(served, "beanstalkd", address, more)
}

#[test]
fn all_that_waits_in_a_beanstalkd_goes_over() {
    let (old, new) = (Beanstalkd::start(), served(&["--memory"]));
    let mut client = old.connect();
    client.put("mail", "7 0 90", "second");
    client.put("mail", "0 0 90", "first");
    client.put("late", "5 3600 0", "in an hour");
    client.put("stuck", "3 0 60", "nobody may have it");
    client.ask("pause-tube stuck 3600");
    client.put("broken", "9 0 60", "put aside");
    client.ask("watch broken");
    let buried = client.ask("reserve");
    let mut body = String::new();
    client.0.read_line(&mut body).unwrap();
    let id = buried.split(' ').nth(1).unwrap();
    assert_eq!(client.ask(&format!("bury {id} 9")), "BURIED");
    for number in 0..250 {
        client.put("many", "0 0 60", &number.to_string());
    }

    let (code, done, said) = import(&new, &old.address, &[]);
    assert_eq!((code, &done), (0, &counts(&[("imported", 255)])), "{said}");
    assert_eq!(client.jobs(), 0);
    let mail = jobs(&new, "mail");
    assert_eq!((&*payload(&mail[0]), &mail[0]["priority"]), ("first", &json!(0)));
    assert_eq!((&*payload(&mail[1]), &mail[1]["priority"]), ("second", &json!(-7)));
    assert_eq!(mail[0]["ttr_ms"], 90_000);
    let late = &jobs(&new, "late")[0];
    assert_eq!((&late["status"], &late["ttr_ms"]), (&json!("scheduled"), &json!(1_000)));
    let stuck = &jobs(&new, "stuck")[0];
    assert_eq!((&stuck["status"], &stuck["priority"]), (&json!("ready"), &json!(-3)));
    assert_eq!(jobs(&new, "broken")[0]["status"], "parked");
    let many: Vec<_> = jobs(&new, "many").iter().map(payload).collect();
    assert_eq!(many, (0..250).map(|number| number.to_string()).collect::<Vec<_>>());
    assert_eq!(import(&new, &old.address, &[]).1, counts(&[]));
}

#[test]
fn what_a_worker_has_stays_with_it() {
    let (old, new) = (Beanstalkd::start(), served(&["--memory"]));
    let mut worker = old.connect();
    worker.put("default", "0 0 600", "under way");
    assert!(worker.ask("reserve").starts_with("RESERVED "));
    assert_eq!(import(&new, &old.address, &[]).1, counts(&[("at_work", 1)]));
    drop(worker);
    let mut client = old.connect();
    while !client.ask("peek-ready").starts_with("FOUND ") {
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(import(&new, &old.address, &[]).1, counts(&[("imported", 1)]));
}

/// Passes bytes on to a server until they begin with a word: then both connections are closed.
fn cut_at(word: &'static str, server: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, server) = (listener.local_addr().unwrap().to_string(), server.to_owned());
    thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut server = TcpStream::connect(server).unwrap();
        let (mut answers, mut back) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        thread::spawn(move || std::io::copy(&mut answers, &mut back));
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = client.read(&mut bytes) {
            if bytes.starts_with(word.as_bytes()) {
                break;
            }
            server.write_all(&bytes[..count]).unwrap();
        }
        for stream in [&client, &server] {
            stream.shutdown(std::net::Shutdown::Both).unwrap();
        }
    });
    address
}

#[test]
fn a_move_that_was_cut_off_before_the_jobs_were_deleted_there_makes_none_twice() {
    let (old, new) = (Beanstalkd::start(), served(&["--memory"]));
    let mut client = old.connect();
    client.put("default", "0 0 60", "one");
    client.put("default", "0 0 60", "two");
    client.put("default", "0 3600 60", "later");
    // Once with the ready jobs, once with the other one, whose time is computed anew.
    for (left, existing) in [(3, 0), (1, 0)] {
        let (code, done, said) = import(&new, &cut_at("delete", &old.address), &[]);
        assert_eq!((code, &done["existing"]), (1, &json!(existing)), "{said}");
        assert!(said.contains("run it again"), "{said}");
        assert_eq!(client.jobs(), left);
        if left == 3 {
            let (_, done, said) = import(&new, &cut_at("use", &old.address), &[]);
            assert_eq!(done, counts(&[("existing", 2)]), "{said}");
        }
    }
    thread::sleep(Duration::from_millis(1100));
    assert_eq!(import(&new, &old.address, &[]).1, counts(&[("existing", 1)]));
    assert_eq!(client.jobs(), 0);
    assert_eq!(jobs(&new, "default").len(), 3);
}

#[test]
fn a_job_of_beanstalkd_is_there_once_whatever_is_killed_in_the_middle() {
    let (_folder, data) = data();
    let on_disk = ["--data", &data];
    let (old, mut new) = (Beanstalkd::start(), served(&on_disk));
    let mut client = old.connect();
    for number in 0..900 {
        let how = if number % 10 == 0 { "0 3600 60" } else { "0 0 60" };
        client.put("mail", how, &number.to_string());
    }
    // A hundred are deleted in one exchange; those that are delayed one by one, at the end.
    for (request, victim) in [
        (1, Victim::Import),
        (1, Victim::New),
        (150, Victim::New),
        (150, Victim::Import),
        (20, Victim::Connections),
    ] {
        let kind = "beanstalkd";
        let import = Interrupted { kind, old: &old.address, mark: "delete ", request, victim };
        import.run(&mut new, &on_disk, || {});
    }
    // Jobs that a closed connection had reserved are ready again in a moment.
    while client.jobs() > 0 {
        let (code, _, said) = import(&new, &old.address, &[]);
        assert_eq!(code, 0, "{said}");
    }
    let found = payloads(&new, "mail");
    assert!(found.len() == 900 && found.values().all(|count| *count == 1), "{found:?}");
}

#[test]
fn of_a_beanstalkd_that_is_killed_in_the_middle_no_job_is_missing_and_one_batch_may_come_twice() {
    let binlog = tempfile::tempdir().unwrap();
    let arguments = ["-b", binlog.path().to_str().unwrap(), "-f", "0"];
    let (mut old, mut new) = (Beanstalkd::with(&arguments), served(&["--memory"]));
    let mut client = old.connect();
    for number in 0..250 {
        client.put("mail", "0 0 60", &number.to_string());
    }
    let (kind, address) = ("beanstalkd", old.address.clone());
    let (mark, request, victim) = ("delete ", 150, Victim::Old);
    let import_killed = Interrupted { kind, old: &address, mark, request, victim };
    import_killed.run(&mut new, &["--memory"], || old.kill());
    let old = Beanstalkd::with(&arguments);
    let (code, done, said) = import(&new, &old.address, &[]);
    assert_eq!((code, &done), (0, &counts(&[("imported", 150)])), "{said}");
    let found = payloads(&new, "mail");
    let twice = found.values().filter(|count| **count == 2).count();
    assert_eq!((found.len(), twice), (250, 100), "{found:?}");
}

#[test]
fn the_longest_payload_goes_over() {
    let (old, new) = (Beanstalkd::with(&["-z", "20000000"]), served(&["--memory"]));
    let mut client = old.connect();
    let longest = "x".repeat(11 << 20);
    client.put("mail", "0 0 60", &longest);
    let (code, done, said) = import(&new, &old.address, &[]);
    assert_eq!((code, &done), (0, &counts(&[("imported", 1)])), "{said}");
    assert!(payload(&jobs(&new, "mail")[0]) == longest);
    client.put("mail", "0 0 60", &"x".repeat(12 << 20));
    let (code, done, said) = import(&new, &old.address, &[]);
    assert_eq!((code, &done["refused"]), (1, &json!(1)), "{said}");
    assert!(said.contains("is too long for a request"), "{said}");
    assert_eq!(client.jobs(), 1);
}

#[test]
fn what_the_server_refuses_stays_there() {
    let (old, new) = (Beanstalkd::start(), served(&["--memory"]));
    let mut client = old.connect();
    output_of(&new, &["queue", "set", "small", "--max-jobs", "1"]);
    for payload in ["a", "b"] {
        client.put("small", "0 0 60", payload);
        client.put("late", "0 3600 60", payload);
    }
    let (code, done, said) = import(&new, &old.address, &[]);
    assert_eq!((code, &done["imported"], &done["refused"]), (1, &json!(1), &json!(1)), "{said}");
    assert!(said.contains("the server refused: ") && said.contains("--skip-refused"), "{said}");
    let (code, done, said) = import(&new, &old.address, &["--skip-refused"]);
    let wanted = counts(&[("imported", 2), ("refused", 1), ("left", 1)]);
    assert_eq!((code, &done), (1, &wanted), "{said}");
    assert_eq!(client.jobs(), 1);
}

#[test]
fn what_is_no_beanstalkd_is_told() {
    let new = served(&["--memory"]);
    let (code, _, said) = import(&new, &new.address_of("http"), &[]);
    assert!(code == 1 && said.contains("that is no beanstalkd: it says `HTTP/1.1 400"), "{said}");
    let (code, _, said) = import(&new, &free_address(), &[]);
    assert!(code == 1 && said.contains("cannot connect to 127.0.0.1:"), "{said}");
    let (code, _, said) = import(&new, "127.0.0.1:no", &[]);
    assert!(code == 2 && said.contains("127.0.0.1:no is no HOST:PORT"), "{said}");
}

#[test]
fn only_the_tubes_that_are_asked_for_go_over_and_a_dry_run_moves_none() {
    let (old, new) = (Beanstalkd::start(), served(&["--memory"]));
    let mut client = old.connect();
    client.put("default", "0 0 60", "a");
    client.put("mail", "0 0 60", "b");
    client.put("mail", "0 3600 60", "c");
    let (code, found, said) = import(&new, &old.address, &["--dry-run"]);
    let row = |queue, state| json!({ "queue": queue, "state": state, "jobs": 1 });
    let wanted = [row("default", "ready"), row("mail", "ready"), row("mail", "delayed")];
    assert_eq!((code, &found), (0, &json!({ "waiting": wanted, "at_work": 0 })), "{said}");
    assert_eq!((client.jobs(), jobs(&new, "mail").len()), (3, 0));
    let (_, done, said) = import(&new, &old.address, &["--queue", "mail"]);
    assert_eq!(done, counts(&[("imported", 2)]), "{said}");
    let (_, done, said) = import(&new, &old.address, &["--queue", "nobody"]);
    assert_eq!((done, client.jobs()), (counts(&[]), 1), "{said}");
    let (code, _, said) = import(&new, &old.address, &["--from-prefix", "x"]);
    assert!(code == 2 && said.contains("--from-prefix is for servers in Redis"), "{said}");
}
