//! The server's half of Gearman's wire formats, without any I/O. The client's half, which only
//! tests need, is in `spindle-testkit`.
//!
//! A connection speaks the published protocol, in which binary packets and text lines may be
//! mixed, or the draft; [`Protocol::of`] tells which. The published protocol is [`Decoder`]
//! (bytes to [`Request`] and [`AdminCommand`]), [`Response::encode`] and [`admin`] (answers to
//! bytes). Everything here is total: no bytes of a peer make it panic, and the work done is linear
//! in the bytes received.
//!
//! What was decoded are slices of the input's buffer: copy what outlives the request and is small
//! (a name), or the whole buffer stays alive with it.

pub mod admin;
mod decoder;
pub mod draft;
mod error;
mod handle;
mod number;
mod packet;
mod protocol;
mod request;
mod response;
mod schedule;
mod shown;

pub use admin::{AdminCommand, AdminError, IncompleteCommand, QueueLimits};
pub use decoder::{Decoder, Incoming, Limits};
pub use error::{ErrorReply, WireError};
pub use handle::{Handle, HandlePrefix};
pub use number::parse_number;
pub use packet::{
    CLIENT_ID_BYTES_MAX, FUNCTION_BYTES_MAX, HANDLE_BYTES_MAX, HEADER_BYTES, PacketType,
    UNIQUE_BYTES_MAX,
};
pub use protocol::Protocol;
pub use request::{GrabKind, Priority, Request, Submit, SubmitKind};
pub use response::{Assignment, JobStatus, Response};
pub use schedule::{Schedule, ScheduleError};
