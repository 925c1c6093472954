//! Command lines that are refused, and help texts.

use std::fs;

use crate::fake_workq::{spindle, stderr, stdout};

const NOT_MEANT: &[&[&str]] = &[
    &[],
    &["frobnicate"],
    &["add"],
    &["add", ""],
    &["add", "q", "--workq", "127.0.0.1:1", "--url", "http://127.0.0.1:1"],
    &["add", "q", "--if-taken", "existing"],
    &["add", "q", "--type", "xml"],
    &["queues", "--url", "nowhere"],
    &["add", "q", "--workq", "127.0.0.1:1", "--ca-file", "/etc/passwd"],
    &["why", "not-a-job"],
    &["retry"],
    &["cancel"],
    &["move", "7"],
    &["pause"],
    &["pause", "a\\b"],
    &["purge", "q", "--yes", "--dry-run"],
    &["park"],
    &["release", "--if-revision", "1"],
    &["edit", "1"],
    &["edit", "1", "--priority", "x"],
    &["jobs", "--sort"],
    &["jobs", "--watch", "q", "--json"],
    &["jobs", "--watch=soon"],
    &["status", "now"],
    &["constraint"],
    &["jobs", "q", "--status", "odd"],
    &["add", "q", "--ttr", "0"],
    &["add", "q", "--ttr", "25h"],
    &["add", "q", "--ttl", "0"],
    &["add", "q", "--ttl", "10"],
    &["add", "q", "--priority", "2147483648"],
    &["add", "q", "--max-attempts", "-1"],
    &["add", "q", "--tries", "4294967296"],
    &["add", "q", "--tries", "some"],
    &["add", "q", "--backoff", "soon"],
    &["schedule", "q", "+1h", "--backoff", "1h..5s"],
    &["queue"],
    &["queue", "show"],
    &["queue", "set", "q"],
    &["queue", "set", "q", "--ttr", "0"],
    &["queue", "set", "q", "--bytes-type", "xml"],
    &["queue", "set", "q", "--max-jobs", "none"],
    &["work", "q", "--kill-after", "10", "--", "true"],
    &["add", "q", "--id", "not-a-uuid"],
    &["add", "q", "payload", "--lines", "-"],
    &["result", "not-a-job"],
    &["result", "6ba7b810-9dad-41d1-80b4-00c04fd430c4", "--wait", "soon"],
    &["work", "q"],
    &["work", "--", "true"],
    &["work", "q", "-j", "0", "--", "true"],
    &["jobs", "q", "--limit", "0"],
    &["delete"],
    &["completions", "nosuchshell"],
    &["demo", "--jobs", "0"],
    &["demo", "--jobs", "100001"],
    &["top", "mail"],
    &["serve", "extra"],
    &["serve", "--sync", "sometimes"],
    &["serve", "--payload-memory", "64MB"],
    &["serve", "--shutdown-timeout", "10"],
    &["serve", "--connections-max", "0"],
    &["serve", "--log-level", "loud"],
    &["serve", "--workq", "9922"],
    &["serve", "--workq", "off", "--gearman", "off", "--http", "off", "--jobd-master", "off"],
    &["serve", "--gearman-job-retries", "-2"],
    &["serve", "--insecure", "gate"],
    &["serve", "--webhook", "ftp://127.0.0.1/"],
    &["serve", "--config", "/no/such/file"],
];

#[test]
fn what_cannot_be_meant_is_a_usage_error() {
    let long = "q".repeat(513);
    let too_long: &[&str] = &["add", &long];
    for arguments in NOT_MEANT.iter().chain([&too_long]) {
        let output = spindle(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(stdout(&output).is_empty(), "{arguments:?}");
        assert!(!stderr(&output).is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_slip_of_the_fingers_is_answered_with_what_was_meant() {
    let output = spindle(&["quues"]).output().unwrap();
    assert!(stderr(&output).contains("'queues'"), "{}", stderr(&output));
}

#[test]
fn an_address_that_is_not_loopback_is_refused_unless_its_door_is_named() {
    for address in ["0.0.0.0:9922", "[::]:9922", "192.0.2.1:9922"] {
        let output = spindle(&["serve", "--workq", address]).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let answer = stderr(&output);
        assert!(answer.contains("not a loopback address"), "{answer}");
        assert!(answer.contains("--insecure workq"), "{answer}");
    }
    spindle(&["config", "--workq", "0.0.0.0:9922", "--insecure", "workq"]).assert().success();
}

#[test]
fn config_prints_what_is_in_force_and_where_it_came_from() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "sync = 'os'\ndata = 'from-file'\nconnections-max = 7\n").unwrap();
    let path = file.path().to_str().unwrap();
    let output = spindle(&["config", "--config", path, "--data", "from-flag"])
        .env("SPINDLE_SERVE_SYNC", "interval:20")
        .env("SPINDLE_SERVE_DATA", "from-environment")
        .unwrap();
    for line in [
        "data\tfrom-flag\tflag (--data)".to_owned(),
        "sync\tinterval:20\tenvironment (SPINDLE_SERVE_SYNC)".to_owned(),
        format!("connections-max\t7\tfile ({path}: `connections-max`)"),
        "workq\t127.0.0.1:9922\tdefault".to_owned(),
        "insecure\t\tdefault".to_owned(),
    ] {
        assert!(
            stdout(&output).lines().any(|answer| answer == line),
            "{line}\n{}",
            stdout(&output)
        );
    }
}

#[test]
fn config_as_json_has_an_object_per_setting() {
    let output = spindle(&["config", "--json", "--memory", "--insecure", "workq"]).unwrap();
    let lines: Vec<serde_json::Value> =
        stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |name: &str| lines.iter().find(|line| line["name"] == name).unwrap();
    assert_eq!(of("memory")["value"], true);
    assert_eq!(of("lightjq-allow-urls")["value"], false);
    assert_eq!(of("insecure")["value"], serde_json::json!(["workq"]));
    assert_eq!(of("insecure")["source"], "flag");
    assert_eq!(of("config")["value"], serde_json::Value::Null);
    assert_eq!(of("sync")["from"], serde_json::Value::Null);
}

#[test]
fn a_mistake_in_the_file_is_told_with_the_file_and_the_key() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "payload-memmory = '1GiB'\n").unwrap();
    let path = file.path().to_str().unwrap();
    let output = spindle(&["serve", "--config", path]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let answer = stderr(&output);
    assert!(answer.contains(path) && answer.contains("maybe `payload-memory`?"), "{answer}");
}

#[test]
fn completions_know_the_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = spindle(&["completions", shell]).unwrap();
        for word in ["serve", "queues", "payload-memory", "max-attempts", "constraint", "if-taken"]
        {
            assert!(stdout(&output).contains(word), "{shell}: {word}");
        }
    }
}

#[test]
fn the_version_is_told() {
    let output = spindle(&["--version"]).unwrap();
    assert_eq!(stdout(&output), format!("spindle {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let script = format!("{} completions bash | head -c 1", env!("CARGO_BIN_EXE_spindle"));
    let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(stderr(&output), "");
}

#[test]
fn a_folder_without_a_log_is_not_called_sound() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let output = spindle(&["verify", path]).output().unwrap();
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(3), ""));
    assert!(stdout(&output).contains("verdict\tno log"), "{}", stdout(&output));
    let missing = folder.path().join("missing");
    let output = spindle(&["verify", missing.to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(!missing.exists());
}
