//! Calls that change jobs: submits, joins, leases, ends of attempts, edits, retries.
//!
//! Each takes the same path: work that needs no lock is done first (checksums, labels);
//! `Engine::enter` takes the lock, and everything due happens; the core decides; the answer leaves
//! behind the gate of what it depends on. `Engine::change` does the last three steps for answers
//! that depend on the change's own record.

mod end;
mod join;
mod lease;
mod retry;
mod submit;
mod update;
mod worker_leases;

pub use end::WorkResult;
pub use join::Joined;
pub use retry::RetryError;
pub use submit::NewJob;
pub use update::{Before, JobUpdate, Updated};
pub use worker_leases::WorkerRef;
