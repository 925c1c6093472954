//! The fuzz targets in `fuzz/`, one after the other, for a while each.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::workspace::{root, target};

const CARGO_FUZZ: &str = "cargo-fuzz@0.13.2";
/// A target that uses more memory than this fails.
const MEMORY_MIB_MAX: u32 = 2048;
/// An input that takes longer than this hangs.
const SECONDS_MAX: u32 = 25;

/// The names of all targets: those of their files.
pub fn targets() -> Result<Vec<String>> {
    let folder = root().join("fuzz/fuzz_targets");
    let files = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let mut names = Vec::new();
    for file in files {
        let path = file?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Installs the program that runs them, in the target folder, if it is missing.
pub fn install() -> Result<()> {
    let nightly = Command::new("cargo").args(["+nightly", "--version"]).output();
    ensure!(
        nightly.is_ok_and(|output| output.status.success()),
        "libFuzzer needs a nightly compiler: rustup toolchain install nightly"
    );
    let folder = tools()?;
    if folder.join("bin/cargo-fuzz").exists() {
        return Ok(());
    }
    let mut command = Command::new("cargo");
    command.args(["install", "--locked", "--quiet", CARGO_FUZZ, "--root"]).arg(folder);
    ensure!(command.status()?.success(), "cargo install {CARGO_FUZZ}");
    Ok(())
}

/// Runs one target for this many seconds. What it finds is kept in `fuzz/artifacts`.
pub fn run(name: &str, seconds: u64) -> Result<()> {
    let limits = [
        format!("-max_total_time={seconds}"),
        format!("-rss_limit_mb={MEMORY_MIB_MAX}"),
        format!("-timeout={SECONDS_MAX}"),
        "-verbosity=0".to_owned(),
        "-print_final_stats=1".to_owned(),
        // A thread that is ending while the target returns looks like a leak. Real leaks reach the
        // limit of memory.
        "-detect_leaks=0".to_owned(),
    ];
    let mut command = Command::new(tools()?.join("bin/cargo-fuzz"));
    command.args(["run", name, "--"]).args(&limits);
    // The variable that chooses the compiler, as `cargo +nightly` sets it. SQLite is compiled without
    // the sanitizer.
    command.env("RUSTUP_TOOLCHAIN", "nightly").env("ASAN_OPTIONS", "detect_odr_violation=0");
    let status = command.current_dir(root().join("fuzz")).status().context("cargo-fuzz")?;
    ensure!(status.success(), "{name} failed, and fuzz/artifacts/{name} has the input");
    Ok(())
}

fn tools() -> Result<std::path::PathBuf> {
    Ok(target()?.join("tools"))
}
