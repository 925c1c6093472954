//! Tries, and the settings of queues.

use std::thread;

use serde_json::{Value, json};

use crate::{
    fake_workq::{spindle, stderr},
    native::{at, object, output_of, served, url},
    serve::Served,
};

fn settings(served: &Served, queue: &str) -> Value {
    object(&output_of(served, &["queue", "show", queue, "--json"]))["settings"].clone()
}

/// What `spindle queue show` says of one field.
fn field(served: &Served, queue: &str, name: &str) -> String {
    let shown = output_of(served, &["queue", "show", queue]);
    let value = shown.lines().find_map(|line| line.strip_prefix(&format!("{name}\t")));
    value.unwrap_or_else(|| panic!("{name} is not in {shown}")).to_owned()
}

#[test]
fn a_job_is_added_with_its_tries_and_their_backoff() {
    let served = served(&["--memory"]);
    let limits = ["--tries", "7", "--max-attempts", "0", "--backoff", "5s*1.5..10m~0.2"];
    output_of(&served, &[&["add", "q"], &limits[..]].concat());
    output_of(&served, &[&["schedule", "q", "+1h"], &limits[..]].concat());
    for id in ["1", "2"] {
        let job = object(&output_of(&served, &["job", id, "--json"]));
        assert_eq!((&job["fails_max"], &job["attempts_max"]), (&json!(7), &json!(0)), "{job}");
        let backoff = json!({"base_ms": 5000, "factor": 1.5, "cap_ms": 600_000, "jitter": 0.2});
        assert_eq!(job["backoff"], backoff);
        assert!(output_of(&served, &["job", id]).contains("\nbackoff\t5s*1.5..10m~0.2\n"));
    }
}

#[test]
fn a_job_that_failed_waits_and_one_with_none_is_ready_at_once() {
    let served = served(&["--memory"]);
    for backoff in ["1h", "none"] {
        output_of(&served, &["add", backoff, "--tries", "2", "--backoff", backoff]);
        at(&served, &["work", backoff, "--once", "--", "false"]).assert().code(5);
    }
    assert_eq!(object(&output_of(&served, &["job", "1", "--json"]))["status"], "scheduled");
    assert_eq!(object(&output_of(&served, &["job", "2", "--json"]))["status"], "ready");
}

#[test]
fn settings_are_set_changed_shown_and_taken_back() {
    let served = served(&["--memory"]);
    let unknown = at(&served, &["queue", "show", "mail"]).output().unwrap();
    assert_eq!(unknown.status.code(), Some(3));
    assert_eq!(stderr(&unknown), "error: there is no queue mail; `spindle queues` lists them\n");

    output_of(&served, &["queue", "set", "mail", "--tries", "3", "--backoff", "5s*2..10m"]);
    let more = ["--max-attempts", "0", "--ttr", "90s", "--keep", "2d", "--keep-dead", "36h"];
    let others = ["--max-jobs", "100", "--max-bytes", "64MiB", "--max-finished", "10"];
    let others = [&others[..], &["--bytes-type", "json", "--json"]].concat();
    let set = output_of(&served, &[&["queue", "set", "mail"], &more[..], &others].concat());
    let expected = json!({
        "fails_max": 3, "attempts_max": 0, "ttr_default_ms": 90_000, "keep_ms": 172_800_000,
        "keep_dead_ms": 129_600_000, "jobs_max": 100, "bytes_max": 67_108_864, "finished_max": 10,
        "bytes_type": "json",
        "backoff": {"base_ms": 5000, "factor": 2, "cap_ms": 600_000, "jitter": 0},
    });
    assert_eq!(object(&set)["settings"], expected);
    assert_eq!(settings(&served, "mail"), expected);
    for (name, value) in [
        ("queue", "mail"),
        ("paused", "no"),
        ("ready", "0"),
        ("tries", "3"),
        ("max-attempts", "no limit"),
        ("backoff", "5s*2..10m"),
        ("ttr", "90s"),
        ("keep", "2d"),
        ("keep-dead", "36h"),
        ("max-jobs", "100"),
        ("max-bytes", "67108864"),
        ("max-finished", "10"),
        ("bytes-type", "json"),
    ] {
        assert_eq!(field(&served, "mail", name), value, "{name}");
    }

    let back = ["--backoff", "default", "--keep", "default", "--bytes-type", "none"];
    output_of(&served, &[&["queue", "set", "mail"], &back[..]].concat());
    for name in ["backoff", "keep", "bytes-type"] {
        assert_eq!(field(&served, "mail", name), "default", "{name}");
    }
    assert_eq!(field(&served, "mail", "tries"), "3");
}

#[test]
fn settings_hold_for_jobs_that_say_nothing_themselves() {
    let served = served(&["--memory"]);
    output_of(&served, &["queue", "set", "q", "--tries", "1", "--max-jobs", "1"]);
    output_of(&served, &["add", "q"]);
    assert_eq!(at(&served, &["add", "q"]).output().unwrap().status.code(), Some(1));
    at(&served, &["work", "q", "--once", "--", "false"]).assert().code(5);
    assert_eq!(object(&output_of(&served, &["job", "1", "--json"]))["status"], "dead");
}

#[test]
fn what_several_people_set_at_once_is_all_there() {
    let served = served(&["--memory"]);
    let said = [
        ["--tries", "2"],
        ["--max-attempts", "9"],
        ["--keep", "1d"],
        ["--max-jobs", "5"],
        ["--bytes-type", "msgpack"],
    ];
    let url = url(&served);
    thread::scope(|scope| {
        for setting in &said {
            let mut command =
                spindle(&[&["queue", "set", "q", "--url", &url], &setting[..]].concat());
            scope.spawn(move || command.assert().success());
        }
    });
    assert_eq!(settings(&served, "q").as_object().unwrap().len(), said.len());
}

#[test]
fn a_queue_is_made_fair_and_its_jobs_age() {
    let served = served(&["--memory"]);
    let fair =
        ["queue", "set", "mail", "--fair", "/tenant", "--weight", "acme=5", "--aging", "10m"];
    output_of(&served, &fair);
    output_of(&served, &["queue", "set", "mail", "--weight", "a=b=2"]);
    let expected = json!({
        "aging_ms": 600_000,
        "fair": {"field": "/tenant", "weights": {"a=b": 2, "acme": 5}},
    });
    assert_eq!(settings(&served, "mail"), expected);
    assert_eq!(field(&served, "mail", "fair"), "/tenant a=b=2 acme=5");
    assert_eq!(field(&served, "mail", "aging"), "10m");

    for key in ["acme", "acme", "other"] {
        output_of(&served, &["add", "mail", "text", "--fair-key", key]);
    }
    let why = output_of(&served, &["why", "2"]);
    assert!(why.contains("number 2 of key \"acme\", 5 jobs in a turn; 2 keys take turns"), "{why}");

    output_of(&served, &["queue", "set", "mail", "--fair", "key", "--aging", "default"]);
    assert_eq!(field(&served, "mail", "fair"), "key a=b=2 acme=5");
    output_of(&served, &["queue", "set", "mail", "--fair", "default"]);
    assert_eq!(settings(&served, "mail"), json!({}));
    for wrong in [["--fair", "tenant"], ["--weight", "acme"], ["--weight", "acme=0"]] {
        let mut refused = at(&served, &[&["queue", "set", "mail"], &wrong[..]].concat());
        assert_eq!(refused.output().unwrap().status.code(), Some(2), "{wrong:?}");
    }
}
