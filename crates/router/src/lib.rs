//! The doors of a cluster with shards: each request goes to the shard that its queue is on.
//!
//! A **shard** is a log of its own with a leader of its own; a queue is on one shard. A client knows
//! nothing of that: it connects to any node, where a **router** takes the place of each door. The router
//! speaks the door's protocol on both sides. Towards the client it is the server; towards each shard that
//! the client's requests need, it is one more client of that door, at the node that leads the shard.
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
//! - A router decides which shards are asked, in which order, and how several answers become one. It
//!   contains no rule of the queue.
//!
//! Rules that all routers keep:
//!
//! - Answers leave in the order of the requests. Requests to one shard are sent in that order, so a client
//!   that submits and then asks gets the answer that one server would give.
//! - A request that waits (a lease, a result, a foreground job) is answered before the next one is sent
//!   anywhere: a client must not hold a job through an answer that it cannot see yet.
//! - A shard's answer passes as it is, byte for byte, unless answers of several shards are joined.
//! - A way that ends while answers are owed on it ends the client's connection, unanswered, as when a
//!   single server goes. The client connects again, and its ways are opened to the leaders of that time.
//! - Bytes held for a client are bounded: a session that has much to send to its client receives no more.
//!
//! `shard.rs` and `placement.rs` say where queues and jobs are. `ways.rs` is the contract with the network,
//! `reach.rs` that with the code that knows the leaders; `network.rs` implements ways over sockets.

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
