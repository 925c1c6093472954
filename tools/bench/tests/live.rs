//! Tests the program against a server that misbehaves on request. Real servers are covered by
//! `cargo xtask test`, which runs `spindle-bench suite --quick`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

const FAKE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake_spindle.py");

/// Runs a quick suite with these flags and `--json`, and returns what it wrote.
fn bench(flags: &[&str], fault: &str) -> (Output, Option<Value>) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let json = folder.path().join("figures.json");
    let output = Command::new(env!("CARGO_BIN_EXE_spindle-bench"))
        .args(["suite", "--quick"])
        .args(flags)
        .args([Path::new("--dir"), folder.path(), Path::new("--json"), &json])
        .env("FAULT", fault)
        .output()
        .unwrap();
    let figures = std::fs::read(&json).ok().map(|text| serde_json::from_slice(&text).unwrap());
    let entries = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let left: Vec<_> = entries.filter(|path| *path != json).collect();
    assert!(left.is_empty(), "folders were left behind: {left:?}");
    (output, figures)
}

fn figures(flags: &[&str]) -> Value {
    let (output, figures) = bench(flags, "");
    assert!(output.status.success(), "{flags:?}: {}", String::from_utf8_lossy(&output.stderr));
    figures.unwrap()
}

#[track_caller]
fn check_refusal(flags: &[&str], fault: &str, expected: &str) {
    let (output, _) = bench(flags, fault);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{flags:?} succeeded with a server that {fault}: {said}");
    assert!(said.contains(expected), "{flags:?} {fault}: {said}");
}

/// The titles of the gates, cut at the last colon.
fn gates(figures: &Value) -> Vec<String> {
    let gates = figures["gates"].as_array().unwrap().iter();
    let gates = gates.map(|gate| gate["gate"].as_str().unwrap().rsplit_once(": ").unwrap().1);
    gates.map(str::to_owned).collect()
}

#[test]
fn two_programs_are_measured_in_turn_with_the_figures_of_the_gates() {
    let figures = figures(&["--spindle", FAKE, "--against", FAKE, "--runs", "2"]);
    assert_eq!(gates(&figures), ["rate", "server CPU per job", "rate"]);
    let scenarios = figures["scenarios"].as_array().unwrap();
    assert_eq!(scenarios.len(), 2);
    for scenario in scenarios {
        let series = scenario["series"].as_array().unwrap();
        assert_eq!(series[0]["server"], "spindle --sync always");
        assert_eq!(series[1]["server"], format!("against: {FAKE}"));
        for run in series.iter().flat_map(|series| series["runs"].as_array().unwrap()) {
            assert!(run["rate_per_s"].as_f64().unwrap() > 0.0);
            assert!(run["submit"]["p99_us"].as_f64().unwrap() > 0.0);
        }
        assert!(series.iter().all(|series| series["runs"].as_array().unwrap().len() == 2));
    }
    for gate in figures["gates"].as_array().unwrap() {
        assert!(gate["met"].is_null() && gate["bound"].is_null());
    }
}

#[test]
fn the_echo_is_measured_beside_and_at_the_same_rate_in_open_loop() {
    let figures = figures(&["--spindle", FAKE, "--only", "submit-8x32,half-load-64"]);
    assert_eq!(gates(&figures), ["rate", "p99 of submits", "p99 of submits"]);
    let series = figures["scenarios"][1]["series"].as_array().unwrap();
    assert_eq!(series[1]["server"], "echo that syncs");
    let arrivals = |place: usize| &series[place]["runs"][0]["arrivals_per_s"];
    assert!(arrivals(0).as_f64().unwrap() > 0.0);
    assert_eq!(arrivals(0), arrivals(1));
}

#[test]
fn tokens_are_measured_in_turns_and_early_leases_beside_durable_ones() {
    let figures = figures(&["--spindle", FAKE, "--only", "token-lifecycle-8,durable-leases-8"]);
    let of_tokens = ["server CPU per job", "rate"];
    assert_eq!(gates(&figures), [&of_tokens[..], &["rate", "p50 of leases"]].concat());
    for (scenario, runs) in figures["scenarios"].as_array().unwrap().iter().zip([10, 1]) {
        for series in scenario["series"].as_array().unwrap() {
            assert_eq!(series["runs"].as_array().unwrap().len(), runs, "{}", series["server"]);
        }
    }
}

#[test]
fn wrong_deliveries_and_finishes_fail_the_suite() {
    let flags = ["--spindle", FAKE, "--against", FAKE, "--only", "lifecycle-8"];
    check_refusal(&flags, "delivers twice", "1 delivered twice");
    check_refusal(&flags, "damages", "1 with a payload nobody submitted");
    check_refusal(&flags, "refuses", "Disk full");
    check_refusal(&flags, "hangs up", "closed a connection");
}

#[test]
fn submits_that_the_server_does_not_hold_fail_the_suite() {
    let flags = ["--spindle", FAKE, "--only", "submit-8"];
    check_refusal(&flags, "loses", "counts 199 waiting jobs, and not the 200");
    check_refusal(&flags, "delivers twice", "counts 201 waiting jobs, and not the 200");
}

#[test]
fn a_server_that_forgets_its_jobs_in_a_crash_fails_the_suite() {
    let flags = ["--spindle", FAKE, "--only", "waiting-1m"];
    check_refusal(&flags, "", "after the start: the server counts 0 waiting jobs");
}

#[test]
fn jobs_that_do_not_wait_before_a_backup_fail_the_suite() {
    let flags = ["--spindle", FAKE, "--only", "backup-1m"];
    check_refusal(&flags, "loses", "9999 jobs wait in bench-");
    let flags = [&flags[..], &["--against", FAKE]].concat();
    check_refusal(&flags, "", "backups are taken of one program at a time");
}

#[test]
fn what_cannot_be_started_is_named() {
    check_refusal(&["--spindle", "./none"], "", "there is no program ./none");
    let only = ["--only", "submit-8"];
    check_refusal(&[&["--spindle", "/bin/true"], &only[..]].concat(), "", "it ended with");
    let gearmand = ["--gearmand-program", "./none", "--only", "gearman-lifecycle-8"];
    check_refusal(&[&["--spindle", FAKE], &gearmand[..]].concat(), "", "cannot start");
}

#[test]
fn libraries_that_are_not_installed_fail_the_suite() {
    for only in ["python-worker", "node-worker"] {
        let flags = ["--spindle", FAKE, "--libraries", "./none", "--only", only];
        check_refusal(&flags, "", "installs it");
    }
}

#[test]
fn floods_need_all_doors_and_one_program() {
    let flags = ["--spindle", FAKE, "--only", "shares-workq"];
    check_refusal(&flags, "", "one connection, 1,000 submits deep: warming up: Connection refused");
    let flags = [&flags[..], &["--against", FAKE]].concat();
    check_refusal(&flags, "", "floods are measured of one program at a time");
}
