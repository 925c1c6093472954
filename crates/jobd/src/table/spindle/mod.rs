//! The queues of a Spindle server as a job table, over its native API.

mod client;
mod holding;
mod messages;
mod table;

pub(super) use table::SpindleTable;
