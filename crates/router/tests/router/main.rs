//! Routers between clients and shards.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod gearman;
mod shards;
mod workq;
