//! `spindle backup` and `restore`: under load, with kills.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use serde_json::Value;
use spindle_testkit::{PATIENCE, Program};
use tempfile::TempDir;

use crate::{
    fake_workq::{spindle, stderr, stdout},
    native::{at, object, output_of, served, url},
    serve::{Served, damage, data, segment},
};

/// Short segments, so that there are several.
const SEGMENTS: [&str; 2] = ["--segment-size", "1MiB"];

fn served_on(data: &str) -> Served {
    served(&[&["--data", data], &SEGMENTS[..]].concat())
}

fn run(arguments: &[&str]) -> Value {
    let output = spindle(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    object(&stdout(&output))
}

/// The exit code of a command that fails, and what it says.
fn refused(arguments: &[&str]) -> (i32, String) {
    let output = spindle(arguments).output().unwrap();
    (output.status.code().unwrap(), stderr(&output))
}

/// Adds a job for each number, with it as the payload and a tail that fills the log.
fn add(served: &Served, numbers: std::ops::Range<usize>, folder: &Path) -> Vec<String> {
    let file = folder.join("lines");
    let line = |n| format!("job {n} {}\n", "x".repeat(1000));
    fs::write(&file, numbers.map(line).collect::<String>()).unwrap();
    let added = output_of(served, &["add", "q", "--lines", file.to_str().unwrap()]);
    added.lines().map(str::to_owned).collect()
}

/// A place for a backup, and the folder to remove.
fn place() -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("backup").to_str().unwrap().to_owned();
    (folder, path)
}

/// Submits one job after the other.
struct Load {
    program: Program,
    /// The ids of those that were acknowledged.
    ids: PathBuf,
}

impl Load {
    const PAYLOAD_BYTES: usize = 5000;

    fn start(served: &Served, folder: &Path) -> Load {
        let script = "while :; do \"$0\" add load \"$1\" || exit; done";
        let ids = folder.join("ids");
        let mut command = Command::new("sh");
        command.args(["-c", script, env!("CARGO_BIN_EXE_spindle"), &Load::payload()]);
        command.env("SPINDLE_URL", url(served)).env_remove("SPINDLE_WORKQ");
        command.stdout(File::create(&ids).unwrap()).stderr(Stdio::null());
        Load { program: Program::start(&mut command), ids }
    }

    fn payload() -> String {
        "y".repeat(Load::PAYLOAD_BYTES)
    }

    fn acknowledged(&self) -> Vec<u64> {
        let lines = fs::read_to_string(&self.ids).unwrap();
        lines.lines().map(|id| id.parse().unwrap()).collect()
    }

    fn await_acknowledged(&self, count: usize) -> Vec<u64> {
        wait_for(|| self.acknowledged().len() >= count);
        self.acknowledged()
    }
}

/// The jobs of a queue: their ids, with their payloads in base64.
fn jobs(served: &Served, queue: &str) -> Vec<(u64, Value)> {
    let exported = output_of(served, &["export", "-", "--all"]);
    let jobs = exported.lines().map(object).filter(|line| line["queue"] == queue);
    jobs.map(|job| (job["id"].as_u64().unwrap(), job["payload_base64"].clone())).collect()
}

