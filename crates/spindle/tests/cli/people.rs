//! Output and questions for people: lists, times, names of any bytes, the state of a server on one
//! screen.

use std::{
    io::{Read, Write},
    net::TcpListener,
    thread,
};

use serde_json::{Value, json};

use crate::{
    fake_workq::{spindle, stderr, stdout},
    serve::{Served, data, serve},
    terminal::Terminal,
};

fn served() -> Served {
    serve(&["--workq", "127.0.0.1:0", "--http", "127.0.0.1:0", "--memory"])
}

fn url(served: &Served) -> String {
    format!("http://{}", served.address_of("http"))
}

/// How a command ended: its exit code, what it printed, and what it said besides.
fn run(served: &Served, arguments: &[&str]) -> (i32, String, String) {
    let output = spindle(arguments).env("SPINDLE_URL", url(served)).output().unwrap();
    (output.status.code().unwrap(), stdout(&output), stderr(&output))
}

#[track_caller]
fn output_of(served: &Served, arguments: &[&str]) -> String {
    let (code, answer, said) = run(served, arguments);
    assert_eq!(code, 0, "{arguments:?}: {said}");
    answer
}

fn object(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| panic!("no JSON: {text}"))
}

fn add_lines(served: &Served, queue: &str, lines: &str) -> String {
    let mut command = spindle(&["add", queue, "--lines", "-"]);
    let output = command.env("SPINDLE_URL", url(served)).write_stdin(lines).unwrap();
    stderr(&output)
}

#[test]
fn ids_in_json_are_numbers_whatever_name_was_typed() {
    let served = served();
    let id = |arguments: &[&str]| object(&output_of(&served, arguments))["id"].clone();
    assert_eq!(id(&["add", "q", "x", "--json"]), 1);
    assert_eq!(id(&["schedule", "q", "+1h", "--json"]), 2);
    let through_workq = stdout(&served.spindle(&["add", "q", "y"]).unwrap()).trim().to_owned();
    output_of(&served, &["work", "q", "--drain", "--", "cat"]);
    let foreign = "7370696e-646c-8000-8000-000000000001";
    for name in ["1", "H:box:1", foreign] {
        assert_eq!(id(&["job", name, "--json"]), 1);
        assert_eq!(id(&["result", name, "--json"]), 1);
        assert_eq!(id(&["why", name, "--json"]), 1);
    }
    assert_eq!(id(&["jobs", "--status", "scheduled", "--json"]), 2);
    assert_eq!(id(&["retry", foreign, "--json"]), 1);
    assert_eq!(id(&["cancel", foreign, "--json"]), 1);
    assert_eq!(id(&["delete", foreign, "--json"]), 1);
    assert_eq!(id(&["delete", "H:box:2", "--json"]), 2);
    assert_eq!(id(&["delete", &through_workq, "--json"]), 3);
    let (code, gone, _) = run(&served, &["delete", foreign, "--json"]);
    assert_eq!((code, object(&gone)["id"].clone()), (3, json!(foreign)));
    let events = output_of(&served, &["events", "--json"]);
    let jobs = events.lines().map(object).filter(|event| event["type"] == "submitted");
    assert!(jobs.map(|event| event["job"].clone()).eq([1, 2, 3].map(Value::from)));
}

#[test]
fn ids_in_json_through_workq_are_its_uuids() {
    let served = served();
    let object_of = |arguments: &[&str]| object(&stdout(&served.spindle(arguments).unwrap()));
    let added = object_of(&["add", "q", "x", "--json"]);
    let uuid = added["id"].as_str().unwrap();
    assert_eq!(object_of(&["job", uuid, "--json"])["id"], uuid);
    assert_eq!(object_of(&["jobs", "q", "--json"])["id"], uuid);
    let foreign = "7370696e-646c-8000-8000-000000000001";
    assert_eq!(added["id"].as_str().map(str::len), Some(foreign.len()));
    assert_eq!(object_of(&["delete", uuid, "--json"])["id"], uuid);
}

