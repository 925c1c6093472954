//! jobd's master, and the protocol that the whole jobd suite speaks. `docs/jobd.md` is the
//! reference; the wire is the original jobd's.
//!
//! A [`Master`] knows which workers serve which targets, and passes clients' requests on to them.
//! It needs no database and starts no process: those belong to the worker, in `spindle-jobd`. So the
//! Spindle server can embed a master without compiling drivers it never uses.
//!
//! - [`wire`]: bytes and messages, no I/O
//! - [`link`]: one connection of either side; `logged`: what the log says of it
//! - [`server`]: the listening side, password and limits
//! - [`worker_status`], [`manual`], [`memory`]: answers, and parts of them, that workers and masters
//!   share
//! - the master: `workers` lists the registered workers, `pokes` joins pokes that come in a burst,
//!   `requests` answers clients, `pass_on` asks workers, `report` keeps each worker's status
//! - [`MasterHandle`]: how the program around a master uses it

mod access;
mod handle;
#[cfg(test)]
mod limits_page;
pub mod link;
mod logged;
pub mod manual;
mod master;
pub mod memory;
mod pass_on;
mod pokes;
mod report;
mod requests;
pub mod server;
pub mod wire;
pub mod worker_status;
mod workers;

pub use handle::{LastStatus, MasterHandle, Meant, NotMeant, Selection, WorkerList, WorkerView};
pub use master::{Master, MasterSettings};
pub use pass_on::{Order, Outcome};
pub use requests::{MasterStatus, WorkerEntry};
