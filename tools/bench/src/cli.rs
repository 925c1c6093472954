//! The command line.

use crate::gate::Gate;
use crate::jobs::NUMBER_LETTERS;
use crate::target::{Door, Peer, loopback};
use clap::{Args, Parser, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Load over Workq's, beanstalkd's and Gearman's protocols, with a bare TCP echo server as the
/// limit.
#[derive(Debug, Parser)]
#[command(name = "spindle-bench", version)]
pub(crate) struct Cli {
    /// What to measure.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The scenarios.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Whole life cycles: submit, lease, complete, each job exactly once.
    Lifecycle(Lifecycle),
    /// Submits only, one or more outstanding per connection.
    Submit(Submit),
    /// Lease and complete jobs that were submitted before the clock starts.
    Drain(Drain),
    /// Submits at a fixed arrival rate, whatever the server does.
    Openloop(Openloop),
    /// Resident memory with many waiting jobs.
    Memory(Memory),
    /// Foreground jobs: submit, work, result back to the submitter (Gearman only).
    Roundtrip(Roundtrip),
    /// All gates of the project, servers started and stopped by the bench itself.
    Suite(Suite),
    /// The bare echo server: answers every frame of a fixed length with the same bytes.
    EchoServer(EchoServer),
    /// The bare HTTP server, as a process of its own.
    #[command(hide = true)]
    HttpServer(HttpServer),
}

/// Which servers are measured, in alternation.
#[derive(Clone, Debug, Args)]
pub(crate) struct Servers {
    /// Start this Spindle binary (`PATH serve ...`).
    #[arg(long, value_name = "PATH")]
    pub(crate) spindle: Option<PathBuf>,
    /// Spindle's sync mode: always, interval:MS or os.
    #[arg(long, value_name = "MODE", default_value = "always")]
    pub(crate) sync: String,
    /// Spindle's door that gets the load.
    #[arg(long, value_enum, value_name = "DOOR", default_value = "workq")]
    pub(crate) door: Door,
    /// Start beanstalkd in memory.
    #[arg(long)]
    pub(crate) beanstalkd: bool,
    /// Start beanstalkd with its binlog synced on every write (-b DIR -f 0).
    #[arg(long)]
    pub(crate) beanstalkd_synced: bool,
    /// Start the bare echo server (submits only).
    #[arg(long)]
    pub(crate) echo: bool,
    /// Start the echo server so that it sends back the whole request (submits only).
    #[arg(long)]
    pub(crate) echo_whole: bool,
    /// Start a bare axum handler that reads requests and answers as many bytes as the door does
    /// (submits over HTTP only).
    #[arg(long)]
    pub(crate) axum: bool,
    /// Start the echo server so that it answers what is on disk only, one write and sync a turn
    /// (submits only): what a durable server can do at most.
    #[arg(long)]
    pub(crate) echo_synced: bool,
    /// The program to start as beanstalkd.
    #[arg(long, value_name = "PROGRAM", default_value = "beanstalkd")]
    pub(crate) beanstalkd_program: PathBuf,
    /// Start gearmand, which keeps everything in memory.
    #[arg(long)]
    pub(crate) gearmand: bool,
    /// The program to start as gearmand.
    #[arg(long, value_name = "PROGRAM", default_value = "gearmand")]
    pub(crate) gearmand_program: PathBuf,
    #[command(flatten)]
    pub(crate) peers: Peers,
}

/// Servers that somebody else started.
#[derive(Clone, Debug, Args)]
pub(crate) struct Peers {
    /// A running server: workq:HOST:PORT, beanstalkd:... or gearman:..., loopback only; may be
    /// repeated.
    #[arg(long = "peer", value_name = "PEER")]
    pub(crate) peers: Vec<Peer>,
    /// The process of the peer (same order as --peer), to read its CPU time and memory.
    #[arg(long = "pid", value_name = "PID")]
    pub(crate) pids: Vec<u32>,
}

/// What every scenario takes.
#[derive(Clone, Debug, Args)]
pub(crate) struct Common {
    #[command(flatten)]
    pub(crate) servers: Servers,
    /// Runs per server; medians are over these.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = runs)]
    pub(crate) runs: u32,
    /// Bytes of a payload; distinct random bytes for every job.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = payload_bytes)]
    pub(crate) payload_bytes: usize,
    #[command(flatten)]
    pub(crate) bounds: Bounds,
}

/// Where and how long.
#[derive(Clone, Debug, Args)]
pub(crate) struct Bounds {
    /// A run that is not done after this many seconds has failed.
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = seconds)]
    pub(crate) deadline: Duration,
    /// Folder for the servers' data, on a disk [default: the system's folder for temporary files].
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Write all figures of all runs to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

