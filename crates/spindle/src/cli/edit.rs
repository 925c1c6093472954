//! The commands that change waiting jobs. They need the native API.

use clap::{ArgGroup, Args};

use super::{
    filter::Selection,
    people::Native,
    values::{PRIORITY_MAX, PRIORITY_MIN, parse_queue},
};
use crate::queue_name::QueueName;

/// A job as it was read.
#[derive(Debug, Args)]
pub struct AsRead {
    /// Only if this is still its revision, as `spindle job` shows it; for one job
    #[arg(long, value_name = "N", conflicts_with = "all_matching")]
    pub if_revision: Option<u32>,
}

/// `spindle park` and `spindle release`.
#[derive(Debug, Args)]
pub struct ParkArgs {
    #[command(flatten)]
    pub selection: Selection,
    #[command(flatten)]
    pub as_read: AsRead,
    #[command(flatten)]
    pub native: Native,
}

/// `spindle edit`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("edits").args(["priority", "run_at", "to"]).required(true)
    .multiple(true))]
pub struct EditArgs {
    #[command(flatten)]
    pub selection: Selection,
    /// Another priority; higher goes first
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    #[arg(value_parser = clap::value_parser!(i64).range(PRIORITY_MIN..=PRIORITY_MAX))]
    pub priority: Option<i64>,
    /// Another time to run: now, 2030-01-31T08:00:00Z (or with an offset: +02:00), or +10m from now
    #[arg(long, value_name = "TIME")]
    pub run_at: Option<String>,
    /// Another queue
    #[arg(long, value_name = "QUEUE", value_parser = parse_queue)]
    pub to: Option<QueueName>,
    #[command(flatten)]
    pub as_read: AsRead,
    #[command(flatten)]
    pub native: Native,
}
