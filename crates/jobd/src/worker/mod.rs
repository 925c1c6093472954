//! The worker daemon: takes rows from its job table and runs a process for each.
//!
//! [`Worker::start`] puts it together. One task, the `Daemon`, owns everything that changes and
//! takes events one by one; around it run tasks that wait: one for claims (never two at a time),
//! one that writes starts and ends in shared transactions, one for each process, one for the
//! master's connection.
//!
//! ```text
//!  clients, master ──requests──> ┌────────┐ <──claimed rows── claims ──┐
//!                                │ Daemon │                            ├──> JobTable
//!  processes ────────endings───> └────────┘ <──what is written── writer┘
//! ```
//!
//! A table that leases ([`Leases`](crate::table::Leases)) is not fetched from: the daemon keeps a
//! lease request open for each free slot, and rows come as they appear.
//!
//! The life of a row here: claimed (`accepted`) -> in its target's queue -> a slot is free -> its
//! start is written (`running`) -> its begin is noted in the state file (`begun`) -> its process
//! runs -> the slot is free again -> its end is written (`done`) -> forgotten.

mod begun;
mod claims;
mod daemon;
mod leasing;
mod manual;
mod master_link;
mod queues;
mod requests;
mod run;
mod spool;
mod state_file;
mod state_line;
mod stop;
mod writer;

pub use run::{Worker, WorkerError};
pub use state_file::{StateError, StateFile};
