//! Debian packages that the tests need.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};

/// What the tests need, and the package that provides it: a program by its name, a file by its
/// path, or anything else by a command that succeeds if it is there.
const NEEDED: &[(&str, &str)] = &[
    ("beanstalkd", "beanstalkd"),
    ("redis-server", "redis-server"),
    ("ruby -rsidekiq -e 1", "ruby-sidekiq"),
    ("python3", "python3"),
    ("mariadbd", "mariadb-server"),
    ("initdb", "postgresql"),
    ("ip", "iproute2"),
    ("gearman", "gearman-tools"),
    ("gearmand", "gearman-job-server"),
    ("cc", "gcc"),
    ("/usr/include/libgearman/gearman.h", "libgearman-dev"),
    ("perl -MGearman::Client -e1", "libgearman-client-perl"),
    ("php", "php-cli"),
    ("php -r exit((int)!extension_loaded('gearman'));", "php-gearman"),
    ("python3 -m ensurepip --version", "python3-venv"),
    ("node", "nodejs"),
    ("npm", "npm"),
    ("promtool", "prometheus"),
    ("openssl", "openssl"),
    ("go", "golang-go"),
    ("ruby", "ruby"),
    ("curl", "curl"),
    ("jq", "jq"),
    ("rev", "bsdextrautils"),
    ("systemd-analyze", "systemd"),
    ("dpkg-shlibdeps", "dpkg-dev"),
    ("/usr/lib/python3/dist-packages/yaml", "python3-yaml"),
    ("chromium", "chromium"),
    ("chromedriver", "chromium-driver"),
    ("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf", "fonts-dejavu-core"),
];
/// Where Debian's scripts look whether they may start or stop a service.
pub const POLICY: &str = "/usr/sbin/policy-rc.d";

/// Installs what is missing; fails when something is missing afterwards.
pub fn install_missing() -> Result<()> {
    install_of(|_| true)
}

/// The same for some of the packages that the tests need.
pub fn install(packages: &[&str]) -> Result<()> {
    install_of(|package| packages.contains(&package))
}

fn install_of(is_wanted: impl Fn(&str) -> bool) -> Result<()> {
    let is_missing = |(sign, package): &(&str, &str)| is_wanted(package) && !is_there(sign);
    let missing: Vec<(&str, &str)> = NEEDED.iter().copied().filter(is_missing).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
    ensure!(
        nix::unistd::geteuid().is_root(),
        "the tests need the Debian packages {}; install them, or run this as root",
        names.join(", ")
    );
    let policy = NoDaemons::set(Path::new(POLICY))?;
    apt(&["update", "--quiet"])?;
    apt(&[&["install", "--quiet", "--yes", "--no-install-recommends"], &names[..]].concat())?;
    drop(policy);
    for (sign, package) in missing {
        ensure!(is_there(sign), "the package {package} is installed, but brings no {sign}");
    }
    Ok(())
}

fn is_there(sign: &str) -> bool {
    let mut words = sign.split(' ');
    let command = words.next().unwrap_or_default();
    let arguments: Vec<&str> = words.collect();
    if command.starts_with('/') {
        return Path::new(command).exists();
    }
    if !arguments.is_empty() {
        let mut asked = Command::new(command);
        asked.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        return asked.status().is_ok_and(|status| status.success());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Daemons are in sbin folders, which may be missing from a user's PATH.
    let more = ["/usr/sbin", "/usr/local/sbin"].map(Into::into);
    std::env::split_paths(&path)
        .chain(more)
        .chain(postgresql_folders())
        .any(|folder| folder.join(command).is_file())
}

/// Debian keeps the programs of a PostgreSQL server apart, one folder for each version.
fn postgresql_folders() -> impl Iterator<Item = PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    versions.filter_map(Result::ok).map(|version| version.path().join("bin"))
}

fn apt(args: &[&str]) -> Result<()> {
    let status = Command::new("apt-get")
        .args(args)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .status()?;
    ensure!(status.success(), "apt-get {}: {status}", args.join(" "));
    Ok(())
}

/// While it lives, packages do not start the daemons they bring.
pub struct NoDaemons<'a> {
    /// The file to remove again; none when the machine has a policy of its own.
    made: Option<&'a Path>,
}

impl<'a> NoDaemons<'a> {
    /// Sets a policy at this path, if there is none.
    pub fn set(path: &'a Path) -> io::Result<Self> {
        if path.exists() {
            return Ok(Self { made: None });
        }
        fs::write(path, "#!/bin/sh\nexit 101\n")?;
        let made = Self { made: Some(path) };
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
        Ok(made)
    }
}

impl Drop for NoDaemons<'_> {
    fn drop(&mut self) {
        if let Some(path) = self.made
            && let Err(e) = fs::remove_file(path)
        {
            eprintln!("{} is ours and could not be removed: {e}", path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_policy_goes_and_a_foreign_one_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("policy-rc.d");
        let policy = NoDaemons::set(&path).unwrap();
        let status = Command::new("sh").arg(&path).status().unwrap();
        assert_eq!(status.code(), Some(101));
        let second = NoDaemons::set(&path).unwrap();
        drop(second);
        assert!(path.exists());
        drop(policy);
        assert!(!path.exists());
    }

    #[test]
    fn a_command_that_nobody_has_is_missing() {
        assert!(is_there("sh"));
        assert!(!is_there("no-such-command-anywhere"));
        assert!(is_there("/bin/sh") && !is_there("/no/such/file"));
        assert!(is_there("sh -c true") && !is_there("sh -c false"));
        assert!(!is_there("no-such-command-anywhere --version"));
    }
}
