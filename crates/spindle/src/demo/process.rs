//! Servers as processes of their own, so that they can really be killed, on free ports; and how they
//! end with the demo, even if that is killed itself.

use std::{
    env,
    ffi::OsString,
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{self, Child, Command, ExitStatus, Stdio},
};

use anyhow::{Context, bail};
use nix::{
    sys::{prctl, signal::Signal},
    unistd::getppid,
};
use rand::Rng;

use crate::cli::AttachedArgs;

/// Ports below those that the system gives to clients: a port that is free while a server is down
/// is free when it comes back.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
/// How many ports are tried for each door.
const PORT_TRIES: u32 = 1_000;
/// How much of the end of a server's output stands in an error, in bytes.
const LOG_BYTES_SHOWN: u64 = 2_000;
/// How the last line of a command of this program begins if something went wrong.
const ERROR: &str = "error: ";

/// A server. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program with these arguments, which ends when the thread that called this does. Its
    /// output is appended to a file. It does not get the environment's settings for servers, nor Ctrl-C
    /// at the terminal, which is for the demo.
    pub fn start(
        program: &Path,
        arguments: impl IntoIterator<Item = OsString>,
        log: &Path,
    ) -> anyhow::Result<Self> {
        let output = File::options().create(true).append(true).open(log)?;
        let mut command = Command::new(this_program()?);
        for (name, _) in env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"SPINDLE_") || name == "NOTIFY_SOCKET" {
                command.env_remove(name);
            }
        }
        command.arg("attached").arg(process::id().to_string()).arg(program).args(arguments);
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).process_group(0);
        let child = command.spawn().context("cannot start processes")?;
        Ok(Self { child, log: log.to_owned() })
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills it with SIGKILL, and waits until it is gone.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// How it has ended, if it has.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// What it said last: its error, if that is what it ended with.
    pub fn last_words(&self) -> String {
        let words = self.end_of_log().unwrap_or_default();
        let error = words.lines().rev().find_map(|line| line.strip_prefix(ERROR));
        error.unwrap_or(words.trim()).to_owned()
    }

    fn end_of_log(&self) -> io::Result<String> {
        let mut log = File::open(&self.log)?;
        let end = log.seek(SeekFrom::End(0))?;
        log.seek(SeekFrom::Start(end.saturating_sub(LOG_BYTES_SHOWN)))?;
        let mut words = Vec::new();
        log.read_to_end(&mut words)?;
        Ok(String::from_utf8_lossy(&words).into_owned())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.kill();
    }
}

/// The program that runs now, which is a server too.
pub fn this_program() -> anyhow::Result<PathBuf> {
    env::current_exe().context("where is this program?")
}

/// Becomes another program, which the kernel kills when the thread that started this process ends.
/// [`Process::start`] runs this command, because between fork and exec nothing of this can be done safely.
pub fn attached(args: &AttachedArgs) -> anyhow::Result<std::convert::Infallible> {
    prctl::set_pdeathsig(Signal::SIGKILL).context("cannot be told of the parent's end")?;
    // The parent may have ended before that.
    if getppid().as_raw() != args.parent {
        bail!("the parent has ended");
    }
    let program = Path::new(&args.program);
    let error = Command::new(program).args(&args.arguments).exec();
    Err(error).with_context(|| format!("cannot start {}", program.display()))
}

/// Addresses on loopback that are free now.
pub fn free_addresses<const COUNT: usize>() -> anyhow::Result<[SocketAddr; COUNT]> {
    // All sockets are held until there are enough, so that no address is found twice.
    let mut held = Vec::new();
    let mut addresses = [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)); COUNT];
    for address in &mut addresses {
        let mut tries = 0..PORT_TRIES;
        let found = tries.find_map(|_| {
            let port = rand::rng().random_range(PORTS);
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()
        });
        let listener = found.context("no port is free")?;
        *address = listener.local_addr()?;
        held.push(listener);
    }
    Ok(addresses)
}
