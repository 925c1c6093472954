//! Finished jobs that a cap drops are counted by the cap, and told of once a minute.

use spindle_core::event::Gone;
use spindle_core::job::Cause;
use spindle_core::state::FinishedCap;

use crate::inner::{Inner, Stats};

/// News are told at most this often.
const TOLD_EVERY_MS: u64 = 60_000;

/// What people were last told of dropped jobs.
#[derive(Debug, Default)]
pub(crate) struct DroppedNews {
    told: Stats,
    at_ms: Option<u64>,
}

impl DroppedNews {
    /// How many jobs went since the last news, by cap in the order of [`FinishedCap`], when it is
    /// time to tell.
    fn due(&mut self, stats: &Stats, now_ms: u64) -> Option<[u64; 3]> {
        let early = self.at_ms.is_some_and(|at_ms| now_ms < at_ms + TOLD_EVERY_MS);
        if stats.finished_dropped == self.told.finished_dropped || early {
            return None;
        }
        let news = [
            stats.finished_over_queue - self.told.finished_over_queue,
            stats.finished_over_count - self.told.finished_over_count,
            stats.finished_over_bytes - self.told.finished_over_bytes,
        ];
        (self.told, self.at_ms) = (*stats, Some(now_ms));
        Some(news)
    }
}

impl Inner {
    /// Counts jobs that are about to go, if a cap says so.
    pub fn note_dropped(&mut self, gone: &Gone) {
        if gone.cause() != Cause::Limit {
            return;
        }
        let Some(cap) = self.state.exceeded_cap() else { return };
        let count = gone.ids.len() as u64;
        self.stats.finished_dropped += count;
        *match cap {
            FinishedCap::Queue => &mut self.stats.finished_over_queue,
            FinishedCap::Count => &mut self.stats.finished_over_count,
            FinishedCap::Bytes => &mut self.stats.finished_over_bytes,
        } += count;
    }

    /// Tells people of jobs that went since it last did, at most once a minute.
    pub fn tell_dropped(&mut self) {
        let Some([queue, count, bytes]) = self.dropped_news.due(&self.stats, self.now_ms) else {
            return;
        };
        tracing::warn!(
            "finished jobs went before their time: {queue} over their queues' maximum, {count} \
             over --finished-max, {bytes} over --finished-size-max"
        );
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
