//! The commands for jobs and workers.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use spindle_workq::wire::Uuid;

use super::{
    backup::{EXPORT_HELP, ExportArgs, IMPORT_HELP, ImportArgs},
    batch::BatchArgs,
    cron::CronArgs,
    edit::{EditArgs, ParkArgs},
    filter::{Filter, Selection},
    people::{
        AuditArgs, CancelArgs, ClockArgs, ClusterArgs, ConstraintArgs, EventsArgs, FlowArgs,
        LOGS_HELP, LogsArgs, MoveArgs, Native, PauseArgs, PurgeArgs, ResumeArgs, RetryArgs,
        WhyArgs,
    },
    queue::QueueArgs,
    reach::Reach,
    retries::RetryWait,
    values::{
        JobName, PRIORITY_MAX, PRIORITY_MIN, PayloadType, Sort, parse_interval, parse_queue,
        parse_ttl, parse_ttr, parse_uuid, parse_wait,
    },
};
use crate::queue_name::QueueName;

/// The commands that talk to a server, through its HTTP door or its Workq door.
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
    /// List jobs
    Jobs(JobsArgs),
    /// Jobs by the calendar: list, set, pause and preview schedules
    Cron(CronArgs),
    /// Jobs that belong together: open a batch, seal it, see how its jobs stand, cancel them
    Batch(BatchArgs),
    /// List the queues
    Queues(Common),
    /// Show a queue, or change its settings
    Queue(QueueArgs),
    /// Delete jobs, whatever their state
    Delete(DeleteArgs),
    /// Print what a job's workers write, and follow how it gets on
    #[command(after_help = LOGS_HELP)]
    Logs(LogsArgs),
    /// Say why a job is not running
    Why(WhyArgs),
    /// Draw the jobs and batches that a job waits for, and those that wait for it
    Flow(FlowArgs),
    /// Let done or dead jobs run again
    Retry(RetryArgs),
    /// End jobs as dead; those who wait for them get their answer
    Cancel(CancelArgs),
    /// Move waiting jobs to another queue
    Move(MoveArgs),
    /// Change waiting jobs: their priority, their time, their queue
    Edit(EditArgs),
    /// Keep waiting jobs aside until they are released
    Park(ParkArgs),
    /// Let parked jobs run
    Release(ParkArgs),
    /// Give out no more jobs of a queue; those that run go on
    Pause(PauseArgs),
    /// Give out a queue's jobs again
    Resume(ResumeArgs),
    /// Delete a queue's ready and scheduled jobs
    Purge(PurgeArgs),
    /// Say how the server is, on one screen
    #[command(after_help = "The exit code is 0 if the server takes jobs, 1 if not.")]
    Status(Native),
    /// Watch queues, workers and jobs in the terminal, and change them by keys
    #[command(after_help = TOP_HELP)]
    Top(TopArgs),
    /// List the workers and what they hold
    Workers(Native),
    /// Limit how many jobs run, or how often
    Constraint(ConstraintArgs),
    /// Write all jobs, queues and constraints to a file, as lines of JSON
    #[command(after_help = EXPORT_HELP)]
    Export(ExportArgs),
    /// Take in what `export` has written
    #[command(after_help = IMPORT_HELP)]
    Import(ImportArgs),
    /// Print what happens on the server
    Events(EventsArgs),
    /// List who did what to jobs, queues and constraints
    Audit(AuditArgs),
    /// Accept the server's wall clock as right, when it and the log disagree
    Clock(ClockArgs),
    /// List the nodes that share a log, and who leads; or let another one lead
    Cluster(ClusterArgs),
}

/// What the commands share that any door can do.
#[derive(Debug, Args)]
pub struct Common {
    #[command(flatten)]
    pub reach: Reach,
    /// Talk to the server's Workq door instead, at this address [env: SPINDLE_WORKQ]
    #[arg(long, value_name = "ADDR", conflicts_with = "url")]
    pub workq: Option<String>,
    /// Encrypt the connection to the Workq door [env: SPINDLE_TLS=true]
    #[arg(long, conflicts_with = "url")]
    pub tls: bool,
    /// Print JSON: one object per line
    #[arg(long)]
    pub json: bool,
}

/// `spindle top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    #[command(flatten)]
    pub reach: Reach,
}

