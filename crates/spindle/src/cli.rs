//! What can be typed.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueHint};
use clap_complete::Shell;
use spindle_workq::wire::Uuid;

use crate::{
    config::SettingFlags,
    quantity::{parse_duration_ms, parse_duration_to_a_day},
};

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
pub enum Command {
    /// Run the server
    Serve(SettingFlags),
    /// Print the server's settings and where each value comes from
    Config(ConfigArgs),
    /// Say whether a data folder is sound, what is in it, and where it is not
    Verify(VerifyArgs),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Commands that talk to a server.
    #[command(flatten)]
    Client(ClientCommand),
}

/// The commands that talk to a server, through its Workq door or its HTTP door.
#[derive(Debug, Subcommand)]
pub enum ClientCommand {
    /// Add a job, or one for each line of a file, and print its id
    Add(AddArgs),
    /// Add a job, wait for its result and print it
    Run(RunArgs),
    /// Add a job for later and print its id
    Schedule(ScheduleArgs),
    /// Print a job's result
    Result(ResultArgs),
    /// Run a command once for each job of some queues
    Work(WorkArgs),
    /// Show a job
    Job(JobArgs),
    /// List the jobs of a queue that wait for a worker
    Jobs(JobsArgs),
    /// List the queues
    Queues(QueuesArgs),
    /// Delete jobs, whatever their state
    Delete(DeleteArgs),
    /// Settle what the server's clock is, when it and the log disagree
    Clock(ClockArgs),
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

/// `spindle verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// The data folder
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,
    /// Cut the log at the first damage; what is cut off is saved beside it
    #[arg(long)]
    pub repair: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// What all client commands share.
#[derive(Debug, Args)]
pub struct Common {
    /// The server's Workq address
    #[arg(long, value_name = "ADDR", env = "SPINDLE_WORKQ", default_value = "127.0.0.1:9922")]
    pub workq: String,
    /// Print JSON: one object per line
    #[arg(long)]
    pub json: bool,
}

/// How a job is to be treated.
#[derive(Debug, Args)]
pub struct JobOptions {
    /// How long a worker may take; after that the job is given out again
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_ttr)]
    pub ttr: u32,
    /// When the job and its result are forgotten, whatever its state
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = parse_ttl)]
    pub ttl: u64,
    /// Higher goes first
    #[arg(long, value_name = "NUMBER", default_value_t = 0, allow_negative_numbers = true)]
    #[arg(value_parser = clap::value_parser!(i64).range(PRIORITY_MIN..=PRIORITY_MAX))]
    pub priority: i64,
    /// Give the job out at most so often, 1 to 255 [default: no limit]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u8).range(1..))]
    pub max_attempts: Option<u8>,
    /// Try again until the job failed so often, 1 to 255 [default: 1]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u8).range(1..))]
    pub max_fails: Option<u8>,
    /// The job's id, a UUID; adding the same id twice is refused [default: random]
    #[arg(long, value_name = "UUID", value_parser = parse_id)]
    pub id: Option<Uuid>,
}

/// `spindle add`.
#[derive(Debug, Args)]
pub struct AddArgs {
    /// The queue
    #[arg(value_parser = parse_queue)]
    pub queue: String,
    /// The payload: a text, - for standard input, @FILE for a file's bytes
    #[arg(value_name = "PAYLOAD|-|@FILE", default_value = "", allow_negative_numbers = true)]
    #[arg(hide_default_value = true)]
    pub payload: OsString,
    /// Add a job for each line of this file (- is standard input), its line end left out
    #[arg(long, value_name = "FILE|-", value_hint = ValueHint::FilePath)]
    #[arg(conflicts_with_all = ["payload", "id"])]
    pub lines: Option<PathBuf>,
    /// How to treat the job.
    #[command(flatten)]
    pub options: JobOptions,
    /// Which server, which form.
    #[command(flatten)]
    pub common: Common,
}

/// `spindle run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The queue
    #[arg(value_parser = parse_queue)]
    pub queue: String,
    /// The payload: a text, - for standard input, @FILE for a file's bytes
    #[arg(value_name = "PAYLOAD|-|@FILE", default_value = "", allow_negative_numbers = true)]
    #[arg(hide_default_value = true)]
    pub payload: OsString,
    /// How long to wait for a worker
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_wait)]
    pub wait: u32,
    /// How long the worker may take
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_ttr)]
    pub ttr: u32,
    /// Higher goes first
    #[arg(long, value_name = "NUMBER", default_value_t = 0, allow_negative_numbers = true)]
    #[arg(value_parser = clap::value_parser!(i64).range(PRIORITY_MIN..=PRIORITY_MAX))]
    pub priority: i64,
    /// The job's id, a UUID [default: random]
    #[arg(long, value_name = "UUID", value_parser = parse_id)]
    pub id: Option<Uuid>,
    /// Which server, which form.
    #[command(flatten)]
    pub common: Common,
}

