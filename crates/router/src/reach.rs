//! Who knows where shards are led.

use std::future::Future;
use std::io;
use std::pin::Pin;

use spindle_engine::door::Peer;
use tokio::net::TcpStream;

use crate::Shard;

/// A connection to a shard's door, or why there is none.
pub type Reached<'a> = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send + 'a>>;

/// Connects to shards at whichever node leads them.
pub trait Reach: Send + Sync {
    /// Connects to a door of a shard for this client: what is written from now on, the door takes for the
    /// client's own bytes. Waits some seconds for somebody to lead.
    fn reach<'a>(&'a self, shard: Shard, door: &'static str, client: &'a Peer) -> Reached<'a>;
}
