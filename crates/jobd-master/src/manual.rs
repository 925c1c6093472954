//! The answer to `run-manual`, as a worker gives it, and as a master joins it from several workers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// What became of the jobs of one `run-manual`. A part that is empty is left out on the wire.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct ManualResults {
    /// Results of the jobs that ran, as the JSON text that a worker wrote.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub jobs: BTreeMap<i64, Box<RawValue>>,
    /// Why the others did not run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub errors: BTreeMap<i64, String>,
}

impl ManualResults {
    /// Adds what another worker answered.
    pub fn join(&mut self, other: Self) {
        self.jobs.extend(other.jobs);
        self.errors.extend(other.errors);
    }
}
