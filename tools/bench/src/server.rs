//! The servers under measurement: started on a free port of 127.0.0.1 with a temporary folder on
//! disk, waited for, and stopped again.

use crate::load::{Jobs, QUEUE_PREFIX, Target};
use crate::suite::{Door, Security};
use crate::wire::Wire;
use anyhow::{Context, Result, bail, ensure};
use spindle_tls::client::{ClientFiles, Trust};
use std::fs::{self, File};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const POLL_PAUSE: Duration = Duration::from_millis(1);
/// Longer than any server here takes to start when nothing is wrong, ten million jobs or none.
const START_TIME_MAX: Duration = Duration::from_secs(300);
/// A port is chosen and released before the server takes it, so another process may be quicker.
const START_TRIES: u32 = 3;
/// What Spindle answers to a submit to the native API.
const API_ANSWER_BYTES: usize = 105;

/// Something to measure.
#[derive(Clone, Debug)]
pub(crate) enum Server {
    /// Spindle with one door open; its answers are on disk.
    Spindle { program: PathBuf, door: Door, security: Security, flags: &'static [&'static str] },
    /// Spindle with the doors of Workq (at its address), Gearman and HTTP open.
    SpindleDoors { program: PathBuf, gearman: SocketAddr, http: SocketAddr },
    /// beanstalkd, with a binlog synced on every write or in memory.
    Beanstalkd { program: PathBuf, synced: bool },
    /// gearmand in memory.
    Gearmand { program: PathBuf },
    /// The echo that syncs, which is part of this program.
    EchoSynced,
    /// The bare axum handler, which is part of this program.
    BareAxum { threads: usize },
    /// A script that works on SQLite through Python, and is no server.
    PythonSqlite { python: PathBuf },
}

impl Server {
    /// Its name, and when its acknowledgements are on disk.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Spindle { security: Security::Plain, flags, .. } => {
                [&["spindle", "--sync", "always"][..], flags].concat().join(" ")
            }
            Self::Spindle { security: Security::Offered, .. } => "spindle, plain".to_owned(),
            Self::Spindle { security: Security::Used, .. } => "spindle, TLS".to_owned(),
            Self::Spindle { security: Security::Tokens, .. } => "spindle, tokens".to_owned(),
            Self::SpindleDoors { .. } => "spindle, all doors".to_owned(),
            Self::Beanstalkd { synced: false, .. } => "beanstalkd in memory".to_owned(),
            Self::Beanstalkd { synced: true, .. } => "beanstalkd -b -f 0".to_owned(),
            Self::Gearmand { .. } => "gearmand in memory".to_owned(),
            Self::EchoSynced => "echo that syncs".to_owned(),
            Self::BareAxum { threads: 1 } => "bare axum".to_owned(),
            Self::BareAxum { threads } => format!("bare axum, {threads} threads"),
            Self::PythonSqlite { .. } => "Python's sqlite3".to_owned(),
        }
    }

    fn wire(&self) -> Wire {
        match self {
            Self::Spindle { door: Door::Workq, .. }
            | Self::SpindleDoors { .. }
            | Self::EchoSynced => Wire::Workq,
            Self::Spindle { door: Door::Gearman, .. } | Self::Gearmand { .. } => Wire::Gearman,
            Self::Spindle { door: Door::Api, .. } | Self::BareAxum { .. } => Wire::Api,
            Self::Spindle { door: Door::Jobq, .. } | Self::PythonSqlite { .. } => Wire::Jobq,
            Self::Beanstalkd { .. } => Wire::Beanstalkd,
        }
    }

    /// Starts it on an empty folder under `dir`.
    pub(crate) fn start(&self, dir: &Path) -> Result<Running> {
        let command = |data: &Path, address| self.command(data, address);
        let (address, process, folder) = start(&self.name(), dir, command)?;
        Ok(Running { address, process, folder, server: self.clone() })
    }

    fn command(&self, data: &Path, address: SocketAddr) -> Result<Command> {
        let port = address.port().to_string();
        Ok(match self {
            Self::Spindle { program, door, security, flags } => {
                let mut command = Command::new(program);
                command.args(["serve", "--sync", "always", "--data"]).arg(data);
                let open = match door {
                    Door::Workq => "--workq",
                    Door::Gearman => "--gearman",
                    Door::Api | Door::Jobq => "--http",
                };
                for flag in ["--workq", "--gearman", "--http", "--jobd-master"] {
                    let listen = if flag == open { address.to_string() } else { "off".to_owned() };
                    command.arg(flag).arg(listen);
                }
                command.args(["--connections-max", "12000"]).args(*flags);
                match security {
                    Security::Plain => {}
                    Security::Offered | Security::Used => {
                        let (cert, key) = write_certificate(data)?;
                        command.arg("--tls-cert").arg(cert).arg("--tls-key").arg(key);
                    }
                    Security::Tokens => {
                        let tokens = write_tokens(program, data)?;
                        command.arg("--require-auth").arg("--tokens").arg(tokens);
                    }
                }
                command
            }
            Self::SpindleDoors { program, gearman, http } => {
                let mut command = Command::new(program);
                command.args(["serve", "--sync", "always", "--data"]).arg(data);
                command.args(["--workq", &address.to_string()]);
                command.args(["--gearman", &gearman.to_string()]);
                command.args(["--http", &http.to_string(), "--jobd-master", "off"]);
                command
            }
            Self::Beanstalkd { program, synced } => {
                let mut command = Command::new(program);
                command.args(["-l", "127.0.0.1", "-p", &port]);
                if *synced {
                    command.arg("-b").arg(data).args(["-f", "0"]);
                }
                command
            }
            Self::Gearmand { program } => {
                let mut command = Command::new(program);
                command.args(["-L", "127.0.0.1", "-p", &port]);
                // Both would otherwise be system files.
                command.args(["-l", "stderr", "-P"]).arg(data.join("pid"));
                command
            }
            Self::EchoSynced => {
                let mut command = Command::new(std::env::current_exe()?);
                let request_bytes = Jobs::fresh(self.wire()).request_bytes().to_string();
                command.args(["echo-server", "--port", &port, "--request-bytes", &request_bytes]);
                command.arg("--data").arg(data);
                command
            }
            Self::BareAxum { threads } => {
                let mut command = Command::new(std::env::current_exe()?);
                let (answer_bytes, threads) = (API_ANSWER_BYTES.to_string(), threads.to_string());
                command.args(["http-server", "--port", &port, "--answer-bytes", &answer_bytes]);
                command.args(["--threads", &threads]);
                command
            }
            Self::PythonSqlite { .. } => bail!("a script is no server"),
        })
    }
}

