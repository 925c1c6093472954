//! The simulator: random work against the server's own parts, judged by a model.
//!
//! [`model`] defines what has to happen, [`workload`] generates commands, [`direct`] gives them to
//! the core alone and compares after every command, [`run`] gives them to the whole engine over a
//! log on a disk that crashes, [`nodes`] has several engines on one shared log, [`log_alone`] tests
//! only the log. Everything follows from one seed: the same seed gives the same run. [`placement`]
//! is separate: arithmetic for a plan of shards.

pub mod counts;
mod defaults;
pub mod direct;
pub mod faults;
pub mod log_alone;
pub mod model;
pub mod nodes;
pub mod placement;
pub mod run;
pub mod workload;
