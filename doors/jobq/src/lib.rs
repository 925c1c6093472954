//! Jobq over HTTP, at `/api/v0`: jobs that are JSON, each with a state its users set and a log of
//! events; queries are expressions of SQLite over the jobs' columns.
//!
//! [`Jobq`] makes the routes for an engine. What changes a job goes to the engine at once; what
//! looks through many jobs goes to a thread of its own (`query_thread.rs`), which keeps a replica
//! of Jobq's jobs in a private database (`replica.rs`), on threads of low priority
//! (`sqlite_workers.rs`). There SQLite evaluates the expressions, behind a guard (`query/`), and
//! nobody holds the engine's lock meanwhile. A poll advances its match by compare-and-set, so an
//! old copy can cost a second try and nothing else.
//!
//! Start with `router.rs` (the table of routes). What clients read is in docs/jobq.md.

mod bodies;
mod door;
mod history;
mod json;
mod listing;
mod needs;
mod policy;
mod query;
mod query_path;
mod query_thread;
mod refusal;
mod replica;
mod router;
mod routes;
mod show;
mod sqlite_workers;

pub use door::{Jobq, Options};
pub use policy::policy;
#[doc(hidden)]
pub use query_path::QueryPath;
