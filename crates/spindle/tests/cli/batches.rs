//! `spindle batch`, and the batches of other commands, against a real server.

use std::{
    io::{Read, Write},
    net::TcpListener,
    thread,
};

use serde_json::{Value, json};

use crate::{
    fake_workq::{spindle, stderr, stdout},
    native::{at, object, output_of, served, url},
    serve::Served,
    terminal::Terminal,
};

/// The number that a command prints alone on a line.
#[track_caller]
fn number_of(served: &Served, arguments: &[&str]) -> String {
    let printed = output_of(served, arguments);
    let number = printed.strip_suffix('\n').unwrap();
    assert!(number.parse::<u64>().is_ok(), "{arguments:?}: {printed}");
    number.to_owned()
}

fn open(served: &Served, more: &[&str]) -> String {
    number_of(served, &[&["batch", "open", "--queue", "photos"], more].concat())
}

fn add(served: &Served, queue: &str, more: &[&str]) -> String {
    number_of(served, &[&["add", queue], more].concat())
}

fn work(served: &Served, queue: &str) {
    output_of(served, &["work", queue, "--drain", "--", "cat"]);
}

/// How a command ended that did not go well: its exit code and what it said.
fn refused(served: &Served, arguments: &[&str]) -> (i32, String) {
    let output = at(served, arguments).output().unwrap();
    (output.status.code().unwrap(), stderr(&output))
}

fn shown(served: &Served, id: &str) -> Value {
    object(&output_of(served, &["batch", "show", id, "--json"]))
}

fn status(served: &Served, job: &str) -> Value {
    object(&output_of(served, &["job", job, "--json"]))["status"].clone()
}

fn ids(served: &Served, arguments: &[&str]) -> Vec<String> {
    let listed = output_of(served, arguments);
    listed.lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect()
}

#[test]
fn a_batch_is_opened_filled_sealed_and_worked_and_what_waits_for_it_runs() {
    let served = served(&["--memory"]);
    let batch = open(&served, &["--name", "holidays", "--keep", "2h"]);
    let one = add(&served, "resize", &["1.jpg", "--batch", &batch]);
    let lines = at(&served, &["add", "resize", "--lines", "-", "--batch", &batch]);
    let two = stdout(&{ lines }.write_stdin("2.jpg\n").unwrap()).trim().to_owned();
    let last = add(&served, "album", &["--after", &batch]);
    let outside = add(&served, "resize", &["3.jpg"]);
    assert_eq!(ids(&served, &["jobs", "--batch", &batch]), [&*one, &two]);
    assert_eq!(object(&output_of(&served, &["job", &one, "--json"]))["batch"].to_string(), batch);
    let listed = output_of(&served, &["batch", "list"]);
    assert!(listed.starts_with(&format!("{batch}\tphotos\topen\t2\t2\t0\t0\t0\t2")), "{listed}");
    assert!(listed.ends_with("Z\tholidays\n"), "{listed}");
    let flow = format!(
        "{one} ready resize\n{two} ready resize\n  batch {batch} open photos of {one}, {two}\n    \
         {last} blocked album after {batch}\n"
    );
    for id in [&batch, &one, &last] {
        assert_eq!(output_of(&served, &["flow", id]), flow, "{id}");
    }
    let flow = object(&output_of(&served, &["flow", &last, "--json"]));
    assert_eq!(flow["nodes"][0]["is_batch"], true, "{flow}");
    assert_eq!(output_of(&served, &["batch", "seal", &batch]), "");
    assert_eq!(shown(&served, &batch)["status"], "sealed");
    assert_eq!(status(&served, &last), "blocked");
    work(&served, "resize");
    assert_eq!(status(&served, &last), "ready");
    assert_eq!(status(&served, &outside), "done");
    let batch_shown = output_of(&served, &["batch", "show", &batch]);
    let expected = format!(
        "id\t{batch}\nqueue\tphotos\nstatus\tdone\ntotal\t2\nunfinished\t0\ndone\t2\ndead\t0\n\
         gone\t0\nname\tholidays\ncancelled\tfalse\nopened\t"
    );
    assert!(batch_shown.starts_with(&expected), "{batch_shown}");
    for label in ["sealed", "ended", "kept-until"] {
        let is_it = |line: &str| line.starts_with(&format!("{label}\t2")) && line.ends_with(')');
        assert!(batch_shown.lines().any(is_it), "{label}: {batch_shown}");
    }
    assert!(batch_shown.contains("(in 1h 59m)") || batch_shown.contains("(in 2h)"), "--keep");
    work(&served, "album");
    assert_eq!(status(&served, &last), "done");
}

