//! The log on real servers, which the tests start themselves.

mod append;
mod conformance;
mod crash;
mod harness;
mod opening;
mod refused;
mod share;
mod standby;
mod trim;
