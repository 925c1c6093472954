//! Which jobs a command is about: by name, or all that a filter means.

use clap::{Args, ValueEnum};

use super::values::{JobName, parse_queue};
use crate::queue_name::QueueName;

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum JobStatus {
    /// Its time has not come
    Scheduled,
    /// Any worker may have it
    Ready,
    /// A worker has it
    Leased,
    /// Kept aside
    Parked,
    /// Completed
    Done,
    /// Failed for good
    Dead,
    /// It waits for other jobs
    Blocked,
}

impl JobStatus {
    /// All of them as the native API writes them, in the order of their numbers.
    pub const WORDS: [&'static str; 7] =
        ["scheduled", "ready", "leased", "parked", "done", "dead", "blocked"];

    /// As the native API writes it.
    pub fn word(self) -> &'static str {
        Self::WORDS[self as usize]
    }
}

/// What a job must be like. All of what is said must hold.
#[derive(Debug, Args)]
pub struct Filter {
    /// Only those of this status; may be given again
    #[arg(long, value_enum)]
    pub status: Vec<JobStatus>,
    /// Only those that came through this door: api, workq, gearman, gearman_draft, lightjq, jobq
    #[arg(long, value_name = "DOOR")]
    pub door: Option<String>,
    /// Only those with this tag
    #[arg(long, value_name = "WORD")]
    pub tag: Option<String>,
    /// Only those of the batch with this number
    #[arg(long, value_name = "ID")]
    pub batch: Option<u64>,
    /// Only those with this text in their payload
    #[arg(long, value_name = "TEXT")]
    pub text: Option<String>,
    /// Only those with this field in their payload: a JSON Pointer and a value, such as
    /// /customer=acme, or the pointer alone
    #[arg(long, value_name = "POINTER=VALUE")]
    pub field: Option<String>,
    /// Only unfinished and dead ones whose last attempt failed like this: "connection refused to db-#",
    /// as the job's page and `GET /api/v1/failures` have it
    #[arg(long, value_name = "TEXT")]
    pub fingerprint: Option<String>,
    /// Only those added at this time or later: 2030-01-31T08:00:00Z
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Only those added before this time
    #[arg(long, value_name = "TIME")]
    pub before: Option<String>,
}

impl Filter {
    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        self.status.is_empty() && self.fields().is_empty()
    }

    /// Its fields, as the native API names them, but for status and queue.
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        let batch = self.batch.map(|batch| batch.to_string());
        let fields = [
            ("door", &self.door),
            ("tag", &self.tag),
            ("batch", &batch),
            ("text", &self.text),
            ("field", &self.field),
            ("fingerprint", &self.fingerprint),
            ("created_from", &self.since),
            ("created_before", &self.before),
        ];
        let said = fields.into_iter().filter_map(|(name, value)| Some((name, value.clone()?)));
        said.collect()
    }
}

/// Jobs by their names, or all that a filter means.
#[derive(Debug, Args)]
pub struct Selection {
    /// The jobs
    #[arg(value_name = "JOB", required_unless_present = "all_matching")]
    pub ids: Vec<JobName>,
    #[command(flatten)]
    pub matching: Matching,
}

/// All jobs that a filter means, in a command whose argument `ids` names jobs.
#[derive(Debug, Args)]
pub struct Matching {
    /// All jobs that the filter means: at least one of --queue, --status, --door, --tag, --batch,
    /// --text, --field, --fingerprint, --since and --before
    #[arg(long, conflicts_with = "ids")]
    pub all_matching: bool,
    /// Only those of this queue
    #[arg(long, requires = "all_matching", conflicts_with = "ids", value_parser = parse_queue)]
    pub queue: Option<QueueName>,
    #[command(flatten)]
    pub filter: Filter,
    /// Only say how many there are
    #[arg(long, requires = "all_matching", conflicts_with = "ids")]
    pub dry_run: bool,
    /// With --all-matching: do not ask first, as is done on a terminal
    #[arg(short = 'y', long)]
    pub yes: bool,
}
