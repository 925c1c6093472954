//! One record at a time, or several on their way together.
//!
//! A log behind a network takes several records at a time. Whether that is better depends on what its answers wait for.
//! If they wait for the network's round trip, each answer takes as long as one alone would. If they wait for processors
//! or a disk, answers take longer the more records there are: then one at a time is better, since everything decided
//! meanwhile goes into one record, which costs the log less than many.
//!
//! A change decided while one record is on its way alone waits on average for half of that record's time, and then for
//! the time of its own record: one and a half times in all. So records go together where each takes no longer than
//! that, and alone otherwise. Only a trial can tell; so every [`TRY_EVERY`] the other way is tried for [`TRIAL`]
//! records.

use std::time::{Duration, Instant};

/// How often the other way is tried.
const TRY_EVERY: Duration = Duration::from_secs(5);
/// How many records a trial lasts for.
const TRIAL: u32 = 64;
/// If fewer records than this were together in a trial of that way, there is no need for it.
const TOGETHER_MIN: u32 = 16;

/// Which way it is now, and what is known of both.
#[derive(Debug)]
pub(super) struct Width {
    is_fixed: bool,
    way: Way,
    /// When that began, and how many records have arrived since.
    since: Instant,
    records: u32,
    is_trial: bool,
    alone: Average,
    together: Average,
}

/// How records go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// The next one leaves when there is none on its way.
    Alone,
    /// The next one leaves when there is a place for it.
    Together,
}

/// How long answers take: the mean of about as many as a trial has.
#[derive(Clone, Copy, Default, Debug)]
struct Average {
    time: Duration,
    records: u32,
}

impl Average {
    fn note(&mut self, took: Duration) {
        let weight = self.records.min(TRIAL - 1);
        self.time = (self.time * weight + took) / (weight + 1);
        self.records = self.records.saturating_add(1);
    }
}

impl Width {
    /// Alone at first, which is right for clients that ask seldom; or together for ever.
    pub fn new(is_fixed: bool, now: Instant) -> Width {
        let way = if is_fixed { Way::Together } else { Way::Alone };
        let (alone, together) = (Average::default(), Average::default());
        Width { is_fixed, way, since: now, records: 0, is_trial: false, alone, together }
    }

    /// How the next record goes.
    pub fn way(&self) -> Way {
        self.way
    }

    /// A record has arrived. `had_company`: it left while others were on their way.
    pub fn note(&mut self, took: Duration, had_company: bool, now: Instant) {
        if self.is_fixed {
            return;
        }
        self.records = self.records.saturating_add(1);
        match (self.way, had_company) {
            (Way::Alone, false) => self.alone.note(took),
            (Way::Together, true) => self.together.note(took),
            // Left over from the other way, or from a time when there is little to do.
            _ => {}
        }
        if self.is_trial && self.records >= TRIAL {
            let better = self.better();
            if better == self.way {
                (self.is_trial, self.since) = (false, now);
            } else {
                self.turn(better, false, now);
            }
        } else if !self.is_trial && now - self.since >= TRY_EVERY {
            let other = if self.way == Way::Alone { Way::Together } else { Way::Alone };
            self.turn(other, true, now);
        }
    }

    fn better(&self) -> Way {
        let gains =
            self.together.records >= TOGETHER_MIN && self.together.time <= self.alone.time * 3 / 2;
        if gains { Way::Together } else { Way::Alone }
    }

    fn turn(&mut self, way: Way, is_trial: bool, now: Instant) {
        if is_trial {
            match way {
                Way::Alone => self.alone = Average::default(),
                Way::Together => self.together = Average::default(),
            }
        }
        (self.way, self.is_trial, self.since, self.records) = (way, is_trial, now, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: Duration = Duration::from_micros(1_000);

    /// So many records, one a millisecond, on a log whose answers take so long to those together.
    fn pass(width: &mut Width, now: &mut Instant, records: u32, together: Duration) -> u32 {
        let mut times_together = 0;
        for _ in 0..records {
            *now += Duration::from_millis(1);
            let is_together = width.way() == Way::Together;
            width.note(if is_together { together } else { ALONE }, is_together, *now);
            times_together += u32::from(is_together);
        }
        times_together
    }

    #[test]
    fn records_go_together_where_each_takes_no_longer_than_one_that_waits() {
        for (together, way) in [(1_500, Way::Together), (1_510, Way::Alone)] {
            let mut now = Instant::now();
            let mut width = Width::new(false, now);
            assert_eq!(width.way(), Way::Alone, "at first");
            let together = Duration::from_micros(together);
            pass(&mut width, &mut now, 5_000 + TRIAL, together);
            assert_eq!(width.way(), way);
            // The other way is tried again and again, and seldom.
            let times = pass(&mut width, &mut now, 100_000, together);
            let seldom = if way == Way::Together { 100_000 - times } else { times };
            assert!((19 * TRIAL..=20 * TRIAL).contains(&seldom), "{seldom}");
        }
    }

    #[test]
    fn what_was_right_is_found_to_be_wrong_when_the_log_changes() {
        let mut now = Instant::now();
        let mut width = Width::new(false, now);
        let (quick, slow) = (Duration::from_micros(1_100), Duration::from_millis(8));
        for (together, way) in [(quick, Way::Together), (slow, Way::Alone), (quick, Way::Together)]
        {
            pass(&mut width, &mut now, 11_000, together);
            assert_eq!(width.way(), way, "{together:?}");
        }
    }

    #[test]
    fn who_asks_seldom_goes_alone() {
        let mut now = Instant::now();
        let mut width = Width::new(false, now);
        let mut is_tried = false;
        for _ in 0..1_000 {
            now += Duration::from_millis(50);
            width.note(ALONE, false, now);
            assert!(width.way() == Way::Alone || width.is_trial);
            is_tried |= width.is_trial;
        }
        assert!(is_tried);
    }
}
