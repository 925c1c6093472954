//! The router of everything over HTTP.
//!
//! [`HttpRouter`] makes an axum `Router` that a node serves in the place of the doors' own routes. Each
//! shard is a whole server with all of them, so a request is mostly sent on as it is, to the shard that
//! it is about; the answer passes as it comes. `table.rs` has a row for each route.
//!
//! - `line.rs`, `idle.rs`, `shards.rs`: connections to shards, kept for a client's next request; a
//!   request is sent again only if no byte of it has left.
//! - `asked.rs`, `place.rs`: what a request says, and which shard that is.
//! - `submit.rs`, `flock.rs`, `bulk.rs`, `schedules.rs`: requests whose body names queues.
//! - `jobq.rs`: Jobq's lists, queries and polls.
//! - `lease.rs`, `reports.rs`, `take_back.rs`: what workers do. A lease that reaches nobody goes back.
//! - `lists.rs`, `cursor.rs`, `constraints.rs`, `sums.rs`, `metrics.rs`, `events.rs`: answers of all shards as one.
//!
//! The router sends a request that it cannot read to a shard as it is, and the shard's door says what is
//! wrong with it.

mod asked;
mod bulk;
mod constraints;
mod cursor;
mod events;
mod flock;
mod idle;
mod jobq;
mod lease;
mod line;
mod lists;
mod metrics;
mod place;
mod queues;
mod reports;
mod router;
mod schedules;
mod shards;
mod submit;
mod sums;
mod table;
mod take_back;

pub use router::HttpRouter;

/// For a test: the routes that have a rule of their own.
#[doc(hidden)]
#[must_use]
pub fn routes() -> Vec<(&'static str, &'static str)> {
    table::ROWS.iter().map(|(method, path, _)| (*method, *path)).collect()
}
