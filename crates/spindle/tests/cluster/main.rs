//! Real servers that share a log in a real PostgreSQL or on real NATS servers. Leaders are killed, stopped
//! and asked to step down, and nothing that was acknowledged is lost or done twice.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod accountant;
mod changes;
mod demo;
mod deploy;
mod harness;
mod hooks;
mod kinds;
mod moved;
mod nats;
mod refused;
mod shards;
mod transfer;
mod verified;
mod walk;
