//! The machine's clock, which may be set to any time while no server runs, or while one does. Which
//! difference from the log's time is accepted is written down here once more, from `docs/api.md`,
//! "The clock".

use std::sync::Arc;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spindle_access::Role;
use spindle_core::Command;
use spindle_core::audit::{Action, Actor, AuditEntry};
use spindle_core::command::Audited;
use spindle_engine::{Audit, Clock};
use spindle_testkit::ManualClock;

use super::{Judged, Run};
use crate::model::About;

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
/// Clocks that differ by no more than this agree.
const AGREE_MS: i64 = 5 * 60_000;
/// How long a server may have been away.
const AWAY_MS: i64 = 30 * DAY_MS;

/// One of this many restarts has a clock that was set far off.
const FAR_EVERY: u32 = 12;
/// One of this many steps sets the clock of a running server, or accepts it.
const SET_EVERY: u32 = 60;
/// The same while the clocks have not agreed since the start.
const SET_RIGHT_EVERY: u32 = 12;
/// The last millisecond that a clock of nanoseconds can say: in the year 2554.
const END_MS: i64 = 18_446_744_073_709;

/// What the server may assume about its clock.
pub(super) struct Clocks {
    /// Separate from the run's generator, so that clocks change as little else as possible.
    rng: ChaCha8Rng,
    /// The clocks have not agreed since the start.
    starting: bool,
    /// How far behind the log the clock was when a person accepted it.
    behind_ms: i64,
}

impl Clocks {
    pub fn new(seed: u64) -> Clocks {
        Clocks { rng: ChaCha8Rng::seed_from_u64(seed ^ 0xc10c), starting: false, behind_ms: 0 }
    }

    fn believes(&self, ahead_ms: i64) -> bool {
        let most = if self.starting { AWAY_MS } else { AGREE_MS };
        ahead_ms <= most && ahead_ms >= -AGREE_MS - self.behind_ms
    }
}

impl Run {
    /// Sets the clock of the next server: about an hour earlier or later than that of the last one,
    /// or further off than the server accepts.
    pub(super) fn set_clock_for_start(&mut self) {
        let near = self.rng.random_range(0..2 * HOUR_MS as u64);
        let start_ms = (self.server.now_ms() + near).saturating_sub(HOUR_MS as u64);
        self.server.clock = Arc::new(ManualClock::new(start_ms));
        if self.clocks.rng.random_ratio(1, FAR_EVERY) {
            let now_ms = start_ms as i64;
            let far = [
                AWAY_MS + 1,
                400 * DAY_MS,
                END_MS - now_ms,
                -AGREE_MS - 1,
                -400 * DAY_MS,
                -now_ms,
                AWAY_MS,
                -AGREE_MS,
            ];
            // Accepted times end what is kept, so they are rare.
            let among = if self.clocks.rng.random_ratio(1, 4) { far.len() } else { 6 };
            self.server.clock.set_wall_ahead(far[self.clocks.rng.random_range(0..among)]);
        }
    }

    /// A server has started with its clock this far ahead of the log.
    pub(super) fn judge_clock_at_start(&mut self, ahead_ms: i64) -> Judged {
        (self.clocks.starting, self.clocks.behind_ms) = (true, 0);
        self.counts.clocks_ahead += u64::from(ahead_ms > AWAY_MS);
        self.counts.clocks_behind += u64::from(ahead_ms < -AGREE_MS);
        let believed = self.clocks.believes(ahead_ms);
        self.clocks.starting = !believed;
        self.judge_hold(believed, ahead_ms)
    }

    fn judge_hold(&mut self, believed: bool, ahead_ms: i64) -> Judged {
        self.model.holds_expiry = !believed;
        let held = self.server.engine().observe().gauges().is_clock_held;
        if held == believed {
            return Err(format!("with a clock {ahead_ms} ms ahead, held is {held}"));
        }
        Ok(())
    }

    /// Somebody sets the clock of the running server, sets it right, or says that it is right.
    pub(super) fn set_clock(&mut self) -> Judged {
        let every = if self.clocks.starting { SET_RIGHT_EVERY } else { SET_EVERY };
        if !self.clocks.rng.random_ratio(1, every) || self.server.is_dead() {
            return Ok(());
        }
        let far = AGREE_MS + 1;
        let ahead_ms = match self.clocks.rng.random_range(0..8) {
            0 => far,
            1 => -far,
            2 if self.model.holds_expiry => return self.accept_clock(),
            3 => -AGREE_MS,
            // The server had been away for hours.
            4 | 5 if self.clocks.starting => self.clocks.rng.random_range(0..3 * HOUR_MS),
            6 if self.clocks.starting => AWAY_MS + self.clocks.rng.random_range(0..2),
            _ => 0,
        };
        self.server.clock.set_wall_ahead(ahead_ms);
        let before_ms = self.server.now_ms();
        self.server.engine().watch_clock();
        let believed = self.clocks.believes(ahead_ms);
        if believed && self.clocks.starting {
            self.judge_set_forward(before_ms, ahead_ms)?;
            self.clocks.starting = false;
            self.counts.clocks_set_right += 1;
        }
        self.judge_hold(believed, ahead_ms)?;
        self.happen_what_is_due()
    }

    /// Time went forward at once, if the clock was ahead: leases keep the time they had left.
    fn judge_set_forward(&mut self, before_ms: u64, ahead_ms: i64) -> Judged {
        let now_ms = self.server.now_ms();
        if now_ms != before_ms + ahead_ms.max(0).unsigned_abs() {
            return Err(format!("a clock {ahead_ms} ms ahead made {now_ms} of {before_ms}"));
        }
        self.change_many(|model, now_ms, _| model.set_forward(before_ms, now_ms))
    }

    fn accept_clock(&mut self) -> Judged {
        if !(self.is_admitted()? && self.may(Role::Admin, &About::Server)?) {
            return Ok(());
        }
        let before_ms = self.server.now_ms();
        let ahead_ms = self.server.clock.wall_ahead_ms();
        let actor = Actor::default();
        let mut audit = Audit::new(actor.clone());
        let reply = self.server.engine().people(&mut audit).accept_clock();
        (self.clocks.starting, self.clocks.behind_ms) = (false, (-ahead_ms).max(0));
        self.model.holds_expiry = false;
        self.judge_set_forward(before_ms, ahead_ms)?;
        self.counts.clocks_accepted += 1;
        let action = Action::AcceptClock as i32;
        let entry = AuditEntry { actor: Some(actor), action, ..AuditEntry::default() };
        self.judge(&Command::Audited(Box::new(Audited { command: None, entry })), reply)?;
        self.happen_what_is_due()
    }
}
