//! Percentiles of the engine's histogram of commits.
//!
//! The engine counts commits in buckets whose limits double, so a percentile is exact to its bucket:
//! within a factor of two. Inside a bucket values are taken to be evenly spread, as Prometheus does.

use crate::counts::Commits;

/// Buckets of the histogram.
pub const BUCKETS: usize = 20;
/// The limit of the first one, in microseconds. The last one has none.
pub(crate) const FIRST_LIMIT_US: u64 = 32;

/// The time, in microseconds, that this share (0 to 1) of the commits did not exceed. None: there
/// were none.
pub fn percentile_us(commits: &Commits, share: f64) -> Option<u64> {
    let total: u64 = commits.iter().map(|count| u64::from(*count)).sum();
    let rank = ((total as f64 * share).ceil() as u64).clamp(1, total.max(1));
    let mut below = 0;
    for (bucket, count) in commits.iter().enumerate() {
        let count = u64::from(*count);
        if count > 0 && below + count >= rank {
            let limit = FIRST_LIMIT_US << bucket;
            let begin = if bucket == 0 { 0 } else { limit / 2 };
            let is_open = bucket + 1 == BUCKETS;
            let width = if is_open { 0 } else { limit - begin };
            return Some(begin + width * (rank - below) / count);
        }
        below += count;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_in_the_bucket_of_its_rank() {
        let mut commits = [0; BUCKETS];
        assert_eq!(percentile_us(&commits, 0.5), None);
        commits[0] = 1;
        assert_eq!(percentile_us(&commits, 0.5), Some(32));
        commits[0] = 50;
        commits[3] = 49;
        commits[10] = 1;
        assert_eq!(percentile_us(&commits, 0.0), Some(0));
        assert_eq!(percentile_us(&commits, 0.5), Some(32));
        assert_eq!(percentile_us(&commits, 0.51), Some(128 + 128 / 49));
        assert_eq!(percentile_us(&commits, 0.99), Some(256));
        assert_eq!(percentile_us(&commits, 1.0), Some(32 << 10));
        let mut slow = [0; BUCKETS];
        slow[BUCKETS - 1] = 3;
        assert_eq!(percentile_us(&slow, 0.99), Some(32 << 18), "what is beyond all limits");
        assert_eq!(percentile_us(&[u32::MAX; BUCKETS], 1.0), Some(32 << 18));
    }
}
