//! The Debian package: built from the release program that is there, installed into a folder of its
//! own, upgraded, purged. The machine stays as it was.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::packages::{NoDaemons, POLICY};
use crate::workspace::{call, cargo, root, target};

/// What builds the package, as Cargo installs it.
const BUILDER: (&str, &str) = ("cargo-deb", "3.8.0");
/// What the package installs, and its permissions.
const FILES: [(&str, u32); 6] = [
    ("usr/bin/spindle", 0o755),
    ("etc/spindle/spindle.toml", 0o644),
    ("usr/lib/systemd/system/spindle.service", 0o644),
    ("usr/lib/sysusers.d/spindle.conf", 0o644),
    ("usr/share/doc/spindle/operations.md", 0o644),
    ("usr/share/doc/spindle/copyright", 0o644),
];
const SETTINGS: &str = "etc/spindle/spindle.toml";
const ENABLED: &str = "etc/systemd/system/multi-user.target.wants/spindle.service";

/// Why the package cannot be installed here.
pub fn impossible_here() -> Option<&'static str> {
    (!nix::unistd::geteuid().is_root()).then_some("only root may install packages")
}

/// Builds the package, installs, upgrades and purges it, and looks at what each step leaves.
pub fn check() -> Result<()> {
    let package = build()?;
    let system = System::new()?;
    // Its scripts run on this machine, where nothing is to be started or stopped.
    let _policy = NoDaemons::set(Path::new(POLICY))?;
    system.dpkg(&["--install", &package.to_string_lossy()])?;
    for (path, mode) in FILES {
        let found = fs::metadata(system.path(path)).with_context(|| path.to_owned())?;
        ensure!(found.permissions().mode() & 0o7777 == mode, "{path} has another mode");
    }
    let users = system.read("etc/passwd")?;
    ensure!(users.lines().any(|line| line.starts_with("spindle:")), "there is no user: {users}");
    ensure!(system.path(ENABLED).is_symlink(), "the service is not enabled");
    let shown = printed(
        Command::new(system.path("usr/bin/spindle"))
            .args(["config", "--config"])
            .arg(system.path(SETTINGS)),
    )?;
    ensure!(shown.contains("/var/lib/spindle"), "its settings are {shown}");

    // An upgrade keeps what somebody has changed, and so does a removal.
    let changed = system.read(SETTINGS)? + "log-level = \"warn\"\n";
    fs::write(system.path(SETTINGS), &changed)?;
    system.dpkg(&["--force-confdef", "--install", &package.to_string_lossy()])?;
    ensure!(system.read(SETTINGS)? == changed, "an upgrade has overwritten the settings");
    system.dpkg(&["--remove", "spindle"])?;
    ensure!(!system.path("usr/bin/spindle").exists(), "the program is still there");
    ensure!(system.read(SETTINGS)? == changed, "a removal has taken the settings");

    // A purge takes them, and leaves the jobs.
    let job = system.path("var/lib/spindle/log");
    fs::create_dir_all(job.parent().context("it has a folder")?)?;
    fs::write(&job, "jobs")?;
    system.dpkg(&["--purge", "spindle"])?;
    ensure!(!system.path(SETTINGS).exists(), "a purge has left the settings");
    ensure!(job.exists(), "a purge has taken the jobs");
    Ok(())
}

/// The package of the release program.
fn build() -> Result<PathBuf> {
    let folder = target()?.join("debian");
    let builder = builder()?;
    let out = folder.join("spindle.deb");
    fs::create_dir_all(&folder)?;
    // It is called as Cargo calls it. `--fast` packs less tightly.
    let words = ["deb", "--package", "spindle", "--no-build", "--no-strip", "--fast", "--locked"];
    let out_text = out.to_string_lossy();
    call(builder, &[&words[..], &["--output", &out_text]].concat())?;
    let fields = printed(Command::new("dpkg-deb").arg("--field").arg(&out))?;
    ensure!(fields.contains("libc6 (>= "), "its needs were not found out: {fields}");
    Ok(out)
}

/// The program that builds packages. It is installed once, in the target folder.
fn builder() -> Result<PathBuf> {
    let (name, version) = BUILDER;
    let tools = target()?.join("tools");
    let path = tools.join("bin").join(name);
    if !path.exists() {
        // A debug build: it takes half the time, and packs one program.
        let words = ["install", name, "--version", version, "--locked", "--debug", "--root"];
        cargo(&[&words[..], &[&tools.to_string_lossy()]].concat())?;
    }
    Ok(path)
}

/// An empty system in a folder, with dpkg's own records.
struct System(tempfile::TempDir);

impl System {
    fn new() -> Result<System> {
        let system = System(tempfile::tempdir()?);
        for folder in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "etc", "var/log"] {
            fs::create_dir_all(system.path(folder))?;
        }
        for file in ["var/lib/dpkg/status", "etc/passwd", "etc/group"] {
            fs::write(system.path(file), "")?;
        }
        Ok(system)
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn read(&self, path: &str) -> Result<String> {
        fs::read_to_string(self.path(path)).with_context(|| path.to_owned())
    }

    /// Runs dpkg on this system. Scripts of packages run on the machine and are handed the folder
    /// (`DPKG_ROOT`), because there is no shell in it; what packages depend on is not there either.
    fn dpkg(&self, words: &[&str]) -> Result<()> {
        let output = Command::new("dpkg")
            .arg(format!("--root={}", self.0.path().display()))
            .args(["--force-script-chrootless", "--force-depends"])
            .args(words)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .output()
            .context("dpkg")?;
        if !output.status.success() {
            let said = [output.stdout, output.stderr].concat();
            bail!("dpkg {}: {}", words.join(" "), String::from_utf8_lossy(&said));
        }
        Ok(())
    }
}

fn printed(command: &mut Command) -> Result<String> {
    let output = command.current_dir(root()).output().context("it does not start")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}
