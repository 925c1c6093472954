//! The framing of the draft that Gearman began with, the server's half of it.
//!
//! The draft leaves the magic and some bytes open; what we chose is in `docs/gearman.md`, byte by
//! byte. A packet is [`MAGIC`], the type (one byte), the length of the data (four bytes,
//! big-endian) and the data.

mod decoder;
mod reply;
mod request;

pub use decoder::{Decoder, DraftError, Limits};
pub use reply::{ErrorCode, Reply};
pub use request::{JobKind, NewJob, Progress, Request};

/// The first four bytes of every packet, in both directions. The first one is neither a NUL, with
/// which packets of the published protocol begin, nor a letter, with which its text commands do.
pub const MAGIC: [u8; 4] = *b"\x01SPD";

/// Magic, type and length.
pub const HEADER_BYTES: usize = 9;

/// The types, by the draft's names.
#[expect(missing_docs, reason = "the names are the draft's own, and all they say")]
pub mod kind {
    pub const NOOP: u8 = 0x00;
    pub const WORKER_CONNECT: u8 = 0x01;
    pub const WORKER_DISCONNECT: u8 = 0x02;
    pub const WORKER_SLEEP: u8 = 0x03;
    pub const JOB_CREATE_REQ: u8 = 0x04;
    pub const JOB_CREATE_RES: u8 = 0x05;
    pub const JOB_ASSIGN_REQ: u8 = 0x06;
    pub const JOB_ASSIGN_RES: u8 = 0x07;
    pub const JOB_STATUS_ANNOUNCE: u8 = 0x08;
    pub const JOB_STATUS_REQ: u8 = 0x09;
    pub const JOB_STATUS_RES: u8 = 0x0A;
    pub const JOB_COMPLETE_ANNOUNCE: u8 = 0x0B;
    pub const JOB_COMPLETE_REQ: u8 = 0x0C;
    pub const JOB_COMPLETE_RES: u8 = 0x0D;
    /// Ours: the draft has no packet for errors.
    pub const ERROR: u8 = 0x7F;
}

/// Writes the header of a packet whose data is `bytes` long.
fn put_header(out: &mut bytes::BytesMut, kind: u8, bytes: usize) {
    use bytes::BufMut;
    out.reserve(HEADER_BYTES + bytes);
    out.put_slice(&MAGIC);
    out.put_u8(kind);
    // The header has no room for a greater length; no configuration allows them.
    out.put_u32(u32::try_from(bytes).unwrap_or(u32::MAX));
}
