//! One record at a time, or several on their way together.
//!
//! A log behind a network takes several records at a time. Whether that is better depends on what its
//! answers wait for. If that is the way there and back, each answer takes as long as one alone would. If
//! it is processors or a disk, answers take the longer, the more records there are: then one at a time is
//! better, as what is decided meanwhile goes along in one record, which costs the log less than many.
//!
//! What is decided while a record is on its way alone waits for half of that on average, and then as long as
//! one record takes: one and a half times. So the records go together where each takes no longer than that,
//! and else alone. Only trying tells; so every [`TRY_EVERY`] the other way is tried for [`TRIAL`] records.

use std::time::{Duration, Instant};

/// The other way is tried so often.
const TRY_EVERY: Duration = Duration::from_secs(5);
/// A trial lasts for so many records.
const TRIAL: u32 = 64;
/// A trial of several together in which fewer than these were together says that there is no need.
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
    /// Alone at first, which is right for whoever asks seldom; or together for ever.
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
            // Of the other way's last ones, or of a time when there is little to do.
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
