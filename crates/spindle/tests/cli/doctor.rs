//! `spindle doctor`: what it finds, and how it ends.

use std::{fs, net::TcpListener, os::unix::fs::PermissionsExt, path::Path, process::Command};

use serde_json::Value;
use spindle_testkit::{Certificates, write_script};
use spindle_tls::ServerFiles;

use crate::{
    fake_workq::{spindle, stderr, stdout},
    native::{object, output_of, served},
    serve::{data, segment},
};

/// Asks it, as the settings have it that are given. The port of a door is a free one otherwise.
fn doctor(arguments: &[&str]) -> assert_cmd::Command {
    let mut command = spindle(&[&["doctor", "--json"], arguments].concat());
    command.env("SPINDLE_SERVE_HTTP", "127.0.0.1:0");
    command
}

/// How it ended, and what it found.
fn found(arguments: &[&str]) -> (i32, Vec<Value>) {
    found_by(&mut doctor(arguments))
}

fn found_by(command: &mut assert_cmd::Command) -> (i32, Vec<Value>) {
    let output = command.output().unwrap();
    let lines = stdout(&output).lines().map(object).collect();
    (output.status.code().unwrap(), lines)
}

#[track_caller]
fn has(found: &[Value], check: &str, verdict: &str, part: &str) {
    let is_it = |it: &&Value| it["check"] == check && it["verdict"] == verdict;
    let texts: Vec<_> =
        found.iter().filter(is_it).map(|it| it["found"].as_str().unwrap()).collect();
    assert!(texts.iter().any(|text| text.contains(part)), "{check} {verdict} {part}: {found:?}");
    // Every finding that is not `ok` has advice.
    assert!(found.iter().all(|it| (it["verdict"] == "ok") == it["advice"].is_null()), "{found:?}");
}

#[test]
fn a_server_and_its_folder_are_looked_at_while_it_runs() {
    let (_folder, data) = data();
    let served = served(&["--data", &data]);
    output_of(&served, &["add", "q", "x"]);
    let (code, found) = found(&["--data", &data]);
    assert_eq!(code, 0, "{found:?}");
    has(&found, "lock", "ok", &format!("process {} works on the folder", served.id()));
    has(&found, "log", "ok", "1 segment, ");
    has(&found, "clock", "ok", "the log was written until");
    has(&found, "disk-room", "ok", "MiB are free");
    has(&found, "open-files", "ok", "files may be open");
    has(&found, "doors", "ok", "http on");
    assert!(found.iter().any(|it| it["check"] == "disk-speed"), "{found:?}");
    // It leaves nothing behind, and the server goes on.
    output_of(&served, &["add", "q", "x"]);
    assert!(
        fs::read_dir(&data).unwrap().all(|it| !it
            .unwrap()
            .file_name()
            .to_string_lossy()
            .contains("doctor"))
    );
    // Its addresses are taken, by the server itself.
    let address = served.address_of("http");
    let text = stdout(&spindle(&["doctor", "--data", &data, "--http", &address]).unwrap());
    assert!(text.contains("lock\tok\t"), "{text}");
}

#[test]
fn what_is_wrong_with_a_folder_is_said() {
    let (folder, data) = data();
    let (code, of_none) = found(&["--data", &data]);
    assert_eq!(code, 0);
    has(&of_none, "folder", "ok", "the server makes it");
    let mut served = served(&["--data", &data]);
    output_of(&served, &["add", "q", "x"]);
    assert!(served.end().success());
    fs::set_permissions(&data, fs::Permissions::from_mode(0o755)).unwrap();
    let (code, open) = found(&["--data", &data]);
    assert_eq!(code, 0);
    has(&open, "folder", "warning", "mode 0755");
    has(&open, "lock", "ok", "no server works");
    let file = segment(&data);
    let mut bytes = fs::read(&file).unwrap();
    bytes[20] ^= 1;
    fs::write(&file, bytes).unwrap();
    let (code, damaged) = found(&["--data", &data]);
    assert_eq!(code, 1);
    has(&damaged, "log", "wrong", "the segment's header is damaged");
    fs::write(Path::new(&data).join("manifest.json"), "{}").unwrap();
    let (code, backup) = found(&["--data", &data]);
    assert_eq!(code, 1);
    has(&backup, "folder", "wrong", "is a backup");
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let (code, home) = found(&["--data", folder.path().to_str().unwrap()]);
    assert_eq!(code, 1);
    let log = home.iter().find(|it| it["check"] == "log").unwrap();
    // There is nothing to mend.
    assert_eq!(
        (&log["verdict"], &log["advice"]),
        (&"wrong".into(), &"the server does not start".into())
    );
    let (code, no_folder) = found(&["--data", file.to_str().unwrap()]);
    assert_eq!(code, 1);
    has(&no_folder, "folder", "wrong", "is no folder");
}

