//! The server under torture: a process on a free port, and the folder it keeps its log in.

use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use spindle_testkit::free_address;

use super::client::Client;
use super::papers::{Entrance, Papers};
use crate::process::Process;

const START_WITHIN: Duration = Duration::from_secs(120);
const STOP_WITHIN: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(5);
const QUOTED_BYTES: usize = 4_000;
/// What the power-cut library counts.
const REPORT: &str = "powercut-report";
/// How many seconds the server's wall clock is off.
const CLOCK: &str = "clock";
/// What the server writes to standard error.
const MESSAGES: &str = "server-messages";

/// What the library makes the server's disk and system refuse while a marker file exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Syncs fail.
    SyncsFail,
    /// Writes over what a file has fail, as those of records are.
    WritesFail,
    /// Nothing on the disk gets longer.
    FullDisk,
    /// Nothing is opened, nobody accepted.
    NoDescriptors,
}

impl Trouble {
    const ALL: [Self; 4] = [Self::SyncsFail, Self::WritesFail, Self::FullDisk, Self::NoDescriptors];

    /// The setting that names the file, and the file.
    fn mark(self) -> (&'static str, &'static str) {
        match self {
            Self::SyncsFail => ("SPINDLE_POWERCUT_BROKEN", "broken"),
            Self::WritesFail => ("SPINDLE_POWERCUT_UNWRITABLE", "unwritable"),
            Self::FullDisk => ("SPINDLE_POWERCUT_FULL", "full"),
            Self::NoDescriptors => ("SPINDLE_POWERCUT_NO_DESCRIPTORS", "no-descriptors"),
        }
    }

    /// The library's count of the calls that it made fail, and the count that shows that there was
    /// something to make fail.
    pub fn counted(self) -> (&'static str, &'static str) {
        match self {
            Self::SyncsFail => ("failed_syncs", "file_syncs"),
            Self::WritesFail => ("failed_writes", "writes"),
            Self::FullDisk => ("no_room", "writes"),
            Self::NoDescriptors => ("no_descriptor", "writes"),
        }
    }
}

/// One of the server, two of the library.
const DESCRIPTORS_A_FILE: usize = 3;

/// What happens to the bytes that were not synced when the server is killed.
#[derive(Clone, Debug)]
pub enum Power {
    /// They stay in the page cache.
    Stays,
    /// They are lost: the server runs with this library preloaded.
    IsCut { library: PathBuf },
}

/// How to start the server, and where it lives.
#[derive(Clone, Debug)]
pub struct Setup {
    pub program: PathBuf,
    /// `--sync`
    pub sync: &'static str,
    pub power: Power,
    /// `--segment-size`: small, so that even a short run fills, compacts and drops many.
    pub segment_size: &'static str,
    /// The server's folder, on the same disk as the root unless no power cut is tried.
    pub data: PathBuf,
    /// Holds the shadow and the server's messages.
    pub root: PathBuf,
    /// Whether the doors besides Workq are open.
    pub all_doors: bool,
    /// How many descriptors the server may have beside those of the log as it finds it, if that is less than this
    /// process.
    pub descriptors: Option<usize>,
    /// What the server asks its clients for: TLS and a token.
    pub papers: Option<&'static Papers>,
    /// `--durable-leases`
    pub durable_leases: bool,
}

/// Where the doors listen, if they are open.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    pub workq: SocketAddr,
    pub gearman: SocketAddr,
    pub http: SocketAddr,
    /// What they ask for.
    pub papers: Option<&'static Papers>,
}

impl Addresses {
    /// One of the doors, with what it asks for.
    pub fn entrance(self, door: SocketAddr) -> Entrance {
        Entrance { address: door, papers: self.papers }
    }
}

impl Setup {
    fn shadow(&self) -> PathBuf {
        self.root.join("shadow")
    }

    /// Forgets everything: the next server starts with an empty folder.
    pub fn clear(&self) -> Result<()> {
        remove_if_there(&self.data)?;
        Ok(())
    }