impl Bounds {
    /// The folder to make temporary folders in.
    pub(crate) fn folder(&self) -> PathBuf {
        self.dir.clone().unwrap_or_else(std::env::temp_dir)
    }
}

/// Flags of `lifecycle`.
#[derive(Debug, Args)]
pub(crate) struct Lifecycle {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Connections that submit.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = connections)]
    pub(crate) producers: usize,
    /// Connections that lease and complete.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = connections)]
    pub(crate) workers: usize,
    /// Jobs per run.
    #[arg(long, value_name = "N", default_value_t = 60_000, value_parser = jobs)]
    pub(crate) jobs: u64,
}

/// Flags of `submit`.
#[derive(Debug, Args)]
pub(crate) struct Submit {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Connections that submit.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = connections)]
    pub(crate) connections: usize,
    /// Requests that each connection keeps outstanding.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = connections)]
    pub(crate) depth: usize,
    /// Jobs per run.
    #[arg(long, value_name = "N", default_value_t = 200_000, value_parser = jobs)]
    pub(crate) jobs: u64,
}

/// Flags of `drain`.
#[derive(Debug, Args)]
pub(crate) struct Drain {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Connections that lease and complete.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = connections)]
    pub(crate) workers: usize,
    /// Jobs per run.
    #[arg(long, value_name = "N", default_value_t = 60_000, value_parser = jobs)]
    pub(crate) jobs: u64,
}

/// Flags of `openloop`.
#[derive(Debug, Args)]
pub(crate) struct Openloop {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Jobs that arrive per second.
    #[arg(long, value_name = "N", default_value_t = 5_000, value_parser = rate)]
    pub(crate) rate: u32,
    /// Seconds they go on arriving.
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub(crate) time: Duration,
    /// Connections that submit; each has one request outstanding, arrivals beyond that wait.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = connections)]
    pub(crate) connections: usize,
    /// Connections that lease and complete meanwhile; 0 for none.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) workers: usize,
}

/// Flags of `memory`.
#[derive(Debug, Args)]
pub(crate) struct Memory {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Jobs that wait while memory is read.
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = jobs)]
    pub(crate) waiting: u64,
    /// Then measure this many life cycles with all those waiting; 0 for none.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) lifecycles: u64,
}

/// Flags of `roundtrip`.
#[derive(Debug, Args)]
pub(crate) struct Roundtrip {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Connections that submit, one job outstanding on each.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = connections)]
    pub(crate) clients: usize,
    /// Connections that do the work.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = connections)]
    pub(crate) workers: usize,
    /// Jobs per run.
    #[arg(long, value_name = "N", default_value_t = 60_000, value_parser = jobs)]
    pub(crate) jobs: u64,
}

/// Flags of `suite`.
#[derive(Debug, Args)]
pub(crate) struct Suite {
    /// The Spindle binary to measure.
    #[arg(long, value_name = "PATH")]
    pub(crate) spindle: PathBuf,
    /// The program to start as beanstalkd.
    #[arg(long, value_name = "PROGRAM", default_value = "beanstalkd")]
    pub(crate) beanstalkd_program: PathBuf,
    /// The program to start as gearmand.
    #[arg(long, value_name = "PROGRAM", default_value = "gearmand")]
    pub(crate) gearmand_program: PathBuf,
    /// The program to start as Python, whose sqlite3 Jobq is measured beside.
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    pub(crate) python: PathBuf,
    #[command(flatten)]
    pub(crate) peers: Peers,
    /// Only these gates.
    #[arg(long, value_enum, value_name = "GATE", value_delimiter = ',')]
    pub(crate) only: Vec<Gate>,
    /// Few jobs and two runs: shows that everything works, judges nothing.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Runs per server [default: 5, with --quick 2].
    #[arg(long, value_name = "N", value_parser = runs)]
    pub(crate) runs: Option<u32>,
    /// Jobs per life-cycle run; other gates scale with it.
    #[arg(long, value_name = "N", value_parser = jobs)]
    pub(crate) jobs: Option<u64>,
    #[command(flatten)]
    pub(crate) bounds: Bounds,
}

