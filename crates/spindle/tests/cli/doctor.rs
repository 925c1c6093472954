//! `spindle doctor`: what it finds, and how it ends.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use serde_json::Value;
use spindle_testkit::{Certificates, write_script};
use spindle_tls::ServerFiles;

use crate::{
    fake_workq::{spindle, stderr, stdout},
    native::{object, output_of, served},
    serve::{data, segment},
};

/// How it ended, and what it found.
fn found(arguments: &[&str]) -> (i32, Vec<Value>) {
    let output = spindle(&[&["doctor", "--json"], arguments].concat()).output().unwrap();
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
    has(&found, "log", "ok", "1 segments");
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
    let text = stdout(&spindle(&["doctor", "--data", &data]).unwrap());
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
    has(&damaged, "log", "wrong", "does not begin like a segment");
    fs::write(Path::new(&data).join("manifest.json"), "{}").unwrap();
    let (code, backup) = found(&["--data", &data]);
    assert_eq!(code, 1);
    has(&backup, "folder", "wrong", "is a backup");
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
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
    let (code, insecure) =
        found(&["--data", &data, "--http", "0.0.0.0:7420", "--insecure", "http"]);
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
    let output =
        spindle(&["doctor", "--json", "--data", &data]).env("SPINDLE_SERVE_DATTA", "x").unwrap();
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
