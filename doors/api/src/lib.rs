//! The native HTTP API: `/api/v1` in JSON, its description, health and metrics.
//!
//! [`Api`] makes the routes for an engine; [`listen`] is the listener that serves them, with the
//! limits and the orderly end that every door has. A handler is a translation: it turns a request
//! into calls of the engine, and tells the answer once what it reveals is on disk.
//!
//! Start with `api.rs` (the table of routes), then `desk.rs` (how a request waits for the engine
//! and the disk) and `guard.rs` (who may come in). What the routes do is in `routes/`, what clients
//! read of it in docs/api.md.

pub mod listen;

mod api;
mod desk;
mod extract;
mod guard;
mod instant;
mod keys;
mod mailbox;
mod metrics;
mod naming;
mod problem;
mod reading;
mod routes;
mod submit;
mod typed;
mod view;

pub use api::{Api, Options};
pub use problem::{Code, Problem};
