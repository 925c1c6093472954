//! Workq's wire format, both ends of it, without any I/O.
//!
//! The server's half is [`Decoder`] (bytes to [`Request`]) and [`encode`] (answers to bytes). The
//! client's half is [`Request::encode`] and [`decode_reply`]. Everything here is total: no bytes
//! of a peer make it panic, and the work done is linear in the bytes received.

mod arguments;
mod decoder;
pub mod encode;
mod error_text;
mod inspection;
mod line;
mod number;
mod reply;
mod request;
mod time;
mod uuid;

pub use decoder::{Decoder, Limits, Reject};
pub use error_text::ErrorText;
pub use inspection::{JobInfo, JobState, QueueInfo, ServerInfo};
pub use line::is_name;
pub use reply::{
    JobResult, LeasedJob, Reply, ReplyError, ReplyKind, decode_reply, decode_whole_reply,
};
pub use request::{NewJob, Presented, Request, Run};
pub use time::{parse_time, write_time};
pub use uuid::Uuid;
