//! Three nodes on one shared log, each of whose processes, and the network between them, fails in turn.
//!
//! A run has one kind of log. In each cycle clients of all doors, and those of the [`accountant`], work through all
//! nodes. After a calm moment one fault of [`faults`] happens: something is killed, stopped or cut off. Once it is
//! over, all nodes must agree on who leads, and clients must be answered again; then the load ends, and every job
//! there ever was is looked at, through another node each time. At the end all jobs are worked off.
//!
//! Clients connect to one node after the other. When a connection ends they go to the next node,
//! and their last request stays in doubt for good: it may still be on its way through a stopped
//! node, or a network that was cut, when clients have long gone. Acknowledged changes are never in
//! doubt, whichever node led.
//!
//! [`cluster`] starts and hits the processes ([`node`], [`log_servers`]); [`network`] has namespaces, between which
//! connections are cut; [`report`] counts and measures.
//!
//! [`accountant`]: super::accountant

#[expect(clippy::module_inception, reason = "the cluster itself, beside what is done to it")]
mod cluster;
mod faults;
mod log_servers;
mod network;
mod node;
mod report;
mod run;

pub use report::Pulse;
pub use run::torture;
