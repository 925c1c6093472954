//! From a decision to the disk: records, the batch they gather in, and the commit of it.
//!
//! [`record`] is the format of a record. [`batch`] is what is decided and not written yet, with the
//! newest records ([`recent`]) in memory. [`cohort`] says when to commit, [`group`] does it.
//! [`bell`] wakes a thread in time.

pub mod cohort;
pub mod record;

mod batch;
mod bell;
mod group;
mod recent;

pub use batch::Payload;
pub(crate) use batch::{Batch, is_in_feed};
pub(crate) use bell::{Threads, TimerBell};
pub use group::Committed;
pub(crate) use group::SyncTime;
