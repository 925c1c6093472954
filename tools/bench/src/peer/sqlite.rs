//! A script that does what Jobq does with a create, with Python's sqlite3: one process, one table,
//! each job committed with the defaults of SQLite.

use crate::figures::Figures;
use crate::load::PAYLOAD_BYTES;
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::{Command, Stdio};

const SCRIPT: &str = include_str!("sqlite.py");

/// Has the script create so many jobs in a fresh file.
pub(crate) fn creates(python: &Path, dir: &Path, count: u64) -> Result<Figures> {
    let folder = tempfile::Builder::new()
        .prefix("spindle-bench-")
        .tempdir_in(dir)
        .context("cannot make a folder for the script")?;
    let output = Command::new(python)
        .args(["-c", SCRIPT, &count.to_string(), &PAYLOAD_BYTES.to_string()])
        .arg(folder.path().join("jobs.sqlite"))
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {}", python.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the script failed: {said}");
    let elapsed_s: f64 = String::from_utf8(output.stdout)?.trim().parse()?;
    Ok(Figures { rate_per_s: Some(count as f64 / elapsed_s), ..Figures::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_does_as_much_as_it_is_told_and_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let figures = creates(Path::new("python3"), folder.path(), 20).unwrap();
        assert!(figures.rate_per_s.unwrap() > 0.0);
        assert!(creates(Path::new("false"), folder.path(), 20).is_err());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
