//! `spindle import --from gearman`: jobs of a real gearmand.

use std::{
    process::{Command, Stdio},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use serde_json::{Value, json};
use spindle_gearman::{
    client::Connection,
    wire::{GrabKind, Priority, Request, Response, Submit, SubmitKind},
};
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

const PATIENCE: Duration = Duration::from_secs(30);

/// A gearmand on a free port. It ends with its handle.
struct Gearmand {
    address: String,
    _program: Program,
}

impl Gearmand {
    fn start() -> Gearmand {
        let address = free_address();
        let (host, port) = address.split_once(':').unwrap();
        let mut command = Command::new("gearmand");
        command.args(["--listen", host, "--port", port, "--log-file", "none"]);
        command
            .env("PATH", format!("{}:/usr/sbin:/usr/local/sbin", std::env::var("PATH").unwrap()));
        let program = Program::start(command.stdin(Stdio::null()).stderr(Stdio::null()));
        let gearmand = Gearmand { address, _program: program };
        gearmand.connect();
        gearmand
    }

    fn connect(&self) -> Connection {
        loop {
            match Connection::open(&*self.address, PATIENCE, 1 << 20) {
                Ok(connection) => return connection,
                Err(_) => thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}

fn submit(client: &mut Connection, kind: SubmitKind, function: &str, unique: &str, payload: &str) {
    let [function, unique, payload] =
        [function, unique, payload].map(|text| Bytes::copy_from_slice(text.as_bytes()));
    client.send(&Request::Submit(Submit { kind, function, unique, payload })).unwrap();
    let answer = client.receive().unwrap();
    assert!(matches!(answer, Response::JobCreated { .. }), "{answer:?}");
}

fn background(client: &mut Connection, function: &str, unique: &str, payload: &str) {
    submit(client, SubmitKind::Background(Priority::Normal), function, unique, payload);
}

/// What a worker of a function gets, if anything.
fn grab(worker: &mut Connection, function: &'static str) -> Option<Bytes> {
    worker.send(&Request::CanDo { function: Bytes::from_static(function.as_bytes()) }).unwrap();
    worker.send(&Request::Grab(GrabKind::Plain)).unwrap();
    match worker.receive().unwrap() {
        Response::JobAssign(job) => Some(job.payload),
        _ => None,
    }
}

fn import(served: &Served, address: &str, more: &[&str]) -> (i32, Value, String) {
    import_from(served, "gearman", address, more)
}

#[test]
fn background_jobs_of_gearmand_go_over_with_priority_and_unique() {
    let (old, new) = (Gearmand::start(), served(&["--memory", "--gearman", "127.0.0.1:0"]));
    let mut client = old.connect();
    submit(&mut client, SubmitKind::Background(Priority::Low), "resize", "", "low");
    background(&mut client, "resize", "", "normal");
    submit(&mut client, SubmitKind::Background(Priority::High), "resize", "", "high");
    background(&mut client, "mail", "order-1", "unique");
    background(&mut client, "mail", "-", "by payload");
    background(&mut client, "mail", "order-2", "there");
    let mut here = Connection::open(&*new.address_of("gearman"), PATIENCE, 1 << 20).unwrap();
    background(&mut here, "mail", "order-2", "here");
    let in_an_hour = SystemTime::now() + Duration::from_secs(3600);
    let at_s = in_an_hour.duration_since(UNIX_EPOCH).unwrap().as_secs();
    submit(&mut client, SubmitKind::Epoch { at_s }, "later", "", "later");

    let (code, found, said) = import(&new, &old.address, &["--dry-run"]);
    let row = |queue, state, jobs| json!({ "queue": queue, "state": state, "jobs": jobs });
    let rows = [
        row("later", "normal", 1),
        row("mail", "normal", 3),
        row("resize", "high", 1),
        row("resize", "low", 1),
        row("resize", "normal", 1),
    ];
    assert_eq!((code, &found), (0, &json!({ "waiting": rows, "at_work": 0 })), "{said}");

    let (code, done, said) = import(&new, &old.address, &[]);
    let wanted = counts(&[("imported", 5), ("existing", 1), ("left", 1)]);
    assert_eq!((code, &done), (0, &wanted), "{said}");
    assert!(said.contains("left there, not due yet, which gearmand gives to nobody: 1"), "{said}");
    let mut resize: Vec<_> =
        jobs(&new, "resize").iter().map(|job| (payload(job), job["priority"].clone())).collect();
    resize.sort_by(|a, b| a.0.cmp(&b.0));
    let wanted = [("high", 1), ("low", -1), ("normal", 0)];
    assert_eq!(resize, wanted.map(|(payload, priority)| (payload.to_owned(), json!(priority))));
    assert!(jobs(&new, "mail").iter().all(|job| job["door"] == "gearman"));

    // A client that submits them to the Gearman door joins them, and its workers get them.
    background(&mut here, "mail", "order-1", "again");
    background(&mut here, "mail", "-", "by payload");
    let mail: Vec<_> = payloads(&new, "mail").into_iter().collect();
    assert_eq!(mail, ["by payload", "here", "unique"].map(|payload| (payload.to_owned(), 1)));
    assert_eq!(grab(&mut here, "resize").unwrap(), "high");
    assert_eq!(import(&new, &old.address, &[]).1, counts(&[("left", 1)]));
}

#[test]
fn what_a_client_waits_for_stays_with_gearmand() {
    let (old, new) = (Gearmand::start(), served(&["--memory"]));
    let (mut waits, mut joins, mut client) = (old.connect(), old.connect(), old.connect());
    submit(&mut waits, SubmitKind::Foreground(Priority::Normal), "add", "", "foreground");
    background(&mut client, "add", "joined", "joined");
    submit(&mut joins, SubmitKind::Foreground(Priority::Normal), "add", "joined", "joined");
    background(&mut client, "add", "alone", "background");
    background(&mut client, "run", "", "under way");
    let mut worker = old.connect();
    assert_eq!(grab(&mut worker, "run").unwrap(), "under way");
    let (code, done, said) = import(&new, &old.address, &[]);
    let wanted = [("imported", 1), ("left", 2), ("at_work", 1)];
    assert_eq!((code, &done), (0, &counts(&wanted)), "{said}");
    assert!(said.contains("left there, because clients wait for the results: 2"), "{said}");
    assert_eq!(payloads(&new, "add").into_keys().collect::<Vec<_>>(), ["background"]);
    // They can be worked as soon as the import has ended.
    let mut payloads = vec![];
    while payloads.len() < 2 {
        payloads.extend(grab(&mut worker, "add"));
    }
    payloads.sort();
    assert_eq!(payloads, ["foreground", "joined"]);
}

#[test]
fn a_job_of_gearmand_is_there_once_whatever_is_killed_in_the_middle() {
    let (_folder, data) = data();
    let on_disk = ["--data", &data];
    let (old, mut new) = (Gearmand::start(), served(&on_disk));
    let mut client = old.connect();
    for number in 0..450 {
        let unique = if number % 2 == 0 { String::new() } else { format!("u{number}") };
        background(&mut client, "mail", &unique, &number.to_string());
    }
    // The second connection is the worker's. It completes a batch with packets of type 13.
    for (request, victim) in
        [(1, Victim::Import), (1, Victim::New), (150, Victim::Import), (50, Victim::Connections)]
    {
        let mark = "\0REQ\0\0\0\r";
        let import = Interrupted { kind: "gearman", old: &old.address, mark, request, victim };
        import.run(&mut new, &on_disk, || {});
    }
    let (code, done, said) = import(&new, &old.address, &[]);
    assert_eq!((code, &done["left"], &done["at_work"]), (0, &json!(0), &json!(0)), "{said}");
    let found = payloads(&new, "mail");
    assert!(found.len() == 450 && found.values().all(|count| *count == 1), "{found:?}");
}

#[test]
fn what_is_refused_stays_with_gearmand() {
    let (old, new) = (Gearmand::start(), served(&["--memory"]));
    output_of(&new, &["queue", "set", "mail", "--max-jobs", "1"]);
    let mut client = old.connect();
    for payload in ["a", "b"] {
        background(&mut client, "mail", "", payload);
    }
    background(&mut client, "sms", "", "c");
    let (code, done, said) = import(&new, &old.address, &["--queue", "mail"]);
    assert_eq!((code, &done["imported"], &done["refused"]), (1, &json!(1), &json!(1)), "{said}");
    let (code, done, said) = import(&new, &old.address, &["--skip-refused"]);
    let wanted = counts(&[("imported", 1), ("refused", 1), ("left", 1)]);
    assert_eq!((code, &done), (1, &wanted), "{said}");
    let mut worker = old.connect();
    let mut payload = None;
    while payload.is_none() {
        payload = grab(&mut worker, "mail");
    }
    assert_eq!(payload.unwrap(), "b");
}

#[test]
fn what_is_no_gearmand_is_said() {
    let new = served(&["--memory"]);
    let (code, _, said) = import(&new, &new.address_of("http"), &[]);
    assert!(code == 1 && said.contains("that is no gearmand at 127.0.0.1:"), "{said}");
    let (code, _, said) = import(&new, &free_address(), &[]);
    assert!(code == 1 && said.contains("cannot connect to 127.0.0.1:"), "{said}");
    let (code, _, said) = import(&new, "127.0.0.1:no", &[]);
    assert!(code == 2 && said.contains("127.0.0.1:no is no HOST:PORT"), "{said}");
}
