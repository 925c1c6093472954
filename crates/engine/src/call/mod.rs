//! Calls that change jobs: submits, joins, leases, ends of attempts, edits, retries.
//!
//! Each takes the same way: what needs no lock is made ready (checksums, labels), then
//! [`Engine::change`](crate::engine::Engine) enters with everything due already done, decides, and
//! closes the answer behind the record it depends on.

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