const TOP_HELP: &str = "\
`?` explains the keys. It asks the server twice in two seconds, and goes on when the server comes back. Programs use \
`status`, `queues`, `workers` and `jobs` with --json.";

/// What happens when another job has the unique key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum IfTaken {
    /// The job is refused
    Reject,
    /// The other job's id is printed instead
    Existing,
    /// The job takes the other's place, if no worker has that one
    Replace,
}

/// What happens to a job when one that it waits for dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnDead {
    /// It is cancelled
    Cancel,
    /// It runs all the same
    Run,
    /// It goes on waiting while the dead one can be retried
    Wait,
}

impl OnDead {
    /// As the native API writes it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Run => "run",
            Self::Wait => "wait",
        }
    }
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
    /// The job is dead when it failed so often; 0 is no limit [default: the queue's, or 5]
    #[arg(long, visible_alias = "max-fails", value_name = "COUNT")]
    pub tries: Option<u32>,
    /// Give the job out at most so often, lost workers included; 0 is no limit [default: the
    /// queue's, or 25]
    #[arg(long, value_name = "COUNT")]
    pub max_attempts: Option<u32>,
    /// How long a failed job waits: none, 30s, 5s..1h (doubles), 5s*3..1h; ~0.2 behind it takes up
    /// to a fifth off [default: the queue's, or 5s*3..1h~0.2]
    #[arg(long, value_name = "WAIT")]
    pub backoff: Option<RetryWait>,
    /// What the payload is; constraints look into JSON and MessagePack [default: bytes]
    #[arg(long = "type", value_name = "TYPE")]
    pub payload_type: Option<PayloadType>,
    /// A word to find the job by; may be given again
    #[arg(long = "tag", value_name = "WORD")]
    pub tags: Vec<String>,
    /// Whose share of a fair queue the job takes
    #[arg(long, value_name = "KEY")]
    pub fair_key: Option<String>,
    /// A key that at most one unfinished job of the queue has
    #[arg(long, value_name = "KEY")]
    pub unique: Option<String>,
    /// What to do when another job has the key [default: reject]
    #[arg(long, value_name = "WHAT", requires = "unique")]
    pub if_taken: Option<IfTaken>,
    /// A job or a batch that must be done before; may be given again, and take several: --after 12,15
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    pub after: Vec<u64>,
    /// What to do when one of those dies, or is gone without having been done [default: cancel]
    #[arg(long, value_name = "WHAT", requires = "after")]
    pub on_dead: Option<OnDead>,
    /// The open batch that the job belongs to
    #[arg(long, value_name = "ID")]
    pub batch: Option<u64>,
    /// With --workq: the job's id, a UUID; adding the same id twice is refused [default: random]
    #[arg(long, value_name = "UUID", value_parser = parse_uuid)]
    pub id: Option<Uuid>,
}

/// `spindle add`.
#[derive(Debug, Args)]
pub struct AddArgs {
    /// The queue
    #[arg(value_parser = parse_queue)]
    pub queue: QueueName,
    /// The payload: a text, - for standard input, @FILE for a file's bytes
    #[arg(value_name = "PAYLOAD|-|@FILE", default_value = "", allow_negative_numbers = true)]
    #[arg(hide_default_value = true)]
    pub payload: OsString,
    /// Add a job for each line of this file (- is standard input), its line end left out
    #[arg(long, value_name = "FILE|-", value_hint = ValueHint::FilePath)]
    #[arg(conflicts_with_all = ["payload", "id", "unique"])]
    pub lines: Option<PathBuf>,
    #[command(flatten)]
    pub options: JobOptions,
    #[command(flatten)]
    pub common: Common,
}

/// `spindle run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The queue
    #[arg(value_parser = parse_queue)]
    pub queue: QueueName,
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
    /// What the payload is [default: bytes]
    #[arg(long = "type", value_name = "TYPE")]
    pub payload_type: Option<PayloadType>,
    /// With --workq: the job's id, a UUID [default: random]
    #[arg(long, value_name = "UUID", value_parser = parse_uuid)]
    pub id: Option<Uuid>,
    #[command(flatten)]
    pub common: Common,
}

