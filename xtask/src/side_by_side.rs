//! Runs programs side by side. Most tests wait for servers, timers and disks rather than compute, so several
//! programs of tests take little longer than one. What each of them prints is shown in one piece when it ends.

use std::collections::VecDeque;
use std::io::Write;
use std::num::NonZero;
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::failures;
use crate::workspace::{cargo_path, root};

/// A program to run.
pub struct Program {
    /// Its name in the output.
    pub name: String,
    pub command: Command,
}

/// How a program ended.
pub struct Ended {
    pub name: String,
    pub took: Duration,
    pub outcome: Result<()>,
}

/// Runs all programs, so many at a time, in this order. Returns how each ended.
pub fn run(programs: Vec<Program>, at_a_time: usize) -> Vec<Ended> {
    let left = Mutex::new(VecDeque::from(programs));
    let ended = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..at_a_time {
            scope.spawn(|| {
                while let Some(program) = next(&left) {
                    let one = run_one(program);
                    ended.lock().expect("nobody panics with it").push(one);
                }
            });
        }
    });
    ended.into_inner().expect("nobody panics with it")
}

fn next(left: &Mutex<VecDeque<Program>>) -> Option<Program> {
    left.lock().expect("nobody panics with it").pop_front()
}

fn run_one(Program { name, mut command }: Program) -> Ended {
    let began = Instant::now();
    let (mut printed, mut errors) = (Vec::new(), Vec::new());
    let outcome = failures::run_alone(&mut command, &mut printed, &mut errors);
    let took = began.elapsed();
    // A reader that has closed the output does not end the tests.
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "--> {name}: {:.1} s", took.as_secs_f64());
    let _ = out.write_all(&errors).and_then(|()| out.write_all(&printed));
    Ended { name, took, outcome }
}

/// How many processors there are.
pub fn processors() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Builds all tests of the workspace. Returns their programs, as `cargo test` would run them: those of the
/// program first, which take longest.
pub fn test_programs() -> Result<Vec<Program>> {
    let mut build = Command::new(cargo_path());
    build.args(["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"]);
    let built = build.current_dir(root()).stderr(std::process::Stdio::inherit()).output();
    let built = built.context("starting Cargo")?;
    ensure!(built.status.success(), "the tests cannot be built: {}", built.status);
    let mut programs = Vec::new();
    for line in String::from_utf8_lossy(&built.stdout).lines() {
        let message: Value = serde_json::from_str(line).context("what Cargo says")?;
        programs.extend(test_program(&message));
    }
    ensure!(!programs.is_empty(), "Cargo has built no tests");
    programs.sort_by_key(|program| !program.name.starts_with("spindle "));
    Ok(programs)
}

/// The program that a message of Cargo is about, if it is one of tests.
fn test_program(message: &Value) -> Option<Program> {
    let is_test = message["profile"]["test"] == true;
    let executable = message["executable"].as_str().filter(|_| is_test)?;
    let folder = std::path::Path::new(message["manifest_path"].as_str()?).parent()?;
    // `path+file:///…/crates/core#spindle-core@0.1.0`, or `…/spindle#0.1.0` where the names are equal.
    let id = message["package_id"].as_str()?;
    let package = id.rsplit_once('#').map_or(id, |(_, package)| package);
    let package = match package.split_once('@') {
        Some((package, _)) => package.to_owned(),
        None => folder.file_name()?.to_string_lossy().into_owned(),
    };
    let (target, kind) = (message["target"]["name"].as_str()?, &message["target"]["kind"][0]);
    let mut command = Command::new(executable);
    // As Cargo does it.
    command.current_dir(folder).env("CARGO", cargo_path()).env("CARGO_MANIFEST_DIR", folder);
    let name = format!("{package} {} {target}", kind.as_str().unwrap_or_default());
    Some(Program { name, command })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shell(name: &str, script: &str) -> Program {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Program { name: name.to_owned(), command }
    }

    #[test]
    fn programs_run_side_by_side_and_each_ending_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let meet = |own: &str, other: &str| {
            let path = folder.path().display();
            format!("touch {path}/{own}; until [ -e {path}/{other} ]; do sleep 0.01; done")
        };
        let fails = "printf 'failures:\\n    x\\ntest result: FAILED\\n'; exit 1";
        let programs = vec![
            shell("one", &meet("a", "b")),
            shell("two", &meet("b", "a")),
            shell("three", fails),
        ];
        let mut ended = run(programs, 2);
        ended.sort_by(|one, other| one.name.cmp(&other.name));
        let [one, three, two] = &ended[..] else { panic!("three have ended") };
        assert!(one.outcome.is_ok() && two.outcome.is_ok());
        let error = three.outcome.as_ref().unwrap_err().to_string();
        assert_eq!(error, "failures:\n    x\ntest result: FAILED");
    }

    #[test]
    fn the_programs_of_tests_are_told_from_all_else_that_cargo_builds() {
        let message = |is_test: bool, executable: Value| {
            json!({
                "reason": "compiler-artifact",
                "package_id": "path+file:///p/crates/core#spindle-core@0.1.0",
                "manifest_path": "/p/crates/core/Cargo.toml",
                "target": { "name": "properties", "kind": ["test"] },
                "profile": { "test": is_test },
                "executable": executable,
            })
        };
        let program = test_program(&message(true, json!("/t/properties-1"))).unwrap();
        assert_eq!(program.name, "spindle-core test properties");
        assert_eq!(program.command.get_program(), "/t/properties-1");
        assert_eq!(
            program.command.get_current_dir().unwrap(),
            std::path::Path::new("/p/crates/core")
        );
        for other in [message(false, json!("/t/spindle")), message(true, Value::Null), json!({})] {
            assert!(test_program(&other).is_none(), "{other}");
        }
        let mut equal = message(true, json!("/t/spindle-1"));
        equal["package_id"] = "path+file:///p/crates/spindle#0.1.0".into();
        equal["manifest_path"] = "/p/crates/spindle/Cargo.toml".into();
        assert_eq!(test_program(&equal).unwrap().name, "spindle test properties");
    }
}