    /// A trouble begins, or is over.
    pub fn trouble(&self, trouble: Trouble, is_there: bool) -> io::Result<()> {
        let mark = self.root.join(trouble.mark().1);
        if is_there {
            return File::create(mark).map(drop);
        }
        match fs::remove_file(mark) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            outcome => outcome,
        }
    }

    /// How often the library says that something happened to the newest server.
    pub fn reported(&self, what: &str) -> Result<u64> {
        let text = fs::read_to_string(self.root.join(REPORT)).context("the library's report")?;
        let of = |line: &str| line.strip_prefix(what)?.strip_prefix(' ').map(str::parse);
        let count = text.lines().find_map(of);
        Ok(count.with_context(|| format!("the library's report does not count {what}"))??)
    }

    /// The wall clock of the server is so many seconds off, from now on and at its next starts.
    pub fn set_clock(&self, seconds: i64) -> io::Result<()> {
        fs::write(self.root.join(CLOCK), seconds.to_le_bytes())
    }

    /// The record with which the log begins, by the name of its oldest segment.
    pub fn log_begins_at(&self) -> Result<u64> {
        let first = names(&self.data)?.into_iter().find_map(|name| {
            let name = name.into_string().ok()?;
            name.strip_suffix(".segment")?.parse().ok()
        });
        first.with_context(|| format!("{} holds no segment", self.data.display()))
    }

    /// Starts a server. `leak_seed` lets parts of unsynced writes survive a power cut.
    pub fn spawn(&self, leak_seed: Option<u64>) -> Result<Server> {
        fs::create_dir_all(&self.data)?;
        remove_if_there(&self.shadow())?;
        let free = || free_address().parse::<SocketAddr>();
        let (workq, gearman, http) = (free()?, free()?, free()?);
        let addresses = Addresses { workq, gearman, http, papers: self.papers };
        let door = |address: SocketAddr| match self.all_doors {
            true => address.to_string(),
            false => "off".to_owned(),
        };
        let mut command = self.command()?;
        command
            .arg("serve")
            .args(["--workq", &workq.to_string(), "--sync", self.sync])
            .args(["--gearman", &door(gearman), "--http", &door(http), "--jobd-master", "off"])
            .args(["--segment-size", self.segment_size, "--data"])
            .arg(&self.data)
            .stdin(Stdio::null())
            .stdout(File::create(self.root.join("server-output"))?)
            .stderr(File::create(self.root.join(MESSAGES))?);
        if self.durable_leases {
            command.arg("--durable-leases");
        }
        if let Some(papers) = self.papers {
            papers.demand(&mut command);
        }
        if let Power::IsCut { .. } = &self.power {
            command
                .env("SPINDLE_POWERCUT_DIR", &self.data)
                .env("SPINDLE_POWERCUT_SHADOW", self.shadow())
                .env("SPINDLE_POWERCUT_REPORT", self.root.join(REPORT))
                .env("SPINDLE_POWERCUT_CLOCK", self.root.join(CLOCK))
                .env("SPINDLE_POWERCUT_SHORT", leak_seed.unwrap_or_default().to_string())
                .env("SPINDLE_POWERCUT_SETTLE", "1");
            for (setting, mark) in Trouble::ALL.map(Trouble::mark) {
                command.env(setting, self.root.join(mark));
            }
            if let Some(seed) = leak_seed {
                command.env("SPINDLE_POWERCUT_LEAK", seed.to_string());
            }
        }
        let child = command
            .spawn()
            .with_context(|| format!("starting {} serve", self.program.display()))?;
        Ok(Server { process: Process(child), addresses, setup: self.clone() })
    }

    /// The command, with its limit and the library. The library is for the program alone: a shell
    /// that it was preloaded into would use it up.
    fn command(&self) -> Result<Command> {
        let mut command = match self.descriptors {
            None => Command::new("env"),
            Some(beside) => {
                let most = beside + names(&self.data)?.len() * DESCRIPTORS_A_FILE;
                let mut shell = Command::new("sh");
                shell.args(["-c", &format!("ulimit -n {most} && exec \"$@\""), "sh", "env"]);
                shell
            }
        };
        if let Power::IsCut { library } = &self.power {
            command.arg(format!("LD_PRELOAD={}", library.display()));
        }
        command.arg(&self.program);
        Ok(command)
    }

    /// A library that does not intercept the server's calls would lose everything and prove
    /// nothing.
    fn library_saw_writes(&self) -> Result<()> {
        if let Power::IsCut { .. } = self.power {
            let saw = self.reported("writes")?;
            ensure!(saw > 0, "the power-cut library saw no write: is the server linked to libc?");
        }
        Ok(())
    }

    /// The power fails: only what is durable is left.
    fn lose_unsynced(&self) -> Result<()> {
        // A server that was killed before the library had made the shadow has not written either.
        if self.shadow().exists() {
            fs::remove_dir_all(&self.data).context("taking the visible folder away")?;
            fs::rename(self.shadow().join("tree"), &self.data).context("taking the shadow")?;
            fs::remove_dir_all(self.shadow())?;
        }
        Ok(())
    }
}

