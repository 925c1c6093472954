//! The engine of the load: one thread that plays a [`Plan`] over many connections.

mod connection;
mod driver;
mod plan;
mod tally;

pub(crate) use connection::is_drained;
pub(crate) use driver::run;
pub(crate) use plan::{Outcome, Plan};
