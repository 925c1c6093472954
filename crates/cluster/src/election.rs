//! When a follower campaigns: a rule without I/O, whose time is an argument.
//!
//! A wrong decision here is safe: either a campaign deposes a leader that was well, or a dead leader is
//! noticed later. The log decides who leads.

use std::time::Duration;

/// A leader that gave no sign of life for so long is lost.
pub(crate) const PATIENCE: Duration = Duration::from_millis(800);
/// Followers campaign one after the other, this far apart: by then an append is mostly answered.
const RANK_STEP: Duration = Duration::from_millis(150);
/// And each waits for a random time up to this.
pub(crate) const JITTER_MAX: Duration = Duration::from_millis(100);
/// A leader tries again this long after the log is back, at the latest.
const RETRY_TIME: Duration = Duration::from_millis(1_200);
/// A node that has stepped down lets others go first for so long.
const RELUCTANCE: Duration = Duration::from_secs(3);

/// What a follower is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Decision {
    /// Nothing before this time.
    WaitUntil(Duration),
    /// Ask the log to lead.
    Campaign,
}

/// What one follower knows of who leads.
#[derive(Clone, Debug)]
pub(crate) struct Election {
    /// The highest epoch in the folded log.
    epoch: u64,
    /// When its leader last gave a sign of life.
    sign_at: Duration,
    /// The leader of this epoch, and any before it, has stepped down.
    vacant: Option<u64>,
    /// Others go first until then.
    not_before: Duration,
    jitter: Duration,
}

impl Election {
    /// The log was read to its end for the first time.
    pub fn begin(now: Duration, epoch: u64, jitter: Duration) -> Election {
        Election { epoch, sign_at: now, vacant: None, not_before: now, jitter }
    }

    /// This node has just stepped down itself.
    pub fn reluctant(self, now: Duration) -> Election {
        Election { not_before: now + RELUCTANCE, ..self }
    }

    /// A record was read that has just been appended: its leader is alive.
    pub fn record(&mut self, now: Duration, epoch: u64) {
        if epoch >= self.epoch {
            (self.epoch, self.sign_at) = (epoch, now);
        }
    }

    /// A node has announced that it leads.
    pub fn leader(&mut self, now: Duration, epoch: u64) {
        if epoch >= self.epoch && self.vacant.is_none_or(|vacant| epoch > vacant) {
            self.sign_at = self.sign_at.max(now);
        }
    }

    /// A node has announced that it led and appends nothing more.
    pub fn stepped_down(&mut self, now: Duration, epoch: u64) {
        if epoch >= self.epoch && self.vacant.is_none_or(|vacant| epoch > vacant) {
            (self.vacant, self.sign_at) = (Some(epoch), now);
        }
    }

    /// The log was out of reach, for this node and maybe for the leader.
    pub fn log_is_back(&mut self, now: Duration) {
        self.sign_at = self.sign_at.max(now + RETRY_TIME);
    }

    /// What to do now. `rank` says how many live followers go first.
    pub fn decide(&self, now: Duration, rank: u32) -> Decision {
        let is_vacant = self.vacant.is_some_and(|vacant| vacant >= self.epoch);
        let patience = if is_vacant { Duration::ZERO } else { PATIENCE };
        let turn = RANK_STEP.saturating_mul(rank) + self.jitter;
        let at = (self.sign_at + patience + turn).max(self.not_before);
        if now >= at { Decision::Campaign } else { Decision::WaitUntil(at) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    enum Happens {
        Record(u64),
        Leader(u64),
        SteppedDown(u64),
        SelfSteppedDown,
        LogIsBack,
    }
    use Happens::{Leader, LogIsBack, Record, SelfSteppedDown, SteppedDown};

    /// When a follower campaigns if this happens and nothing more. It is of epoch 5, with this rank and a
    /// jitter of 10 ms, and has read the log to its end at 1000 ms.
    fn campaigns_at(rank: u32, happens: &[(u64, Happens)]) -> u64 {
        let mut election = Election::begin(ms(1000), 5, ms(10));
        let mut happens = happens.iter().peekable();
        for now in 1000.. {
            while let Some((_, what)) = happens.next_if(|(at, _)| *at == now) {
                match what {
                    Record(epoch) => election.record(ms(now), *epoch),
                    Leader(epoch) => election.leader(ms(now), *epoch),
                    SteppedDown(epoch) => election.stepped_down(ms(now), *epoch),
                    SelfSteppedDown => election = election.reluctant(ms(now)),
                    LogIsBack => election.log_is_back(ms(now)),
                }
            }
            if election.decide(ms(now), rank) == Decision::Campaign {
                return now;
            }
        }
        unreachable!("it campaigns at some time")
    }

    #[test]
    fn who_hears_nobody_campaigns_when_patience_and_turn_are_over() {
        assert_eq!(campaigns_at(0, &[]), 1810);
        assert_eq!(campaigns_at(2, &[]), 2110);
    }

    #[test]
    fn signs_of_life_of_the_newest_leader_keep_a_follower_back() {
        for (happens, at) in [
            (vec![(1500, Leader(5))], 2310),
            (vec![(1500, Leader(6))], 2310),
            (vec![(1500, Record(5))], 2310),
            (vec![(1400, Record(6)), (1700, Leader(5))], 2210),
            (vec![(1500, Leader(4))], 1810),
            (vec![(1200, Leader(5)), (1400, Leader(5)), (1600, Record(5))], 2410),
        ] {
            assert_eq!(campaigns_at(0, &happens), at);
        }
    }

    #[test]
    fn a_leader_that_has_stepped_down_is_not_waited_for() {
        for (rank, happens, at) in [
            (0, vec![(1500, SteppedDown(5))], 1510),
            (1, vec![(1500, SteppedDown(5))], 1660),
            // Its last words and records may come in any order.
            (0, vec![(1500, SteppedDown(5)), (1505, Leader(5))], 1510),
            (0, vec![(1500, SteppedDown(5)), (1505, Record(5))], 1515),
            // Somebody leads already.
            (0, vec![(1500, SteppedDown(5)), (1505, Record(6))], 2315),
            (0, vec![(1400, Record(6)), (1500, SteppedDown(5))], 2210),
        ] {
            assert_eq!(campaigns_at(rank, &happens), at);
        }
    }

    #[test]
    fn a_leader_that_was_out_of_reach_of_the_log_too_has_time_to_try_again() {
        assert_eq!(campaigns_at(0, &[(1700, LogIsBack)]), 3710);
        assert_eq!(campaigns_at(0, &[(1700, LogIsBack), (2000, Record(5))]), 2810);
    }

    #[test]
    fn who_has_stepped_down_lets_others_go_first() {
        assert_eq!(campaigns_at(0, &[(1000, SelfSteppedDown)]), 4000);
        assert_eq!(campaigns_at(0, &[(1000, SelfSteppedDown), (3900, Record(6))]), 4710);
    }
}
