//! The Gearman door: Gearman's binary protocol, its text commands and the draft it began with, on
//! one port.
//!
//! Start reading at [`wire`], which knows the bytes and does no I/O: [`wire::Protocol`] tells the
//! three apart by a connection's first bytes, [`wire::Decoder`] turns bytes into
//! [`wire::Request`]s and [`wire::AdminCommand`]s, [`wire::Response`] writes the answers, and
//! [`wire::draft`] is the draft's framing. [`client`] is the other end of the wire. What the protocols say, which bytes we chose where the
//! draft is silent, and where this server differs from gearmand, is described in
//! `docs/gearman.md`.

pub mod client;
pub mod wire;

mod door;
mod draft;
mod needs;
mod policy;
mod registry;
mod session;
mod shared;
mod shown_command;

pub use door::{GearmanDoor, Options, refuse_unread};
pub use policy::policies;
pub use session::GearmanSession;
