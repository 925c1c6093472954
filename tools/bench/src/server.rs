//! The servers under measurement: started on a free loopback port with a temporary folder on
//! disk, waited for, and stopped again.

use crate::cli::{Bounds, Common, Peers};
use crate::target::{Door, Peer};
use crate::wire::Wire;
use crate::wire::http::{BATCH_JOBS, Submits};
use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const POLL_PAUSE: Duration = Duration::from_millis(1);
/// Longer than any server here takes to start or stop when nothing is wrong.
const START_TIME_MAX: Duration = Duration::from_secs(60);
const STOP_TIME_MAX: Duration = Duration::from_secs(20);
/// Ports are drawn, let go and then taken by the server; somebody else may be quicker.
const START_TRIES: u32 = 3;

/// Something to measure.
#[derive(Clone, Debug)]
pub(crate) enum Server {
    /// Spindle, started by the bench.
    Spindle {
        /// The binary.
        program: PathBuf,
        /// Its `--sync`.
        sync: String,
        /// The door that gets the load.
        door: Door,
        /// Another door that is open, at an address of its own.
        beside: Option<Door>,
    },
    /// A script of the bench that works on SQLite through Python, and is no server.
    PythonSqlite {
        /// The interpreter.
        python: PathBuf,
    },
    /// beanstalkd, started by the bench.
    Beanstalkd {
        /// The binary.
        program: PathBuf,
        /// With a binlog synced on every write, or in memory.
        synced: bool,
    },
    /// gearmand in memory, started by the bench.
    Gearmand {
        /// The binary.
        program: PathBuf,
    },
    /// The echo server of this binary.
    Echo {
        /// The length of the requests it will get.
        frame_bytes: usize,
        /// What it does with them.
        kind: Echo,
    },
    /// The bare HTTP server of this binary.
    Axum {
        /// What is submitted to it.
        submits: Submits,
    },
    /// A server somebody else started.
    Peer {
        /// Where and what.
        peer: Peer,
        /// Its process, when known.
        pid: Option<u32>,
    },
}

/// What the echo server does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Echo {
    /// Answers with as many bytes as a Workq server does.
    Answer,
    /// Sends the requests back.
    Whole,
    /// Answers once what came in a turn is on disk: what a durable server can do at most.
    Synced,
}

impl Server {
    /// The servers that the flags of a scenario name.
    pub(crate) fn chosen(common: &Common, echo_frame_bytes: Option<usize>) -> Result<Vec<Self>> {
        let flags = &common.servers;
        let program = || flags.beanstalkd_program.clone();
        let mut chosen = vec![];
        if let Some(program) = flags.spindle.clone() {
            let (sync, door) = (flags.sync.clone(), flags.door);
            chosen.push(Self::Spindle { program, sync, door, beside: None });
        }
        if flags.beanstalkd {
            chosen.push(Self::Beanstalkd { program: program(), synced: false });
        }
        if flags.beanstalkd_synced {
            chosen.push(Self::Beanstalkd { program: program(), synced: true });
        }
        if flags.gearmand {
            chosen.push(Self::Gearmand { program: flags.gearmand_program.clone() });
        }
        let echoes = [
            (flags.echo, Echo::Answer),
            (flags.echo_whole, Echo::Whole),
            (flags.echo_synced, Echo::Synced),
        ];
        for (wanted, kind) in echoes {
            if wanted {
                let frame_bytes = echo_frame_bytes
                    .context("an echo server can only be submitted to: it hands out no jobs")?;
                chosen.push(Self::Echo { frame_bytes, kind });
            }
        }
        if flags.axum {
            let Wire::Http(submits) = flags.door.wire() else {
                bail!("--axum is measured beside a door that speaks HTTP: --door api or lightjq")
            };
            chosen.push(Self::Axum { submits });
        }
        chosen.extend(Self::peers(&flags.peers)?);
        ensure!(
            !chosen.is_empty(),
            "nothing to measure: name servers with --spindle PATH, --beanstalkd, \
             --beanstalkd-synced, --gearmand, --echo or --peer workq:HOST:PORT"
        );
        Ok(chosen)
    }

