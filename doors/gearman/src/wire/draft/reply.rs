//! What the server sends.

use bytes::{BufMut, Bytes, BytesMut};

use super::{HEADER_BYTES, MAGIC, Progress, kind, put_header};

/// The code byte of an error packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum ErrorCode {
    /// The packet's data is not what its type has; the connection closes.
    Malformed = 1,
    /// No such type, or one that only the server sends; the connection closes.
    UnknownType = 2,
    /// The packet is over the limit; the connection closes.
    TooLong = 3,
    /// No job of this handle.
    UnknownJob = 4,
    /// Status or completion from a worker that holds no job.
    NoJobHeld = 5,
    /// A synchronous job is still open on this connection.
    SyncJobOpen = 6,
    /// The server takes no more jobs: the queue is at its limit, or the disk is full.
    Refused = 7,
    /// The token is missing, not known or expired, or not for this.
    Denied = 8,
}

/// One packet of the server.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the fields have the draft's own names")]
pub enum Reply {
    /// 0x00: wake up; and "no, sorry" to [`super::Request::JobAssign`].
    Noop,
    /// 0x05: the job is taken. The handle is empty unless the job's type is "handle".
    JobCreated { handle: Bytes },
    /// 0x07: here is a job to do.
    JobAssigned { name: Bytes, payload: Bytes },
    /// 0x0A: how far the job is.
    JobStatus(Progress),
    /// 0x0D: whether the job is finished, and how. 0 seconds is not yet; from 1 on it is the time
    /// that it took. Code 0 is success, 1 to 255 is the worker's own code of a failure.
    JobComplete { elapsed_s: u32, code: u8, result: Bytes },
    /// 0x7F: refused, with an [`ErrorCode`] and a text for people.
    Error { code: u8, text: Bytes },
}

impl Reply {
    /// An error with its usual text.
    #[must_use]
    pub fn error(code: ErrorCode) -> Reply {
        let text = Bytes::from_static(code.text().as_bytes());
        Reply::Error { code: code.to_byte(), text }
    }

    /// Appends the packet as the server sends it.
    pub fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::Noop => put_header(out, kind::NOOP, 0),
            Self::JobCreated { handle } => {
                put_header(out, kind::JOB_CREATE_RES, handle.len());
                out.put_slice(handle);
            }
            Self::JobAssigned { name, payload } => {
                put_header(out, kind::JOB_ASSIGN_RES, name.len() + 1 + payload.len());
                out.put_slice(name);
                out.put_u8(0);
                out.put_slice(payload);
            }
            Self::JobStatus(Progress { numerator, denominator, remaining_s }) => {
                put_header(out, kind::JOB_STATUS_RES, 12);
                out.put_u32(*numerator);
                out.put_u32(*denominator);
                out.put_u32(*remaining_s);
            }
            Self::JobComplete { elapsed_s, code, result } => {
                put_header(out, kind::JOB_COMPLETE_RES, 4 + 1 + result.len());
                out.put_u32(*elapsed_s);
                out.put_u8(*code);
                out.put_slice(result);
            }
            Self::Error { code, text } => {
                put_header(out, kind::ERROR, 1 + text.len());
                out.put_u8(*code);
                out.put_slice(text);
            }
        }
    }
}

impl ErrorCode {
    /// The code on the wire.
    #[must_use]
    pub fn to_byte(self) -> u8 {
        self as u8
    }

    /// For people.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Malformed => "malformed packet",
            Self::UnknownType => "unknown packet type",
            Self::TooLong => "packet too long",
            Self::UnknownJob => "unknown job",
            Self::NoJobHeld => "no job assigned",
            Self::SyncJobOpen => "a synchronous job is open",
            Self::Refused => "job refused",
            Self::Denied => "the token is missing, not known, expired, or not for this",
        }
    }
}

const _: () = assert!(HEADER_BYTES == MAGIC.len() + 1 + 4);
