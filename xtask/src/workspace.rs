//! Where things are, and how Cargo is called.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The folder of the whole project.
pub fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("xtask lies in the project's folder")
}

/// Where Cargo puts what it builds: this program is in `TARGET/debug/`.
pub fn target() -> Result<PathBuf> {
    let exe = std::env::current_exe()?;
    let target = exe.parent().and_then(Path::parent).context("xtask was not started by Cargo")?;
    Ok(target.to_path_buf())
}

/// The path of this program, to start it again. Cargo may have rebuilt it since it began.
pub fn itself() -> Result<PathBuf> {
    Ok(target()?.join("debug").join("xtask"))
}

/// How programs of ours are built that steps start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Build {
    /// As they are shipped, and measured.
    Release,
    /// As for tests: debug builds, which share their dependencies with all other tests.
    Debug,
}

impl Build {
    fn profile(self) -> &'static str {
        match self {
            Build::Release => "release",
            Build::Debug => "dev",
        }
    }

    /// Where Cargo puts what it builds so.
    fn folder(self) -> &'static str {
        match self {
            Build::Release => "release",
            Build::Debug => "debug",
        }
    }

    /// A program or library of ours by its file name.
    pub fn path(self, file: &str) -> Result<PathBuf> {
        Ok(target()?.join(self.folder()).join(file))
    }

    /// Builds the programs of these packages.
    pub fn make(self, packages: &[&str]) -> Result<()> {
        let mut args = vec!["build", "--profile", self.profile()];
        for package in packages {
            args.extend(["--package", package]);
        }
        cargo(&args)
    }

    /// The arguments that select it in third-party Cargo commands.
    pub fn arguments(self) -> [&'static str; 2] {
        ["--profile", self.profile()]
    }
}

/// Runs a command in the project's folder, its output passed through.
pub fn call(program: impl AsRef<Path>, args: &[impl AsRef<str>]) -> Result<()> {
    let program = program.as_ref();
    let args: Vec<&str> = args.iter().map(AsRef::as_ref).collect();
    let status = Command::new(program)
        .args(&args)
        .current_dir(root())
        .status()
        .with_context(|| format!("starting {}", program.display()))?;
    ensure!(status.success(), "{} {}: {status}", program.display(), args.join(" "));
    Ok(())
}

/// Runs Cargo, into the same target folder as this program.
pub fn cargo(args: &[&str]) -> Result<()> {
    call(cargo_path(), args)
}

/// Where Cargo is.
pub fn cargo_path() -> PathBuf {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()).into()
}
