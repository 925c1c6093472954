//! The commands that change and explain what is there. They need the native API.

use std::ffi::OsString;

use clap::{Args, Subcommand, ValueEnum};

use super::{
    filter::{Matching, Selection},
    reach::Reach,
    values::{JobName, PayloadType, Rate, parse_pattern, parse_queue, parse_wait},
};
use crate::queue_name::QueueName;

/// What the commands share that only the native API can do.
#[derive(Debug, Args)]
pub struct Native {
    #[command(flatten)]
    pub reach: Reach,
    /// Print JSON: one object per line
    #[arg(long, global = true)]
    pub json: bool,
}

/// `spindle why`.
#[derive(Debug, Args)]
pub struct WhyArgs {
    /// The job
    #[arg(value_name = "JOB")]
    pub id: JobName,
    #[command(flatten)]
    pub native: Native,
}

/// `spindle flow`.
#[derive(Debug, Args)]
pub struct FlowArgs {
    /// The job, or a batch's number
    #[arg(value_name = "JOB")]
    pub id: JobName,
    #[command(flatten)]
    pub native: Native,
}

/// `spindle retry`.
#[derive(Debug, Args)]
pub struct RetryArgs {
    /// The job
    #[arg(id = "ids", value_name = "JOB", required_unless_present = "all_matching")]
    pub id: Option<JobName>,
    #[command(flatten)]
    pub matching: Matching,
    /// Another payload: a text, - for standard input, @FILE for a file's bytes
    #[arg(value_name = "PAYLOAD|-|@FILE", allow_negative_numbers = true)]
    pub payload: Option<OsString>,
    /// What that payload is [default: bytes]
    #[arg(long = "type", value_name = "TYPE", requires = "payload")]
    pub payload_type: Option<PayloadType>,
    #[command(flatten)]
    pub native: Native,
}

/// `spindle cancel`.
#[derive(Debug, Args)]
pub struct CancelArgs {
    #[command(flatten)]
    pub selection: Selection,
    #[command(flatten)]
    pub native: Native,
}

/// `spindle move`.
#[derive(Debug, Args)]
pub struct MoveArgs {
    #[command(flatten)]
    pub selection: Selection,
    /// The queue they go to
    #[arg(long, value_name = "QUEUE", value_parser = parse_queue)]
    pub to: QueueName,
    #[command(flatten)]
    pub native: Native,
}

/// `spindle pause`.
#[derive(Debug, Args)]
pub struct PauseArgs {
    /// The queue
    #[arg(value_parser = parse_queue)]
    pub queue: QueueName,
    /// Pause it although it is not there: no job, no setting and no worker names it
    #[arg(long)]
    pub create: bool,
    /// Wait so long until no worker has a job of it any more [default: do not wait]
    #[arg(long, value_name = "TIME", value_parser = parse_wait)]
    pub drain: Option<u32>,
    #[command(flatten)]
    pub native: Native,
}

/// `spindle resume`.
#[derive(Debug, Args)]
pub struct ResumeArgs {
    /// The queue
    #[arg(value_parser = parse_queue)]
    pub queue: QueueName,
    #[command(flatten)]
    pub native: Native,
}

/// `spindle purge`.
#[derive(Debug, Args)]
pub struct PurgeArgs {
    /// The queue
    #[arg(value_parser = parse_queue)]
    pub queue: QueueName,
    /// Only say how many there are
    #[arg(long, conflicts_with = "yes")]
    pub dry_run: bool,
    /// Do not ask first, as is done on a terminal
    #[arg(short = 'y', long)]
    pub yes: bool,
    #[command(flatten)]
    pub native: Native,
}

/// `spindle constraint`.
#[derive(Debug, Args)]
pub struct ConstraintArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: ConstraintCommand,
}

/// What `spindle constraint` can do.
#[derive(Debug, Subcommand)]
pub enum ConstraintCommand {
    /// List the constraints
    List {
        #[command(flatten)]
        native: Native,
    },
    /// Show a constraint
    Show {
        /// The constraint
        name: String,
        #[command(flatten)]
        native: Native,
    },
    /// Set a constraint, new or changed: from options, or all that it can say from its JSON
    Put {
        /// The constraint
        name: String,
        /// Its JSON: a text, - for standard input, @FILE for a file
        #[arg(value_name = "JSON|-|@FILE", conflicts_with = "Limits")]
        #[arg(required_unless_present_any = ["running_max", "rate"])]
        rule: Option<OsString>,
        #[command(flatten)]
        limits: Limits,
        #[command(flatten)]
        native: Native,
    },
    /// Remove a constraint; what it held back may run
    Delete {
        /// The constraint
        name: String,
        #[command(flatten)]
        native: Native,
    },
}

