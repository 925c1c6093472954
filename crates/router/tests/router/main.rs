//! Routers between clients and shards.

mod shards;
