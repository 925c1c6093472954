//! Schedules: jobs submitted by the clock.
//!
//! `rules.rs` has the calls of people, `firing.rs` the step of the timer. The core decides
//! (`spindle_core::schedule`), `spindle-schedule` computes times, outside the lock.
//!
//! Unlike deadlines of jobs, schedules are no part of a tick: a call may be decided while a
//! schedule is due and has not fired yet. Which times fire does not depend on that.

mod firing;
mod rules;

pub(crate) use firing::{FIRED_AT_ONCE, Timings};
pub use rules::{PutSchedule, ScheduleNow, SchedulePage};
