//! From a decision to the disk: records, the batch they gather in, and the threads that write it.
//!
//! [`record`] is the format of a record. [`group`] commits what has gathered, [`threads`] calls it,
//! and [`recent`] keeps the newest records in memory. [`threading`] says which threads there are.

pub mod record;

mod group;
mod recent;
mod threading;
mod threads;

pub use group::Committed;
pub(crate) use recent::Recent;
pub use threading::Threading;
pub(crate) use threads::{Threads, TimerBell};
