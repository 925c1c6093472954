//! When a schedule fires: from its texts to times.
//!
//! The core keeps a schedule's expression and zone as texts ([`spindle_core::schedule`]). Here
//! they are read, and the times that follow a moment are computed: [`Timing::of`], [`Timing::after`].
//! Pure: no clock, no I/O; the zones are those that are built into the program, so every server of
//! a release computes the same times on every machine.
//!
//! An expression is one of:
//!
//! - a cron pattern of five fields, or six with seconds first, as `croner` reads it: names of
//!   months and days, lists, ranges, steps, `L`, `W`, `#`, and `@hourly` and its like;
//! - `every` and a time (`every 90s`): multiples of it, counted from the schedule's start or,
//!   without one, from 1970 in UTC.
//!
//! When the clock in a zone changes, a time of day that does not exist is replaced by the first
//! moment after the gap, and a time that exists twice counts once, the first time. Patterns that
//! run through the hours (with `*` or a step in seconds, minutes or hours) follow the clock on the
//! wall: they have no times in a gap, and each time of a repeated hour twice. `tests/times.rs` has
//! a table.

use std::time::Duration;

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use spindle_core::job::mix;
use spindle_core::schedule::{Due, MISSED_AFTER_MS, Schedule};

/// The shortest time between two times of `every`.
pub const EVERY_MS_MIN: u64 = 1_000;
/// The longest: a year.
pub const EVERY_MS_MAX: u64 = 366 * 24 * 3600 * 1000;

/// The last millisecond before the year 5000, after which the search for times ends.
const LAST_MS: u64 = 95_617_583_999_999;

/// Why a schedule has no times.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TimingError {
    /// The expression cannot be read.
    #[error("the expression `{expression}` cannot be read: {why}")]
    Expression {
        /// The expression.
        expression: String,
        /// What is wrong with it.
        why: String,
    },
    /// There is no such zone.
    #[error("there is no time zone `{0}`; zones have names such as UTC or Europe/Berlin")]
    Zone(String),
    /// The end lies before the start.
    #[error("the schedule ends before it starts")]
    Window,
    /// No time follows.
    #[error("the schedule never fires: `{0}` names no time before its end and the year 5000")]
    NeverFires(String),
}

/// When a schedule fires.
#[derive(Clone, Debug)]
pub struct Timing {
    name: String,
    expression: String,
    when: When,
    start_ms: u64,
    end_ms: u64,
    jitter_ms: u64,
}

#[derive(Clone, Debug)]
enum When {
    Cron(Box<Cron>, TimeZone),
    Every { period_ms: u64 },
}

impl Timing {
    /// Reads what a schedule says.
    pub fn of(schedule: &Schedule) -> Result<Timing, TimingError> {
        let Schedule { name, expression, zone, jitter_ms, .. } = schedule;
        let timing = Timing {
            name: name.clone(),
            expression: expression.clone(),
            when: read(expression, zone)?,
            start_ms: schedule.start_ms.unwrap_or(0),
            end_ms: schedule.end_ms.unwrap_or(LAST_MS).min(LAST_MS),
            jitter_ms: *jitter_ms,
        };
        let is_reversed = schedule.end_ms.is_some_and(|end_ms| end_ms < timing.start_ms);
        if is_reversed { Err(TimingError::Window) } else { Ok(timing) }
    }

    /// The first time after a moment; none if none follows.
    pub fn after(&self, after_ms: u64) -> Option<Due> {
        let after_ms = match self.start_ms.checked_sub(1) {
            Some(before_start_ms) => after_ms.max(before_start_ms),
            None => after_ms,
        };
        let due_ms = match &self.when {
            When::Every { period_ms } => self.next_multiple(*period_ms, after_ms),
            When::Cron(cron, zone) => next_of(cron, zone, after_ms),
        };
        let due_ms = due_ms.filter(|due_ms| *due_ms <= self.end_ms)?;
        Some(Due { due_ms, fire_ms: due_ms.saturating_add(self.jitter_at(due_ms)) })
    }

