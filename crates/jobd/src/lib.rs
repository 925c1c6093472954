//! The jobd suite: a worker daemon that runs the rows of a job table, a master that tells many
//! workers that there is work, and `jobctl`, which asks both. The wire, the configuration files and
//! the table are the original jobd's; `docs/jobd.md` is the reference.
//!
//! - [`table`]: [`table::JobTable`], the contract between the worker and a database, and the
//!   databases that keep it
//! - [`launcher`]: one process for each job
//! - [`worker`], [`ctl`]: the worker and `jobctl`; [`daemon`] has the flags and signals of worker
//!   and master
//! - [`config`], `connect`, `logging`, `job_result`: what they share
//!
//! The master itself, the messages and the connections are in [`spindle_jobd_master`].
//!
//! Start reading at [`worker`], whose page has a drawing.
//!
//! - Invariant: no row is inserted or deleted, and no column but the specification's is changed.
//! - Invariant: a process is started only after its row's `running` is committed and the state file
//!   notes that it begins (or claims no longer to be complete).
//! - Invariant: no claim of rows runs beside another of the same worker.

pub mod config;
mod connect;
pub mod ctl;
pub mod daemon;
mod job_result;
pub mod launcher;
mod logging;
pub mod table;
pub mod worker;
