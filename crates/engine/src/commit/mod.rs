//! From a decision to the disk: records, the batch they gather in, and the commit of it.
//!
//! [`record`] is the format of a record. [`batch`] is what is decided and not written yet, with the
//! newest records ([`recent`]) in memory. [`cohort`] says when to commit, and [`group`] commits; over a log that takes
//! several records at a time [`flight`] commits, and [`width`] says whether it is better to have several on their way.
//! [`bell`] wakes a thread in time.

pub mod cohort;
pub mod record;

mod batch;
mod bell;
mod flight;
mod group;
mod recent;
mod width;

pub use batch::Payload;
pub(crate) use batch::{Batch, is_in_feed};
pub(crate) use bell::{Threads, TimerBell};
pub(crate) use flight::Flight;
pub use flight::Submitted;
pub use group::Committed;
pub(crate) use group::SyncTime;