/// Flags of `echo-server`.
#[derive(Debug, Args)]
pub(crate) struct EchoServer {
    /// Where to listen; loopback only.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0", value_parser = loopback)]
    pub(crate) listen: SocketAddr,
    /// Length of a request.
    #[arg(long, value_name = "N", value_parser = frame_bytes)]
    pub(crate) frame_bytes: usize,
    /// The answer to each.
    #[arg(long, value_name = "TEXT", default_value = "+OK\r\n")]
    pub(crate) answer: String,
    /// Answer with the bytes of the request instead.
    #[arg(long, conflicts_with = "answer")]
    pub(crate) whole: bool,
    /// Answer once what came in a turn is written to a file in this folder and synced.
    #[arg(long, value_name = "DIR")]
    pub(crate) synced: Option<PathBuf>,
}

/// Flags of the HTTP server.
#[derive(Debug, Args)]
pub(crate) struct HttpServer {
    /// Where to listen; loopback only.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0", value_parser = loopback)]
    pub(crate) listen: SocketAddr,
    /// Bytes of the answer to each request.
    #[arg(long, value_name = "N")]
    pub(crate) answer_bytes: usize,
}

fn bounded(text: &str, range: std::ops::RangeInclusive<u64>) -> Result<u64, String> {
    let number: u64 = text.parse().map_err(|error| format!("{error}"))?;
    if range.contains(&number) {
        Ok(number)
    } else {
        Err(format!("{number} is not in {}..={}", range.start(), range.end()))
    }
}

fn payload_bytes(text: &str) -> Result<usize, String> {
    bounded(text, NUMBER_LETTERS as u64..=1 << 20).map(|number| number as usize)
}

fn frame_bytes(text: &str) -> Result<usize, String> {
    bounded(text, 1..=2 << 20).map(|number| number as usize)
}

fn runs(text: &str) -> Result<u32, String> {
    bounded(text, 1..=1_000).map(|number| number as u32)
}

fn rate(text: &str) -> Result<u32, String> {
    bounded(text, 1..=1_000_000).map(|number| number as u32)
}

fn connections(text: &str) -> Result<usize, String> {
    bounded(text, 1..=10_000).map(|number| number as usize)
}

fn jobs(text: &str) -> Result<u64, String> {
    bounded(text, 1..=100_000_000)
}

fn seconds(text: &str) -> Result<Duration, String> {
    bounded(text, 1..=86_400).map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use clap::error::ErrorKind;

    fn refusal(words: &str) -> ErrorKind {
        Cli::try_parse_from(words.split(' ')).expect_err(words).kind()
    }

    #[test]
    fn the_flags_do_not_contradict_each_other() {
        Cli::command().debug_assert();
    }

    #[test]
    fn bad_flags_are_usage_errors() {
        assert_eq!(refusal("b submit --peer workq:192.0.2.1:9922"), ErrorKind::ValueValidation);
        assert_eq!(refusal("b submit --payload-bytes 7"), ErrorKind::ValueValidation);
        assert_eq!(refusal("b lifecycle --runs 0"), ErrorKind::ValueValidation);
        assert_eq!(refusal("b suite --spindle x --only nonsense"), ErrorKind::InvalidValue);
        assert_eq!(refusal("b suite"), ErrorKind::MissingRequiredArgument);
        assert_eq!(refusal("b echo-server --listen 0.0.0.0:1"), ErrorKind::ValueValidation);
        assert_eq!(refusal("b nonsense"), ErrorKind::InvalidSubcommand);
    }

    #[test]
    fn gates_are_listed_with_commas() {
        let cli = Cli::try_parse_from(["b", "suite", "--spindle", "x", "--only", "memory,restart"]);
        let Command::Suite(suite) = cli.unwrap().command else { panic!("not the suite") };
        assert_eq!(suite.only, [Gate::Memory, Gate::Restart]);
    }
}
