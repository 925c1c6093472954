//! The HTTP doors against their own OpenAPI documents: a program makes requests from a document,
//! valid and invalid ones, and checks every answer against it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::clients::SCHEMATHESIS_FOLDER;
use crate::process::Process;
use crate::workspace::{root, target};

/// Fewer cases than this were no test.
const CASES_MIN: u64 = 300;
/// The phases that must have run and passed. The fourth, examples, has nothing to do for a document
/// without complete examples of requests.
const PHASES: [&str; 3] = ["Coverage", "Fuzzing", "Stateful"];
/// The longest time of a run. The number of cases is limited, so a run that takes this long hangs.
const PATIENCE: Duration = Duration::from_secs(600);

/// A document in which a server describes itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Document {
    /// The native API.
    Api,
    /// LightJQ.
    LightJq,
}

impl Document {
    pub const ALL: [Document; 2] = [Document::Api, Document::LightJq];

    /// Its path on the server.
    pub fn path(self) -> &'static str {
        match self {
            Document::Api => "/api/openapi.json",
            Document::LightJq => "/lightjq/openapi.json",
        }
    }
}

/// Starts a server and tests it; how many cases there were.
pub fn run(document: Document, seed: u64, program: &Path) -> Result<u64> {
    let server = Server::start(program)?;
    let ours = root().join("xtask/schemathesis");
    let log = server.folder.path().join("output");
    let child = Command::new(target()?.join(SCHEMATHESIS_FOLDER).join("bin/st"))
        .arg("--config-file")
        .arg(ours.join("schemathesis.toml"))
        .args(["--no-color", "run", "--seed", &seed.to_string()])
        .arg(format!("http://{}{}", server.address, document.path()))
        .env("SCHEMATHESIS_HOOKS", ours.join("hooks.py"))
        // It keeps what it learned in this folder; a run begins without any.
        .current_dir(server.folder.path())
        .stdin(Stdio::null())
        .stdout(File::create(&log)?)
        .stderr(Stdio::inherit())
        .spawn()
        .context("starting schemathesis")?;
    let status = Process(child).ended_within(PATIENCE)?;
    let output = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    let Some(status) = status else { bail!("schemathesis hangs\n{output}") };
    ensure!(status.success(), "schemathesis, seed {seed}: {status}\n{output}");
    let cases =
        count(&output).with_context(|| format!("it prints no number of cases\n{output}"))?;
    ensure!(cases >= CASES_MIN, "{cases} cases only\n{output}");
    ensure!(all_were_tested(&output), "operations were left out\n{output}");
    ensure!(all_phases_passed(&output), "phases were left out\n{output}");
    Ok(cases)
}

/// Whether `Selected: 37/37` is followed by `Tested: 37`.
fn all_were_tested(output: &str) -> bool {
    let behind = |name: &str| {
        let found = output.lines().find_map(|line| line.trim().strip_prefix(name));
        found.map(str::trim)
    };
    let (Some(selected), Some(tested)) = (behind("Selected:"), behind("Tested:")) else {
        return false;
    };
    selected.split_once('/').is_some_and(|(some, all)| some == all && tested == all)
}

/// Whether the summary has a line such as `✅ Fuzzing` for each.
fn all_phases_passed(output: &str) -> bool {
    let summary = output.split("Test Phases:").nth(1).unwrap_or_default();
    let passed = |phase: &&str| {
        let named = |line: &str| line.trim().strip_prefix('✅').map(str::trim) == Some(*phase);
        summary.lines().any(named)
    };
    PHASES.iter().all(passed)
}

/// `1234` of `  1234 generated, 1234 passed`.
fn count(output: &str) -> Option<u64> {
    let line = output.lines().find(|line| line.contains(" generated,"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// A server with nothing in it, in a folder of its own; dropping it kills it.
struct Server {
    _process: Process,
    address: String,
    folder: tempfile::TempDir,
}

impl Server {
    fn start(program: &Path) -> Result<Server> {
        let folder = tempfile::tempdir()?;
        let data: PathBuf = folder.path().join("data");
        let off = ["--workq", "off", "--gearman", "off", "--jobd-master", "off"];
        let mut child = Command::new(program)
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
        let mut server = Server { _process: Process(child), address: String::new(), folder };
        for line in said.by_ref() {
            let line = line?;
            if let Some((_, rest)) = line.split_once("http on ") {
                server.address = rest.split(',').next().unwrap_or_default().to_owned();
                break;
            }
        }
        ensure!(!server.address.is_empty(), "the server did not say where it listens");
        // Later output must not fill the pipe, and its errors are printed.
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
        let summary = |stateful: &str| {
            let began = " ✅  Stateful (in 2.06s)";
            format!(
                "{began}\nTest Phases:\n  ⏭  Examples\n  ✅ Coverage\n  ✅ Fuzzing\n  {stateful}\n"
            )
        };
        assert!(all_phases_passed(&summary("✅ Stateful")));
        for stateful in ["🚫 Stateful", "⏭  Stateful (disabled)", "❌ Stateful", ""] {
            assert!(!all_phases_passed(&summary(stateful)), "{stateful}");
        }
        assert!(!all_phases_passed(""));
    }
}