/// A running server. Dropping it kills it.
pub struct Server {
    process: Process,
    addresses: Addresses,
    setup: Setup,
}

impl Server {
    /// The Workq door.
    pub fn address(&self) -> SocketAddr {
        self.addresses.workq
    }

    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Waits until the server answers.
    pub fn wait_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_WITHIN;
        loop {
            if let Some(status) = self.process.0.try_wait()? {
                bail!("the server did not start: {}\n{}", ending(status), self.messages());
            }
            let workq = self.addresses.entrance(self.addresses.workq);
            match Client::connect(workq).and_then(|mut client| client.greet()) {
                Ok(()) => return Ok(()),
                Err(e) if Instant::now() > deadline => {
                    bail!("the server does not answer ({e})\n{}", self.messages());
                }
                Err(_) => thread::sleep(POLL),
            }
        }
    }

    /// SIGKILL, and the power with it if that is what is tried, after the server has written.
    pub fn kill_under_load(self) -> Result<()> {
        let setup = self.setup.clone();
        self.kill()?;
        setup.library_saw_writes()
    }

    /// SIGKILL, and the power with it if that is what is tried.
    pub fn kill(mut self) -> Result<()> {
        if let Some(status) = self.process.0.try_wait()? {
            bail!("the server ended by itself: {}\n{}", ending(status), self.messages());
        }
        self.process.0.kill()?;
        self.process.0.wait()?;
        self.setup.lose_unsynced()
    }

    /// The disk fails a sync, or a write, of a record: the server must end by itself, say why, and
    /// exit with an error. What was not synced is lost.
    pub fn break_disk(mut self, how: Trouble) -> Result<()> {
        let status = self.fail_until_it_ends(how)?;
        ensure!(status.code() == Some(1), "after {how:?}: {}", ending(status));
        let messages = self.messages();
        ensure!(messages.contains("error: the log failed"), "it does not say why\n{messages}");
        self.setup.lose_unsynced()
    }

    /// A failure may hit the preparation of a segment. The log tries that again, and waits
    /// meanwhile if it has no other segment; so the disk works again after each failure, until one
    /// hits a record.
    fn fail_until_it_ends(&mut self, how: Trouble) -> Result<ExitStatus> {
        let (failed, worked) = how.counted();
        let deadline = Instant::now() + STOP_WITHIN;
        loop {
            for (is_there, until_more) in [(true, failed), (false, worked)] {
                let before = self.setup.reported(until_more)?;
                self.setup.trouble(how, is_there)?;
                while self.setup.reported(until_more)? == before {
                    if let Some(status) = self.process.0.try_wait()? {
                        self.setup.trouble(how, false)?;
                        return Ok(status);
                    }
                    let is_late = Instant::now() > deadline;
                    ensure!(!is_late, "a broken disk has no effect\n{}", self.messages());
                    thread::sleep(POLL);
                }
            }
        }
    }

    /// The server does nothing until it is continued.
    pub fn pause(&self, paused: bool) -> Result<()> {
        let signal = if paused { Signal::SIGSTOP } else { Signal::SIGCONT };
        Ok(kill(self.pid()?, signal)?)
    }

    fn pid(&self) -> Result<Pid> {
        Ok(Pid::from_raw(i32::try_from(self.process.0.id()).context("a process id")?))
    }

    fn wait_for_end(&mut self, cause: &str) -> Result<ExitStatus> {
        let status = self.process.ended_within(STOP_WITHIN)?;
        status.with_context(|| format!("{cause} has no effect\n{}", self.messages()))
    }

    /// SIGTERM; the server must end by itself and exit successfully. With the library preloaded,
    /// the shadow must equal the visible folder.
    pub fn terminate(mut self) -> Result<()> {
        kill(self.pid()?, Signal::SIGTERM)?;
        let status = self.wait_for_end("SIGTERM")?;
        ensure!(status.success(), "after SIGTERM: {}\n{}", ending(status), self.messages());
        if let Power::IsCut { .. } = self.setup.power {
            same_files(&self.setup.data, &self.setup.shadow().join("tree"))?;
        }
        Ok(())
    }

    fn messages(&self) -> String {
        let text = fs::read_to_string(self.setup.root.join(MESSAGES)).unwrap_or_default();
        // The message of a panic comes first and is what matters; its backtrace is long.
        let from = text.find("panicked at").unwrap_or(text.len().saturating_sub(QUOTED_BYTES));
        let from = text.floor_char_boundary(from);
        let to = text.floor_char_boundary(from + QUOTED_BYTES);
        format!("--- the server's messages\n{}\n---", &text[from..to])
    }
}