/// `spindle schedule`.
#[derive(Debug, Args)]
pub struct ScheduleArgs {
    /// The queue
    #[arg(value_parser = parse_queue)]
    pub queue: QueueName,
    /// When: 2030-01-31T08:00:00Z (or with an offset: +02:00), or +10m from now
    pub time: String,
    /// The payload: a text, - for standard input, @FILE for a file's bytes
    #[arg(value_name = "PAYLOAD|-|@FILE", default_value = "", allow_negative_numbers = true)]
    #[arg(hide_default_value = true)]
    pub payload: OsString,
    #[command(flatten)]
    pub options: JobOptions,
    #[command(flatten)]
    pub common: Common,
}

/// `spindle result`.
#[derive(Debug, Args)]
pub struct ResultArgs {
    /// The job
    #[arg(value_name = "JOB")]
    pub id: JobName,
    /// How long to wait for the job to finish
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = parse_wait)]
    pub wait: u32,
    #[command(flatten)]
    pub common: Common,
}

/// `spindle work`.
#[derive(Debug, Args)]
#[command(after_help = WORK_HELP)]
pub struct WorkArgs {
    /// The queues; through HTTP the job of the highest priority comes first, whatever its queue,
    /// through Workq one queue that has work is drawn each time
    #[arg(value_name = "QUEUE", required = true, num_args = 1.., value_parser = parse_queue)]
    pub queues: Vec<QueueName>,
    /// The command and its arguments
    #[arg(value_name = "COMMAND", required = true, last = true)]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
    /// Run this many jobs at once
    #[arg(short = 'j', long = "jobs-at-once", value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub at_once: u16,
    /// Stop after one job
    #[arg(long, conflicts_with = "max_jobs")]
    pub once: bool,
    /// Stop when the queues are empty
    #[arg(long)]
    pub drain: bool,
    /// Stop after this many jobs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_jobs: Option<u64>,
    /// How long a command has to end when its job was cancelled or its lease lost; 0 kills it at
    /// once
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_wait)]
    #[arg(conflicts_with = "keep_running")]
    pub kill_after: u32,
    /// Let the command of such a job run to its end
    #[arg(long)]
    pub keep_running: bool,
    #[command(flatten)]
    pub common: Common,
}

const WORK_HELP: &str = "\
The command gets the job's payload on standard input, and SPINDLE_JOB_ID, SPINDLE_QUEUE and \
SPINDLE_ATTEMPT (1 is the first) in its environment. What it prints is the job's result (cut at \
1 MiB); exit code 0 completes the job, anything else fails it: code exit_9 or signal_SIGKILL, and \
the last 4 KiB of its standard error, go with the failure.

While the command runs, the lease is extended at least every 5 seconds. When the job was \
cancelled or deleted, or its lease is lost, that is noticed then: the command and all processes \
of its group get SIGTERM, and SIGKILL after --kill-after.

SIGINT or SIGTERM lets running commands finish and takes no new job; a second one kills them: \
their jobs are given out again when their time to run is over. With --once, --max-jobs or --drain \
the exit code is 5 when a job failed, was cancelled or was lost. A server that is not there yet, \
or goes away, is waited for.";

/// `spindle job`.
#[derive(Debug, Args)]
pub struct JobArgs {
    /// The job
    #[arg(value_name = "JOB")]
    pub id: JobName,
    #[command(flatten)]
    pub common: Common,
}

/// `spindle jobs`.
#[derive(Debug, Args)]
pub struct JobsArgs {
    /// Only those of this queue (through Workq, which lists ready jobs, it must be given)
    #[arg(value_parser = parse_queue)]
    pub queue: Option<QueueName>,
    #[command(flatten)]
    pub filter: Filter,
    /// The same as --status scheduled
    #[arg(long, conflicts_with = "status")]
    pub scheduled: bool,
    /// List at most this many
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
    /// Pass over this many first
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub offset: u32,
    /// Sort by id, queue, status, priority, attempts, fails or time; - before it: the largest
    /// first. By id the server sorts; by anything else only those are sorted that are listed
    #[arg(long, value_name = "COLUMN", allow_hyphen_values = true)]
    pub sort: Option<Sort>,
    /// Show the list anew every 2 seconds, or every TIME, until Ctrl-C; needs a terminal
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "2s", value_parser = parse_interval, conflicts_with = "json")]
    pub watch: Option<u32>,
    #[command(flatten)]
    pub common: Common,
}

/// `spindle delete`.
#[derive(Debug, Args)]
pub struct DeleteArgs {
    #[command(flatten)]
    pub selection: Selection,
    #[command(flatten)]
    pub common: Common,
}
