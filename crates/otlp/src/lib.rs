//! Sends spans to a collector of OpenTelemetry, over OTLP/HTTP in protobuf.
//!
//! [`Exporter`] is a bounded queue and a thread that empties it. Whoever records a span never waits:
//! when the queue is full, the span is dropped and counted. A collector that cannot be reached is
//! logged once in a while.
//!
//! - `exporter`: the queue and its thread
//! - `data`: spans in the words of the OpenTelemetry library
//! - `client`: the HTTP client it sends through

mod client;
mod data;
mod exporter;

pub use exporter::{Exporter, Settings, StartError};
