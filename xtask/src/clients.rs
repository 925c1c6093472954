//! Client libraries that come from the package managers of their languages, for the tests that
//! let them talk to the server. They are put into the target folder once.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::workspace::{call, root, target};

/// The folders in the target folder; the tests know their names.
const FOLDER: &str = "gearman-clients";
const LIGHTJQ_FOLDER: &str = "lightjq-clients";
pub const SCHEMATHESIS_FOLDER: &str = "schemathesis";
const PYTHON: [&str; 1] = ["python3-gearman==0.1.0"];
const LIGHTJQ_PYTHON: [&str; 1] = ["msgpack==1.1.2"];
/// Those of its parts that make values are pinned too: a seed is to give the same requests.
const SCHEMATHESIS: [&str; 4] =
    ["schemathesis==4.32.5", "hypothesis==6.170.15", "jsonschema_rs==0.60.3", "msgpack==1.1.2"];
/// What looks at pages in a browser for what keeps people from using them.
const BROWSER_FOLDER: &str = "browser-clients";
const BROWSER: [&str; 1] = ["axe-core@4.14.1"];
/// Our own client for Python: what tests it and looks at its types, its style and its age.
const PYTHON_CLIENT_FOLDER: &str = "python-client";
const PYTHON_CLIENT: [&str; 4] = ["pytest==9.2.0", "mypy==2.4.1", "ruff==0.17.5", "vermin==1.9.2"];
/// The oldest Python that it runs on, and every newer one.
const PYTHON_CLIENT_SINCE: &str = "--target=3.9-";
/// The library asks for any version of its logger and works with this one only.
const NODE: [&str; 2] = ["gearmanode@0.9.2", "winston@2"];

/// Installs what is missing.
pub fn install_missing() -> Result<()> {
    let folder = target()?.join(FOLDER);
    fs::create_dir_all(&folder)?;
    install_python(&folder.join("python"), &PYTHON)?;
    install_node(&folder, &NODE)?;
    install_node(&target()?.join(BROWSER_FOLDER), &BROWSER)?;
    let lightjq = target()?.join(LIGHTJQ_FOLDER);
    fs::create_dir_all(&lightjq)?;
    install_python(&lightjq.join("python"), &LIGHTJQ_PYTHON)?;
    install_schemathesis()
}

/// Installs what tests the HTTP doors from their own documents, if it is missing.
pub fn install_schemathesis() -> Result<()> {
    install_python(&target()?.join(SCHEMATHESIS_FOLDER), &SCHEMATHESIS)
}

/// Installs our client for Python from its folder, checks it, and tests it with this server.
pub fn test_python(server: &Path) -> Result<()> {
    let folder = target()?.join(PYTHON_CLIENT_FOLDER);
    let source = root().join("clients/python");
    install_python(&folder, &PYTHON_CLIENT)?;
    let package = ["--force-reinstall", "--no-deps", &*source.to_string_lossy()];
    install_python(&folder, &package)?;
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
    call("vermin", &["--quiet", "--violations", "--no-tips", PYTHON_CLIENT_SINCE, "src"])?;
    call("pytest", &["-q"])
}

fn install_python(folder: &Path, packages: &[&str]) -> Result<()> {
    let python = folder.join("bin/python");
    if !python.exists() {
        call("python3", &["-m", "venv", &folder.to_string_lossy()])?;
    }
    let pip = [&["-m", "pip", "install", "--quiet", "--disable-pip-version-check"], packages];
    call(python, &pip.concat())
}

fn install_node(folder: &Path, packages: &[&'static str]) -> Result<()> {
    fs::create_dir_all(folder)?;
    let modules = folder.join("node_modules");
    let is_missing = |name: &&'static str| !modules.join(name_of(name)).exists();
    if packages.iter().any(is_missing) {
        let place = folder.to_string_lossy();
        let npm = ["install", "--silent", "--no-audit", "--no-fund", "--prefix", &place];
        call("npm", &[&npm, packages].concat())?;
    }
    for name in packages {
        ensure!(!is_missing(name), "npm has brought no {name}");
    }
    Ok(())
}

fn name_of(name: &'static str) -> &'static str {
    name.split('@').next().unwrap_or(name)
}
