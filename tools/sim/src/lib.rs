//! The simulator: random work against the server's own parts, judged by a model.
//!
//! [`model`] says what has to happen, [`workload`] thinks of things to ask, [`direct`] asks the
//! core alone and compares after every command. Everything comes out of one seed.

pub mod direct;
pub mod model;
pub mod workload;
