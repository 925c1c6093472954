//! The log against real NATS servers: alone where that is enough, and a cluster of three.
//! `cargo xtask nats-server` brings the server's program.

mod cluster;
mod entry;
mod harness;
mod opening;
mod shared;
mod stream;