#[test]
fn a_list_says_how_many_more_there_are() {
    let served = served();
    let lines: String = (0..1_500).map(|number| format!("{number}\n")).collect();
    add_lines(&served, "q", &lines);
    output_of(&served, &["add", "other", "--tag", "news"]);
    let said = |arguments: &[&str]| run(&served, &[&["jobs"], arguments].concat()).2;
    assert_eq!(said(&["q"]), "and 1,400 more (--limit, --offset)\n");
    assert_eq!(said(&["--json"]), "and 1,401 more (--limit, --offset)\n");
    assert_eq!(
        said(&["q", "--limit", "1", "--offset", "998"]),
        "and 501 more (--limit, --offset)\n"
    );
    assert_eq!(said(&["q", "--limit", "1500"]), "");
    assert_eq!(said(&["q", "--limit", "1499"]), "and 1 more (--limit, --offset)\n");
    assert_eq!(said(&["other"]), "");
    assert_eq!(said(&["--tag", "news"]), "");
    assert_eq!(said(&["--text", "99", "--limit", "3"]), "and 21 more (--limit, --offset)\n");
    let sorted = "and 1,400 more (--limit, --offset); only the 100 listed are sorted by priority\n";
    assert_eq!(said(&["q", "--sort", "-priority"]), sorted);
    assert_eq!(said(&["q", "--sort", "-id"]), "and 1,400 more (--limit, --offset)\n");
}

