//! Lines of the log that could come very often.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The time between two lines.
const SAID_EVERY: Duration = Duration::from_secs(10);

/// Counts what happens, and says when it is time for a line about it.
#[derive(Default)]
pub(crate) struct Seldom {
    state: Mutex<(u64, Option<Instant>)>,
}

impl Seldom {
    /// Counts one event. Returns how often it has happened since the start, if a line about it is due.
    pub fn count(&self) -> Option<u64> {
        let mut state = self.state.lock();
        let (since_start, said_at) = &mut *state;
        *since_start += 1;
        if said_at.is_some_and(|at| at.elapsed() < SAID_EVERY) {
            return None;
        }
        *said_at = Some(Instant::now());
        Some(*since_start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_line_is_due_every_ten_seconds_and_counts_all() {
        let seldom = Seldom::default();
        assert_eq!([seldom.count(), seldom.count(), seldom.count()], [Some(1), None, None]);
        tokio::time::advance(SAID_EVERY - Duration::from_millis(1)).await;
        assert_eq!(seldom.count(), None);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(seldom.count(), Some(5));
    }
}
