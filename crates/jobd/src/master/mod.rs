//! The master: knows which workers serve which targets, and passes on what clients want of them.
//!
//! [`Master::start`] listens. `workers` is who is registered, `poke` joins pokes that come in a
//! burst and remembers those nobody could take, `requests` answers clients, `pass_on` asks workers.

mod pass_on;
mod poke;
mod requests;
mod run;
mod workers;

pub use requests::{MasterStatus, WorkerEntry};
pub use run::{Master, MasterError};
