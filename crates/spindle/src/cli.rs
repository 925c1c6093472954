//! The command line.
//!
//! - `backup`: copies of data folders, and of jobs
//! - `batch`: jobs that belong together
//! - `cron`: schedules
//! - `client`: the commands that talk to a server: those of jobs and workers
//! - `edit`: those that change waiting jobs
//! - `filter`: which jobs they are about
//! - `people`: those that change and explain what is there
//! - `queue`: one queue and its settings
//! - `retries`: how long a failed job waits
//! - `reach`: how a server is reached
//! - `shared_log`: which shared log a command is about
//! - `token`: tokens
//! - `values`: what values look like

mod backup;
mod batch;
mod client;
mod cron;
mod edit;
mod filter;
mod people;
mod queue;
mod reach;
mod retries;
mod shared_log;
mod token;
mod values;

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueHint};
use clap_complete::Shell;

pub use self::{
    backup::*,
    batch::*,
    client::*,
    cron::*,
    edit::*,
    filter::*,
    people::*,
    queue::*,
    reach::{Papers, Reach},
    retries::RetryWait,
    shared_log::LogArgs,
    token::{CheckTokensArgs, NewTokenArgs, TokenArgs, TokenCommand},
    values::{JobName, PayloadType, Rate, Sort, SortKey},
};
use crate::config::SettingFlags;

/// A durable job server, and the commands to use it.
#[derive(Debug, Parser)]
#[command(name = "spindle", version, arg_required_else_help = true, max_term_width = 100)]
#[command(after_help = "Exit codes: 0 ok, 1 error, 2 usage, 3 not found, 4 timeout, 5 job failed.")]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "there is one, made once")]
pub enum Command {
    /// Run the server
    Serve(SettingFlags),
    /// Print the server's settings and where each value comes from
    Config(ConfigArgs),
    /// Say whether a data folder, a backup or a shared log is sound, what is in it, and where it is not
    Verify(VerifyArgs),
    /// Copy a server's data, a data folder or a shared log to a folder; what is there already is not copied again
    #[command(after_help = BACKUP_HELP, allow_missing_positional = true)]
    Backup(BackupArgs),
    /// Make a data folder of a backup, or fill a shared log with it
    #[command(after_help = RESTORE_HELP)]
    Restore(RestoreArgs),
    /// Say what is wrong with a server's settings, its folder, its disk and its machine
    #[command(after_help = DOCTOR_HELP)]
    Doctor(DoctorArgs),
    /// Show it all: a server, jobs through every door, a crash in the middle, and no job lost
    #[command(after_help = DEMO_HELP)]
    Demo(DemoArgs),
    /// Run a program that ends with the process that started it
    #[command(hide = true)]
    Attached(AttachedArgs),
    /// Make tokens, and check the file that the server knows them by
    Token(TokenArgs),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Commands that talk to a server.
    #[command(flatten)]
    Client(ClientCommand),
}

/// `spindle config`.
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// Print one JSON object per setting
    #[arg(long)]
    pub json: bool,
    /// Print the reference of all settings as Markdown instead
    #[arg(long, conflicts_with = "json")]
    pub reference: bool,
    /// The same flags as those of `serve`.
    #[command(flatten)]
    pub settings: SettingFlags,
}

/// `spindle doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Print JSON: one object per line
    #[arg(long)]
    pub json: bool,
    /// The same flags as those of `serve`.
    #[command(flatten)]
    pub settings: SettingFlags,
}

/// `spindle demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Submit so many jobs through each of the six doors
    #[arg(long, value_name = "COUNT", default_value_t = 200)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=DEMO_JOBS_MAX))]
    pub jobs: u32,
    /// End when the table is printed, instead of waiting for Enter
    #[arg(long)]
    pub once: bool,
    /// Show a cluster: three nodes on a shared log, of which the one that leads is killed again and again
    #[arg(long)]
    pub cluster: bool,
    /// Keep the log on this server of PostgreSQL or NATS, as `serve --log` does, instead of starting NATS
    #[arg(long, value_name = "URL", requires = "cluster")]
    pub log: Option<String>,
    /// Read the password for that server from this file
    #[arg(long, value_name = "FILE", requires = "log", value_hint = ValueHint::FilePath)]
    pub log_password_file: Option<PathBuf>,
    /// Trust that server if one of these authorities (PEM) vouches for it
    #[arg(long, value_name = "FILE", requires = "log", value_hint = ValueHint::FilePath)]
    pub log_ca_file: Option<PathBuf>,
    /// What that server has to do before it acknowledges: `always` or `os`
    #[arg(long, value_name = "WHEN", requires = "log")]
    pub log_sync: Option<String>,
    /// Start this program for the shared log, instead of the nats-server in PATH
    #[arg(long, value_name = "PROGRAM", requires = "cluster", conflicts_with = "log")]
    #[arg(value_hint = ValueHint::ExecutablePath)]
    pub nats_server: Option<PathBuf>,
    /// Use this new or empty folder, and leave it at the end, instead of a temporary one
    #[arg(long, value_name = "DIR", requires = "cluster", value_hint = ValueHint::DirPath)]
    pub data: Option<PathBuf>,
}

/// `spindle attached`, which the demo starts its servers with.
#[derive(Debug, Args)]
pub struct AttachedArgs {
    /// The process that starts it
    pub parent: i32,
    /// The program
    pub program: OsString,
    /// Its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<OsString>,
}

/// The demo keeps its account in memory.
const DEMO_JOBS_MAX: i64 = 100_000;

const DEMO_HELP: &str = "\
It needs nothing: the server runs on free ports of this machine, in a temporary folder, and both go when the demo ends. \
The exit code is 1 if a job is lost.

With --cluster the shared log needs a server: the demo starts three of NATS (nats-server 2.10 or newer), or takes the \
one that --log names. It goes on until Ctrl-C, or with --once until each job is done.";

const DOCTOR_HELP: &str = "\
Give it the flags, the environment and the file that the server gets. It changes nothing, takes about a second, \
and works beside a running server. The exit code is 1 if something is wrong; a warning alone is 0.";

/// `spindle verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// The data folder, or a backup
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    #[arg(required_unless_present = "log", conflicts_with = "log")]
    pub folder: Option<PathBuf>,
    #[command(flatten)]
    pub shared: LogArgs,
    /// Cut the log at the first damage; all files are kept as they were in a folder inside
    #[arg(long, conflicts_with = "log")]
    pub repair: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