    /// The servers somebody else started.
    pub(crate) fn peers(flags: &Peers) -> Result<Vec<Self>> {
        ensure!(flags.pids.len() <= flags.peers.len(), "there are more --pid than --peer");
        let pids = flags.pids.iter().copied().map(Some).chain(std::iter::repeat(None));
        Ok(flags.peers.iter().zip(pids).map(|(&peer, pid)| Self::Peer { peer, pid }).collect())
    }

    /// What people call it.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Spindle { .. } => "spindle".to_owned(),
            Self::PythonSqlite { .. } => "Python's sqlite3".to_owned(),
            Self::Beanstalkd { .. } => "beanstalkd".to_owned(),
            Self::Gearmand { .. } => "gearmand".to_owned(),
            Self::Echo { kind: Echo::Answer, .. } => "echo".to_owned(),
            Self::Echo { kind: Echo::Whole, .. } => "echo of the whole request".to_owned(),
            Self::Echo { kind: Echo::Synced, .. } => "echo that syncs".to_owned(),
            Self::Axum { .. } => "bare axum".to_owned(),
            Self::Peer { peer, .. } => format!("peer {}", peer.address),
        }
    }

    /// When its acknowledgements are on disk.
    pub(crate) fn sync_mode(&self) -> String {
        match self {
            Self::Spindle { sync, .. } => format!("--sync {sync}"),
            Self::PythonSqlite { .. } => "each change".to_owned(),
            Self::Beanstalkd { synced: false, .. } | Self::Gearmand { .. } => "memory".to_owned(),
            Self::Beanstalkd { synced: true, .. } => "-b -f 0".to_owned(),
            Self::Echo { kind: Echo::Synced, .. } => "each turn".to_owned(),
            Self::Echo { .. } | Self::Axum { .. } => "none".to_owned(),
            Self::Peer { .. } => "its own".to_owned(),
        }
    }

    /// What it speaks.
    pub(crate) fn wire(&self) -> Wire {
        match self {
            Self::Spindle { door, .. } => door.wire(),
            Self::PythonSqlite { .. } => Wire::Http(Submits::JobqCreate),
            Self::Gearmand { .. } => Wire::Gearman,
            Self::Echo { kind: Echo::Answer | Echo::Synced, .. } => Wire::Workq,
            Self::Echo { frame_bytes, kind: Echo::Whole } => Wire::Frames(*frame_bytes),
            Self::Beanstalkd { .. } => Wire::Beanstalkd,
            Self::Axum { submits } => Wire::Http(*submits),
            Self::Peer { peer, .. } => peer.wire,
        }
    }

    /// Starts it on an empty folder under the folder that `bounds` name.
    pub(crate) fn start(&self, bounds: &Bounds) -> Result<Running> {
        if let Self::Peer { peer, pid } = self {
            return Ok(Running {
                address: peer.address,
                beside: None,
                pid: *pid,
                process: None,
                folder: None,
                server: self.clone(),
            });
        }
        let folder = tempfile::Builder::new()
            .prefix("spindle-bench-")
            .tempdir_in(bounds.folder())
            .with_context(|| format!("cannot make a folder in {}", bounds.folder().display()))?;
        fs::create_dir(data_of(folder.path()))?;
        let (process, address, beside) = self.launch(folder.path())?;
        Ok(Running {
            address,
            beside,
            pid: Some(process.0.id()),
            process: Some(process),
            folder: Some(folder),
            server: self.clone(),
        })
    }

    fn launch(&self, folder: &Path) -> Result<Launched> {
        let mut last = None;
        for _ in 0..START_TRIES {
            match self.launch_once(folder) {
                Ok(started) => return Ok(started),
                Err(error) => last = Some(error),
            }
        }
        Err(last.context("no try was made")?.context(format!("cannot start {}", self.name())))
    }

    fn launch_once(&self, folder: &Path) -> Result<Launched> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let beside = match self {
            Self::Spindle { beside: Some(door), .. } => {
                Some((*door, TcpListener::bind("127.0.0.1:0")?.local_addr()?))
            }
            _ => None,
        };
        let log = folder.join("output");
        let mut command = self.command(&data_of(folder), address, beside)?;
        command.stdin(Stdio::null()).stdout(File::create(&log)?);
        command.stderr(File::options().append(true).open(&log)?);
        let program = command.get_program().to_owned();
        let child =
            command.spawn().with_context(|| format!("cannot run {}", program.to_string_lossy()))?;
        let mut process = Process(child);
        let began = Instant::now();
        let beside = beside.map(|(_, address)| address);
        while [Some(address), beside].iter().flatten().any(|at| TcpStream::connect(at).is_err()) {
            if let Some(status) = process.0.try_wait()? {
                let said = fs::read_to_string(&log).unwrap_or_default();
                bail!("it ended with {status} before it answered; it said: {}", tail(&said));
            }
            ensure!(began.elapsed() < START_TIME_MAX, "it does not answer on {address}");
            sleep(POLL_PAUSE);
        }
        Ok((process, address, beside))
    }

    fn command(
        &self,
        data: &Path,
        address: SocketAddr,
        beside: Option<(Door, SocketAddr)>,
    ) -> Result<Command> {
        Ok(match self {
            Self::Spindle { program, sync, door, .. } => {
                let mut command = Command::new(program);
                command.arg("serve").arg("--data").arg(data).arg("--sync").arg(sync);
                let mut open = vec![(*door, address)];
                open.extend(beside);
                for (door, address) in &open {
                    command.arg(door.flag()).arg(address.to_string());
                }
                for other in other_doors(program, &open)? {
                    command.args([other, "off"]);
                }
                command
            }
            Self::Gearmand { program } => {
                let mut command = Command::new(program);
                command.args(["-L", "127.0.0.1", "-p", &address.port().to_string()]);
                // Both would else be files of the system.
                command.args(["-l", "stderr", "-P"]).arg(data.join("pid"));
                command
            }
            Self::Beanstalkd { program, synced } => {
                let mut command = Command::new(program);
                command.args(["-l", "127.0.0.1", "-p", &address.port().to_string()]);
                command.args(["-z", "1048576"]);
                if *synced {
                    command.arg("-b").arg(data).args(["-f", "0"]);
                }
                command
            }
            Self::Echo { frame_bytes, kind } => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["echo-server", "--listen", &address.to_string()]);
                command.args(["--frame-bytes", &frame_bytes.to_string()]);
                match kind {
                    Echo::Answer => {}
                    Echo::Whole => drop(command.arg("--whole")),
                    Echo::Synced => drop(command.arg("--synced").arg(data)),
                }
                command
            }
            Self::Axum { submits } => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["http-server", "--listen", &address.to_string()]);
                command.args(["--answer-bytes", &answer_bytes(*submits).to_string()]);
                command
            }
            Self::Peer { .. } => bail!("a peer is started by somebody else"),
            Self::PythonSqlite { .. } => bail!("a script is no server"),
        })
    }
}

