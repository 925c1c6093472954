//! Calls that change something, beside those in [`crate::engine`].

mod admission;
mod batch;
mod retry;
mod worker_leases;

pub use batch::Taken;