#[test]
fn a_unique_key_opens_one_batch_and_a_parent_counts_the_batch_in_it() {
    let served = served(&["--memory"]);
    let outer = open(&served, &["--unique", "nightly"]);
    assert_eq!(open(&served, &["--unique", "nightly"]), outer);
    let inner = open(&served, &["--parent", &outer]);
    assert_eq!(shown(&served, &outer)["jobs"]["unfinished"], 1);
    assert_eq!(shown(&served, &inner)["parent"].to_string(), outer);
    let opened = object(&output_of(&served, &["batch", "open", "--queue", "caf\\xe9", "--json"]));
    assert_eq!((&opened["queue_base64"], &opened["status"]), (&json!("Y2Fm6Q=="), &json!("open")));
    let newest = output_of(&served, &["batch", "list", "--limit", "2"]);
    let lines: Vec<&str> = newest.lines().collect();
    assert!(lines[0].starts_with(&format!("{}\tcaf\\xe9\topen\t", opened["id"])), "{newest}");
    assert!(lines.len() == 2 && lines[1].starts_with(&format!("{inner}\t")), "{newest}");
}

#[test]
fn a_batch_that_is_not_there_or_sealed_is_told() {
    let served = served(&["--memory"]);
    let job = add(&served, "q", &[]);
    for wrong in ["99", &job] {
        let commands: [&[&str]; 6] = [
            &["batch", "show", wrong],
            &["batch", "seal", wrong],
            &["batch", "cancel", wrong],
            &["batch", "open", "--queue", "q", "--parent", wrong],
            &["add", "q", "--batch", wrong],
            &["add", "q", "--lines", "-", "--batch", wrong],
        ];
        for arguments in commands {
            let output = at(&served, arguments).write_stdin("a line\n").output().unwrap();
            let (code, said) = (output.status.code(), stderr(&output));
            let told = format!("there is no batch {wrong}; `spindle batch list`");
            assert!(code == Some(3) && said.contains(&told), "{arguments:?}: {said}");
        }
    }
    let (code, said) = refused(&served, &["add", "q", "--after", "99"]);
    assert!(code == 1 && said.contains("no job 99 to wait for"), "{code} {said}");
    let batch = open(&served, &[]);
    output_of(&served, &["batch", "seal", &batch]);
    let commands: [&[&str]; 3] = [
        &["batch", "seal", &batch],
        &["add", "q", "--batch", &batch],
        &["batch", "open", "--queue", "q", "--parent", &batch],
    ];
    for arguments in commands {
        let (code, said) = refused(&served, arguments);
        let told = format!("batch {batch} is sealed");
        assert!(code == 1 && said.contains(&told), "{arguments:?}: {code} {said}");
    }
    let through_workq = served.spindle(&["add", "q", "--batch", "1"]).output().unwrap();
    assert_eq!(through_workq.status.code(), Some(2), "{}", stderr(&through_workq));
}