/// `spindle schedule`.
#[derive(Debug, Args)]
pub struct ScheduleArgs {
    /// The queue
    #[arg(value_parser = parse_queue)]
    pub queue: String,
    /// When: 2030-01-31T08:00:00Z (or with an offset: +02:00), or +10m from now
    pub time: String,
    /// The payload: a text, - for standard input, @FILE for a file's bytes
    #[arg(value_name = "PAYLOAD|-|@FILE", default_value = "", allow_negative_numbers = true)]
    #[arg(hide_default_value = true)]
    pub payload: OsString,
    /// How to treat the job; its TTL counts from TIME.
    #[command(flatten)]
    pub options: JobOptions,
    /// Which server, which form.
    #[command(flatten)]
    pub common: Common,
}

/// `spindle result`.
#[derive(Debug, Args)]
pub struct ResultArgs {
    /// The job's id
    #[arg(value_parser = parse_id)]
    pub id: Uuid,
    /// How long to wait for the job to finish
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = parse_wait)]
    pub wait: u32,
    /// Which server, which form.
    #[command(flatten)]
    pub common: Common,
}

/// `spindle work`.
#[derive(Debug, Args)]
#[command(after_help = WORK_HELP)]
pub struct WorkArgs {
    /// The queues; one that has work is drawn each time
    #[arg(value_name = "QUEUE", required = true, num_args = 1.., value_parser = parse_queue)]
    pub queues: Vec<String>,
    /// The command and its arguments
    #[arg(value_name = "COMMAND", required = true, last = true)]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
    /// Run so many jobs at once
    #[arg(short = 'j', long = "jobs-at-once", value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub at_once: u16,
    /// Stop after one job
    #[arg(long, conflicts_with = "max_jobs")]
    pub once: bool,
    /// Stop when the queues are empty
    #[arg(long)]
    pub drain: bool,
    /// Stop after so many jobs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_jobs: Option<u64>,
    /// Which server, which form.
    #[command(flatten)]
    pub common: Common,
}

const WORK_HELP: &str = "\
The command gets the job's payload on standard input and SPINDLE_JOB_ID and SPINDLE_QUEUE in its \
environment. What it prints is the job's result (cut at 1 MiB); exit code 0 completes the job, \
anything else fails it. The lease of a long job is extended while the command runs.

SIGINT or SIGTERM lets running commands finish and takes no new job; a second one kills them: \
their jobs are given out again when their time to run is over. With --once, --max-jobs or --drain \
the exit code is 5 when a job failed.";

/// `spindle job`.
#[derive(Debug, Args)]
pub struct JobArgs {
    /// The job's id
    #[arg(value_parser = parse_id)]
    pub id: Uuid,
    /// Which server, which form.
    #[command(flatten)]
    pub common: Common,
}

/// `spindle jobs`.
#[derive(Debug, Args)]
pub struct JobsArgs {
    /// The queue
    #[arg(value_parser = parse_queue)]
    pub queue: String,
    /// List the jobs that wait for their time instead
    #[arg(long)]
    pub scheduled: bool,
    /// List at most so many
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
    /// Pass over so many first
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub offset: u32,
    /// Which server, which form.
    #[command(flatten)]
    pub common: Common,
}

/// `spindle queues`.
#[derive(Debug, Args)]
pub struct QueuesArgs {
    /// Which server, which form.
    #[command(flatten)]
    pub common: Common,
}

/// `spindle delete`.
#[derive(Debug, Args)]
pub struct DeleteArgs {
    /// The jobs' ids
    #[arg(value_name = "ID", required = true, value_parser = parse_id)]
    pub ids: Vec<Uuid>,
    /// Which server, which form.
    #[command(flatten)]
    pub common: Common,
}

/// `spindle clock`.
#[derive(Debug, Args)]
pub struct ClockArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: ClockCommand,
    /// The server's HTTP address
    #[arg(long, value_name = "URL", env = "SPINDLE_URL", global = true)]
    #[arg(default_value = "http://127.0.0.1:7420")]
    pub url: String,
}

/// What `spindle clock` can do.
#[derive(Debug, Subcommand)]
pub enum ClockCommand {
    /// Say that the machine's clock is right: time goes on from it, and TTLs count again
    Accept,
}

const PRIORITY_MIN: i64 = i32::MIN as i64;
/// What every command of the protocol takes and `inspect` shows.
const PRIORITY_MAX: i64 = i32::MAX as i64;

fn parse_ttr(text: &str) -> Result<u32, String> {
    parse_duration_to_a_day(text, 1).map_err(|error| error.to_string())
}

fn parse_wait(text: &str) -> Result<u32, String> {
    parse_duration_to_a_day(text, 0).map_err(|error| error.to_string())
}

fn parse_ttl(text: &str) -> Result<u64, String> {
    match parse_duration_ms(text) {
        Ok(0) => Err("it must be at least 1ms".to_owned()),
        Ok(ms) => Ok(ms),
        Err(error) => Err(error.to_string()),
    }
}

fn parse_queue(text: &str) -> Result<String, String> {
    if spindle_workq::wire::is_name(text.as_bytes()) {
        return Ok(text.to_owned());
    }
    Err("a queue's name is 1 to 255 letters, digits, `_`, `-` and `.`".to_owned())
}

fn parse_id(text: &str) -> Result<Uuid, String> {
    Uuid::parse(text.as_bytes()).ok_or_else(|| {
        "a job's id is a UUID, such as 6ba7b810-9dad-41d1-80b4-00c04fd430c4".to_owned()
    })
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