fn remove_if_there(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}

fn ending(status: ExitStatus) -> String {
    match status.signal() {
        Some(signal) => format!("killed by signal {signal}"),
        None => format!("{status}"),
    }
}

/// Fails unless the two folders hold the same files with the same bytes.
fn same_files(visible: &Path, shadow: &Path) -> Result<()> {
    let (here, there) = (names(visible)?, names(shadow)?);
    ensure!(here == there, "behind the library's back: {here:?} are there, it saw {there:?}");
    for name in here {
        let (a, b) = (visible.join(&name), shadow.join(&name));
        if a.is_dir() {
            same_files(&a, &b)?;
        } else {
            let same = fs::read(&a)? == fs::read(&b)?;
            ensure!(same, "{} was written behind the library's back", a.display());
        }
    }
    Ok(())
}

fn names(folder: &Path) -> Result<Vec<std::ffi::OsString>> {
    let mut names = fs::read_dir(folder)?
        .map(|entry| entry.map(|e| e.file_name()))
        .collect::<Result<Vec<_>, _>>()?;
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_the_shadow_does_not_have_is_found() {
        let root = tempfile::tempdir().unwrap();
        let (a, b) = (root.path().join("a"), root.path().join("b"));
        for folder in [&a, &b] {
            fs::create_dir_all(folder.join("deep")).unwrap();
            fs::write(folder.join("deep/file"), "same").unwrap();
        }
        same_files(&a, &b).unwrap();
        fs::write(a.join("deep/file"), "sane").unwrap();
        assert!(same_files(&a, &b).unwrap_err().to_string().contains("deep/file"));
        fs::write(a.join("deep/file"), "same").unwrap();
        fs::write(a.join("more"), "").unwrap();
        assert!(same_files(&a, &b).is_err());
    }

    #[test]
    fn a_server_that_does_not_start_is_quoted() {
        let root = tempfile::tempdir().unwrap();
        // A shell takes `serve` for a script that is not there.
        let program = PathBuf::from("/bin/sh");
        let (data, root_path) = (root.path().join("data"), root.path().to_path_buf());
        let setup = Setup {
            program,
            sync: "always",
            power: Power::Stays,
            segment_size: "256KiB",
            data,
            root: root_path,
            all_doors: false,
            descriptors: None,
            papers: None,
            durable_leases: false,
        };
        let error = setup.spawn(None).unwrap().wait_ready().unwrap_err().to_string();
        assert!(error.contains("did not start") && error.contains("serve:"), "{error}");
    }
}
