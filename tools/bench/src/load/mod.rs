//! The engine of the load: one thread that plays a [`Plan`] over many connections.

mod check;
mod connection;
mod driver;
mod jobs;
mod plan;
mod socket;
mod tally;

pub(crate) use check::Checker;
pub(crate) use connection::flush;
pub(crate) use driver::run;
pub(crate) use jobs::{Jobs, PAYLOAD_BYTES, QUEUE_PREFIX};
pub(crate) use plan::Plan;
pub(crate) use socket::{Socket, Target};
