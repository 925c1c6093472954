//! Finished jobs in memory, and the limits on how many are kept.
//!
//! A finished job is eleven numbers ([`FinishedJob`]). The last ones of each queue are kept as they
//! are; every 128 of them are packed once into a [`Chunk`](chunk::Chunk), where each number takes
//! the bits that the differences among these jobs need. A chunk knows which of its jobs ended first
//! and which goes first: the indices by age and by expiry have one entry a chunk, not one a job
//! ([`FinishedJobs`]).

mod chunk;
mod firsts;
mod job;
mod packed;
mod retention;
mod store;

pub(crate) use chunk::Slot;
pub(crate) use job::{FinishedJob, FinishedParts};
pub use retention::FinishedCap;
pub(crate) use store::{FinishedJobs, FinishedOfQueue};