#[test]
fn a_cancelled_batch_tells_how_many_jobs_went_with_it() {
    let served = served(&["--memory"]);
    let outer = open(&served, &[]);
    let inner = open(&served, &["--parent", &outer]);
    let jobs = [&outer, &inner, &inner].map(|batch| add(&served, "resize", &["--batch", batch]));
    let all = ["cancel", "--all-matching", "--batch", &inner, "--dry-run"];
    assert_eq!(output_of(&served, &all), "2 jobs would be cancelled\n");
    assert_eq!(output_of(&served, &["batch", "cancel", &outer]), "3 jobs cancelled\n");
    for job in &jobs {
        assert_eq!(status(&served, job), "dead", "{job}");
    }
    assert_eq!(shown(&served, &outer)["cancelled"], true);
    let again = object(&output_of(&served, &["batch", "cancel", &outer, "--json"]));
    assert_eq!(
        (&again["cancelled"], &again["is_partial"], again["batch"]["id"].to_string()),
        (&json!(0), &json!(false), outer.clone())
    );
    let audit = output_of(&served, &["audit", "--action", "cancel_batch"]);
    assert!(audit.contains(&format!("\tcancel_batch\tqueue photos\t3 jobs, batch {outer}\n")));
    let retry = ["retry", "--all-matching", "--batch", &inner];
    assert_eq!(output_of(&served, &retry), "2 jobs retried\n");
    assert_eq!(status(&served, &jobs[0]), "dead");
}

#[test]
fn a_person_is_asked_before_a_batch_is_cancelled() {
    let served = served(&["--memory"]);
    let batch = open(&served, &[]);
    let job = add(&served, "resize", &["--batch", &batch]);
    let ask = format!("Cancel batch {batch}, with 1 job unfinished? [y/N] ");
    let mut terminal = Terminal::run(&url(&served), &["batch", "cancel", &batch]);
    terminal.await_text(&ask);
    terminal.type_line("no");
    assert_eq!(terminal.await_end().code(), Some(1));
    assert_eq!(status(&served, &job), "ready");
    let mut terminal = Terminal::run(&url(&served), &["batch", "cancel", &batch]);
    terminal.await_text(&ask);
    terminal.type_line("y");
    terminal.await_text("1 job cancelled");
    assert_eq!(terminal.await_end().code(), Some(0));
    let mut terminal = Terminal::run(&url(&served), &["batch", "cancel", &batch, "--yes"]);
    terminal.await_text("0 jobs cancelled");
    assert_eq!(terminal.await_end().code(), Some(0));
}

/// A server that gives these answers to requests that begin like this, each once.
fn says(answers: Vec<(&'static str, Value)>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for (begins, answer) in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                head.extend(byte);
            }
            // Another request gets no answer.
            if !head.starts_with(begins.as_bytes()) {
                break;
            }
            let (body, head) = (answer.to_string(), "HTTP/1.1 200 OK\r\nconnection: close");
            let length = body.len();
            write!(stream, "{head}\r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
        }
    });
    format!("http://{address}")
}

#[test]
fn a_cancelling_that_is_partial_goes_on_and_counts_all() {
    let answer = |cancelled: u64, is_partial: bool| {
        let done =
            json!({ "cancelled": cancelled, "is_partial": is_partial, "batch": { "id": 7 } });
        ("POST /api/v1/batches/7/cancel ", done)
    };
    let url = says(vec![answer(2_000, true), answer(1_500, true), answer(7, false)]);
    let output = spindle(&["batch", "cancel", "7", "--url", &url]).output().unwrap();
    assert_eq!(stdout(&output), "3507 jobs cancelled\n", "{}", stderr(&output));
}

#[test]
fn a_list_goes_on_over_the_pages_of_the_server() {
    let page = |count: u64, next: Value| {
        let batches: Vec<Value> = (0..count).map(|id| json!({ "id": id, "queue": "q" })).collect();
        json!({ "batches": batches, "next_cursor": next })
    };
    let url = says(vec![
        ("GET /api/v1/batches?limit=500 ", page(500, json!("8"))),
        ("GET /api/v1/batches?limit=2&cursor=8 ", page(2, json!("6"))),
    ]);
    let output = spindle(&["batch", "list", "--limit", "502", "--url", &url]).output().unwrap();
    assert_eq!(stdout(&output).lines().count(), 502, "{}", stderr(&output));
}
