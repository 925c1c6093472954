//! `spindle cron`: schedules.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, Subcommand, ValueEnum, ValueHint};

use super::{
    people::Native,
    values::{PayloadType, parse_queue},
};
use crate::{quantity::parse_duration_ms, queue_name::QueueName};

/// `spindle cron`.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct CronArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: CronCommand,
}

/// What `spindle cron` can do.
#[derive(Debug, Subcommand)]
pub enum CronCommand {
    /// List the schedules
    List {
        #[command(flatten)]
        native: Native,
    },
    /// Show a schedule and its next times
    Show {
        /// The schedule
        name: String,
        #[command(flatten)]
        native: Native,
    },
    /// Set a schedule, new or changed: what is not said has its default
    Set(CronSetArgs),
    /// Remove a schedule; its jobs stay
    Remove(CronNamed),
    /// Let a schedule rest
    Pause(CronNamed),
    /// Let a schedule fire again, with its first time from now
    Resume(CronNamed),
    /// Add a schedule's job now, and print its id
    Run(CronNamed),
    /// Print the times of an expression; asks no server
    Preview(CronPreviewArgs),
    /// Set all schedules of a TOML file, and remove all others
    Apply(CronApplyArgs),
}

/// One schedule.
#[derive(Debug, Args)]
pub struct CronNamed {
    /// The schedule
    pub name: String,
    #[command(flatten)]
    pub native: Native,
}

/// While the last job of a schedule is unfinished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Overlap {
    /// A job comes all the same
    Allow,
    /// The time is passed over
    Skip,
    /// One job comes when the last one has ended
    QueueOne,
    /// The last job is cancelled, and the new one comes
    Replace,
}

/// What happens to times that were missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Missed {
    /// Nothing
    Skip,
    /// One job comes for all of them
    Once,
    /// A job comes for each of the first ones
    All,
}

/// `spindle cron set`.
#[derive(Debug, Args)]
pub struct CronSetArgs {
    /// The schedule
    pub name: String,
    /// When it fires: `0 9 * * MON-FRI`, `@daily`, `every 90s`
    pub expression: String,
    /// The payload: a text, - for standard input, @FILE for a file
    #[arg(value_name = "PAYLOAD|-|@FILE")]
    pub payload: Option<OsString>,
    /// The queue of its jobs
    #[arg(long, value_parser = parse_queue)]
    pub queue: QueueName,
    /// What the payload is
    #[arg(long = "type", value_enum, default_value = "bytes")]
    pub payload_type: PayloadType,
    /// Higher goes first
    #[arg(long, allow_negative_numbers = true)]
    pub priority: Option<i64>,
    /// The time zone that the expression speaks of [default: UTC]
    #[arg(long)]
    pub zone: Option<String>,
    /// What happens while the last job is unfinished [default: skip]
    #[arg(long, value_enum)]
    pub overlap: Option<Overlap>,
    /// What happens to times that were missed [default: skip]
    #[arg(long, value_enum)]
    pub missed: Option<Missed>,
    /// With --missed all: how many in a row are made up [default: 100]
    #[arg(long, value_name = "COUNT")]
    pub missed_max: Option<u32>,
    /// Fire up to this much later, so that schedules of one time are spread
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ms)]
    pub jitter: Option<u64>,
    /// No time before this: 2030-01-31T08:00:00Z
    #[arg(long, value_name = "TIME")]
    pub start: Option<String>,
    /// No time after this
    #[arg(long, value_name = "TIME")]
    pub end: Option<String>,
    /// It does not fire until it is resumed
    #[arg(long)]
    pub paused: bool,
    #[command(flatten)]
    pub native: Native,
}

/// `spindle cron preview`.
#[derive(Debug, Args)]
pub struct CronPreviewArgs {
    /// The expression
    pub expression: String,
    /// The time zone that it speaks of
    #[arg(long, default_value = "UTC")]
    pub zone: String,
    /// How many times
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    pub times: u16,
    /// Print JSON: one object per line
    #[arg(long)]
    pub json: bool,
}

/// `spindle cron apply`.
#[derive(Debug, Args)]
pub struct CronApplyArgs {
    /// The file
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Only say what would change
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub native: Native,
}
