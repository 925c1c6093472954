//! The number of a shard, and where jobs' ids say it.

use spindle_core::JobId;
use spindle_core::job::JOB_ID_SEQUENCE_END;

/// One of a cluster's logs, by its number from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Shard(pub u8);

impl Shard {
    /// The first shard, which keeps what the whole cluster has in common.
    pub const FIRST: Shard = Shard(0);

    /// Where the job with this id was made.
    #[must_use]
    pub fn of_job(id: JobId) -> Shard {
        // Ids are below 2^53; there is no job with a larger number.
        Shard(u8::try_from(id.0 / JOB_ID_SEQUENCE_END).unwrap_or(u8::MAX))
    }
}

impl std::fmt::Display for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use spindle_core::job::JOB_ID_END;

    use super::*;

    #[test]
    fn an_id_says_the_shard_it_was_made_on() {
        for (id, shard) in [
            (1, 0),
            (JOB_ID_SEQUENCE_END - 1, 0),
            (JOB_ID_SEQUENCE_END, 1),
            (3 * JOB_ID_SEQUENCE_END + 7, 3),
            (JOB_ID_END - 1, 255),
            (u64::MAX, 255),
        ] {
            assert_eq!(Shard::of_job(JobId(id)), Shard(shard), "{id}");
        }
    }
}
