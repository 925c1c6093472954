//! The commands for people through the native API, against a real server.

use std::{
    fs,
    net::TcpListener,
    process::{Command, Stdio},
};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use spindle_testkit::Program;

use crate::{
    fake_workq::{Fake, Said, await_exit, ok, spindle, stderr, stdout},
    serve::{Served, data, serve},
};

const DOORS: [&str; 4] = ["--workq", "127.0.0.1:0", "--http", "127.0.0.1:0"];

/// A server with an HTTP door.
pub fn served(arguments: &[&str]) -> Served {
    serve(&[&DOORS[..], arguments].concat())
}

pub fn url(served: &Served) -> String {
    format!("http://{}", served.address_of("http"))
}

/// The command line, told to use the native API of this server.
pub fn at(served: &Served, arguments: &[&str]) -> assert_cmd::Command {
    let mut command = spindle(arguments);
    command.env("SPINDLE_URL", url(served));
    command
}

pub fn output_of(served: &Served, arguments: &[&str]) -> String {
    let output = at(served, arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    stdout(&output)
}

pub fn object(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn add(served: &Served, arguments: &[&str]) -> String {
    output_of(served, &[&["add"], arguments].concat()).trim().to_owned()
}

/// How a command ended that did not go well: its exit code and what it said.
fn refused(served: &Served, arguments: &[&str]) -> (i32, String) {
    let output = at(served, arguments).output().unwrap();
    (output.status.code().unwrap(), stderr(&output))
}

#[test]
fn a_session_through_the_native_api() {
    let served = served(&["--memory"]);
    let id = add(&served, &["greet", "world"]);
    assert_eq!(id, "1");
    assert_eq!(output_of(&served, &["queues"]), "greet\t1\t0\t0\t0\t0\t0\t0\t\n");
    let jobs = output_of(&served, &["jobs", "greet"]);
    assert!(jobs.starts_with("1\tgreet\tready\t0\t0\t0\t"), "{jobs}");
    assert!(jobs.ends_with("\tworld\n"), "{jobs}");
    assert_eq!(refused(&served, &["result", &id]).0, 4);
    let script = "printf 'hello '; cat; printf %s \" $SPINDLE_JOB_ID $SPINDLE_QUEUE\"";
    output_of(&served, &["work", "greet", "--once", "--", "sh", "-c", script]);
    assert_eq!(output_of(&served, &["result", &id]), "hello world 1 greet");
    let job = output_of(&served, &["job", &id]);
    for line in ["status\tdone", "payload\tworld", "result\thello world 1 greet", "attempts\t1"] {
        assert!(job.lines().any(|answer| answer == line), "{line}: {job}");
    }
    output_of(&served, &["delete", &id]);
    assert_eq!(refused(&served, &["job", &id]).0, 3);
}

#[test]
fn a_job_goes_by_the_names_of_every_door() {
    let served = served(&["--memory"]);
    add(&served, &["q", "x"]);
    for name in ["1", "H:anyhost:1", "7370696e-646c-8000-8000-000000000001"] {
        assert_eq!(object(&output_of(&served, &["job", "--json", name]))["payload_text"], "x");
    }
    let through_workq = stdout(&served.spindle(&["job", "1", "--json"]).unwrap());
    assert_eq!(object(&through_workq)["payload_text"], "x");
    let uuid = stdout(&served.spindle(&["add", "q", "y"]).unwrap()).trim().to_owned();
    assert_eq!(object(&output_of(&served, &["job", "--json", &uuid]))["payload_text"], "y");
}

#[test]
fn payloads_and_results_are_carried_byte_for_byte() {
    let served = served(&["--memory"]);
    let bytes: Vec<u8> = (0..=255).cycle().take(2 << 20).collect();
    let asked = at(&served, &["add", "q", "-"]).write_stdin(bytes.clone()).unwrap();
    assert_eq!(stdout(&asked), "1\n");
    let half = "head -c 1000000";
    output_of(&served, &["work", "q", "--once", "--", "sh", "-c", half]);
    assert_eq!(at(&served, &["result", "1"]).unwrap().stdout, bytes[..1_000_000]);
    let json = " {\"n\": 1.000e2,\n\"big\": 12345678901234567890123}";
    add(&served, &["q", json, "--type", "json"]);
    output_of(&served, &["work", "q", "--once", "--", "cat"]);
    assert_eq!(output_of(&served, &["result", "2"]), json.trim());
    let (code, said) = refused(&served, &["add", "q", "{", "--type", "json"]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("not JSON"), "{said}");
    let huge = at(&served, &["add", "q", "-"]).write_stdin(vec![0; (11 << 20) + 1]).output();
    assert!(stderr(&huge.unwrap()).contains("larger than 11534336 bytes"));
}

#[test]
fn jobs_are_treated_as_the_options_say() {
    let served = served(&["--memory"]);
    let options = ["--priority", "-5", "--ttr", "90s", "--ttl", "2h", "--max-attempts", "3"];
    let words = ["--max-fails", "2", "--tag", "a", "--tag", "b", "--unique", "k"];
    add(&served, &[&["mail", "hello"], &options[..], &words].concat());
    let job = object(&output_of(&served, &["job", "1", "--json"]));
    let expected = json!({
        "priority": -5, "ttr_ms": 90_000, "ttl_ms": 7_200_000, "attempts_max": 3,
        "fails_max": 2, "tags": ["a", "b"], "unique_key": "k", "keep_ms": 7_200_000,
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&job[name], value, "{name}");
    }
    let (code, said) = refused(&served, &["add", "mail", "--unique", "k"]);
    assert_eq!(code, 1);
    assert!(said.contains("the key is taken by job 1"), "{said}");
    assert_eq!(add(&served, &["mail", "--unique", "k", "--if-taken", "existing"]), "1");
    let replaced = add(&served, &["mail", "new", "--unique", "k", "--if-taken", "replace"]);
    assert_eq!(refused(&served, &["job", "1"]).0, 3);
    assert_eq!(object(&output_of(&served, &["job", "--json", &replaced]))["payload_text"], "new");
    let uuid = "6ba7b810-9dad-41d1-80b4-00c04fd430c4";
    assert_eq!(refused(&served, &["add", "mail", "--id", uuid]).0, 2);
    output_of(&served, &["schedule", "later", "2100-01-01T00:00:00Z", "x"]);
    let scheduled = output_of(&served, &["jobs", "--scheduled"]);
    assert!(scheduled.contains("\tlater\tscheduled\t"), "{scheduled}");
    assert!(scheduled.contains("\t2100-01-01T00:00:00.000Z\t"), "{scheduled}");
}

#[test]
fn jobs_are_listed_page_by_page_and_by_what_they_are() {
    let served = served(&["--memory"]);
    let lines: String = (0..1_100).map(|number| format!("line {number}\n")).collect();
    let added = at(&served, &["add", "q", "--lines", "-"]).write_stdin(lines).unwrap();
    let ids: String = (1..=1_100).map(|id| format!("{id}\n")).collect();
    assert_eq!(stdout(&added), ids);
    add(&served, &["other", "--tag", "news"]);
    let listed = output_of(&served, &["jobs", "--limit", "1050", "--offset", "3"]);
    assert_eq!(listed.lines().count(), 1_050);
    assert!(listed.starts_with("4\t"), "{}", &listed[..40]);
    for filter in [&["--tag", "news"][..], &["other"], &["other", "--status", "ready"]] {
        let listed = output_of(&served, &[&["jobs"], filter].concat());
        assert!(listed.starts_with("1101\tother\t"), "{filter:?}: {listed}");
        assert_eq!(listed.lines().count(), 1);
    }
    assert_eq!(output_of(&served, &["jobs", "q", "--status", "dead"]), "");
}

#[test]
fn exit_codes_tell_what_became_of_the_jobs() {
    let served = served(&["--memory"]);
    for word in ["true", "false", "exit 7"] {
        add(&served, &["q", word, "--tries", "1"]);
    }
    let script = "printf out; eval \"$(cat)\"";
    let (code, said) = refused(&served, &["work", "q", "--drain", "--", "sh", "-c", script]);
    assert_eq!(code, 5, "{said}");
    for part in ["1 completed, 2 failed", "job 3 of q failed: exit code 7"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(output_of(&served, &["result", "1"]), "out");
    let failed = at(&served, &["result", "2", "--json"]).output().unwrap();
    assert_eq!(failed.status.code(), Some(5));
    let expected = json!({
        "id": 2, "success": false, "result": "out", "code": "exit_1", "message": "exit code 1",
    });
    assert_eq!(object(&stdout(&failed)), expected);
    assert_eq!(refused(&served, &["result", "99"]), (3, "error: there is no job 99\n".into()));
    assert_eq!(refused(&served, &["retry", "99"]).0, 3);
    let (code, said) = refused(&served, &["resume", "nowhere"]);
    let there_is_none = "error: there is no queue nowhere; `spindle queues` lists them\n";
    assert_eq!((code, said.as_str()), (3, there_is_none));
}

#[test]
fn a_long_job_keeps_its_lease() {
    let served = served(&["--memory"]);
    add(&served, &["q", "--ttr", "300ms", "--max-fails", "9"]);
    output_of(&served, &["work", "q", "--once", "--", "sleep", "1.2"]);
    let job = object(&output_of(&served, &["job", "1", "--json"]));
    assert_eq!((&job["status"], &job["attempts"]), (&json!("done"), &json!(1)), "{job}");
}

fn work(served: &Served, arguments: &[&str]) -> (Program, Said) {
    let mut child = Program::start(
        Command::new(env!("CARGO_BIN_EXE_spindle"))
            .arg("work")
            .args(arguments)
            .env("SPINDLE_URL", url(served))
            .env_remove("SPINDLE_WORKQ")
            .stderr(Stdio::piped()),
    );
    let said = Said::by(child.stderr.take().unwrap());
    (child, said)
}

#[test]
fn a_worker_outlives_a_restart_of_the_server_and_delivers() {
    let (folder, data) = data();
    let mut first = served(&["--data", &data]);
    let address = first.address_of("http");
    add(&first, &["q", "x"]);
    let go = folder.path().join("go");
    let script = format!("echo up >&2; until [ -e {} ]; do sleep 0.01; done; cat", go.display());
    let (mut worker, said) = work(&first, &["q", "--once", "--", "sh", "-c", &script]);
    said.await_line("up");
    // A lease gets to disk with the next commit.
    add(&first, &["other"]);
    first.kill();
    fs::write(&go, "").unwrap();
    said.await_line("trying again");
    let again = serve(&["--workq", "127.0.0.1:0", "--http", &address, "--data", &data]);
    said.await_line(" answers again");
    assert_eq!(await_exit(&mut worker).code(), Some(0));
    assert_eq!(output_of(&again, &["result", "1"]), "x");
}

#[test]
fn a_signal_ends_an_idle_worker_at_once_and_its_next_job_is_not_lost() {
    let served = served(&["--memory"]);
    let (mut worker, _said) = work(&served, &["q", "-j", "3", "--", "true"]);
    // A queue that was never used is shown while a worker waits for it.
    let waits = || at(&served, &["why", "1"]).output().unwrap();
    add(&served, &["other"]);
    while !told_waiting(&served) {
        waits();
    }
    worker.signal(Signal::SIGTERM);
    assert_eq!(await_exit(&mut worker).code(), Some(0));
    add(&served, &["q"]);
    assert_eq!(object(&output_of(&served, &["job", "2", "--json"]))["attempts"], 0);
}

/// Whether three workers wait for queue `q`: workers that hang up are not told of any more.
fn told_waiting(served: &Served) -> bool {
    stdout(&served.spindle(&["queues"]).unwrap()).contains("q\t0\t0\n")
}

#[test]
fn run_waits_for_the_result_and_leaves_nothing_behind() {
    let served = served(&["--memory"]);
    let (mut worker, _said) = work(&served, &["q", "--", "sh", "-c", "cat; grep -q good"]);
    let good = at(&served, &["run", "q", "good"]).output().unwrap();
    // `cat` has read it all: there is nothing left for `grep`.
    assert_eq!((good.status.code(), stdout(&good).as_str()), (Some(5), "good"));
    let (code, said) = refused(&served, &["run", "nobody", "x", "--wait", "100ms"]);
    assert_eq!(code, 4, "{said}");
    assert!(said.contains("the job is gone"), "{said}");
    assert_eq!(output_of(&served, &["jobs"]), "");
    worker.signal(Signal::SIGTERM);
    await_exit(&mut worker);
}

#[test]
fn result_waits_until_the_job_is_done() {
    let served = served(&["--memory"]);
    add(&served, &["q", "x"]);
    let mut waiter = Program::start(
        Command::new(env!("CARGO_BIN_EXE_spindle"))
            .args(["result", "1", "--wait", "1m", "--url", &url(&served)])
            .stdout(Stdio::piped()),
    );
    let said = Said::by(waiter.stdout.take().unwrap());
    output_of(&served, &["work", "q", "--once", "--", "echo", "the result"]);
    said.await_line("the result");
    assert_eq!(await_exit(&mut waiter).code(), Some(0));
}

#[test]
fn why_retry_cancel_move_and_purge() {
    let served = served(&["--memory"]);
    add(&served, &["mail", "old"]);
    add(&served, &["mail", "second"]);
    let why = output_of(&served, &["why", "2"]);
    assert!(why.starts_with("position\t1 ready job of its queue comes before it\t\t\n"), "{why}");
    output_of(&served, &["pause", "mail"]);
    assert!(
        output_of(&served, &["why", "2"])
            .contains("paused\tits queue is paused\t\tresume its queue: spindle resume mail\n")
    );
    assert!(output_of(&served, &["queues"]).ends_with("\tpaused\n"));
    assert_eq!(object(&output_of(&served, &["resume", "mail", "--json"]))["paused"], false);

    let (code, said) = refused(&served, &["cancel", "1", "99", "2"]);
    assert_eq!((code, said.as_str()), (3, "error: there is no job 99\n"));
    let dead = object(&output_of(&served, &["job", "2", "--json"]));
    assert_eq!((&dead["status"], &dead["result"]["code"]), (&json!("dead"), &json!("cancelled")));
    output_of(&served, &["retry", "2"]);
    assert_eq!(object(&output_of(&served, &["job", "2", "--json"]))["payload_text"], "second");
    let retried = output_of(&served, &["retry", "1", "[1]", "--type", "json", "--json"]);
    assert_eq!(object(&retried)["payload"], json!([1]));
    let (code, said) = refused(&served, &["retry", "1"]);
    assert_eq!(code, 1);
    assert!(said.contains("spindle why"), "{said}");

    output_of(&served, &["move", "1", "2", "--to", "sms"]);
    assert_eq!(output_of(&served, &["purge", "sms", "--dry-run"]), "2 jobs would be deleted\n");
    assert_eq!(
        object(&output_of(&served, &["purge", "sms", "--json"])),
        json!({
            "queue": "sms", "deleted": 2
        })
    );
    assert_eq!(output_of(&served, &["jobs"]), "");
}

#[test]
fn events_are_printed_and_followed_across_a_restart() {
    let (_folder, data) = data();
    let mut first = served(&["--data", &data]);
    let address = first.address_of("http");
    add(&first, &["q", "x"]);
    let events = output_of(&first, &["events", "--json"]);
    let events: Vec<Value> = events.lines().map(object).collect();
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["started", "submitted"]);
    let after = output_of(&first, &["events", "--after", events[0]["id"].as_str().unwrap()]);
    assert_eq!(after.lines().count(), 1, "{after}");

    let mut follower = Program::start(
        Command::new(env!("CARGO_BIN_EXE_spindle"))
            .args(["events", "--follow", "--url", &url(&first)])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
    );
    let said = Said::by(follower.stderr.take().unwrap());
    let lines = Said::by(follower.stdout.take().unwrap());
    // It follows from now on, and hears of the first thing that happens once it does.
    while lines.next_line_within_a_moment().is_none() {
        add(&first, &["q", "again"]);
    }
    first.kill();
    said.await_line("connecting again");
    let again = serve(&["--workq", "127.0.0.1:0", "--http", &address, "--data", &data]);
    lines.await_line("\tstarted\t");
    let id = add(&again, &["q", "after"]);
    lines.await_line(&format!("job={id}"));
    follower.kill().unwrap();
    follower.wait().unwrap();
}

#[test]
fn a_server_that_is_not_there_or_is_another_is_told_with_what_to_do() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let free = format!("http://{free}");
    let commands: [&[&str]; 4] =
        [&["queues"], &["add", "q"], &["why", "1"], &["events", "--follow"]];
    for command in commands {
        let mut nobody = spindle(&command[..1]);
        let nobody = nobody.args(["--url", &free]).args(&command[1..]).output().unwrap();
        assert_eq!(nobody.status.code(), Some(1), "{command:?}");
        for part in ["is the server running?", "spindle serve", "--url"] {
            assert!(stderr(&nobody).contains(part), "{part}: {}", stderr(&nobody));
        }
    }
    let served = served(&["--memory"]);
    let wrong = spindle(&["queues", "--workq", &served.address_of("http")]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(1));
    assert!(stderr(&wrong).contains("is no Workq door"), "{}", stderr(&wrong));
}

#[test]
fn the_flag_goes_before_the_environment_and_workq_before_the_native_api() {
    let served = served(&["--memory"]);
    let fake = Fake::start(|_| ok());
    let both = || {
        let mut command = at(&served, &["add", "q"]);
        command.env("SPINDLE_WORKQ", fake.address());
        command
    };
    both().assert().success();
    assert_eq!(fake.requests().len(), 1);
    assert_eq!(stdout(&both().args(["--url", &url(&served)]).unwrap()), "1\n");
    assert_eq!(fake.requests().len(), 1);
    let (code, said) = refused_by(both().args(["--tag", "a"]));
    assert_eq!(code, 2);
    assert!(said.contains("native API"), "{said}");
}

fn refused_by(command: &mut assert_cmd::Command) -> (i32, String) {
    let output = command.output().unwrap();
    (output.status.code().unwrap(), stderr(&output))
}

#[test]
fn all_jobs_that_match_are_counted_and_changed() {
    let served = served(&["--memory"]);
    for number in 0..5 {
        add(&served, &["mail", &format!("payload {number}"), "--tag", "news"]);
    }
    add(&served, &["other", "payload 1"]);
    let all = |command: &str, filter: &[&str]| {
        output_of(&served, &[&[command, "--all-matching"], filter].concat())
    };
    assert_eq!(all("delete", &["--tag", "news", "--dry-run"]), "5 jobs would be deleted\n");
    assert_eq!(output_of(&served, &["jobs"]).lines().count(), 6);
    assert_eq!(all("move", &["--text", "load 1", "--to", "sms"]), "2 jobs moved\n");
    assert_eq!(all("cancel", &["--queue", "mail", "--status", "ready"]), "4 jobs cancelled\n");
    let done = object(&all("retry", &["--tag", "news", "--json"]));
    assert_eq!((&done["matched"], &done["changed"]), (&json!(5), &json!(4)), "{done}");
    assert_eq!(done["refused"], json!({"job_not_finished": 1}));
    assert_eq!(all("delete", &["--status", "ready", "--status", "dead"]), "6 jobs deleted\n");
    let (code, said) = refused(&served, &["delete", "--all-matching"]);
    assert_eq!(code, 2);
    assert!(said.contains("needs a filter"), "{said}");
    let cases: [&[&str]; 5] = [
        &["delete", "1", "--all-matching"],
        &["delete", "1", "--dry-run"],
        &["cancel", "1", "--queue", "mail"],
        &["retry", "1", "--tag", "news"],
        &["move", "1", "--to", "q", "--status", "ready"],
    ];
    for wrong in cases {
        assert_eq!(refused(&served, wrong).0, 2, "{wrong:?}");
    }
}

#[test]
fn constraints_are_set_shown_and_removed() {
    let served = served(&["--memory"]);
    let rule = r#"{"queue": "mail", "running_max": 1}"#;
    output_of(&served, &["constraint", "put", "one", rule]);
    add(&served, &["mail", "--ttr", "1h"]);
    add(&served, &["mail"]);
    assert_eq!(output_of(&served, &["constraint", "list"]), "one\tmail\t1\t\t\n");
    let shown = object(&output_of(&served, &["constraint", "show", "one", "--json"]));
    assert_eq!(shown["running_max"], 1);
    assert!(output_of(&served, &["constraint", "show", "one"]).contains("running-max\t1\n"));
    // The first job runs for as long as its worker is not told to end.
    let (mut worker, said) = work(&served, &["mail", "--", "sh", "-c", "echo up >&2; sleep 600"]);
    said.await_line("up");
    assert!(output_of(&served, &["why", "2"]).starts_with("constraint\tconstraint one"), "");
    let workers = output_of(&served, &["workers"]);
    assert!(workers.contains("\tapi\tmail\t") && workers.ends_with("\t1\n"), "{workers}");
    output_of(&served, &["constraint", "delete", "one"]);
    assert_eq!(refused(&served, &["constraint", "show", "one"]).0, 3);
    constraints_in_options(&served);
    what_a_constraint_cannot_read_is_noted(&served);
    worker.signal(Signal::SIGINT);
    said.await_line("SIGINT");
    worker.signal(Signal::SIGINT);
    assert_eq!(await_exit(&mut worker).code(), Some(130));
    let (code, said) = refused(&served, &["constraint", "put", "bad", "{"]);
    assert_eq!(code, 2, "{said}");
    let (code, said) = refused(&served, &["constraint", "put", "bad", "{}"]);
    assert_eq!(code, 1, "{said}");
}

fn what_a_constraint_cannot_read_is_noted(served: &Served) {
    for arguments in [
        &["constraint", "put", "each", "--queue", "mail", "--per", "/user", "--running-max", "1"][..],
        &["constraint", "show", "each"],
        &["constraint", "show", "each", "--json"],
    ] {
        let said = at(served, arguments).unwrap();
        let note = stderr(&said);
        assert!(note.starts_with("note: payloads of queue mail that come as bytes"), "{note}");
        assert_eq!(stdout(&said).contains("bytes_type"), arguments.contains(&"--json"));
    }
    output_of(served, &["constraint", "delete", "each"]);
    let said = at(served, &["constraint", "put", "each", "--running-max", "1"]).unwrap();
    assert_eq!(stderr(&said), "", "it reads no payloads");
    output_of(served, &["constraint", "delete", "each"]);
}

fn constraints_in_options(served: &Served) {
    fn put<'a>(more: &[&'a str]) -> Vec<&'a str> {
        [&["constraint", "put", "two"], more].concat()
    }
    let rate = ["--queue-glob", "mail.*", "--per", "/user", "--rate", "600/m", "--burst", "20"];
    output_of(served, &put(&rate));
    assert_eq!(
        output_of(served, &["constraint", "list"]),
        "two\tmail.*\t\t600 per 60000ms, burst 20\t/user\n"
    );
    // Without shards it says nothing.
    output_of(served, &put(&["--queue", "mail", "--running-max", "0", "--per-shard"]));
    assert_eq!(output_of(served, &["constraint", "list"]), "two\tmail\t0\t\t\n");
    for wrong in [
        &["--queue", "mail"][..],
        &["--rate", "10"],
        &["--running-max", "1", "--burst", "2"],
        &["--running-max", "1", "--queue", "a", "--queue-glob", "b"],
        &["{}", "--running-max", "1"],
        &["{\"running_max\":1}", "--per-shard"],
        &["--per-shard"],
        &[],
    ] {
        assert_eq!(refused(served, &put(wrong)).0, 2, "{wrong:?}");
    }
    assert_eq!(refused(served, &put(&["--rate", "0/s"])).0, 1);
    output_of(served, &["constraint", "delete", "two"]);
}

#[test]
fn a_pause_can_wait_until_nobody_is_at_work() {
    let folder = tempfile::tempdir().unwrap();
    let go = folder.path().join("go");
    let served = served(&["--memory"]);
    add(&served, &["q"]);
    let script = format!("echo up >&2; until [ -e {} ]; do sleep 0.01; done", go.display());
    let (mut worker, said) = work(&served, &["q", "--once", "--", "sh", "-c", &script]);
    said.await_line("up");
    let (code, answer) = refused(&served, &["pause", "q", "--drain", "100ms"]);
    assert_eq!(code, 4, "{answer}");
    assert!(answer.contains("queue q is paused, and 1 job is still at work"), "{answer}");
    fs::write(&go, "").unwrap();
    let drained = at(&served, &["pause", "q", "--drain", "1m", "--json"]).unwrap();
    assert_eq!(object(&stdout(&drained)), json!({"drained": true, "leased": 0}));
    assert_eq!(await_exit(&mut worker).code(), Some(0));
}
