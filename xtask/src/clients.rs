//! Client libraries that come from the package managers of their languages, for the tests that
//! let them talk to the server. They are put into the target folder once.

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};

use crate::workspace::{call, target};

/// The folders in the target folder; the tests know their names.
const FOLDER: &str = "gearman-clients";
const LIGHTJQ_FOLDER: &str = "lightjq-clients";
pub const SCHEMATHESIS_FOLDER: &str = "schemathesis";
const PYTHON: [&str; 1] = ["python3-gearman==0.1.0"];
const LIGHTJQ_PYTHON: [&str; 1] = ["msgpack==1.1.2"];
/// The parts of it that generate values are pinned too, so that a seed gives the same requests.
const SCHEMATHESIS: [&str; 4] =
    ["schemathesis==4.32.5", "hypothesis==6.170.15", "jsonschema_rs==0.60.3", "msgpack==1.1.2"];
/// The tool that checks pages in a browser for obstacles to people's use of them.
const BROWSER_FOLDER: &str = "browser-clients";
const BROWSER: [&str; 1] = ["axe-core@4.14.1"];
/// The library whose jobs move to Spindle, and whose worker ours is measured beside.
const BULLMQ_FOLDER: &str = "bullmq-clients";
const BULLMQ: [&str; 2] = ["bullmq@6.7.0", "ioredis@6.0.0"];
/// Workers that ours are measured beside.
const WORKER_PEERS_FOLDER: &str = "worker-peers";
const WORKER_PEERS: [&str; 4] =
    ["celery[redis]==5.7.0", "kombu==5.7.0", "redis==8.1.0", "rq==3.0.0"];
/// The library accepts any version of its logger but works only with this one.
const NODE: [&str; 2] = ["gearmanode@0.9.2", "winston@2"];

/// Installs what is missing.
pub fn install_missing() -> Result<()> {
    let folder = target()?.join(FOLDER);
    fs::create_dir_all(&folder)?;
    install_python(&folder.join("python"), &PYTHON)?;
    install_node(&folder, &NODE)?;
    install_node(&target()?.join(BROWSER_FOLDER), &BROWSER)?;
    install_worker_peers()?;
    let lightjq = target()?.join(LIGHTJQ_FOLDER);
    fs::create_dir_all(&lightjq)?;
    install_python(&lightjq.join("python"), &LIGHTJQ_PYTHON)?;
    install_schemathesis()
}

/// Installs the workers that ours are measured beside, if they are missing.
pub fn install_worker_peers() -> Result<()> {
    install_node(&target()?.join(BULLMQ_FOLDER), &BULLMQ)?;
    install_python(&target()?.join(WORKER_PEERS_FOLDER), &WORKER_PEERS)
}

/// Installs the program that tests the HTTP doors from their own documents, if it is missing.
pub fn install_schemathesis() -> Result<()> {
    install_python(&target()?.join(SCHEMATHESIS_FOLDER), &SCHEMATHESIS)
}

pub(crate) fn install_python(folder: &Path, packages: &[&str]) -> Result<()> {
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