#[test]
fn what_is_wrong_with_settings_is_said() {
    let (folder, data) = data();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (code, bad) = found(&["--data", &data, "--require-auth", "--jobd-master", "off"]);
    assert_eq!(code, 1);
    has(&bad, "settings", "wrong", "tokens");
    let tokens = path("tokens");
    fs::write(&tokens, "").unwrap();
    fs::set_permissions(Path::new(&tokens), fs::Permissions::from_mode(0o644)).unwrap();
    let (code, open) = found(&["--data", &data, "--tokens", &tokens]);
    assert_eq!(code, 1);
    has(&open, "tokens", "wrong", "open to all users");
    let entry = |name: &str, digit: &str, more: &str| {
        let digest = digit.repeat(64);
        format!(
            "[[token]]\nname = '{name}'\nsha256 = '{digest}'\nroles = ['read']\nqueues = ['*']\n{more}"
        )
    };
    let both = entry("old", "a", "expires = 2020-01-01T00:00:00Z\n") + &entry("new", "b", "");
    fs::write(&tokens, both).unwrap();
    fs::set_permissions(Path::new(&tokens), fs::Permissions::from_mode(0o600)).unwrap();
    let (code, expired) = found(&["--data", &data, "--tokens", &tokens]);
    assert_eq!(code, 0);
    has(&expired, "tokens", "warning", "2 of them, expired: old");
    let (code, insecure) = found(&["--data", &data, "--http", "0.0.0.0:0", "--insecure", "http"]);
    assert_eq!(code, 0);
    has(&insecure, "doors", "warning", "asks nobody");
    let node = ["--data", &data, "--log", "nats://h/s", "--advertise", "h:1"];
    let listens = ["--cluster-listen", "0.0.0.0:9931", "--insecure", "cluster"];
    let (code, plain) = found(&[&node[..], &listens].concat());
    assert_eq!(code, 0);
    has(&plain, "doors", "warning", "other nodes on 0.0.0.0:9931: everyone on the way can read");
    let certificates = Certificates::new();
    let ServerFiles { certificate, key, .. } = certificates.server();
    let [certificate, key, ca] =
        [certificate, key, certificates.ca()].map(|path| path.display().to_string());
    let encrypted = ["--tls-cert", &certificate, "--tls-key", &key, "--cluster-ca-file"];
    let with = |ca: &str| found(&[&node[..], &listens[..2], &encrypted, &[ca]].concat());
    let (code, safe) = with(&ca);
    assert_eq!(code, 0);
    has(&safe, "doors", "ok", "other nodes on 0.0.0.0:9931");
    has(&safe, "cluster-ca", "ok", &ca);
    let (code, blind) = with(&key);
    assert_eq!(code, 1);
    has(&blind, "cluster-ca", "wrong", "no certificate");
    let output = doctor(&["--data", &data]).env("SPINDLE_SERVE_DATTA", "x").unwrap();
    assert!(stdout(&output).contains("SPINDLE_SERVE_DATTA"), "{}", stdout(&output));
    let (code, missing) =
        found(&["--data", &data, "--tls-cert", &path("no"), "--tls-key", &path("no")]);
    assert_eq!(code, 1);
    has(&missing, "certificate", "wrong", "cannot read");
}

