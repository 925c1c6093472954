//! Failed attempts counted by their message, until the keeper of the history takes the counts.

use std::collections::HashMap;

use bytes::Bytes;
use spindle_core::JobId;

use super::fingerprint::FailedAttempt;

/// Rows kept until they are taken; attempts that belong to no row are counted together.
const ROWS_MAX: usize = 1_024;

type Map<K, V> = HashMap<K, V, foldhash::quality::RandomState>;

/// Failed attempts of a queue with the same message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailedAttempts {
    /// Their message, blanked.
    pub fingerprint: String,
    /// The queue of their jobs.
    pub queue: Bytes,
    /// How many there were.
    pub count: u64,
    /// The job of the last one.
    pub last_job: JobId,
    /// When it was, in milliseconds since 1970.
    pub last_ms: u64,
}

/// Failed attempts since they were last taken.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    by_fingerprint: Map<String, Map<Bytes, FailedAttempts>>,
    rows: usize,
    /// Those for which there was no row.
    others: u64,
    /// Kept to use its memory again.
    text: String,
}

impl Failures {
    /// Counts one.
    pub fn count(&mut self, failed: &FailedAttempt<'_>, queue: &Bytes, now_ms: u64) {
        self.text.clear();
        failed.write_fingerprint(&mut self.text);
        let rows = self.by_fingerprint.get_mut(&self.text);
        let row = rows.and_then(|rows| rows.get_mut(queue));
        if let Some(row) = row {
            row.count += 1;
            (row.last_job, row.last_ms) = (failed.id, now_ms);
        } else if self.rows == ROWS_MAX {
            self.others += 1;
        } else {
            self.rows += 1;
            // A copy: the name may be a small part of a large read.
            let queue = Bytes::copy_from_slice(queue);
            let row = FailedAttempts {
                fingerprint: self.text.clone(),
                queue: queue.clone(),
                count: 1,
                last_job: failed.id,
                last_ms: now_ms,
            };
            self.by_fingerprint.entry(self.text.clone()).or_default().insert(queue, row);
        }
    }

    /// The rows, and how many attempts are in none of them.
    pub fn into_rows(self) -> (Vec<FailedAttempts>, u64) {
        let rows = self.by_fingerprint.into_values().flat_map(Map::into_values);
        (rows.collect(), self.others)
    }
}
