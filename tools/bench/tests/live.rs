//! The binary against real servers: its own echo server, beanstalkd, and a Workq server that does
//! wrong on request. beanstalkd and gearmand have to be installed; a machine without them fails
//! these tests.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod fake_workq;

use fake_workq::Fault;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

/// Runs the bench with `flags` and `--json`, and gives what it wrote.
fn bench(flags: &str) -> (Output, Option<Value>) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let json = folder.path().join("figures.json");
    let output = Command::new(env!("CARGO_BIN_EXE_spindle-bench"))
        .args(flags.split(' '))
        .args(["--dir", folder.path().to_str().unwrap()])
        .args(["--json", json.to_str().unwrap()])
        .output()
        .unwrap();
    let figures = std::fs::read(&json).ok().map(|text| serde_json::from_slice(&text).unwrap());
    let left: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path != Path::new(&json))
        .collect();
    assert!(left.is_empty(), "folders were left behind: {left:?}");
    (output, figures)
}

fn figures(flags: &str) -> Value {
    let (output, figures) = bench(flags);
    assert!(output.status.success(), "{flags}: {}", String::from_utf8_lossy(&output.stderr));
    figures.unwrap()
}

fn refusal(flags: &str) -> String {
    let (output, _) = bench(flags);
    assert!(!output.status.success(), "{flags} succeeded");
    String::from_utf8(output.stderr).unwrap()
}

/// Every run of every server has a rate and the latencies that are named.
fn check_series(figures: &Value, runs: usize, latencies: &[&str]) {
    let series = figures["scenarios"][0]["series"].as_array().unwrap();
    assert!(!series.is_empty());
    for series in series {
        assert_eq!(series["runs"].as_array().unwrap().len(), runs);
        for run in series["runs"].as_array().unwrap() {
            assert!(run["rate_per_s"].as_f64().unwrap() > 0.0);
            for latency in ["add", "lease", "finish"] {
                assert_eq!(!run[latency].is_null(), latencies.contains(&latency), "{latency}");
            }
        }
    }
}

#[test]
fn beanstalkd_lives_through_whole_cycles_in_memory_and_synced() {
    let figures = figures("lifecycle --beanstalkd --beanstalkd-synced --jobs 500 --runs 2");
    check_series(&figures, 2, &["add", "lease", "finish"]);
    let series = figures["scenarios"][0]["series"].as_array().unwrap();
    assert_eq!(series[0]["sync"], "memory");
    assert_eq!(series[1]["sync"], "-b -f 0");
    assert!(series[0]["runs"][0]["server_cpu_us_per_job"].as_f64().is_some());
    assert!(figures["machine"]["sync_us"].as_f64().unwrap() > 0.0);
}

#[test]
fn gearmand_lives_through_whole_cycles_with_workers_that_sleep() {
    // More workers than there ever are jobs: most of them sleep most of the time.
    let many = "lifecycle --gearmand --producers 2 --workers 12 --jobs 500 --runs 2";
    let figures = figures(many);
    check_series(&figures, 2, &["add", "lease", "finish"]);
    let series = &figures["scenarios"][0]["series"][0];
    assert_eq!((&series["server"], &series["sync"]), (&"gearmand".into(), &"memory".into()));
    assert!(series["runs"][0]["server_cpu_us_per_job"].as_f64().is_some());
}

#[test]
fn gearmand_takes_submits_and_gives_back_each_waiting_job_once() {
    let deep = "submit --gearmand --jobs 5000 --runs 1 --connections 8 --depth 32";
    check_series(&figures(deep), 1, &["add"]);
    let drain = "drain --gearmand --jobs 2000 --runs 1 --payload-bytes 5000";
    check_series(&figures(drain), 1, &["lease", "finish"]);
}

