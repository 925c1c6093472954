//! When to commit: one cohort a commit.
//!
//! Clients that are answered together ask again together. If the first of them to come back were
//! given a commit of its own, all others would wait for that one and then for the next: the clients
//! fall apart into two cohorts, and each sync serves half of them. So whoever owns connections, before
//! it commits, goes on looking for requests while connections that it has answered are expected
//! back. A [`Cohort`] says whether to. It reads no clock and touches no socket:
//!
//! - [`Cohort::asks`] and [`Cohort::answered`] tell it of every request and of every connection
//!   that has all its answers, [`Cohort::leaves`] of those that are gone;
//! - [`Cohort::looked`] and [`Cohort::slept`] tell it how long nothing came: time in which requests
//!   were served, or a commit was under way, is not time that a client took;
//! - [`Cohort::next`] says what to do when all is served that came and all is sent that may leave.
//!
//! The rules:
//!
//! 1. A connection is expected back if it came back in time after each of its last two answers. So
//!    nobody waits for open loops, for workers that work, or for people.
//! 2. A cohort waits for half the time a sync takes, at most [`PATIENCE_MAX`], in all. What waits
//!    longer would have been better off with a sync of its own.
//! 3. Within one cohort a connection is expected twice at most: for a lease and then for its
//!    `complete`. Somebody who only reads, however fast, holds up nobody's commit.
//! 4. Who was expected in vain is not expected again until it has been fast again.

use std::time::Duration;

/// A cohort waits no longer than this for those who are expected, in all.
pub const PATIENCE_MAX: Duration = Duration::from_micros(100);
/// In time after so many answers in a row, a connection is expected after the next one.
const STREAK_MIN: u8 = 2;
/// Within a cohort a connection is expected so many times.
const EXPECTED_MAX: u8 = 2;

/// What to do when everything that came is served and everything that may leave has left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Look for more without sleeping, and ask again.
    Look,
    /// Commit.
    Commit,
    /// Sleep until something comes.
    Sleep,
}

/// What is known of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Guest {
    /// The cohort it was answered in last.
    cohort: u64,
    /// When it was answered, on the cohort's clock; none while it waits for an answer.
    answered: Option<Duration>,
    /// Whether it is among those who are expected.
    is_expected: bool,
    /// How many times it was expected in that cohort.
    expected: u8,
    /// How many times in a row it came back in time.
    streak: u8,
}

/// The connections of one thread that share a commit.
#[derive(Debug, Default)]
pub struct Cohort {
    number: u64,
    /// How many connections are expected.
    expected: usize,
    /// The time in which nothing came, since the start: connections are timed by it.
    clock: Duration,
    /// How long this cohort has waited.
    waited: Duration,
    /// How long it may.
    patience: Duration,
}

impl Cohort {
    /// A connection has sent something.
    pub fn asks(&mut self, guest: &mut Guest) {
        if let Some(answered) = guest.answered.take() {
            let in_time = self.clock.saturating_sub(answered) <= self.patience;
            guest.streak = if in_time { (guest.streak + 1).min(STREAK_MIN) } else { 0 };
        }
        self.leaves(guest);
    }

    /// A connection has been sent all it asked for.
    pub fn answered(&mut self, guest: &mut Guest) {
        self.leaves(guest);
        if guest.cohort != self.number {
            (guest.cohort, guest.expected) = (self.number, 0);
        }
        guest.answered = Some(self.clock);
        if guest.streak >= STREAK_MIN && guest.expected < EXPECTED_MAX {
            guest.expected += 1;
            guest.is_expected = true;
            self.expected += 1;
        }
    }

    /// A connection is not expected any more.
    pub fn leaves(&mut self, guest: &mut Guest) {
        // Those expected in an earlier cohort were given up with it.
        if std::mem::take(&mut guest.is_expected) && guest.cohort == self.number {
            self.expected -= 1;
        }
    }

    /// It was looked for more, and for so long nothing came.
    pub fn looked(&mut self, time: Duration) {
        self.clock += time;
        self.waited += time;
    }

    /// For so long nothing came, and nobody looked.
    pub fn slept(&mut self, time: Duration) {
        self.clock += time;
    }

    /// What to do now. `has_work`: something was decided and is not on its way to the log.
    pub fn next(&mut self, has_work: bool, sync_time: Duration) -> Next {
        self.patience = (sync_time / 2).min(PATIENCE_MAX);
        if self.expected > 0 && self.waited < self.patience {
            return Next::Look;
        }
        self.number += 1;
        self.expected = 0;
        self.waited = Duration::ZERO;
        if has_work { Next::Commit } else { Next::Sleep }
    }
}
