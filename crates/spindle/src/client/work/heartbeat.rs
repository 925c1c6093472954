//! Keeps a lease while its command runs, and notices when this worker has lost the job.

use std::time::Duration;

use super::{link::Link, process::Beat};
use crate::client::session::{AskError, Leased, Lost};

/// A cancelled or lost job is noticed within this time, however long its lease lasts. A beat is one
/// small record for the server.
const BEAT_MAX: Duration = Duration::from_secs(5);
/// A heartbeat that failed is tried again after at most this.
const BEAT_AGAIN: Duration = Duration::from_secs(1);
/// Beats are never closer than this.
const BEAT_MIN: Duration = Duration::from_millis(20);
/// A lease is extended by at most this: the most that servers take.
const EXTEND_MS_MAX: u64 = 31 * 24 * 3_600_000;

/// What a beat may say to people.
pub enum Noticed {
    /// This worker does not have the job any more.
    Lost(Lost),
    /// The lease cannot be extended, and ends at its time.
    CannotExtend(String),
}

/// Extends one lease, beat by beat.
pub struct Heartbeat {
    interval: Duration,
    ttr_ms: u32,
    keep_running: bool,
    /// There is no lease to keep, or the server cannot extend it.
    is_stopped: bool,
    lost: Option<Lost>,
}

impl Heartbeat {
    /// The heartbeat of this job's lease. With `keep_running` its command runs on when the job is
    /// lost.
    pub fn of(job: &Leased, keep_running: bool) -> Self {
        let ttr_ms = u32::try_from(job.ttr_ms.min(EXTEND_MS_MAX)).unwrap_or(u32::MAX);
        let interval = Duration::from_millis(job.ttr_ms / 3).clamp(BEAT_MIN, BEAT_MAX);
        Self { interval, ttr_ms, keep_running, is_stopped: false, lost: None }
    }

    /// The time to the first beat.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// Why the job was lost, if a beat noticed it.
    pub fn lost(&self) -> Option<Lost> {
        self.lost
    }

    /// Extends the lease; says what becomes of the command.
    pub fn beat(
        &mut self,
        link: &mut Link<'_>,
        job: &Leased,
        notice: impl FnOnce(&Noticed),
    ) -> Beat {
        if self.is_stopped {
            return Beat::Again(self.interval);
        }
        match link.extend(job, self.ttr_ms) {
            Ok(()) => Beat::Again(self.interval),
            Err(AskError::Refused { text, .. } | AskError::Unable(text)) => {
                self.is_stopped = true;
                notice(&Noticed::CannotExtend(text));
                Beat::Again(self.interval)
            }
            Err(AskError::NotFound) => self.lose(Lost::Deleted, notice),
            Err(AskError::LeaseLost(lost)) => self.lose(lost, notice),
            Err(_) => Beat::Again(self.interval.min(BEAT_AGAIN)),
        }
    }

    fn lose(&mut self, lost: Lost, notice: impl FnOnce(&Noticed)) -> Beat {
        self.is_stopped = true;
        self.lost = Some(lost);
        notice(&Noticed::Lost(lost));
        if self.keep_running { Beat::Again(self.interval) } else { Beat::End }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn of(ttr_ms: u64) -> Heartbeat {
        let job = Leased {
            id: "7".to_owned(),
            queue: Bytes::from_static(b"q"),
            attempt: Some(1),
            ttr_ms,
            payload: Bytes::new(),
            traceparent: None,
            claim: String::new(),
        };
        Heartbeat::of(&job, false)
    }

    #[test]
    fn a_lease_is_extended_in_time_and_a_lost_job_noticed_soon() {
        for (ttr_ms, interval_ms) in [
            (1, 20),
            (90, 30),
            (15_000, 5_000),
            (15_003, 5_000),
            (60_000, 5_000),
            (u64::MAX, 5_000),
        ] {
            assert_eq!(of(ttr_ms).interval().as_millis(), interval_ms, "{ttr_ms}");
        }
    }

    #[test]
    fn a_lease_without_end_is_extended_by_what_servers_take() {
        assert_eq!(of(60_000).ttr_ms, 60_000);
        assert_eq!(u64::from(of(u64::MAX).ttr_ms), EXTEND_MS_MAX);
    }
}