#[test]
fn foreground_round_trips_are_timed_from_submit_to_result() {
    let figures = figures("roundtrip --gearmand --clients 4 --workers 3 --jobs 1000 --runs 1");
    check_series(&figures, 1, &["add", "lease", "finish"]);
    let run = &figures["scenarios"][0]["series"][0]["runs"][0];
    let p50 = |latency: &str| run[latency]["p50_us"].as_f64().unwrap();
    // The result is behind the work, which is behind the submit.
    assert!(p50("add") > p50("finish"));
    assert!(refusal("roundtrip --beanstalkd --jobs 10").contains("no foreground jobs"));
}

#[test]
fn the_echo_server_answers_submits_one_by_one_and_pipelined() {
    check_series(&figures("submit --echo --jobs 3000 --runs 1"), 1, &["add"]);
    let deep = "submit --echo --echo-whole --jobs 20000 --runs 1 --connections 8 --depth 32";
    check_series(&figures(deep), 1, &["add"]);
    let large = "submit --echo --jobs 300 --runs 1 --depth 4 --payload-bytes 200000";
    check_series(&figures(large), 1, &["add"]);
}

#[test]
fn waiting_jobs_are_drained_each_once() {
    let figures = figures("drain --beanstalkd --jobs 2000 --runs 1 --payload-bytes 5000");
    check_series(&figures, 1, &["lease", "finish"]);
}

#[test]
fn an_open_loop_sends_as_many_jobs_as_should_arrive() {
    let figures = figures("openloop --echo --beanstalkd --rate 2000 --time 1 --runs 1");
    check_series(&figures, 1, &["add"]);
    for series in figures["scenarios"][0]["series"].as_array().unwrap() {
        let run = &series["runs"][0];
        assert_eq!(run["jobs"], 2000);
        // The last one arrives half a millisecond before the second is over, and not sooner.
        assert!(run["elapsed_s"].as_f64().unwrap() >= 0.999);
    }
}

#[test]
fn memory_is_read_now_and_at_peak() {
    let figures = figures("memory --beanstalkd --waiting 5000 --lifecycles 500 --runs 1");
    let run = &figures["scenarios"][0]["series"][0]["runs"][0];
    assert!(run["resident_kib"].as_u64().unwrap() > 1000);
    assert!(run["resident_peak_kib"].as_u64() >= run["resident_kib"].as_u64());
}

#[test]
fn a_sound_peer_is_measured_beside_beanstalkd() {
    let peer = fake_workq::start(Fault::None);
    let pid = std::process::id();
    let flags =
        format!("lifecycle --beanstalkd --peer workq:{peer} --pid {pid} --jobs 300 --runs 2");
    let figures = figures(&flags);
    check_series(&figures, 2, &["add", "lease", "finish"]);
    assert_eq!(figures["scenarios"][0]["series"][1]["server"], format!("peer {peer}"));
}

/// The warm-up of a run has 200 jobs, so the fault of the 50th job falls into the warm-up, which is
/// checked like everything else.
fn check_fault(fault: Fault, expected: &str) {
    let peer = fake_workq::start(fault);
    let flags = format!("lifecycle --peer workq:{peer} --jobs 300 --runs 1 --deadline 2");
    let said = refusal(&flags);
    assert!(said.contains(expected), "{fault:?}: {said}");
}

#[test]
fn wrong_deliveries_and_finishes_fail_the_run() {
    check_fault(Fault::DeliversTwice, "1 delivered twice");
    check_fault(Fault::Damages, "1 with a payload nobody submitted");
    check_fault(Fault::Refuses, "Disk full");
    check_fault(Fault::HangsUp, "closed a connection");
}

#[test]
fn a_lost_job_ends_the_run_at_its_deadline() {
    check_fault(Fault::Loses, "200 of 200 jobs submitted, 199 of 200 finished");
}

#[test]
fn bad_flags_and_other_machines_are_refused() {
    assert!(refusal("submit --peer workq:192.0.2.1:9922").contains("not a loopback address"));
    assert!(refusal("lifecycle --echo").contains("hands out no jobs"));
    assert!(refusal("lifecycle").contains("nothing to measure"));
    assert!(refusal("submit --peer workq:127.0.0.1:1 --runs 1").contains("cannot connect"));
    assert!(refusal("submit --spindle ./no-such-program").contains("no-such-program"));
}
