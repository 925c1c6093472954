//! The Workq door: Workq's text protocol over TCP, as a wire format without I/O and a small
//! blocking client.
//!
//! Start reading at [`wire::Decoder`], which turns a peer's bytes into [`wire::Request`]s, and at
//! [`wire::encode`], which writes the answers. [`client::Client`] is the other end of the same
//! wire; the command line, the tests and the load tools use it. What the protocol says, and where
//! this server differs from the original program, is described in `docs/workq.md`.

pub mod client;
pub mod wire;

mod door;
mod needs;
mod policy;
mod refusal;
mod session;
mod show;
mod shown_command;

pub use door::{WorkqDoor, refuse_unread};
pub use policy::policy;
pub use session::WorkqSession;
