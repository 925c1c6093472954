//! Everybody who waits: for a job, for a job's end, for a wake-up, for room in the log.
//!
//! [`waits`] is the list of them, [`calls`] who was woken for what, [`reports`] what holders of leases
//! say of their jobs; together they are [`waiting`], which follows the events. [`hand_off`] serves
//! those who wait in turn. [`ends`], [`wakeups`] and [`watch`] are the calls of doors.

mod calls;
mod ends;
mod hand_off;
mod reports;
mod waiting;
mod waits;
mod wakeups;
mod watch;

pub(crate) use calls::Spare;
pub(crate) use waiting::Waiting;
pub use waits::Caller;
pub(crate) use waits::{Wait, WaitFor};
pub use wakeups::Slept;
