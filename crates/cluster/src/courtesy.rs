//! When a leader makes way for the node that stands first at its shard: a rule without I/O, whose time is an
//! argument.
//!
//! The other node may fail to take over: its log was slow just then, or it had a moment to catch up. Then
//! this node leads again, and makes way again after a pause. Nobody answers clients in between, so a node that
//! cannot lead at all must not be let in again and again: the pause doubles each time.

use std::time::Duration;

/// The leader of a shard must have led for so long, and the node that is to lead it instead must have been
/// heard for as long.
const SETTLED: Duration = Duration::from_secs(10);
/// A node makes way again after this time, which doubles each time ...
const AGAIN_MIN: Duration = Duration::from_secs(30);
/// ... up to this, and for as long as less than two of these pass in between.
const AGAIN_MAX: Duration = Duration::from_secs(600);

/// What a node remembers of its lead and of how often it made way.
#[derive(Default, Debug)]
pub(crate) struct Courtesy {
    /// Since when this node leads.
    leads_since: Option<Duration>,
    made_way: Option<MadeWay>,
}

#[derive(Clone, Copy, Debug)]
struct MadeWay {
    at: Duration,
    /// The pause before it may make way again.
    again: Duration,
}

impl Courtesy {
    /// Whether this node may make way now. If so, returns the time since which the other node must have been
    /// heard, at the latest.
    pub fn settled_by(&mut self, now: Duration, leads: bool) -> Option<Duration> {
        if !leads {
            self.leads_since = None;
            return None;
        }
        let since = *self.leads_since.get_or_insert(now);
        let is_too_soon = self.made_way.is_some_and(|it| now.saturating_sub(it.at) < it.again);
        let settled_by = now.checked_sub(SETTLED)?;
        (since <= settled_by && !is_too_soon).then_some(settled_by)
    }

    /// It makes way now.
    pub fn makes_way(&mut self, now: Duration) {
        let lately = self.made_way.filter(|it| now.saturating_sub(it.at) < 2 * AGAIN_MAX);
        let again = lately.map_or(AGAIN_MIN, |it| (2 * it.again).min(AGAIN_MAX));
        self.made_way = Some(MadeWay { at: now, again });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// The times at which a node makes way that leads from 100 s to `until`, and again a second after each.
    fn makes_way(courtesy: &mut Courtesy, until: u64) -> Vec<u64> {
        let mut times = Vec::new();
        for now in 100..until {
            let has_just = times.last() == Some(&(now - 1));
            if let Some(settled_by) = courtesy.settled_by(s(now), !has_just) {
                assert_eq!(settled_by, s(now - 10));
                courtesy.makes_way(s(now));
                times.push(now);
            }
        }
        times
    }

    #[test]
    fn whoever_leads_in_vain_is_let_in_again_ever_more_seldom() {
        let mut courtesy = Courtesy::default();
        let times = makes_way(&mut courtesy, 3_000);
        assert_eq!(times, [110, 140, 200, 320, 560, 1_040, 1_640, 2_240, 2_840]);
        // Forgotten after twice the longest time.
        assert_eq!(courtesy.settled_by(s(4_040), true), Some(s(4_030)));
        courtesy.makes_way(s(4_040));
        assert_eq!(courtesy.settled_by(s(4_069), true), None);
        assert_eq!(courtesy.settled_by(s(4_070), true), Some(s(4_060)));
    }

    #[test]
    fn a_leader_that_has_just_begun_or_leads_no_more_makes_no_way() {
        let mut courtesy = Courtesy::default();
        assert_eq!(courtesy.settled_by(s(3), true), None, "nothing is settled as early");
        assert_eq!(courtesy.settled_by(s(12), true), None);
        assert_eq!(courtesy.settled_by(s(13), true), Some(s(3)));
        assert_eq!(courtesy.settled_by(s(14), false), None);
        assert_eq!(courtesy.settled_by(s(15), true), None, "it begins anew");
        assert_eq!(courtesy.settled_by(s(25), true), Some(s(15)));
    }
}