    /// As [`Timing::after`], or why there is none: a schedule without a time is refused.
    pub fn first_after(&self, after_ms: u64) -> Result<Due, TimingError> {
        self.after(after_ms).ok_or_else(|| TimingError::NeverFires(self.expression.clone()))
    }

    /// The times after a moment, in order.
    pub fn all_after(&self, after_ms: u64) -> impl Iterator<Item = Due> + '_ {
        std::iter::successors(self.after(after_ms), |due| self.after(due.due_ms))
    }

    /// The first time after `due` that is not missed by now: from there a schedule continues if
    /// missed times are not made up one by one. Looks only at the times of one jitter.
    pub fn resumed(&self, due: Due, now_ms: u64) -> Option<Due> {
        let on_time_ms = now_ms.saturating_sub(MISSED_AFTER_MS);
        let behind_ms = on_time_ms.saturating_sub(self.jitter_ms.saturating_add(1));
        self.all_after(behind_ms.max(due.due_ms)).find(|next| next.fire_ms >= on_time_ms)
    }

    /// `every` begins at the start, if there is one.
    fn next_multiple(&self, period_ms: u64, after_ms: u64) -> Option<u64> {
        let Some(since_ms) = after_ms.checked_sub(self.start_ms) else {
            return Some(self.start_ms);
        };
        let periods = (since_ms / period_ms).checked_add(1)?;
        self.start_ms.checked_add(periods.checked_mul(period_ms)?)
    }

    /// Between 0 and the schedule's jitter, the same for a time wherever it is computed.
    fn jitter_at(&self, due_ms: u64) -> u64 {
        let bytes = self.name.bytes().chain(due_ms.to_le_bytes());
        let hash = bytes.fold(0, |hash, byte| mix(hash ^ u64::from(byte)));
        hash % self.jitter_ms.saturating_add(1)
    }
}

fn read(expression: &str, zone: &str) -> Result<When, TimingError> {
    let unreadable = |why: String| {
        let expression = expression.to_owned();
        TimingError::Expression { expression, why }
    };
    let zone = TimeZone::get(zone).map_err(|_| TimingError::Zone(zone.to_owned()))?;
    let mut words = expression.split_whitespace();
    if words.next() == Some("every") {
        let period_ms = match (words.next().and_then(read_period), words.next()) {
            (Some(period_ms), None) => period_ms,
            _ => return Err(unreadable("write `every 90s`, with s, m, h or d".to_owned())),
        };
        if !(EVERY_MS_MIN..=EVERY_MS_MAX).contains(&period_ms) {
            return Err(unreadable("`every` takes one second to 366 days".to_owned()));
        }
        return Ok(When::Every { period_ms });
    }
    // The parser takes a lone comma for a field without values, which no time has: the search for one would go through
    // every minute of thousands of years.
    if expression.split_whitespace().any(|field| field.split(',').all(str::is_empty)) {
        return Err(unreadable("a field has no value".to_owned()));
    }
    let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
    let cron = parser.parse(expression).map_err(|error| unreadable(error.to_string()))?;
    Ok(When::Cron(Box::new(cron), zone))
}

fn read_period(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit_s = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 24 * 3600,
        _ => return None,
    };
    let seconds = number.parse::<u64>().ok()?.checked_mul(unit_s)?;
    u64::try_from(Duration::from_secs(seconds).as_millis()).ok()
}

/// Cron knows whole seconds.
fn next_of(cron: &Cron, zone: &TimeZone, after_ms: u64) -> Option<u64> {
    let after = Timestamp::from_second(i64::try_from(after_ms / 1000).ok()?).ok()?;
    let next = cron.find_next_occurrence(&Zoned::new(after, zone.clone()), false).ok()?;
    u64::try_from(next.timestamp().as_millisecond()).ok()
}
