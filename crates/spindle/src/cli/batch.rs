//! `spindle batch`: jobs that belong together.

use clap::{Args, Subcommand};

use super::{people::Native, values::parse_queue};
use crate::{quantity::parse_duration_ms, queue_name::QueueName};

/// `spindle batch`.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct BatchArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: BatchCommand,
}

/// What `spindle batch` can do.
#[derive(Debug, Subcommand)]
pub enum BatchCommand {
    /// Open a batch and print its number; `spindle add --batch` adds jobs to it
    Open(BatchOpenArgs),
    /// List the batches, the newest first
    List {
        /// List at most this many
        #[arg(long, value_name = "COUNT", default_value_t = 100)]
        #[arg(value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
        #[command(flatten)]
        native: Native,
    },
    /// Show a batch and how its jobs stand
    Show(BatchNamed),
    /// Let no more jobs into a batch: it ends when all that are in it have ended
    Seal(BatchNamed),
    /// Seal a batch and cancel its unfinished jobs, those of batches in it too
    Cancel {
        #[command(flatten)]
        named: BatchNamed,
        /// Do not ask first, as is done on a terminal
        #[arg(short = 'y', long)]
        yes: bool,
    },
}

/// One batch.
#[derive(Debug, Args)]
pub struct BatchNamed {
    /// The batch's number
    #[arg(value_name = "ID")]
    pub id: u64,
    #[command(flatten)]
    pub native: Native,
}

/// `spindle batch open`.
#[derive(Debug, Args)]
pub struct BatchOpenArgs {
    /// The queue whose permissions apply to the batch; its jobs may be of any queue
    #[arg(long, value_parser = parse_queue)]
    pub queue: QueueName,
    /// A name for people, at most 256 bytes
    #[arg(long, value_name = "TEXT")]
    pub name: Option<String>,
    /// A key that no other batch has, 1 to 256 bytes: opening a batch with it again prints the number
    /// of the one that has it
    #[arg(long, value_name = "KEY")]
    pub unique: Option<String>,
    /// The open batch that it belongs to: that one does not end before this one has
    #[arg(long, value_name = "ID")]
    pub parent: Option<u64>,
    /// How long it is kept once it has ended [default: 1d]
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ms)]
    pub keep: Option<u64>,
    #[command(flatten)]
    pub native: Native,
}