#[test]
fn every_job_that_was_durable_is_there_after_a_kill_and_a_restore() {
    let (folder, data) = data();
    let (_kept, backup) = place();
    let mut server = served_on(&data);
    let ids = add(&server, 0..3000, folder.path());
    let mut load = Load::start(&server, folder.path());
    load.await_acknowledged(3);
    let taken = run(&["backup", "--json", &url(&server), &backup]);
    assert!(taken["segments"].as_u64().unwrap() > 1, "{taken}");
    let durable = load.await_acknowledged(6);
    let again = run(&["backup", "--json", &url(&server), &backup]);
    assert!(again["copied_bytes"].as_u64() < taken["copied_bytes"].as_u64(), "{again}");
    server.kill();
    load.program.crash();
    assert_eq!(run(&["verify", "--json", &backup])["verdict"], "sound");
    let restored = folder.path().join("restored").to_str().unwrap().to_owned();
    assert_eq!(run(&["restore", "--json", &backup, &restored])["next"], again["next"]);
    assert_eq!(run(&["verify", "--json", &restored])["verdict"], "sound");
    let mut server = served_on(&restored);
    let queue = object(&output_of(&server, &["queue", "show", "q", "--json"]));
    assert_eq!(queue["jobs"]["ready"], 3000, "{queue}");
    for n in [0, 1, 1499, 2999] {
        let job = output_of(&server, &["job", &ids[n]]);
        assert!(job.contains(&format!("job {n} xxx")), "{job}");
    }
    let restored = jobs(&server, "load");
    let whole = BASE64.encode(Load::payload());
    assert!(restored.iter().all(|(_, payload)| *payload == whole), "{restored:?}");
    // Those after it, too, as far as they go; the answer of the last one may not have come.
    let restored: Vec<u64> = restored.into_iter().map(|(id, _)| id).collect();
    let acknowledged = load.acknowledged();
    let both = restored.len().min(acknowledged.len());
    assert_eq!(restored[..both], acknowledged[..both]);
    assert!((durable.len()..=acknowledged.len() + 1).contains(&restored.len()), "{restored:?}");
    // The restored server goes on, and is backed up to the same place.
    add(&server, 0..100, folder.path());
    let on = run(&["backup", "--json", &url(&server), &backup]);
    assert!(on["next"].as_u64() > again["next"].as_u64(), "{on}");
    assert!(server.end().success());
}