#[test]
fn jobs_that_failed_alike_are_found_by_what_they_said() {
    let served = served();
    for (word, queue) in [("db-1", "a"), ("db-22", "b"), ("host x", "a")] {
        output_of(&served, &["add", queue, &format!("refused by {word}"), "--max-fails", "1"]);
    }
    for queue in ["a", "b"] {
        run(&served, &["work", queue, "--drain", "--", "sh", "-c", "cat >&2; exit 1"]);
    }
    let found = |arguments: &[&str]| {
        let listed = output_of(&served, &[&["jobs", "--json"], arguments].concat());
        listed.lines().map(|line| object(line)["id"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(found(&["--fingerprint", "refused by db-#"]), [1, 2]);
    assert_eq!(found(&["b", "--fingerprint", "refused by db-#"]), [2]);
    assert_eq!(found(&["--fingerprint", "refused"]), Vec::<Value>::new());
    let retry = ["retry", "--all-matching", "--fingerprint", "refused by db-#", "--yes"];
    run(&served, &retry);
    assert_eq!(found(&["--status", "ready"]), [1, 2]);
}

#[test]
fn a_list_is_sorted_by_a_column() {
    let served = served();
    for (queue, priority) in [("b", "1"), ("a", "-7"), ("b", "3"), ("a", "1")] {
        output_of(&served, &["add", queue, "--priority", priority]);
    }
    output_of(&served, &["cancel", "1"]);
    let ids = |arguments: &[&str]| {
        let listed = output_of(&served, &[&["jobs"], arguments].concat());
        let first = |line: &str| line.split('\t').next().unwrap().to_owned();
        listed.lines().map(first).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(ids(&[]), "1 2 3 4");
    assert_eq!(ids(&["--sort", "-id"]), "4 3 2 1");
    assert_eq!(ids(&["--sort", "-id", "--limit", "2", "--offset", "1"]), "3 2");
    assert_eq!(ids(&["--sort", "priority"]), "2 1 4 3");
    assert_eq!(ids(&["--sort", "-priority"]), "3 1 4 2");
    assert_eq!(ids(&["--sort", "queue"]), "2 4 1 3");
    assert_eq!(ids(&["--sort", "status"]), "2 3 4 1");
    assert_eq!(ids(&["--sort=-time"]), "4 3 2 1");
    assert_eq!(run(&served, &["jobs", "--sort", "size"]).0, 2);
    let through_workq = served.spindle(&["jobs", "a", "--sort", "-id"]).output().unwrap();
    assert_eq!(through_workq.status.code(), Some(2), "{}", stderr(&through_workq));
}

#[test]
fn a_list_shows_how_payloads_begin_in_one_line() {
    let served = served();
    output_of(&served, &["add", "q", "line one\nline\ttwo \x1b[2J"]);
    output_of(&served, &["add", "q", &"ä".repeat(40)]);
    output_of(&served, &["add", "q", &"ä".repeat(41)]);
    output_of(&served, &["add", "q", "{\"to\": \"ann\"}", "--type", "json"]);
    let mut command = spindle(&["add", "q", "-"]);
    command.env("SPINDLE_URL", url(&served)).write_stdin([0xff, 0]).assert().success();
    let mut command = spindle(&["add", "q", "-"]);
    let large = vec![b'x'; 1 << 20];
    command.env("SPINDLE_URL", url(&served)).write_stdin(large).assert().success();
    let listed = output_of(&served, &["jobs", "q"]);
    let payloads: Vec<&str> =
        listed.lines().map(|line| line.rsplit('\t').next().unwrap()).collect();
    let (fits, cut) = ("ä".repeat(40), format!("{}…", "ä".repeat(40)));
    let long = format!("{}…", "x".repeat(40));
    let first = "line one\\nline\\ttwo \\u{1b}[2J";
    assert_eq!(payloads, [first, &fits, &cut, "{\"to\": \"ann\"}", "(2 bytes)", &long]);
    assert!(!output_of(&served, &["jobs", "q", "--json"]).contains("preview"));
}

#[test]
fn a_queue_that_is_not_there_is_told_by_its_name() {
    let served = served();
    output_of(&served, &["add", "mail"]);
    let commands: [&[&str]; 6] = [
        &["jobs", "mial"],
        &["pause", "mial"],
        &["pause", "mial", "--drain", "1s"],
        &["resume", "mial"],
        &["purge", "mial"],
        &["purge", "mial", "--dry-run"],
    ];
    for command in commands {
        let (code, printed, said) = run(&served, command);
        assert_eq!((code, printed.as_str()), (3, ""), "{command:?}");
        let there_is_none = "error: there is no queue mial; `spindle queues` lists them";
        assert!(said.starts_with(there_is_none), "{command:?}: {said}");
    }
    assert_eq!(output_of(&served, &["queues", "--json"]).lines().count(), 1);
    let workq = served.spindle(&["jobs", "mial"]).output().unwrap();
    assert_eq!(workq.status.code(), Some(3), "{}", stderr(&workq));
    // One without such jobs is there.
    assert_eq!(
        run(&served, &["jobs", "mail", "--status", "dead"]),
        (0, String::new(), String::new())
    );
}

#[test]
fn a_queue_that_is_not_there_is_paused_only_on_purpose() {
    let served = served();
    let (_, _, said) = run(&served, &["pause", "mial"]);
    assert!(said.contains("--create pauses it all the same"), "{said}");
    output_of(&served, &["pause", "new", "--create"]);
    assert_eq!(output_of(&served, &["queues"]), "new\t0\t0\t0\t0\t0\t0\t0\tpaused\n");
    output_of(&served, &["pause", "new"]);
    output_of(&served, &["resume", "new"]);
    assert_eq!(output_of(&served, &["queues"]), "");
    output_of(&served, &["add", "mail"]);
    output_of(&served, &["pause", "mail"]);
}

#[test]
fn a_person_is_asked_before_many_jobs_go() {
    let served = served();
    let url = url(&served);
    add_lines(&served, "mail", &"x\n".repeat(1_204));
    let ask = "Delete 1,204 ready and scheduled jobs of queue mail? [y/N] ";
    for answer in ["n", "", "yo", "j"] {
        let mut terminal = Terminal::run(&url, &["purge", "mail"]);
        terminal.await_text(ask);
        terminal.type_line(answer);
        terminal.await_text("nothing was changed");
        assert_eq!(terminal.await_end().code(), Some(1), "{answer}");
    }
    let mut terminal = Terminal::run(&url, &["cancel", "--all-matching", "--queue", "mail"]);
    terminal.await_text("Cancel 1,204 jobs? [y/N] ");
    terminal.type_line("no");
    assert_eq!(terminal.await_end().code(), Some(1));
    assert_eq!(output_of(&served, &["queues"]), "mail\t1204\t0\t0\t0\t0\t0\t0\t\n");
    for (command, asks, tells) in [
        (&["park"][..], "Park 1,204 jobs?", "1204 jobs parked"),
        (&["release"], "Release 1,204 jobs?", "1204 jobs released"),
        (&["edit", "--priority", "3"], "Change 1,204 jobs?", "1204 jobs changed"),
        (&["move", "--to", "sms"], "Move 1,204 jobs?", "1204 jobs moved"),
    ] {
        let all =
            [command, &["--all-matching", "--status", "ready", "--status", "parked"]].concat();
        let mut terminal = Terminal::run(&url, &all);
        terminal.await_text(asks);
        terminal.type_line("y");
        terminal.await_text(tells);
        assert_eq!(terminal.await_end().code(), Some(0), "{command:?}");
    }
    let mut terminal = Terminal::run(&url, &["purge", "sms"]);
    terminal.await_text("of queue sms? [y/N] ");
    terminal.type_line("YES");
    terminal.await_text("1204 jobs deleted");
    assert_eq!(terminal.await_end().code(), Some(0));
}

#[test]
fn who_said_yes_or_means_nothing_is_not_asked() {
    let served = served();
    let url = url(&served);
    for _ in 0..2 {
        output_of(&served, &["add", "mail"]);
    }
    let commands: [&[&str]; 4] = [
        &["purge", "mail", "--dry-run"],
        &["delete", "--all-matching", "--queue", "mail", "--dry-run"],
        &["delete", "--all-matching", "--queue", "mail", "--tag", "none"],
        &["cancel", "--all-matching", "--queue", "mail", "--yes"],
    ];
    let tells = ["2 jobs would", "2 jobs would", "0 jobs deleted", "2 jobs cancelled"];
    for (command, tells) in commands.into_iter().zip(tells) {
        let mut terminal = Terminal::run(&url, command);
        terminal.await_text(tells);
        assert_eq!(terminal.await_end().code(), Some(0), "{command:?}");
    }
    output_of(&served, &["add", "mail"]);
    let mut terminal = Terminal::run(&url, &["purge", "-y", "mail"]);
    terminal.await_text("1 job deleted");
    assert_eq!(terminal.await_end().code(), Some(0));
    // Without a terminal nobody can answer, so scripts are not asked.
    output_of(&served, &["add", "mail"]);
    assert_eq!(output_of(&served, &["purge", "mail"]), "1 job deleted\n");
}

#[test]
fn a_list_is_watched_until_it_is_interrupted() {
    let served = served();
    output_of(&served, &["add", "mail", "the first one"]);
    let arguments = ["jobs", "mail", "--watch=100ms"];
    let mut terminal = Terminal::run(&url(&served), &arguments);
    terminal.await_text("every 100ms; Ctrl-C ends");
    terminal.await_text("the first one");
    output_of(&served, &["add", "mail", "the second one"]);
    terminal.await_text("the second one");
    output_of(&served, &["cancel", "1"]);
    terminal.await_text("dead");
    terminal.interrupt();
    assert!(!terminal.await_end().success());
    let (code, _, said) = run(&served, &["jobs", "--watch"]);
    assert_eq!(code, 2);
    assert!(said.contains("--watch needs a terminal"), "{said}");
    assert_eq!(run(&served, &["jobs", "--watch", "--json"]).0, 2);
    assert_eq!(run(&served, &["jobs", "--watch=10ms"]).0, 2);
    let mut typo = Terminal::run(&url(&served), &["jobs", "mial", "--watch"]);
    typo.await_text("there is no queue mial");
    assert_eq!(typo.await_end().code(), Some(3));
}

#[test]
fn a_watched_list_keeps_to_its_screen_and_outlives_its_server() {
    let (_folder, data) = data();
    let mut first = serve(&["--workq", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data", &data]);
    let address = first.address_of("http");
    add_lines(&first, "q", &"x\n".repeat(50));
    let mut terminal = Terminal::run(&url(&first), &["jobs", "--watch=100ms"]);
    terminal.await_text("31 listed ones have no room on this screen");
    first.kill();
    terminal.await_text("Connection refused");
    terminal.await_text("is the server");
    let again = serve(&["--workq", "127.0.0.1:0", "--http", &address, "--data", &data]);
    terminal.await_text("31 listed ones have no room on this screen");
    terminal.interrupt();
    terminal.await_end();
    drop(again);
}

#[test]
fn a_job_is_shown_with_its_attempts_and_times_as_people_write_them() {
    let served = served();
    output_of(&served, &["add", "q", "x", "--max-fails", "3"]);
    for command in ["exit 1", "exit 1", "cat"] {
        run(&served, &["work", "q", "--once", "--", "sh", "-c", command]);
    }
    let job = output_of(&served, &["job", "1"]);
    let lines: Vec<&str> = job.lines().collect();
    let created = lines.iter().find_map(|line| line.strip_prefix("created\t")).unwrap();
    let (time, distance) = created.split_once(" UTC (").unwrap();
    assert_eq!(time.len(), "2026-11-22 06:31:07".len());
    assert!(distance == "now)" || distance.ends_with(" ago)"), "{created}");
    let attempts = lines.iter().filter_map(|line| line.strip_prefix("attempt\t"));
    let attempts: Vec<Vec<&str>> = attempts.map(|line| line.split('\t').collect()).collect();
    let ends: Vec<[&str; 2]> = attempts.iter().map(|cells| [cells[0], cells[3]]).collect();
    assert_eq!(ends, [["1", "failed"], ["2", "failed"], ["3", "completed"]]);
    assert!(attempts[0][1].contains(" UTC ("), "{attempts:?}");
    assert!(attempts[0][4].ends_with(" (api)"), "{attempts:?}");
    assert!(!job.contains("history"), "{job}");
    // The JSON for programs is as before.
    let json = object(&output_of(&served, &["job", "1", "--json"]));
    assert!(json["history"][0]["started_at"].as_str().unwrap().ends_with('Z'));

    let mut terminal = Terminal::run(&url(&served), &["job", "1"]);
    terminal.await_text("attempt  started");
    assert_eq!(terminal.await_end().code(), Some(0));
}

#[test]
fn waiting_jobs_are_parked_released_and_edited() {
    let served = served();
    for _ in 0..3 {
        output_of(&served, &["add", "q"]);
    }
    let field =
        |id: &str, name: &str| object(&output_of(&served, &["job", id, "--json"]))[name].clone();
    output_of(&served, &["park", "1", "2"]);
    assert_eq!([field("1", "status"), field("2", "status")], ["parked", "parked"]);
    assert_eq!(object(&output_of(&served, &["release", "1", "--json"]))["status"], "ready");
    output_of(&served, &["edit", "1", "--priority", "-9", "--run-at", "+2h", "--to", "other"]);
    assert_eq!((field("1", "priority"), field("1", "queue")), (json!(-9), json!("other")));
    assert_eq!(field("1", "status"), "scheduled");
    output_of(&served, &["edit", "1", "--run-at", "now"]);
    assert_eq!(field("1", "status"), "ready");
    output_of(&served, &["edit", "1", "--run-at", "2100-01-01T02:00:00+02:00"]);
    assert_eq!(field("1", "run_at"), "2100-01-01T00:00:00.000Z");

    let revision = field("3", "revision").to_string();
    output_of(&served, &["edit", "3", "--priority", "1", "--if-revision", &revision]);
    for command in [&["edit", "3", "--priority", "2"][..], &["park", "3"], &["release", "3"]] {
        let (code, _, said) = run(&served, &[command, &["--if-revision", &revision]].concat());
        assert_eq!(code, 1, "{command:?}");
        assert!(said.contains("job 3") && said.contains("changed since"), "{said}");
    }
    assert_eq!(field("3", "priority"), 1);
    let (code, _, said) = run(&served, &["park", "99", "3"]);
    assert_eq!((code, said.as_str()), (3, "error: there is no job 99\n"));
    assert_eq!(field("3", "status"), "parked");
    let all = ["edit", "--all-matching", "--status", "parked", "--priority", "5"];
    assert_eq!(output_of(&served, &all), "2 jobs changed\n");
    let wrong: [&[&str]; 6] = [
        &["edit", "1"],
        &["edit", "1", "--run-at", "tomorrow"],
        &["edit", "1", "2", "--priority", "1", "--if-revision", "1"],
        &["park", "--all-matching", "--status", "ready", "--if-revision", "1"],
        &["park"],
        &["edit", "1", "--priority", "2147483648"],
    ];
    for wrong in wrong {
        assert_eq!(run(&served, wrong).0, 2, "{wrong:?}");
    }
}

#[test]
fn names_of_queues_may_be_any_bytes() {
    let served = served();
    let name = r"\xff/a b\\c\x0a";
    let added = object(&output_of(&served, &["add", name, "x", "--json"]));
    assert_eq!((&added["queue_base64"], &added["queue"]), (&json!("/y9hIGJcYwo="), &Value::Null));
    output_of(&served, &["schedule", name, "+1h", "y"]);
    assert_eq!(output_of(&served, &["queues"]), format!("{name}\t1\t1\t0\t0\t0\t0\t0\t\n"));
    let listed = output_of(&served, &["jobs", name]);
    assert!(listed.starts_with(&format!("1\t{name}\tready\t")), "{listed}");
    assert!(output_of(&served, &["job", "1"]).contains(&format!("queue\t{name}\n")));
    assert!(output_of(&served, &["events"]).contains(&format!("queue={name}")));
    output_of(&served, &["pause", name]);
    assert_eq!(object(&output_of(&served, &["resume", name, "--json"]))["paused"], false);
    output_of(&served, &["move", "1", "--to", r"\xfe"]);
    output_of(&served, &["edit", "1", "--to", name]);
    let all = ["park", "--all-matching", "--queue", name];
    assert_eq!(output_of(&served, &all), "2 jobs parked\n");
    output_of(&served, &["release", "1"]);
    let script = "cat; printf ' %s' \"$SPINDLE_QUEUE\"";
    output_of(&served, &["work", name, "q", "--once", "--", "sh", "-c", script]);
    assert_eq!(output_of(&served, &["result", "1"]), format!("x {name}"));
    let workers = output_of(&served, &["workers"]);
    assert!(workers.contains(&format!("\tapi\tq {name}\t")), "{workers}");
    let purged = object(&output_of(&served, &["purge", name, "--json"]));
    assert_eq!((&purged["queue_base64"], &purged["deleted"]), (&json!("/y9hIGJcYwo="), &json!(0)));
    let put = ["constraint", "put", "one", "--running-max", "1", "--queue"];
    output_of(&served, &[&put[..], &[r"a\\b"]].concat());
    assert_eq!(output_of(&served, &["constraint", "list"]), "one\ta\\\\b\t1\t\t\n");
    assert_eq!(run(&served, &[&put[..], &[r"\xff"]].concat()).0, 2);
    let (code, _, said) = run(&served, &["resume", r"\xfd"]);
    assert_eq!(code, 3);
    assert!(said.contains(r"there is no queue \xfd;"), "{said}");
    let (code, _, said) = run(&served, &["add", r"a\b"]);
    assert_eq!(code, 2);
    assert!(said.contains(r"a backslash is written \\, and any byte \xNN"), "{said}");
}

#[test]
fn a_name_that_workq_cannot_spell_is_refused_before_it_is_sent() {
    let served = served();
    let commands: [&[&str]; 5] = [
        &["add", r"\xff"],
        &["run", "a b"],
        &["jobs", r"\xff"],
        &["schedule", "grüße", "+1h"],
        &["work", r"\x00", "--once", "--", "true"],
    ];
    for command in commands {
        let output = served.spindle(command).output().unwrap();
        let said = stderr(&output);
        let name = if command[0] == "schedule" { "grüße" } else { command[1] };
        assert!(said.contains("letters, digits") && said.contains(name), "{command:?}: {said}");
        assert_ne!(output.status.code(), Some(0));
    }
}

#[test]
fn blank_lines_are_no_jobs() {
    let served = served();
    let said = add_lines(&served, "q", "one\n\ntwo\r\n\r\n \n\n\nlast");
    assert_eq!(said, "4 blank lines are skipped\n");
    let listed = output_of(&served, &["jobs", "q", "--json"]);
    let texts: Vec<Value> =
        listed.lines().map(|line| object(line)["payload_bytes"].clone()).collect();
    assert_eq!(texts, [3, 4, 1, 4]);
    assert_eq!(add_lines(&served, "q", "a\n\n"), "1 blank line is skipped\n");
    assert_eq!(add_lines(&served, "q", "a\nb\n"), "");
    assert_eq!(add_lines(&served, "q", ""), "");
    let mut long = vec![b'\n'; 2];
    long.extend(vec![b'x'; (11 << 20) + 1]);
    let mut command = spindle(&["add", "q", "--lines", "-"]);
    let output = command.env("SPINDLE_URL", url(&served)).write_stdin(long).output().unwrap();
    assert!(stderr(&output).contains("line 3:"), "{}", stderr(&output));
}

#[test]
fn the_state_of_a_server_is_told_on_one_screen() {
    let served = served();
    output_of(&served, &["add", "mail", "x"]);
    output_of(&served, &["add", "mail", "x"]);
    output_of(&served, &["cancel", "1"]);
    output_of(&served, &["pause", "mail"]);
    let status = output_of(&served, &["status"]);
    let version = format!("server\tspindle {}, up ", env!("CARGO_PKG_VERSION"));
    for part in [
        version.as_str(),
        "health\tready\n",
        &format!("door\tworkq on {}, 0 connected\n", served.address_of("workq")),
        &format!("door\thttp on {}, 1 connected\n", served.address_of("http")),
        "queues\t1\n",
        "jobs\tscheduled 0, ready 1, leased 0, parked 0, blocked 0, done 0, dead 1\n",
        "workers\t0: 0 at work, 0 waiting\n",
        "mail\tit is paused, with 1 job waiting\tspindle resume mail\n",
        "mail\t1 job dead\tspindle jobs mail --status dead\n",
    ] {
        assert!(status.contains(part), "{part}: {status}");
    }
    assert!(status.lines().count() < 24, "{status}");
    let json = object(&output_of(&served, &["status", "--json"]));
    assert_eq!((&json["ready"], &json["server"]["status"]), (&json!(true), &json!("ok")));
    assert_eq!((&json["jobs"]["dead"], &json["workers"]), (&json!(1), &json!(0)));
    let attention = json!({
        "queue": "mail", "why": "paused", "text": "it is paused, with 1 job waiting",
        "command": "spindle resume mail",
    });
    assert_eq!(json["attention"][0], attention);
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let output = spindle(&["status", "--url", &format!("http://{nobody}")]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("is the server running?"), "{}", stderr(&output));
}

/// A server that says this of itself, and has nothing.
fn says(server: Value) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut head) = (stream.unwrap(), Vec::new());
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                head.extend(byte);
            }
            let body = match String::from_utf8(head).unwrap() {
                head if head.starts_with("GET /api/v1/server ") => server.to_string(),
                head if head.starts_with("GET /api/v1/queues") => r#"{"queues": []}"#.to_owned(),
                _ => r#"{"workers": []}"#.to_owned(),
            };
            let length = body.len();
            let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/json";
            write!(stream, "{head}\r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
        }
    });
    format!("http://{address}")
}

#[test]
fn a_server_that_takes_no_jobs_is_told_by_the_exit_code() {
    let server = |status: &str, disk_full: bool, clock_held: bool| {
        json!({
            "version": "9.9.9", "uptime_ms": 90_061_000, "started_at": "2026-01-01T00:00:00Z",
            "status": status, "disk_full": disk_full, "clock_held": clock_held, "doors": [],
            "jobs": 0, "jobs_finished": 0, "queues": 0, "waits": 0, "log_bytes": 4_404_019,
        })
    };
    for (status, disk_full, clock_held, code, health) in [
        ("ok", false, false, 0, "health\tready\n"),
        ("ok", false, true, 0, "health\tready; clock and log disagree"),
        ("disk_full", true, false, 1, "health\tnot ready: the disk is full"),
        ("log_cannot_grow", false, false, 1, "health\tnot ready: the log cannot grow"),
        ("log_failed", false, false, 1, "health\tnot ready: its log has failed"),
        ("stopping", true, false, 1, "health\tnot ready: it is stopping; the disk is full"),
    ] {
        let url = says(server(status, disk_full, clock_held));
        let output = spindle(&["status", "--url", &url]).output().unwrap();
        let answer = stdout(&output);
        assert_eq!(output.status.code(), Some(code), "{answer}{}", stderr(&output));
        assert!(answer.contains(health), "{answer}");
        assert!(answer.contains("server\tspindle 9.9.9, up 1d 1h\n"), "{answer}");
        assert!(answer.contains("log\t4.1 MiB\n"), "{answer}");
        let output = spindle(&["status", "--json", "--url", &url]).output().unwrap();
        assert_eq!(output.status.code(), Some(code));
        assert_eq!(object(&stdout(&output))["ready"], code == 0);
    }
}

#[test]
fn a_folder_that_a_server_has_is_in_use_and_not_damaged() {
    let (_folder, data) = data();
    let served = serve(&["--workq", "127.0.0.1:0", "--data", &data]);
    served.spindle(&["add", "q", "x"]).assert().success();
    let in_use = |arguments: &[&str]| {
        let output = spindle(&[&["verify", &data], arguments].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
        stdout(&output)
    };
    for arguments in [&[][..], &["--repair"]] {
        let answer = in_use(arguments);
        assert!(answer.starts_with("verdict\tin use\n"), "{answer}");
        let by = format!("is in use by process {}: stop that server first\n", served.id());
        assert!(answer.contains(&by), "{answer}");
        assert_eq!(answer.lines().count(), 3, "{answer}");
    }
    let answer = object(&in_use(&["--json"]));
    assert_eq!((&answer["verdict"], &answer["sound"]), (&json!("in use"), &json!(false)));
    assert_eq!(answer["in_use_by"], served.id());
    assert_eq!(answer["damage"], Value::Null);
}
