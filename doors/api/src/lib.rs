//! The native HTTP API: `/api/v1` in JSON, its description, health and metrics.
//!
//! [`Api`] makes the routes for an engine; `spindle-http` has the listener that serves them, the
//! guard before them, and the bridge through which handlers wait for the engine and the disk. A
//! handler only translates: it turns a request into calls of the engine, and answers once
//! everything that the answer reveals is on disk.
//!
//! Start with `router.rs` (the table of routes). What the routes do is in `routes/`; docs/api.md is
//! the page for clients.

mod accept;
mod api;
mod backoff;
mod batch;
mod byte_range;
mod count;
mod deletion;
mod document;
mod ended;
mod exposition;
mod extract;
mod fair;
mod filter;
mod instant;
mod keys;
mod linking;
mod links;
mod metrics;
mod naming;
mod needs;
mod numbers;
mod object;
mod policy;
mod portable;
mod precondition;
mod reading;
mod reasons;
mod router;
mod routes;
mod schedule;
mod settings;
mod submit;
mod taking;
mod together;
mod typed;
mod view;
mod walk;

pub use api::{Api, Options};
pub use policy::policy;
pub use routes::cluster::{cluster_body, shards_body};
