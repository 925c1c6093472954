//! The API against its own OpenAPI document: a program that makes requests from the document, right
//! and wrong ones, and holds every answer against it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;

use anyhow::{Context, Result, bail, ensure};

use crate::workspace::{call, release, root, target};

/// The folder in the target folder.
const FOLDER: &str = "schemathesis";
const PACKAGE: &str = "schemathesis==4.32.5";
/// Requests are made for so long. An operation that was not tested by then fails the step.
const SECONDS_MAX: &str = "90";
/// Fewer cases than this were no test.
const CASES_MIN: u64 = 300;

/// Installs the program if it is missing.
pub fn install_missing() -> Result<()> {
    let folder = target()?.join(FOLDER);
    fs::create_dir_all(&folder)?;
    if !folder.join("bin/python").exists() {
        call("python3", &["-m", "venv", &folder.to_string_lossy()])?;
    }
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", PACKAGE];
    call(folder.join("bin/python"), &pip)
}

/// Starts a server and tests it; how many cases there were.
pub fn run() -> Result<u64> {
    let server = Server::start()?;
    let config = root().join("xtask/schemathesis/schemathesis.toml");
    let output = Command::new(target()?.join(FOLDER).join("bin/st"))
        .arg("--config-file")
        .arg(&config)
        .args(["--no-color", "run", "--max-time", SECONDS_MAX])
        .arg(format!("http://{}/api/openapi.json", server.address))
        // Where it keeps what it learned; a run begins without.
        .current_dir(server.folder.path())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("starting schemathesis")?;
    let told = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!("schemathesis: {}\n{told}", output.status);
    }
    let cases = count(&told).with_context(|| format!("it tells no number of cases\n{told}"))?;
    ensure!(cases >= CASES_MIN, "{cases} cases only\n{told}");
    ensure!(all_were_tested(&told), "operations were left out\n{told}");
    Ok(cases)
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

/// `1234` of `  1234 generated, 1234 passed`.
fn count(told: &str) -> Option<u64> {
    let line = told.lines().find(|line| line.contains(" generated"))?;
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
}