/// What Spindle answers to a submit.
fn answer_bytes(submits: Submits) -> usize {
    match submits {
        Submits::Api => 105,
        Submits::Batch => 105 * BATCH_JOBS,
        Submits::Lightjq => 16,
        Submits::JobqCreate | Submits::JobqState => 11,
    }
}

/// The flags of doors that this Spindle has and the bench does not use: their default ports may
/// be taken.
fn other_doors(program: &Path, open: &[(Door, SocketAddr)]) -> Result<Vec<&'static str>> {
    let help = Command::new(program)
        .args(["serve", "--help"])
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {}", program.display()))?;
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    let doors = ["--workq", "--gearman", "--http", "--jobd-master"];
    let has = |flag: &str| help.split([' ', '\n', '=']).any(|word| word == flag);
    let is_open = |flag: &str| open.iter().any(|(door, _)| door.flag() == flag);
    Ok(doors.into_iter().filter(|flag| !is_open(flag) && has(flag)).collect())
}

fn data_of(folder: &Path) -> PathBuf {
    folder.join("data")
}

fn tail(text: &str) -> &str {
    let from = text.len().saturating_sub(2_000);
    text.get(from..).unwrap_or(text).trim()
}

/// The process, its address, and that of the door beside.
type Launched = (Process, SocketAddr, Option<SocketAddr>);

