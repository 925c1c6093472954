//! The doors of a cluster with shards: each request goes to the shard that its queue is on.
//!
//! A **shard** is a log of its own with a leader of its own; a queue is on one shard. A client knows
//! nothing of that: it comes to any node, where a **router** stands in each door's place. The router speaks
//! the door's protocol on both sides. Towards the client it is the server; towards each shard that the
//! client's requests need it is one more client of that door, at whichever node leads the shard.
//!
//! ```text
//!                        ┌──────────── a node ────────────┐
//!   client ── socket ──> │ net reactor ── router session  │ ── way 0 ──> shard 0's door, at its leader
//!                        │      outbox <──┘    │  Ways    │ ── way 1 ──> shard 1's door, at its leader
//!                        └─────────────────────┴──────────┘
//! ```
//!
//! - A **way** is a connection to one shard's door, opened when the first bytes are sent on it. The shard's
//!   door knows who the client is (its address, TLS, certificate) and asks for tokens itself: a router
//!   lets nobody in and forbids nothing.
//! - A router session is a [`Session`](spindle_engine::Session) like a door's: without I/O, run by the same
//!   reactors, with the same limits. Its engine is [`Ways`].
//! - A router decides which shard is asked, in which order, and how answers of several become one. It
//!   contains no rule of the queue.
//!
//! Rules that all routers keep:
//!
//! - Answers leave in the order of the requests. Requests to one shard are sent in that order, so whoever
//!   submits and then asks gets what one server would say.
//! - A request that waits (a lease, a result, a foreground job) is answered before the next one is sent
//!   anywhere: a client that cannot see an answer yet must not hold a job by it.
//! - What comes from a shard passes as it is, byte for byte, unless answers of several shards are joined.
//! - A way that ends while answers are owed on it ends the client's connection, unanswered: as when a
//!   single server goes. The client connects again, and its ways are opened to whoever leads then.
//! - Bytes held for a client are bounded: a session that has much to send does not receive more.
//!
//! `shard.rs` and `placement.rs` say where queues and jobs are, `ways.rs` is the contract with the
//! network, `reach.rs` with whoever knows the leaders; `network.rs` has sockets for ways.

pub mod gearman;
pub mod http;
mod network;
mod no_log;
mod placement;
mod reach;
mod shard;
mod ways;
pub mod workq;

pub use network::Sockets;
pub use no_log::NoLog;
pub use placement::{Placement, Spread};
pub use reach::{Deposed, Link, LinkReader, Reach, Reached};
pub use shard::Shard;
pub use ways::{Came, Network, Wake, Way, Ways};
