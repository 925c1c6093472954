//! The router of everything over HTTP, between clients on sockets and shards behind listeners.

mod broken;
mod changes;
mod events;
mod leases;
mod lists;
mod many;
mod passing;
mod shards;
mod table;