#[test]
fn a_certificate_that_has_expired_is_wrong() {
    let (_folder, data) = data();
    let certificates = Certificates::new();
    let (sound, old) = (certificates.server(), certificates.expired_client("old"));
    for (certificate, key, code, verdict, part) in [
        (&sound.certificate, &sound.key, 0, "ok", "is valid until"),
        (&old.certificate, &old.key, 1, "wrong", "has expired on 2021-01-01"),
        (&sound.certificate, &old.key, 1, "wrong", "does not fit"),
    ] {
        let [certificate, key] = [certificate, key].map(|path| path.to_str().unwrap());
        let arguments = ["--data", &data, "--tls-cert", certificate, "--tls-key", key];
        let (ended, found) = found(&arguments);
        assert_eq!(ended, code, "{found:?}");
        has(&found, "certificate", verdict, part);
    }
}

/// The longest file that the process may have is shorter than what is written to measure the disk, and than a segment:
/// that is said, by the server, too, and no signal ends it before.
#[test]
fn a_limit_on_files_lengths_ends_nothing_without_a_word() {
    let (folder, data) = data();
    let program = folder.path().join("short");
    // Blocks of 512 or 1,024 bytes.
    let script =
        format!("#!/bin/sh\nulimit -f 1000\nexec {} \"$@\"\n", env!("CARGO_BIN_EXE_spindle"));
    write_script(&program, &script);
    fs::create_dir_all(&data).unwrap();
    let output = Command::new(&program).args(["doctor", "--json", "--data", &data]).output();
    let output = output.unwrap();
    let found: Vec<Value> = stdout(&output).lines().map(object).collect();
    assert_eq!(output.status.code(), Some(1), "{found:?}");
    has(&found, "file-size", "wrong", "a segment has 67108864");
    has(&found, "disk-speed", "wrong", "File too large");
    let output = Command::new(&program).args(["serve", "--data", &data]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stderr(&output).contains("File too large"), "{}", stderr(&output));
}

#[test]
fn what_the_machine_lacks_is_said() {
    let (folder, data) = data();
    let program = folder.path().join("narrow");
    // 20,000 blocks of 512 or 1,024 bytes: less than a segment.
    let limits = "ulimit -n 300\nulimit -f 20000";
    let script = format!("#!/bin/sh\n{limits}\nexec {} \"$@\"\n", env!("CARGO_BIN_EXE_spindle"));
    write_script(&program, &script);
    let arguments = ["doctor", "--json", "--data", &data, "--payload-memory", "1000000GiB"];
    let output = Command::new(program).args(arguments).output().unwrap();
    let found: Vec<Value> = stdout(&output).lines().map(object).collect();
    assert_eq!(output.status.code(), Some(1), "{found:?}");
    has(&found, "open-files", "warning", "300 files may be open");
    has(&found, "file-size", "wrong", "a segment has 67108864");
    has(&found, "memory", "warning", "MiB");
}

/// What it says with this limit of open files.
fn found_with_files(folder: &Path, files: u32, data: &str) -> (i32, Vec<Value>) {
    let program = folder.join(format!("with-{files}"));
    let exec = format!("exec {} \"$@\"", env!("CARGO_BIN_EXE_spindle"));
    write_script(&program, &format!("#!/bin/sh\nulimit -n {files}\n{exec}\n"));
    let mut command = assert_cmd::Command::new(program);
    command.args(["doctor", "--json", "--http", "127.0.0.1:0", "--data", data]);
    found_by(&mut command)
}

#[test]
fn files_for_a_start_are_counted_with_those_of_the_log() {
    let (folder, data) = data();
    let (code, few) = found_with_files(folder.path(), 20, &data);
    assert_eq!(code, 1);
    has(&few, "open-files", "wrong", "20 files may be open");
    let (code, enough) = found_with_files(folder.path(), 45, &data);
    assert_eq!(code, 0);
    has(&enough, "open-files", "warning", "45 files may be open");
    let mut served = served(&["--data", &data, "--segment-size", "64KiB"]);
    let payload = "x".repeat(40_000);
    for _ in 0..15 {
        output_of(&served, &["add", "q", &payload]);
    }
    assert!(served.end().success());
    let (code, grown) = found_with_files(folder.path(), 45, &data);
    assert_eq!(code, 1);
    has(&grown, "open-files", "wrong", "and the log has 1");
}

