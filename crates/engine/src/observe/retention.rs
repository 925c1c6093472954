//! Finished jobs that a cap drops are reported to people, at most once a minute.

use super::stats::Stats;

/// Dropped jobs are reported at most this often.
const REPORTED_EVERY_MS: u64 = 60_000;

/// What the log of the server last said of dropped jobs.
#[derive(Debug, Default)]
pub(crate) struct DroppedNews {
    reported: Stats,
    at_ms: Option<u64>,
}

impl DroppedNews {
    /// Writes a warning of jobs that were dropped since the last one, if it is time for one.
    pub fn report(&mut self, stats: &Stats, now_ms: u64) {
        let Some([queue, count, bytes]) = self.due(stats, now_ms) else { return };
        tracing::warn!(
            "finished jobs went before their time: {queue} over their queues' maximum, {count} \
             over --finished-max, {bytes} over --finished-size-max"
        );
    }

    /// How many jobs were dropped since the last report: over their queue's maximum, over the
    /// server's, and for want of room on disk. None: it is not time for a report.
    fn due(&mut self, stats: &Stats, now_ms: u64) -> Option<[u64; 3]> {
        let early = self.at_ms.is_some_and(|at_ms| now_ms < at_ms + REPORTED_EVERY_MS);
        if stats.finished_dropped == self.reported.finished_dropped || early {
            return None;
        }
        let news = [
            stats.finished_over_queue - self.reported.finished_over_queue,
            stats.finished_over_count - self.reported.finished_over_count,
            stats.finished_over_bytes - self.reported.finished_over_bytes,
        ];
        (self.reported, self.at_ms) = (*stats, Some(now_ms));
        Some(news)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_come_at_most_once_a_minute_and_lose_nothing() {
        let mut news = DroppedNews::default();
        let mut stats = Stats::default();
        assert_eq!(news.due(&stats, 5), None);
        (stats.finished_dropped, stats.finished_over_queue) = (3, 3);
        assert_eq!(news.due(&stats, 10), Some([3, 0, 0]));
        (stats.finished_dropped, stats.finished_over_bytes) = (5, 2);
        assert_eq!(news.due(&stats, 60_009), None);
        (stats.finished_dropped, stats.finished_over_count) = (6, 1);
        assert_eq!(news.due(&stats, 60_010), Some([0, 1, 2]));
        assert_eq!(news.due(&stats, 600_000), None);
    }
}
