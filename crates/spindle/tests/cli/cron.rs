//! `spindle cron`, against a real server.

use std::fs;

use serde_json::{Value, json};

use crate::{
    fake_workq::{spindle, stderr, stdout},
    native::{at, object, output_of, served},
    serve::Served,
};

/// How a command ended that did not go well: its exit code and what it said.
fn refused(served: &Served, arguments: &[&str]) -> (i32, String) {
    let output = at(served, arguments).output().unwrap();
    (output.status.code().unwrap(), stderr(&output))
}

fn shown(served: &Served, name: &str) -> Value {
    object(&output_of(served, &["cron", "show", name, "--json"]))
}

#[test]
fn a_schedule_is_set_changed_rested_run_and_removed() {
    let served = served(&["--memory"]);
    let set = ["cron", "set", "report", "0 9 * * MON-FRI", r#"{"n":1}"#, "--type", "json"];
    let more = ["--queue", "reports", "--zone", "Europe/Berlin", "--overlap", "queue_one"];
    assert_eq!(output_of(&served, &[&set[..], &more].concat()), "");
    let report = shown(&served, "report");
    assert_eq!(
        (&report["expression"], &report["zone"], &report["overlap"], &report["missed"]),
        (&json!("0 9 * * MON-FRI"), &json!("Europe/Berlin"), &json!("queue_one"), &json!("skip"))
    );
    assert_eq!(report["job"]["payload"], json!({ "n": 1 }));
    output_of(&served, &["cron", "pause", "report"]);
    let listed = output_of(&served, &["cron", "list"]);
    assert!(listed.starts_with("report\t0 9 * * MON-FRI\tEurope/Berlin\treports\t"), "{listed}");
    assert!(listed.ends_with("\tpaused\n"), "{listed}");
    output_of(&served, &["cron", "resume", "report"]);
    assert_eq!(shown(&served, "report")["paused"], false);
    assert_eq!(output_of(&served, &["cron", "run", "report"]), "1\n");
    let job = object(&output_of(&served, &["job", "1", "--json"]));
    assert_eq!((&job["queue"], &job["tags"]), (&json!("reports"), &json!(["schedule:report"])));
    let audit = output_of(&served, &["audit", "--action", "run_schedule"]);
    assert!(audit.contains("\tschedule report\t"), "{audit}");
    output_of(&served, &["cron", "remove", "report"]);
    for command in ["show", "remove", "pause", "resume", "run"] {
        let (code, said) = refused(&served, &["cron", command, "report"]);
        assert!(code == 3 && said.contains("schedule report"), "{command}: {code} {said}");
    }
}

#[test]
fn a_preview_needs_no_server_and_says_what_is_wrong() {
    let preview = |arguments: &[&str]| spindle(&[&["cron", "preview"], arguments].concat());
    let output = preview(&["30 2 29 2 *", "--zone", "Europe/Berlin", "--times", "3"]).output();
    let times = stdout(&output.unwrap());
    assert_eq!(times.lines().count(), 3, "{times}");
    assert!(times.lines().all(|time| time.ends_with("-02-29T01:30:00Z")), "{times}");
    for (arguments, word) in [
        (&["61 * * * *"][..], "61"),
        (&["0 0 30 2 *"], "never"),
        (&["@daily", "--zone", "Mars/Base"], "Mars/Base"),
    ] {
        let output = preview(arguments).output().unwrap();
        let said = stderr(&output);
        assert!(output.status.code() == Some(2) && said.contains(word), "{arguments:?}: {said}");
    }
}

#[test]
fn a_file_is_all_schedules_there_are() {
    let served = served(&["--memory"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("schedules.toml");
    let apply = |text: &str, more: &[&str]| {
        fs::write(&file, text).unwrap();
        let arguments = [&["cron", "apply", file.to_str().unwrap()], more].concat();
        at(&served, &arguments).output().unwrap()
    };
    output_of(&served, &["cron", "set", "old", "@daily", "--queue", "q"]);
    let two = r#"
        [schedules.night]
        expression = "@daily"
        start_at = 2090-01-31T08:00:00Z
        job = { queue = "reports", payload = { kind = "daily" }, priority = 7 }
        [schedules.often]
        expression = "every 90s"
        job.queue = "pings"
    "#;
    let said = stdout(&apply(two, &["--dry-run"]));
    assert_eq!(said, "created night\ncreated often\nremoved old\n0 unchanged\n");
    assert_eq!(shown(&served, "old")["expression"], "@daily", "nothing has changed");
    assert_eq!(stdout(&apply(two, &[])), said);
    let night = shown(&served, "night");
    assert_eq!(night["job"]["payload"], json!({ "kind": "daily" }));
    assert_eq!(night["start_at"], "2090-01-31T08:00:00.000Z");
    assert_eq!(stdout(&apply(two, &[])), "2 unchanged\n");
    for (text, word) in [
        ("[schedules.a]\nexpression = \"61 * * * *\"\njob.queue = \"q\"", "61"),
        ("[schedules.a]\nexpresion = \"@daily\"", "expresion"),
        ("[schedules", "schedules.toml"),
    ] {
        let output = apply(text, &[]);
        let said = stderr(&output);
        assert!(!output.status.success() && said.contains(word), "{text}: {said}");
    }
    assert_eq!(output_of(&served, &["cron", "list"]).lines().count(), 2, "nothing has changed");
    let (code, said) = refused(&served, &["cron", "apply", "none.toml"]);
    assert!(code == 1 && said.contains("cannot read none.toml"), "{said}");
}
