//! Our own client libraries in `clients/`: each is installed as a user installs it, checked, and
//! tested with a server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::clients::install_python;
use crate::workspace::{root, target};

/// A language that has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Language {
    Node,
    Python,
}

impl Language {
    /// What its step is called.
    pub fn step(self) -> &'static str {
        match self {
            Language::Node => "client library for Node",
            Language::Python => "client library for Python",
        }
    }

    /// Installs its library in the target folder, as it is now.
    pub fn install(self) -> Result<()> {
        match self {
            Language::Node => npm(&install_node()?, &["run", "build"], None),
            Language::Python => install_python_client().map(drop),
        }
    }

    /// Checks and tests its library with this server.
    pub fn test(self, server: &Path) -> Result<()> {
        match self {
            Language::Node => test_node(server),
            Language::Python => test_python(server),
        }
    }
}

/// Our library for Python, and the tools that test it and check its types, its style and the oldest
/// Python that it runs on.
const PYTHON: &str = "clients/python";
const PYTHON_FOLDER: &str = "python-client";
const PYTHON_TOOLS: [&str; 4] = ["pytest==9.2.0", "mypy==2.4.1", "ruff==0.17.5", "vermin==1.9.2"];
/// The oldest Python that it runs on, and every newer one.
const PYTHON_SINCE: &str = "--target=3.9-";
/// Our library for Node, and where its copy in the target folder is built and tested.
const NODE: &str = "clients/node";
const NODE_FOLDER: &str = "node-client";
/// What a build in the source folder may have left there.
const BUILT: [&str; 2] = ["build", "node_modules"];

/// Runs the tests of our library for Node, built from its sources alone, with this server.
fn test_node(server: &Path) -> Result<()> {
    npm(&install_node()?, &["test"], Some(server))
}

/// Copies the sources of our library for Node, with their build tools. Returns the folder.
fn install_node() -> Result<PathBuf> {
    let folder = target()?.join(NODE_FOLDER);
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    copy_sources(&root().join(NODE), &folder)?;
    npm(&folder, &["ci", "--ignore-scripts", "--no-audit", "--no-fund"], None)?;
    Ok(folder)
}

/// Calls npm in this folder; tests of the library are given a server.
fn npm(folder: &Path, args: &[&str], server: Option<&Path>) -> Result<()> {
    let mut npm = Command::new("npm");
    npm.args(args).current_dir(folder).env("SPINDLE_README", root().join("README.md"));
    if let Some(server) = server {
        npm.env("SPINDLE_BIN", server);
    }
    let status = npm.status().context("starting npm")?;
    ensure!(status.success(), "npm {} in {}: {status}", args.join(" "), folder.display());
    Ok(())
}

fn copy_sources(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let (entry, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
        if BUILT.iter().any(|built| name == *built) {
            continue;
        }
        if entry.is_dir() {
            copy_sources(&entry, &to.join(name))?;
        } else {
            fs::copy(&entry, to.join(name))?;
        }
    }
    Ok(())
}

/// Installs our library for Python from its folder. Returns the place.
fn install_python_client() -> Result<PathBuf> {
    let folder = target()?.join(PYTHON_FOLDER);
    let source = root().join(PYTHON);
    install_python(&folder, &["--force-reinstall", "--no-deps", &*source.to_string_lossy()])?;
    Ok(folder)
}

/// Installs our library for Python, checks it, and tests it with this server.
fn test_python(server: &Path) -> Result<()> {
    let folder = install_python_client()?;
    let source = root().join(PYTHON);
    install_python(&folder, &PYTHON_TOOLS)?;
    let call = |program: &str, args: &[&str]| {
        let mut command = Command::new(folder.join("bin").join(program));
        command.args(args).current_dir(&source).env("SPINDLE_BIN", server);
        let status = command.status().with_context(|| format!("starting {program}"))?;
        ensure!(status.success(), "{program} {}: {status}", args.join(" "));
        Ok(())
    };
    call("ruff", &["check"])?;
    call("ruff", &["format", "--check"])?;
    call("mypy", &[])?;
    call("vermin", &["--quiet", "--violations", "--no-tips", PYTHON_SINCE, "src"])?;
    call("pytest", &["-q"])
}
