//! The HTTP doors against their own OpenAPI documents: a program that makes requests from a
//! document, right and wrong ones, and holds every answer against it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::clients::SCHEMATHESIS_FOLDER;
use crate::workspace::{release, root, target};

/// Fewer cases than this were no test.
const CASES_MIN: u64 = 300;
/// The phases that must have run and passed. The fourth, examples, has nothing to do where a
/// document gives whole examples of no request.
const PHASES: [&str; 3] = ["Coverage", "Fuzzing", "Stateful"];
/// A run makes so many cases and no more; one that takes this long hangs.
const PATIENCE: Duration = Duration::from_secs(600);
const LOOK: Duration = Duration::from_millis(100);

/// What a server says about itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Document {
    /// The native API.
    Api,
    /// LightJQ.
    LightJq,
}

impl Document {
    pub const ALL: [Document; 2] = [Document::Api, Document::LightJq];

    /// Where the server has it.
    pub fn path(self) -> &'static str {
        match self {
            Document::Api => "/api/openapi.json",
            Document::LightJq => "/lightjq/openapi.json",
        }
    }
}

/// Starts a server and tests it; how many cases there were.
pub fn run(document: Document, seed: u64) -> Result<u64> {
    let server = Server::start()?;
    let ours = root().join("xtask/schemathesis");
    let log = server.folder.path().join("told");
    let child = Command::new(target()?.join(SCHEMATHESIS_FOLDER).join("bin/st"))
        .arg("--config-file")
        .arg(ours.join("schemathesis.toml"))
        .args(["--no-color", "run", "--seed", &seed.to_string()])
        .arg(format!("http://{}{}", server.address, document.path()))
        .env("SCHEMATHESIS_HOOKS", ours.join("hooks.py"))
        // Where it keeps what it learned; a run begins without.
        .current_dir(server.folder.path())
        .stdin(Stdio::null())
        .stdout(File::create(&log)?)
        .stderr(Stdio::inherit())
        .spawn()
        .context("starting schemathesis")?;
    let status = Run(child).end()?;
    let told = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    let Some(status) = status else { bail!("schemathesis hangs\n{told}") };
    ensure!(status.success(), "schemathesis, seed {seed}: {status}\n{told}");
    let cases = count(&told).with_context(|| format!("it tells no number of cases\n{told}"))?;
    ensure!(cases >= CASES_MIN, "{cases} cases only\n{told}");
    ensure!(all_were_tested(&told), "operations were left out\n{told}");
    ensure!(all_phases_passed(&told), "phases were left out\n{told}");
    Ok(cases)
}

/// The program at work; dropping it kills it.
struct Run(Child);

impl Run {
    /// How it ended; none if it did not.
    fn end(mut self) -> Result<Option<ExitStatus>> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = self.0.try_wait()? {
                return Ok(Some(status));
            }
            thread::sleep(LOOK);
        }
        Ok(None)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether `Selected: 37/37` is followed by `Tested: 37`.
fn all_were_tested(told: &str) -> bool {
    let behind = |name: &str| {
        let found = told.lines().find_map(|line| line.trim().strip_prefix(name));
        found.map(str::trim)
    };
    let (Some(selected), Some(tested)) = (behind("Selected:"), behind("Tested:")) else {
        return false;
    };
    selected.split_once('/').is_some_and(|(some, all)| some == all && tested == all)
}

/// Whether the summary has a line such as `✅ Fuzzing` for each.
fn all_phases_passed(told: &str) -> bool {
    let summary = told.split("Test Phases:").nth(1).unwrap_or_default();
    let passed = |phase: &&str| {
        let named = |line: &str| line.trim().strip_prefix('✅').map(str::trim) == Some(*phase);
        summary.lines().any(named)
    };
    PHASES.iter().all(passed)
}

/// `1234` of `  1234 generated, 1234 passed`.
fn count(told: &str) -> Option<u64> {
    let line = told.lines().find(|line| line.contains(" generated,"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// A server with nothing in it, in a folder of its own; dropping it kills it.
struct Server {
    child: Child,
    address: String,
    folder: tempfile::TempDir,
}

impl Server {
    fn start() -> Result<Server> {
        let folder = tempfile::tempdir()?;
        let data: PathBuf = folder.path().join("data");
        let off = ["--workq", "off", "--gearman", "off", "--jobd-master", "off"];
        let mut child = Command::new(release("spindle")?)
            .arg("serve")
            .args(off)
            .args(["--http", "127.0.0.1:0", "--data"])
            .arg(data)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("starting the server")?;
        let said = child.stderr.take().context("the server's standard error was asked for")?;
        let mut said = BufReader::new(said).lines();
        let mut server = Server { child, address: String::new(), folder };
        for line in said.by_ref() {
            let line = line?;
            if let Some((_, rest)) = line.split_once("http on ") {
                server.address = rest.split(',').next().unwrap_or_default().to_owned();
                break;
            }
        }
        ensure!(!server.address.is_empty(), "the server did not say where it listens");
        // What it says later must not fill the pipe, and its errors are told.
        thread::spawn(move || {
            for line in said.map_while(Result::ok) {
                if line.contains("ERROR") || line.contains("panicked") {
                    eprintln!("{line}");
                }
            }
        });
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cases_are_counted() {
        assert_eq!(count("Test cases:\n  1234 generated, 1234 passed\n"), Some(1234));
        assert_eq!(count("Test cases:\n  N/A\n"), None);
    }

    #[test]
    fn an_operation_that_was_left_out_is_seen() {
        assert!(all_were_tested("API Operations:\n  Selected: 37/37\n  Tested: 37\n"));
        assert!(!all_were_tested("  Selected: 37/37\n  Tested: 12\n  Skipped: 25\n"));
        assert!(!all_were_tested("  Selected: 36/37\n  Tested: 36\n"));
        assert!(!all_were_tested(""));
    }

    #[test]
    fn a_phase_that_did_not_run_is_seen() {
        let told = |stateful: &str| {
            let began = " ✅  Stateful (in 2.06s)";
            format!(
                "{began}\nTest Phases:\n  ⏭  Examples\n  ✅ Coverage\n  ✅ Fuzzing\n  {stateful}\n"
            )
        };
        assert!(all_phases_passed(&told("✅ Stateful")));
        for stateful in ["🚫 Stateful", "⏭  Stateful (disabled)", "❌ Stateful", ""] {
            assert!(!all_phases_passed(&told(stateful)), "{stateful}");
        }
        assert!(!all_phases_passed(""));
    }
}
