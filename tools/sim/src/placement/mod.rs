//! Placement: how many shards would spread over many nodes, how many move when a node comes or goes, and how
//! long it takes until all shards of a dead node are led again.
//!
//! Shards are not built. This is arithmetic with a seed, for planning them. It uses the times and
//! sizes that one log with one leader has today, and a placement rule that is a proposal.
//!
//! ```text
//!   shard ──> its members, by weighted rendezvous hashing        each keeps the shard's jobs in memory
//!              │
//!              └──> its leader: the member that leads fewest     it alone answers
//! ```
//!
//! - [`rendezvous`]: which nodes are the members of a shard, from nothing but names and weights
//! - [`lead`]: which member leads, and what changes when nodes come and go
//! - [`failover`]: a node dies
//! - [`report`]: all of it for one size, as text
//!
//! The members come from rendezvous hashing, because every node computes the same members from a
//! list of nodes, and a leaving node moves only the shards that it had. A ring of tokens needs
//! hundreds of tokens for each node to be as even, and a table needs somebody to write it. Hashing
//! leaves loads as uneven as chance does, so the leader is chosen among the members by how many
//! shards each leads already.

pub mod failover;
pub mod lead;
pub mod rendezvous;
pub mod report;
