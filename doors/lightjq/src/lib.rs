//! LightJQ: jobs in MessagePack over HTTP.
//!
//! Pushers submit jobs and ask for results; workers register and are pushed jobs to a server of
//! their own, or ask for them by long poll. [`LightJq`] makes the routes for an engine.
//!
//! Start with `wire/` (the bytes, without sockets), then `router.rs` (the table of routes),
//! `registry.rs` (which workers are registered, and the jobs each has), `take.rs` (how a worker
//! gets a job) and `push.rs` (how jobs are brought to workers). What clients read of it is
//! docs/lightjq.md.

pub mod wire;

mod body;
mod document;
mod door;
mod extract;
mod names;
mod needs;
mod policy;
mod push;
mod pusher;
mod registry;
mod router;
mod routes;
mod sweep;
mod take;
mod target;
mod worker_id;

pub use door::{LightJq, Options};
pub use policy::policy;
pub use registry::WorkerLine;
