//! `spindle queue`: one queue and its settings.

use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use serde_json::{Value, json};
use spindle_core::queue::FAIR_WEIGHT_MAX;

use super::{people::Native, retries::RetryWait, values::parse_queue};
use crate::{
    quantity::{parse_duration_ms, parse_size},
    queue_name::QueueName,
};

/// `spindle queue`.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct QueueArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: QueueCommand,
}

/// What `spindle queue` can do.
#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "there is one, made once")]
pub enum QueueCommand {
    /// Show a queue: its jobs, who waits for them, its settings
    Show {
        /// The queue
        #[arg(value_parser = parse_queue)]
        name: QueueName,
        #[command(flatten)]
        native: Native,
    },
    /// Change a queue's settings, for jobs that say nothing themselves; those not named stay
    #[command(after_help = SET_HELP, override_usage = "spindle queue set [OPTIONS] <NAME>")]
    Set {
        /// The queue; one that is not there comes to be
        #[arg(value_parser = parse_queue)]
        name: QueueName,
        #[command(flatten)]
        settings: QueueSettings,
        #[command(flatten)]
        native: Native,
    },
}

const SET_HELP: &str = "\
Each takes `default` too: nothing is set any more.

  spindle queue set mail --tries 3 --backoff '5s*2..10m'
  spindle queue set mail --backoff default --max-jobs 100000";

/// What is set, as the native API takes it; none: nothing is set any more.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting(pub Option<Value>);

/// What can be set for a queue. What is not said stays.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub struct QueueSettings {
    /// Jobs are dead when they failed so often; 0 is no limit
    #[arg(long, value_name = "COUNT", value_parser = count::<u32>)]
    pub tries: Option<Setting>,
    /// Jobs are given out at most so often; 0 is no limit
    #[arg(long, value_name = "COUNT", value_parser = count::<u32>)]
    pub max_attempts: Option<Setting>,
    /// How long a failed job waits: none, 30s, 5s..1h (doubles), 5s*3..1h; ~0.2 behind it takes up
    /// to a fifth off
    #[arg(long, value_name = "WAIT", value_parser = wait)]
    pub backoff: Option<Setting>,
    /// How long a worker may take for a job that came without a TTR
    #[arg(long, value_name = "TIME", value_parser = time_from_1ms)]
    pub ttr: Option<Setting>,
    /// How long done jobs and their results are kept
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub keep: Option<Setting>,
    /// How long dead jobs are kept
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub keep_dead: Option<Setting>,
    /// Most unfinished jobs: one more is refused
    #[arg(long, value_name = "COUNT", value_parser = count::<u64>)]
    pub max_jobs: Option<Setting>,
    /// Most payloads of unfinished jobs, as 64MiB: a job that would pass it is refused
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub max_bytes: Option<Setting>,
    /// Most finished jobs kept: the oldest go first
    #[arg(long, value_name = "COUNT", value_parser = count::<u64>)]
    pub max_finished: Option<Setting>,
    /// What payloads are that came as mere bytes through Workq and Gearman, for constraints
    #[arg(long, value_name = "TYPE", value_enum)]
    pub bytes_type: Option<BytesType>,
    /// Waiting for this long counts as one step of priority, so that no job waits for ever
    #[arg(long, value_name = "TIME", value_parser = time_from_1ms)]
    pub aging: Option<Setting>,
    /// Jobs of different keys take turns: key (the one given with each job), or the payload's field
    /// that has it, as /tenant; default: they do not
    #[arg(long, value_name = "key|/FIELD", value_parser = fair_by)]
    pub fair: Option<FairBy>,
    /// Start so many jobs of a key in its turn; may be given again. Makes the queue fair
    #[arg(long = "weight", value_name = "KEY=COUNT", value_parser = weight)]
    pub weights: Vec<(String, u32)>,
}

/// What keys of a fair queue are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FairBy {
    /// It is not fair.
    Nothing,
    /// What jobs are given.
    Key,
    /// That, or what this field of the payload has.
    Field(String),
}

fn fair_by(text: &str) -> Result<FairBy, String> {
    match text {
        "default" => Ok(FairBy::Nothing),
        "key" => Ok(FairBy::Key),
        field if field.starts_with('/') => Ok(FairBy::Field(field.to_owned())),
        _ => Err("write key, a field as /tenant, or default".to_owned()),
    }
}

fn weight(text: &str) -> Result<(String, u32), String> {
    let (key, weight) = text.rsplit_once('=').ok_or("write KEY=COUNT")?;
    let weight = weight.parse().ok().filter(|weight| (1..=FAIR_WEIGHT_MAX).contains(weight));
    let weight = weight.ok_or_else(|| format!("the count is 1 to {FAIR_WEIGHT_MAX}"))?;
    Ok((key.to_owned(), weight))
}

/// What mere bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BytesType {
    /// JSON
    Json,
    /// MessagePack
    Msgpack,
    /// Nothing but bytes
    #[value(alias = "default")]
    None,
}

fn or_default<T: Serialize>(
    text: &str,
    read: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Setting, String> {
    let value = if text == "default" { None } else { Some(json!(read(text)?)) };
    Ok(Setting(value))
}

fn count<T: FromStr + Serialize>(text: &str) -> Result<Setting, String> {
    or_default(text, |text| {
        text.parse::<T>().map_err(|_| "write a whole number or default".to_owned())
    })
}

fn wait(text: &str) -> Result<Setting, String> {
    or_default(text, |text| text.parse().map(RetryWait::to_json))
}

fn time(text: &str) -> Result<Setting, String> {
    or_default(text, |text| parse_duration_ms(text).map_err(|error| error.to_string()))
}

fn bytes(text: &str) -> Result<Setting, String> {
    or_default(text, |text| parse_size(text).map_err(|error| error.to_string()))
}

fn time_from_1ms(text: &str) -> Result<Setting, String> {
    match time(text)? {
        Setting(Some(ms)) if ms == 0 => Err("it must be at least 1ms".to_owned()),
        other => Ok(other),
    }
}