fn wait_for(what: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !what() {
        assert!(Instant::now() < deadline, "it did not happen");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_backup_that_is_killed_leaves_the_one_before_and_is_taken_again() {
    let (folder, data) = data();
    let (_kept, backup) = place();
    let server = served_on(&data);
    add(&server, 0..500, folder.path());
    let first = run(&["backup", "--json", &url(&server), &backup]);
    add(&server, 500..6000, folder.path());
    let files = || fs::read_dir(&backup).unwrap().count();
    let before = files();
    let mut killed = Program::start(
        Command::new(env!("CARGO_BIN_EXE_spindle"))
            .args(["backup", &url(&server), &backup])
            .stdout(Stdio::null()),
    );
    // In the middle: a segment more than there was.
    wait_for(|| files() > before + 1);
    killed.crash();
    let found = run(&["verify", "--json", &backup]);
    assert_eq!((&found["verdict"], &found["next"]), (&"sound".into(), &first["next"]));
    let taken = run(&["backup", "--json", &url(&server), &backup]);
    assert!(taken["next"].as_u64() > first["next"].as_u64());
    assert_eq!(run(&["verify", "--json", &backup])["verdict"], "sound");
}

#[test]
fn a_server_that_is_killed_during_a_backup_fails_it_and_nothing_else() {
    let (folder, data) = data();
    let (_kept, backup) = place();
    let mut server = served_on(&data);
    add(&server, 0..500, folder.path());
    let first = run(&["backup", "--json", &url(&server), &backup]);
    add(&server, 500..6000, folder.path());
    let files = || fs::read_dir(&backup).unwrap().count();
    let before = files();
    let old_url = url(&server);
    let mut failing = Program::start(
        Command::new(env!("CARGO_BIN_EXE_spindle"))
            .args(["backup", &old_url, &backup])
            .stderr(Stdio::piped()),
    );
    wait_for(|| files() > before + 1);
    server.kill();
    assert_eq!(failing.await_end().code(), Some(1));
    let said = io::read_to_string(failing.stderr.take().unwrap()).unwrap();
    // In the middle of an answer, or before it.
    assert!(said.contains(&old_url), "{said}");
    let found = run(&["verify", "--json", &backup]);
    assert_eq!((&found["verdict"], &found["next"]), (&"sound".into(), &first["next"]));
    let (code, said) = refused(&["backup", &old_url, &backup]);
    assert!(code == 1 && said.contains("is the server running?"), "{said}");
    // The folder that it left is backed up to the same place.
    let taken = run(&["backup", "--json", &data, &backup]);
    assert_eq!(taken["first"], 0);
    assert!(taken["next"].as_u64() > first["next"].as_u64(), "{taken}");
    assert_eq!(run(&["verify", "--json", &backup])["verdict"], "sound");
    // And served: all that was acknowledged is there.
    assert_eq!(jobs(&served_on(&data), "q").len(), 6000);
}

#[test]
fn what_is_refused_says_what_to_do() {
    let (_folder, data) = data();
    let (kept, backup) = place();
    let mut server = served_on(&data);
    output_of(&server, &["add", "q", "the payload"]);
    let (code, said) = refused(&["backup", &data, &backup]);
    assert!(code == 1 && said.contains("back it up by its URL"), "{said}");
    run(&["backup", "--json", &url(&server), &backup]);
    assert!(server.end().success());
    for (arguments, wanted, part) in [
        (["restore", &backup, &data], 1, "is not empty"),
        (["restore", &data, &backup], 1, "is not empty"),
        (["backup", "nowhere", &backup], 1, "cannot read the folder nowhere"),
        (["backup", &backup, &data], 1, "holds no log"),
        (["verify", "--repair", &backup], 2, "a backup is not repaired"),
    ] {
        let (code, said) = refused(&arguments);
        assert!(code == wanted && said.contains(part), "{arguments:?}: {code} {said}");
    }
    let (code, said) = refused(&["backup", &data, kept.path().to_str().unwrap()]);
    assert!(code == 1 && said.contains("choose an empty or a new folder"), "{said}");
    let nothing = kept.path().join("new");
    let (code, said) =
        refused(&["restore", kept.path().to_str().unwrap(), nothing.to_str().unwrap()]);
    assert!(code == 1 && said.contains("holds no backup"), "{said}");
    let copy = fs::read_dir(&backup).unwrap().map(|it| it.unwrap().path());
    let copy = copy.into_iter().find(|it| it.extension().is_some_and(|it| it == "copy")).unwrap();
    damage(&copy, b"the payload");
    let output = spindle(&["verify", &backup]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("payloads or results are damaged"), "{}", stdout(&output));
    let (code, said) = refused(&["restore", &backup, nothing.to_str().unwrap()]);
    assert!(code == 1 && said.contains("are damaged"), "{said}");
}

#[test]
fn damage_to_a_payload_at_the_server_is_kept_and_said() {
    let (_folder, data) = data();
    let (_kept, backup) = place();
    let mut server = served_on(&data);
    output_of(&server, &["add", "q", "the payload"]);
    assert!(server.end().success());
    damage(&segment(&data), b"the payload");
    let taken = run(&["backup", "--json", &data, &backup]);
    assert_eq!(taken["damaged_records"], 1);
    assert_eq!(run(&["verify", "--json", &backup])["verdict"], "sound");
}

#[test]
fn a_server_in_memory_has_nothing_to_back_up() {
    let (_kept, backup) = place();
    let server = served(&["--memory"]);
    let output = at(&server, &["backup", &url(&server), &backup]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("in memory only"), "{}", stderr(&output));
}

#[test]
fn a_backup_over_copies_that_rotted_makes_them_anew() {
    let (folder, data) = data();
    let (_kept, backup) = place();
    let server = served_on(&data);
    add(&server, 0..2000, folder.path());
    run(&["backup", "--json", &url(&server), &backup]);
    let copies = fs::read_dir(&backup).unwrap().map(|entry| entry.unwrap().path());
    let oldest = copies.filter(|path| path.extension().is_some_and(|is| is == "copy")).min();
    let oldest = oldest.unwrap();
    let mut bytes = fs::read(&oldest).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 3].iter_mut().for_each(|byte| *byte ^= 1);
    fs::write(&oldest, bytes).unwrap();
    let trusting = run(&["backup", "--json", "--no-verify", &url(&server), &backup]);
    assert_eq!(trusting["renewed_segments"], 0);
    assert!(!spindle(&["verify", &backup]).output().unwrap().status.success());
    let output = spindle(&["backup", "--json", &url(&server), &backup]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(object(&stdout(&output))["renewed_segments"], 1);
    let said = stderr(&output);
    assert!(said.contains("1 copies of the backup that was there were damaged"), "{said}");
    assert_eq!(run(&["verify", "--json", &backup])["verdict"], "sound");
}
