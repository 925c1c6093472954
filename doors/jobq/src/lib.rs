//! Jobq over HTTP, at `/api/v0`: jobs that are JSON, each with a state that its users set and a log
//! of events; queries are SQLite expressions over the jobs' columns.
//!
//! [`Jobq`] makes the routes for an engine. Requests that change one job go to the engine at once;
//! requests that look through many jobs go to a separate thread (`query_thread.rs`), which keeps a
//! replica of Jobq's jobs in a private database (`replica.rs`), on threads of low priority
//! (`sqlite_workers.rs`). There SQLite evaluates the expressions, behind a guard (`query/`), and
//! the engine's lock is not held meanwhile. A poll advances its match by compare-and-set, so a
//! stale copy costs a second try at most.
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
