//! What a worker answers to `status`, as a worker writes it and a master and `jobctl` read it.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::memory::MemoryUsage;

/// The answer to `status`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerStatus {
    /// Each target, in its order.
    pub targets: IndexMap<String, TargetStatus>,
    /// How many rows clients wait for.
    pub job_promises_count: usize,
    /// This process's memory.
    pub memory_usage: MemoryUsage,
    /// Rows that had begun, say `running` and do not run here, by id: those of an earlier process
    /// that was killed. The original has no such field; it is left out when there are none.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub unfinished: IndexMap<i64, Unfinished>,
    /// What is wrong with the job table. Left out when nothing is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table_trouble: Option<String>,
}

/// What `status` says of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetStatus {
    /// Whether no job of it is started or fetched.
    pub paused: bool,
    /// How many jobs may run at the same time.
    pub concurrency: u32,
    /// How many run or wait here.
    pub length: usize,
}

/// A row about which a person has to decide.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unfinished {
    /// Its target.
    pub target: String,
    /// Its `time_started`, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<i64>,
    /// The number of its process, when the state file has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Whether that process is still there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alive: Option<bool>,
}
