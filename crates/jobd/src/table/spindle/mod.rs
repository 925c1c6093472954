//! The queues of a Spindle server as a job table, over its native API.

mod client;
mod held_leases;
mod messages;
mod server;
mod stream;
mod table;

pub use server::{SpindleServer, SpindleUrl};
pub(super) use table::SpindleTable;