/// What a constraint says, as far as options can.
#[derive(Debug, Args)]
pub struct Limits {
    /// Only jobs of this queue
    #[arg(long, conflicts_with = "queue_glob", value_parser = parse_queue)]
    pub queue: Option<QueueName>,
    /// Only jobs of queues whose name fits; * is any number of bytes, ? one character
    #[arg(long, value_name = "PATTERN", value_parser = parse_pattern)]
    pub queue_glob: Option<String>,
    /// A JSON Pointer: every value of that field of the payload has limits of its own; or fair_key:
    /// every key of the jobs has
    #[arg(long, value_name = "POINTER")]
    pub per: Option<String>,
    /// Most jobs that run at once; 0 lets none start
    #[arg(long, value_name = "COUNT")]
    pub running_max: Option<u64>,
    /// Most starts in a time, such as 10/s or 600/1h
    #[arg(long, value_name = "COUNT/TIME")]
    pub rate: Option<Rate>,
    /// Most starts at once [default: the rate's count]
    #[arg(long, value_name = "COUNT", requires = "rate")]
    pub burst: Option<u64>,
    /// Where queues are on several shards: each shard limits its own jobs
    #[arg(long)]
    pub per_shard: bool,
}

/// `spindle logs`.
#[derive(Debug, Args)]
pub struct LogsArgs {
    /// The job
    #[arg(value_name = "JOB")]
    pub id: JobName,
    /// Go on until the job has ended; status and progress are printed to standard error
    #[arg(long, short)]
    pub follow: bool,
    #[command(flatten)]
    pub native: Native,
}

pub const LOGS_HELP: &str = "\
The server keeps the newest 256 KiB of a job's output in memory, until it stops. With --follow the exit code is 0 if \
the job was done, 5 if it failed, 3 if it is gone.";

/// `spindle events`.
#[derive(Debug, Args)]
pub struct EventsArgs {
    /// Go on with what happens from now on; reconnects, and misses nothing meanwhile
    #[arg(long)]
    pub follow: bool,
    /// Begin behind this event, or at `oldest` [default: oldest; with --follow: now]
    #[arg(long, value_name = "ID")]
    pub after: Option<String>,
    #[command(flatten)]
    pub native: Native,
}

/// What somebody did, as the audit log names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum AuditAction {
    Delete,
    Cancel,
    Retry,
    Edit,
    Move,
    Park,
    Release,
    Extend,
    Pause,
    Resume,
    Drain,
    Purge,
    SetQueue,
    PutConstraint,
    RemoveConstraint,
    AcceptClock,
    Backup,
    Export,
    Import,
    Undo,
    PauseTargets,
    ContinueTargets,
    PutSchedule,
    RemoveSchedule,
    PauseSchedule,
    ResumeSchedule,
    RunSchedule,
    CancelBatch,
    StepDown,
}

/// `spindle audit`.
#[derive(Debug, Args)]
pub struct AuditArgs {
    /// Only what was done with this token or certificate, by its name in the tokens file
    #[arg(long, value_name = "NAME")]
    pub who: Option<String>,
    /// Only this
    #[arg(long, value_enum)]
    pub action: Option<AuditAction>,
    /// Only what was done to this queue, or to jobs that were in it
    #[arg(long, value_parser = parse_queue)]
    pub queue: Option<QueueName>,
    /// Only what was done to the job with this number
    #[arg(long, value_name = "NUMBER")]
    pub job: Option<u64>,
    /// Only what was done at this time or later: 2030-01-31T08:00:00Z
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Only what was done before this time
    #[arg(long, value_name = "TIME")]
    pub before: Option<String>,
    /// List at most this many
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
    #[command(flatten)]
    pub native: Native,
}

/// `spindle cluster`.
#[derive(Debug, Args)]
pub struct ClusterArgs {
    /// What to do; without it, the nodes are listed.
    #[command(subcommand)]
    pub command: Option<ClusterCommand>,
    #[command(flatten)]
    pub native: Native,
}

/// What `spindle cluster` can do.
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Let another node lead: connections end in order, and clients come back to whoever leads then
    StepDown {
        /// Of several shards, lead this one no more
        #[arg(long, value_name = "NUMBER", default_value_t = 0)]
        shard: u8,
    },
    /// Move a queue to another shard, while jobs come and are worked
    Move {
        /// The queue
        queue: String,
        /// The shard that is to take its jobs, from 0
        #[arg(long, value_name = "NUMBER")]
        to: u8,
    },
    /// List the queues that were moved, and the shard that still has jobs of each
    Moves,
    /// List the servers that keep the log: whether each has what is committed, and whether commits wait for it
    Log,
}

/// `spindle clock`.
#[derive(Debug, Args)]
pub struct ClockArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: ClockCommand,
    #[command(flatten)]
    pub reach: Reach,
}

/// What `spindle clock` can do.
#[derive(Debug, Subcommand)]
pub enum ClockCommand {
    /// Say that the machine's clock is right: time goes on from it, and TTLs count again
    Accept,
}
