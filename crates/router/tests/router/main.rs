//! Routers between clients and shards.

mod gearman;
mod shards;
mod workq;
