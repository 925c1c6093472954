//! `spindle verify`: what it says is in a folder.

use std::{
    fs,
    process::{Command, Stdio},
};

use serde_json::{Value, json};
use spindle_log::{Ack, FileLog, FileLogOptions, Log, Record};
use spindle_testkit::{Program, free_address};

use crate::{
    fake_workq::{Said, spindle, stderr, stdout},
    serve::{damage, data, segment, serve},
};

fn object(data: &str, code: i32) -> Value {
    let output = spindle(&["verify", "--json", data]).output().unwrap();
    assert_eq!(output.status.code(), Some(code), "{}", stdout(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_jobs_in_a_folder_are_counted() {
    let (_folder, data) = data();
    for _ in 0..2 {
        let mut served = serve(&["--workq", "127.0.0.1:0", "--data", &data]);
        served.spindle(&["add", "mail", "waits"]).assert().success();
        served.spindle(&["add", "video", "is done"]).assert().success();
        served.spindle(&["work", "video", "--once", "--", "cat"]).assert().success();
        let tomorrow = ["schedule", "mail", "+24h", "later"];
        served.spindle(&tomorrow).assert().success();
        assert_eq!(served.end().code(), Some(0));
    }
    let report = object(&data, 0);
    let contents = &report["contents"];
    let jobs = json!({
        "scheduled": 2, "ready": 2, "leased": 0, "parked": 0, "done": 2, "dead": 0,
        "blocked": 0,
    });
    assert_eq!(contents["jobs"], jobs);
    assert_eq!(contents["queues"], 2);
    assert_eq!(contents["finished"], 2);
    assert_eq!(contents["epoch"], 2);
    let times = ["oldest_ms", "newest_ms"].map(|name| contents[name].as_u64().unwrap());
    assert!(1_600_000_000_000 < times[0] && times[0] <= times[1], "{times:?}");
    assert_eq!(report["unreadable"], Value::Null);

    let rows = stdout(&spindle(&["verify", &data]).unwrap());
    for row in ["queues\t2", "ready\t2", "scheduled\t2", "done\t2", "finished\t2", "epoch\t2"] {
        assert!(rows.lines().any(|line| line == row), "{row}: {rows}");
    }
    let oldest = rows.lines().find_map(|line| line.strip_prefix("oldest\t")).unwrap();
    let oldest: jiff::Timestamp = oldest.parse().unwrap();
    assert_eq!(oldest.as_millisecond() as u64, times[0]);
}

#[test]
fn a_record_that_cannot_be_folded_is_named_and_the_frames_stay_sound() {
    let (_folder, data) = data();
    let mut served = serve(&["--workq", "127.0.0.1:0", "--data", &data]);
    served.spindle(&["add", "q", "x"]).assert().success();
    assert_eq!(served.end().code(), Some(0));
    let log = FileLog::open_dir(&data, FileLogOptions::default()).unwrap();
    let at = log.next();
    log.submit(at, &Record { epoch: 1, bytes: "no record of ours".into() }).unwrap();
    assert!(matches!(log.next_ack(), Ack::Committed(_)));
    drop(log);
    // No server starts on it, so this is no success.
    let report = object(&data, 1);
    assert_eq!((&report["verdict"], &report["sound"]), (&json!("sound"), &json!(true)));
    assert_eq!(report["unreadable"]["position"], at.0);
    assert_eq!(report["contents"], Value::Null);
    assert_eq!(report["next"], at.0 + 1);
    let rows = stdout(&spindle(&["verify", &data]).output().unwrap());
    assert!(rows.contains(&format!("unreadable\trecord {at}: the record is malformed")), "{rows}");
}

#[test]
fn a_damaged_payload_is_told_and_costs_its_job_and_nothing_else() {
    let (_folder, data) = data();
    let mut served = serve(&["--workq", "127.0.0.1:0", "--data", &data]);
    for payload in ["the first one", "the second one", "the third one"] {
        served.spindle(&["add", "mail", payload]).assert().success();
    }
    assert_eq!(served.end().code(), Some(0));
    damage(&segment(&data), b"the second one");

    let report = object(&data, 1);
    assert_eq!((&report["verdict"], &report["sound"]), (&json!("payloads damaged"), &json!(false)));
    assert_eq!(
        (&report["damage"], &report["contents"]["jobs"]["ready"]),
        (&Value::Null, &json!(3))
    );
    let job = &report["damaged_jobs"][0];
    assert_eq!((&job["finished"], &job["bytes"]), (&json!(false), &json!("payload")));
    assert_eq!(report["damaged_records"].as_array().unwrap().len(), 1);
    let rows = stdout(&spindle(&["verify", &data]).output().unwrap());
    let row = format!("damaged-job\t{}: its payload is damaged", job["id"]);
    assert!(rows.contains(&row), "{rows}");

    let mut served = serve(&["--workq", "127.0.0.1:0", "--data", &data]);
    served.spindle(&["work", "mail", "--drain", "--", "cat"]).assert().success();
    assert_eq!(stdout(&served.spindle(&["queues"]).unwrap()), "mail\t0\t0\n");
    assert_eq!(served.end().code(), Some(0));
    let report = object(&data, 1);
    let jobs = &report["contents"]["jobs"];
    assert_eq!((&jobs["done"], &jobs["dead"], &jobs["ready"]), (&json!(2), &json!(1), &json!(0)));
    assert_eq!(report["damaged_jobs"], json!([]));
}

/// Whichever part is missing, the server never removes the rest.
#[test]
fn a_server_refuses_a_folder_that_lost_its_beginning_or_its_end() {
    for (lost, reason) in [
        ("segment", "the oldest segment is missing"),
        ("end", "records are missing at the end of the log"),
        ("magic", "the file does not begin like a segment"),
    ] {
        let (_folder, data) = data();
        let mut served = serve(&["--workq", "127.0.0.1:0", "--data", &data]);
        served.spindle(&["add", "mail", "the last one"]).assert().success();
        assert_eq!(served.end().code(), Some(0));
        assert_eq!(object(&data, 0)["ended_in_order"], true);
        let segment = segment(&data);
        let mut bytes = fs::read(&segment).unwrap();
        match lost {
            "segment" => fs::remove_file(&segment).unwrap(),
            "end" => {
                let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
                bytes[end] ^= 1;
                fs::write(&segment, bytes).unwrap();
            }
            _ => {
                bytes[2] ^= 1;
                fs::write(&segment, bytes).unwrap();
            }
        }
        let output =
            spindle(&["serve", "--workq", "127.0.0.1:0", "--data", &data]).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let said = stderr(&output);
        assert!(
            said.contains(reason) && said.contains("spindle verify") && !said.contains("move it"),
            "{said}"
        );
        let report = object(&data, 1);
        assert_eq!(
            (&report["verdict"], &report["damage"]["reason"]),
            (&json!("damaged"), &json!(reason))
        );
        let dropped = &report["dropped"];
        let output = spindle(&["verify", "--repair", "--json", &data]).output().unwrap();
        let repaired: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&repaired["verdict"], &repaired["dropped"]), (&json!("repaired"), dropped));
        let positions = |listed: &Value| -> Vec<Value> {
            let listed = listed.as_array().unwrap().iter();
            listed
                .map(|one| one.get("position").or(one.get("unreadable_from")).cloned().unwrap())
                .collect()
        };
        // The list of dropped records is shown again until a server starts.
        let again = object(&data, 0);
        assert_eq!(positions(&again["dropped"]), positions(dropped));
        assert_eq!(again["repaired_since_start"], json!(["repair-1"]));
        let mut served = serve(&["--workq", "127.0.0.1:0", "--data", &data]);
        served.spindle(&["add", "mail", "another"]).assert().success();
        assert_eq!(served.end().code(), Some(0));
        let report = object(&data, 0);
        assert_eq!(report["saved_earlier"], json!(["repair-1"]));
        assert_eq!((&report["repaired_since_start"], &report["dropped"]), (&json!([]), &json!([])));
    }
}

#[test]
fn a_cut_tail_is_reported_with_how_much_it_was() {
    let (_folder, data) = data();
    let mut served = serve(&["--workq", "127.0.0.1:0", "--data", &data]);
    for payload in ["is there", "was not finished"] {
        served.spindle(&["add", "mail", payload]).assert().success();
    }
    served.kill();
    let segment = segment(&data);
    let mut bytes = fs::read(&segment).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[end] ^= 1;
    fs::write(&segment, bytes).unwrap();
    let report = object(&data, 0);
    let tail = &report["tail"];
    assert!(tail["bytes"].as_u64().unwrap() > 40, "{tail}");
    assert_eq!((&tail["whole_records"], &report["ended_in_order"]), (&json!(0), &json!(false)));
    assert_eq!(report["dropped"][0]["unreadable_from"], report["next"]);
    let rows = stdout(&spindle(&["verify", &data]).unwrap());
    let row = format!("{} bytes, 0 whole records in them", tail["bytes"]);
    assert!(rows.lines().any(|line| line.starts_with("tail\t") && line.contains(&row)), "{rows}");

    // A server cuts the tail, reports the same, and serves.
    let address = free_address();
    let mut server = Program::start(
        Command::new(env!("CARGO_BIN_EXE_spindle"))
            .args(["serve", "--workq", &address, "--gearman", "off", "--http", "off"])
            .args(["--jobd-master", "off", "--data", &data])
            .stderr(Stdio::piped()),
    );
    let said = Said::by(server.stderr.take().unwrap());
    let line = said.await_line("cut what it had not finished writing");
    let bytes = format!(" bytes={} whole_records=0 ", tail["bytes"]);
    assert!(line.contains(" WARN ") && line.contains(&bytes), "{line}");
    said.await_line("workq on ");
    let jobs = spindle(&["jobs", "mail", "--workq", &address]).unwrap();
    assert!(stdout(&jobs).ends_with("is there\n"), "{}", stdout(&jobs));
    server.ask_to_end();
    assert!(server.await_end().success());
    assert_eq!(
        (&object(&data, 0)["ended_in_order"], &object(&data, 0)["tail"]),
        (&json!(true), &Value::Null)
    );
}

#[test]
fn bytes_behind_an_orderly_end_are_no_crashs() {
    let (_folder, data) = data();
    let mut served = serve(&["--workq", "127.0.0.1:0", "--data", &data]);
    served.spindle(&["add", "mail", "is there"]).assert().success();
    assert_eq!(served.end().code(), Some(0));
    let segment = segment(&data);
    let mut bytes = fs::read(&segment).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[end + 1000] = 1;
    fs::write(&segment, bytes).unwrap();
    let report = object(&data, 0);
    assert_eq!((&report["ended_in_order"], &report["dropped"]), (&json!(true), &json!([])));
    let rows = stdout(&spindle(&["verify", &data]).unwrap());
    let tail = rows.lines().find(|line| line.starts_with("tail\t")).unwrap();
    assert!(tail.contains("behind the end that the last stop recorded"), "{tail}");

    let mut server = Program::start(
        Command::new(env!("CARGO_BIN_EXE_spindle"))
            .args(["serve", "--workq", "127.0.0.1:0", "--gearman", "off", "--http", "off"])
            .args(["--jobd-master", "off", "--data", &data])
            .stderr(Stdio::piped()),
    );
    let said = Said::by(server.stderr.take().unwrap());
    let line = said.await_line("no part of the log: cut them");
    assert!(line.contains(" WARN ") && line.contains("last stop recorded"), "{line}");
    server.ask_to_end();
    assert!(server.await_end().success());
    assert_eq!(object(&data, 0)["tail"], Value::Null);
}

#[test]
fn a_rotten_copy_of_the_bounds_is_named() {
    let (_folder, data) = data();
    let mut served = serve(&["--workq", "127.0.0.1:0", "--data", &data]);
    served.spindle(&["add", "mail", "is there"]).assert().success();
    assert_eq!(served.end().code(), Some(0));
    assert_eq!(object(&data, 0)["bounds_copy_damaged"], json!(false));
    let bounds = format!("{data}/bounds");
    let mut bytes = fs::read(&bounds).unwrap();
    let sequence = |at: usize| u64::from_le_bytes(bytes[at + 16..at + 24].try_into().unwrap());
    let older = if sequence(0) < sequence(4096) { 0 } else { 4096 };
    bytes[older + 40] ^= 4;
    fs::write(&bounds, bytes).unwrap();
    let report = object(&data, 0);
    assert_eq!(
        (&report["verdict"], &report["bounds_copy_damaged"]),
        (&json!("sound"), &json!(true))
    );
    let rows = stdout(&spindle(&["verify", &data]).unwrap());
    assert!(rows.contains("bounds\tone of its two copies is damaged"), "{rows}");
    let mut served = serve(&["--workq", "127.0.0.1:0", "--data", &data]);
    assert_eq!(served.end().code(), Some(0));
    assert_eq!(object(&data, 0)["bounds_copy_damaged"], json!(false));
}
