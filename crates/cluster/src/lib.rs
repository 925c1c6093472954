//! Several nodes on one shared log: one leads, the others follow and take over.
//!
//! A **node** is a Spindle server that was given a shared log ([`SharedLog`](spindle_log::SharedLog)).
//! The log decides everything; this crate decides only when to ask it.
//!
//! ```text
//!              nobody leads, by what was heard      committed
//!   follower ─────────────────────────> campaigning ─────────> leader
//!      ^  ^                                  │ conflict           │ step-down, SIGTERM    │ conflict
//!      │  └──────────────────────────────────┘                    v                       │
//!      └────────────────────────────────────────────────── stepping down <───────────────┘
//! ```
//!
//! - A **follower** folds every committed record as it comes ([`Engine::follow`]). So a follower that takes
//!   over has the state already. It hands its clients on to the leader ([`Passage`]).
//! - A follower that has heard nothing of a leader for 800 ms and a little more reads the log to its end and
//!   appends an **epoch record** there: a campaign. If it is committed, this node leads. If
//!   another node's record stands there, it follows again.
//! - A **leader** answers only while it holds the lease that its own appends prove: see `lead.rs` of the
//!   engine. It takes in clients that followers hand on (`entrance.rs`).
//! - Every 200 ms each node **announces** itself. A leader's announcement is its heartbeat. All of this is a
//!   hint: it may be late, lost or wrong, and costs at most a campaign that was not needed.
//!
//! Start with [`Node`] and `follow.rs`. `election.rs` is the rule of when to campaign, without I/O and
//! with its time given; `announcement.rs` is what nodes tell each other, `peers.rs` what was heard of them.
//! `passage/` and `entrance.rs` are the two ends of a client's way through a follower, `preamble.rs` is what
//! the follower sends on it first, `channel.rs` how it is encrypted. With several logs (shards), a process has a
//! [`Node`] for each; `crossing.rs` is how routers reach their leaders, `moving.rs` how queues move from one to
//! another, `courtesy.rs` when a leader makes way.
//!
//! - Invariant: nothing in this crate answers a client about jobs.
//! - Invariant: announcements change only what a node knows of the others; only the fold of the log changes who
//!   leads.
//!
//! [`Engine::follow`]: spindle_engine::Engine::follow

mod announcement;
mod channel;
mod courtesy;
mod crossing;
mod election;
mod entrance;
mod follow;
mod moving;
mod node;
mod passage;
mod peers;
mod preamble;
mod seldom;
mod status;

pub use announcement::Role;
pub use channel::NodeTls;
pub use crossing::Crossing;
pub use entrance::{Admit, Arriving, Threshold};
pub use follow::FollowError;
pub use moving::{Moving, Whereabouts};
pub use node::{Leadership, Node, NodeError, NodeOptions, OpenLog, ShardSeat};
pub use passage::{Carrier, HeldDoor, LocalAnswer, Passage, Reply};
// For the fuzz target of what strangers may send.
#[doc(hidden)]
pub use preamble::{Preamble, PreambleError};
// A status includes the state of the log.
pub use spindle_log::{LogHealth, LogLag, LogServer};
pub use status::{NodeStatus, Status};