/// Why a server does not start with these arguments: what it says last.
fn refusal(arguments: &[&str]) -> String {
    let doors = ["--http", "127.0.0.1:0", "--jobd-master", "off"];
    let output = spindle(&[&["serve"], arguments, &doors[..]].concat()).output().unwrap();
    assert!(!output.status.success());
    let said = stderr(&output);
    said.trim().lines().last().unwrap().to_owned()
}

#[test]
fn a_folder_that_a_server_would_refuse_is_wrong_in_the_same_words() {
    let (_folder, data) = data();
    let mut served = served(&["--data", &data, "--segment-size", "64KiB"]);
    let payload = "x".repeat(40_000);
    for _ in 0..6 {
        output_of(&served, &["add", "q", &payload]);
    }
    assert!(served.end().success());
    let mut files: Vec<_> =
        fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|is| is == "segment"));
    files.sort();
    assert!(files.len() > 4);
    let bounds = Path::new(&data).join("bounds");
    for file in [&bounds, &files[0], &files[2], files.last().unwrap()] {
        let bytes = fs::read(file).unwrap();
        let (code, sound) = found(&["--data", &data]);
        assert_eq!(code, 0, "{sound:?}");
        for left in [None, Some(100)] {
            match left {
                None => fs::remove_file(file).unwrap(),
                Some(left) => fs::write(file, vec![0xa5; left]).unwrap(),
            }
            let (code, found) = found(&["--data", &data]);
            assert_eq!(code, 1, "{file:?}: {found:?}");
            let wrong = found.iter().find(|it| it["check"] == "log").unwrap();
            let said = refusal(&["--data", &data]);
            assert!(said.contains(wrong["found"].as_str().unwrap()), "{said}\n{wrong}");
        }
        fs::write(file, bytes).unwrap();
    }
}

#[test]
fn a_clock_too_far_ahead_of_the_log_is_doubted_while_no_server_runs() {
    let (_folder, data) = data();
    let mut served = served(&["--data", &data]);
    output_of(&served, &["add", "q", "x"]);
    let arguments = ["--data", &data, "--away-max", "1ms"];
    let (_, live) = found(&arguments);
    has(&live, "clock", "ok", "the log was written until");
    assert!(served.end().success());
    let (code, away) = found(&arguments);
    assert_eq!(code, 0);
    has(&away, "clock", "warning", "longer ago than --away-max");
}

#[test]
fn what_keeps_a_server_from_starting_is_wrong() {
    let (folder, data) = data();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let hook = ["--data", &data, "--webhook", "http://127.0.0.1:1/hook dead"];
    let with = |more: &[&str], name: &str, value: &str| {
        found_by(doctor(&[&hook[..], more].concat()).env(name, value))
    };
    let secret = "SPINDLE_WEBHOOK_SECRET";
    let (code, unsigned) = with(&[], secret, "");
    assert_eq!(code, 1);
    has(&unsigned, "webhooks", "wrong", "there is no secret");
    assert_eq!(with(&[], secret, "x").0, 1);
    let sound = "0123456789abcdef0123456789abcdef";
    let (code, unknown) = with(&["--webhook-ca-file", &path("none")], secret, sound);
    assert_eq!(code, 1);
    has(&unknown, "webhooks", "wrong", "--webhook-ca-file");
    let (code, signed) = with(&[], secret, sound);
    assert_eq!(code, 0, "{signed:?}");
    has(&signed, "webhooks", "ok", "1 of them");
    let traced = |to| found_by(doctor(&["--data", &data]).env("OTEL_EXPORTER_OTLP_ENDPOINT", to));
    let (code, nowhere) = traced("zork");
    assert_eq!(code, 1);
    has(&nowhere, "traces", "wrong", "OTEL_EXPORTER_OTLP_ENDPOINT");
    let (code, somewhere) = traced("http://127.0.0.1:1");
    assert_eq!(code, 0);
    has(&somewhere, "traces", "ok", "exported");
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let (code, taken) = found(&["--data", &data, "--http", &address]);
    assert_eq!(code, 1);
    has(&taken, "doors", "wrong", "is taken");
    let (code, unknown) = found(&["--memory", "--http", &address]);
    assert_eq!(code, 0);
    has(&unknown, "doors", "warning", "is taken");
}