/// Starts the command that `command` builds for a data folder and an address, on an empty folder
/// under `dir`.
pub(crate) fn start(
    name: &str,
    dir: &Path,
    command: impl Fn(&Path, SocketAddr) -> Result<Command>,
) -> Result<(SocketAddr, Process, TempDir)> {
    let folder = empty_folder(dir)?;
    fs::create_dir(data_of(&folder))?;
    let mut tries = 0;
    loop {
        tries += 1;
        let address = free_address()?;
        match launch(command(&data_of(&folder), address)?, &folder, address, connects) {
            Ok(process) => return Ok((address, process, folder)),
            Err(error) if tries == START_TRIES => {
                return Err(error.context(format!("cannot start {name}")));
            }
            Err(_) => {}
        }
    }
}

/// A folder under `dir` that goes with its handle.
pub(crate) fn empty_folder(dir: &Path) -> Result<TempDir> {
    tempfile::Builder::new()
        .prefix("spindle-bench-")
        .tempdir_in(dir)
        .with_context(|| format!("cannot make a folder in {}", dir.display()))
}

/// Starts a process and waits until it is there.
fn launch(
    mut command: Command,
    folder: &TempDir,
    address: SocketAddr,
    is_there: impl Fn(SocketAddr) -> Result<()>,
) -> Result<Process> {
    let output = folder.path().join("output");
    command.stdin(Stdio::null()).stdout(File::create(&output)?);
    command.stderr(File::options().append(true).open(&output)?);
    let program = command.get_program().to_owned();
    let began = Instant::now();
    let child =
        command.spawn().with_context(|| format!("cannot run {}", program.to_string_lossy()))?;
    let mut process = Process(child);
    while let Err(error) = is_there(address) {
        if let Some(status) = process.0.try_wait()? {
            let said = fs::read_to_string(&output).unwrap_or_default();
            bail!("it ended with {status} before it answered; it said: {}", tail(&said));
        }
        if began.elapsed() > START_TIME_MAX {
            let context = format!("it does not answer on {address} in {START_TIME_MAX:?}");
            return Err(error.context(context));
        }
        sleep(POLL_PAUSE);
    }
    Ok(process)
}

