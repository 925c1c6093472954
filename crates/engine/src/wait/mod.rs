//! Everybody who waits: for a job, for a job's end, for a wake-up, for room in the log.
//!
//! [`waits`] has the list of them, [`hand_off`] serves it in turn, [`wakeups`] wakes workers that
//! only want to know that there is work. [`watch`] and [`join`] are calls that leave a wait behind.

mod hand_off;
mod join;
mod waits;
mod wakeups;
mod watch;

pub use join::Joined;
pub use waits::Caller;
pub(crate) use waits::{Wait, WaitFor, Waits};
pub use wakeups::Slept;
pub(crate) use wakeups::{Calls, Spare};
pub use watch::JobProgress;
pub(crate) use watch::Reports;
