//! Jobq over HTTP, at `/api/v0`: jobs that are JSON, each with a state its users set and a log of
//! events; queries are expressions of SQLite over the jobs' columns.
//!
//! [`Jobq`] makes the routes for an engine. What changes a job goes to the engine at once; what
//! looks through many jobs goes to one thread of its own (`clerk.rs`), which keeps a copy of Jobq's
//! jobs in a private database (`mirror.rs`), lets SQLite evaluate the expressions there, behind a
//! guard (`query/`), and never holds the engine's lock meanwhile. A poll advances its match by
//! compare-and-set, so an old copy can cost a second try and nothing else.
//!
//! Start with `door.rs` (the table of routes). What clients read is in docs/jobq.md.

mod bodies;
mod clerk;
mod door;
mod json;
mod mirror;
mod query;
mod refusal;
mod routes;
mod show;
mod story;

pub use door::{Jobq, Options};