/// The server's tokens file, beside its data folder, with one token for the queues of [`Jobs`].
fn write_tokens(program: &Path, data: &Path) -> Result<PathBuf> {
    let queues = format!("{QUEUE_PREFIX}*");
    let mut command = Command::new(program);
    command.args(["token", "new", "bench", "--role", "submit,work,read", "--queue", &queues]);
    let made = command.output()?;
    let said = String::from_utf8(made.stdout)?;
    let (token, entry) = said.split_once('\n').context("no token was made")?;
    fs::write(token_of(data), token)?;
    let path = data.with_file_name("tokens.toml");
    let mut file =
        File::options().create(true).truncate(true).write(true).mode(0o600).open(&path)?;
    file.write_all(entry.as_bytes())?;
    Ok(path)
}

fn token_of(data: &Path) -> PathBuf {
    data.with_file_name("token")
}

/// The server's certificate and key, beside its data folder.
fn write_certificate(data: &Path) -> Result<(PathBuf, PathBuf)> {
    let (cert, key) = (data.with_file_name("cert.pem"), data.with_file_name("key.pem"));
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
    fs::write(&cert, made.cert.pem())?;
    let mut file =
        File::options().create(true).truncate(true).write(true).mode(0o600).open(&key)?;
    file.write_all(made.signing_key.serialize_pem().as_bytes())?;
    Ok((cert, key))
}

/// An address that nothing listens on now, with a port that the system does not assign to clients.
pub(crate) fn free_address() -> Result<SocketAddr> {
    Ok(spindle_testkit::free_address().parse()?)
}

fn connects(address: SocketAddr) -> Result<()> {
    TcpStream::connect(address)?;
    Ok(())
}

fn data_of(folder: &TempDir) -> PathBuf {
    folder.path().join("data")
}

/// The end of a program's output.
pub(crate) fn tail(text: &str) -> &str {
    let from = text.len().saturating_sub(2_000);
    text.get(from..).unwrap_or(text).trim()
}

/// A child that does not outlive its handle.
pub(crate) struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _already_gone = self.0.kill();
        let _already_waited_for = self.0.wait();
    }
}

/// A server that answers.
pub(crate) struct Running {
    /// Where.
    pub(crate) address: SocketAddr,
    // Before the folder, so that the process is gone when the folder goes.
    process: Process,
    folder: TempDir,
    server: Server,
}

impl Running {
    /// Where it is, and how it is to be spoken to.
    pub(crate) fn target(&self) -> Result<Target> {
        let is_encrypted = matches!(self.server, Server::Spindle { security: Security::Used, .. });
        let files = || ClientFiles {
            trust: Trust::File(data_of(&self.folder).with_file_name("cert.pem")),
            identity: None,
        };
        let tls = is_encrypted.then(|| files().config().map(Arc::new)).transpose()?;
        let has_token = matches!(self.server, Server::Spindle { security: Security::Tokens, .. });
        let token = || fs::read_to_string(token_of(&data_of(&self.folder)));
        let token = has_token.then(token).transpose()?;
        Ok(Target { address: self.address, tls, token })
    }

    /// The protocol it speaks.
    pub(crate) fn wire(&self) -> Wire {
        self.server.wire()
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.process.0.id()
    }

    /// Whether it can say how many jobs wait.
    pub(crate) fn keeps_jobs(&self) -> bool {
        !matches!(self.server, Server::EchoSynced | Server::BareAxum { .. })
    }

    /// Kills the process and starts another on the same folder. Returns the time until `is_there`
    /// accepts it.
    pub(crate) fn restart(
        &mut self,
        is_there: impl Fn(SocketAddr) -> Result<()>,
    ) -> Result<Duration> {
        self.process.0.kill()?;
        ensure!(!self.process.0.wait()?.success(), "the server ended before it was killed");
        let began = Instant::now();
        let command = self.server.command(&data_of(&self.folder), self.address)?;
        self.process = launch(command, &self.folder, self.address, is_there)?;
        Ok(began.elapsed())
    }
}
