//! The command line.

use crate::shares::Flood;
use crate::suite::{Door, SUITES};
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, Parser, Subcommand, value_parser};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Measures Spindle beside its peers, in one run
#[derive(Debug, Parser)]
#[command(name = "spindle-bench", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure the gates of the project; servers are started and stopped by the bench itself
    Suite(Box<SuiteArgs>),
    /// A flood of one door, as a process of its own
    #[command(hide = true)]
    Flood(FloodArgs),
    /// The echo that syncs, as a process of its own
    #[command(hide = true)]
    EchoServer(EchoServer),
    /// The bare axum handler, as a process of its own
    #[command(hide = true)]
    HttpServer(HttpServer),
}

/// Flags of `suite`.
#[derive(Debug, Args)]
pub(crate) struct SuiteArgs {
    /// The Spindle program to measure [default: `spindle` in the folder of this program]
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) spindle: Option<PathBuf>,
    /// Measure beside this other Spindle program instead of the peers, and print the ratios;
    /// without --only: life cycles 8 + 8 and submits over 64 connections
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) against: Option<PathBuf>,
    /// Only these suites
    #[arg(long, value_name = "SUITE", value_delimiter = ',', value_parser = suite_names())]
    pub(crate) only: Vec<String>,
    /// Only these floods, in suites that flood
    #[arg(long, value_name = "FLOOD", value_delimiter = ',')]
    pub(crate) floods: Vec<Flood>,
    /// A hundredth of the jobs and one run: shows that everything works, judges nothing
    #[arg(long)]
    pub(crate) quick: bool,
    /// Runs per server; figures are medians of them [default: 5, with --quick 1]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1_000))]
    pub(crate) runs: Option<u32>,
    /// Folder for the servers' data, on a disk [default: the system's folder for temporary files]
    #[arg(long, value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    #[arg(hide_default_value = true)]
    pub(crate) dir: PathBuf,
    /// Write all figures of all runs to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) programs: Programs,
}

/// What to start as the peers that are no part of this program.
#[derive(Clone, Debug, Args)]
pub(crate) struct Programs {
    /// The program to start as beanstalkd
    #[arg(long = "beanstalkd-program", value_name = "PROGRAM", default_value = "beanstalkd")]
    pub(crate) beanstalkd: PathBuf,
    /// The program to start as gearmand
    #[arg(long = "gearmand-program", value_name = "PROGRAM", default_value = "gearmand")]
    pub(crate) gearmand: PathBuf,
    /// The program to start as Python, for its sqlite3
    #[arg(long = "python", value_name = "PROGRAM", default_value = "python3")]
    pub(crate) python: PathBuf,
    /// The program to start as Redis, for workers of other libraries
    #[arg(long = "redis-program", value_name = "PROGRAM", default_value = "redis-server")]
    pub(crate) redis: PathBuf,
    /// The folder with client libraries, ours and others, where `cargo xtask bench` installs them
    /// [default: the target folder that this program is in]
    #[arg(long, value_name = "DIR")]
    pub(crate) libraries: Option<PathBuf>,
}

/// Flags of `flood`.
#[derive(Debug, Args)]
pub(crate) struct FloodArgs {
    /// What to do
    pub(crate) flood: Flood,
    /// The door that listens there
    #[arg(long)]
    pub(crate) door: Door,
    /// Where it listens
    #[arg(long)]
    pub(crate) address: SocketAddr,
    /// Queues with jobs that wait, for floods that need some
    pub(crate) queues: Vec<String>,
}

/// Flags of `echo-server`.
#[derive(Debug, Args)]
pub(crate) struct EchoServer {
    /// The port of 127.0.0.1 to listen on
    #[arg(long, value_name = "N")]
    pub(crate) port: u16,
    /// Length of a request
    #[arg(long, value_name = "N")]
    pub(crate) request_bytes: usize,
    /// Folder for the file that requests are written to
    #[arg(long, value_name = "DIR")]
    pub(crate) data: PathBuf,
}

/// Flags of `http-server`.
#[derive(Debug, Args)]
pub(crate) struct HttpServer {
    /// The port of 127.0.0.1 to listen on
    #[arg(long, value_name = "N")]
    pub(crate) port: u16,
    /// Bytes of the answer to each request
    #[arg(long, value_name = "N")]
    pub(crate) answer_bytes: usize,
    /// Threads that serve
    #[arg(long, value_name = "N")]
    pub(crate) threads: usize,
}

fn suite_names() -> PossibleValuesParser {
    let names = SUITES.iter().map(|suite| PossibleValue::new(suite.name).help(suite.title(1)));
    PossibleValuesParser::new(names)
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
        assert_eq!(refusal("b suite --runs 0"), ErrorKind::ValueValidation);
        assert_eq!(refusal("b suite --only nonsense"), ErrorKind::InvalidValue);
        assert_eq!(refusal("b nonsense"), ErrorKind::InvalidSubcommand);
    }

    #[test]
    fn a_flood_is_named_with_its_door_and_address() {
        let words = "b flood purge --door api --address 127.0.0.1:7 q r";
        let cli = Cli::try_parse_from(words.split(' '));
        let Command::Flood(args) = cli.unwrap().command else { panic!("not a flood") };
        assert_eq!((args.flood, args.door), (Flood::Purge, Door::Api));
        assert_eq!(args.queues, ["q", "r"]);
        assert_eq!(refusal("b flood purge --door api"), ErrorKind::MissingRequiredArgument);
    }

    #[test]
    fn suites_are_listed_with_commas() {
        let cli = Cli::try_parse_from(["b", "suite", "--only", "waiting-1m,submit-8"]);
        let Command::Suite(suite) = cli.unwrap().command else { panic!("not the suite") };
        assert_eq!(suite.only, ["waiting-1m", "submit-8"]);
    }
}
