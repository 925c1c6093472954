//! The simulator: random work against the server's own parts, judged by a model.
//!
//! [`model`] says what has to happen, [`workload`] thinks of things to ask, [`direct`] asks the
//! core alone and compares after every command, [`run`] asks the whole engine over a log on a disk
//! that crashes, [`log_alone`] only the log. Everything comes out of one seed: the same seed is
//! the same run.

mod defaults;
pub mod direct;
pub mod log_alone;
pub mod model;
pub mod run;
pub mod workload;
