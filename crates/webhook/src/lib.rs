//! Webhooks: POST requests to other programs when a job is dead or a queue needs attention.
//!
//! Each hook is a thread of its own that follows the engine's feed at the receiver's pace. Nothing
//! is queued in memory, so a receiver that is slow or away holds up nobody: the place in the feed
//! waits, and the log remembers it, so that a restart, or another node of a cluster, goes on from there.
//!
//! - `hook`: a hook as one line of text
//! - `follow`: the thread: dead jobs from the feed, queues by looking at them now and then
//! - `options`: how hooks are served
//! - `queues`: when a queue needs attention
//! - `alert`: what is sent
//! - `sign`, `send`: the signature; deliveries and their repetition
//! - `authorities`: which authorities may vouch for receivers over TLS
//!
//! What receivers read of it is in docs/webhooks.md.

mod alert;
mod authorities;
mod follow;
mod hook;
mod options;
mod queues;
mod send;
mod sign;

pub use authorities::Authorities;
pub use follow::{StartError, Webhooks};
pub use hook::{Hook, HookError};
pub use options::Options;
pub use sign::{SIGNATURE_HEADER, Secret, SecretError};