/// A child that does not outlive its handle.
struct Process(Child);

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
    /// Where its other door is, if it has one.
    pub(crate) beside: Option<SocketAddr>,
    /// Its process, when known.
    pub(crate) pid: Option<u32>,
    // Before the folder, so that the process is gone when the folder goes.
    process: Option<Process>,
    folder: Option<TempDir>,
    server: Server,
}

impl Running {
    /// What it speaks.
    pub(crate) fn wire(&self) -> Wire {
        self.server.wire()
    }

    /// The folder of its data, when the bench started it.
    pub(crate) fn data(&self) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| data_of(folder.path()))
    }

    /// Stops the process with `signal` and waits until it is gone.
    pub(crate) fn stop(&mut self, signal: Signal) -> Result<()> {
        let Some(mut process) = self.process.take() else { return Ok(()) };
        let pid = Pid::from_raw(i32::try_from(process.0.id())?);
        kill(pid, signal).context("cannot signal the server")?;
        let began = Instant::now();
        while process.0.try_wait()?.is_none() {
            let name = self.server.name();
            ensure!(began.elapsed() < STOP_TIME_MAX, "{name} does not end on {signal}");
            sleep(POLL_PAUSE);
        }
        self.pid = None;
        Ok(())
    }

    /// Starts a stopped server again on the same folder; the time from the start of its process to
    /// its first answer.
    pub(crate) fn restart(&mut self, limit: Duration) -> Result<Duration> {
        let folder = self.folder.as_ref().context("only servers of ours are started again")?;
        let mut command = self.server.command(&data_of(folder.path()), self.address, None)?;
        let log = folder.path().join("output");
        command.stdin(Stdio::null()).stdout(File::create(&log)?);
        command.stderr(File::options().append(true).open(&log)?);
        let began = Instant::now();
        let mut process = Process(command.spawn()?);
        while inspect_server(self.address).is_err() {
            if let Some(status) = process.0.try_wait()? {
                let said = fs::read_to_string(&log).unwrap_or_default();
                bail!("the restarted server ended with {status}; it said: {}", tail(&said));
            }
            ensure!(began.elapsed() < limit, "the restarted server does not answer in {limit:?}");
            sleep(POLL_PAUSE);
        }
        let elapsed = began.elapsed();
        self.pid = Some(process.0.id());
        self.process = Some(process);
        Ok(elapsed)
    }
}

/// Asks a Workq server how it is; any `+OK` will do.
fn inspect_server(address: SocketAddr) -> Result<()> {
    let first = ask_workq(address, "inspect server\r\n")?.next().context("no answer")??;
    ensure!(first.starts_with("+OK"), "it said {first}");
    Ok(())
}

/// How many jobs wait in a queue of a Workq server.
pub(crate) fn ready_jobs(address: SocketAddr, queue: &str) -> Result<u64> {
    let lines = ask_workq(address, &format!("inspect queue {queue}\r\n"))?;
    for line in lines.take(8) {
        let line = line?;
        ensure!(!line.starts_with('-'), "asked for queue {queue}, it said {line}");
        if let Some(count) = line.strip_prefix("ready-len ") {
            return Ok(count.trim().parse()?);
        }
    }
    bail!("the answer about queue {queue} has no ready-len")
}

fn ask_workq(
    address: SocketAddr,
    request: &str,
) -> Result<impl Iterator<Item = std::io::Result<String>> + use<>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(START_TIME_MAX))?;
    stream.write_all(request.as_bytes())?;
    Ok(BufReader::new(stream).lines())
}
