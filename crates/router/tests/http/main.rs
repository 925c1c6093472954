//! The router of everything over HTTP, between clients on sockets and shards behind listeners.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod broken;
mod changes;
mod events;
mod leases;
mod lists;
mod many;
mod moves;
mod passing;
mod shards;
mod table;
