//! The server's decoder of the draft.

use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr;
use spindle_limits::{WORKER_NAMES_BYTES_MAX, WORKER_NAMES_MAX};

use super::{ErrorCode, HEADER_BYTES, JobKind, MAGIC, NewJob, Progress, Request, kind};
use crate::wire::FUNCTION_BYTES_MAX;

/// What a connection may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest packet, its header not counted.
    pub packet_bytes_max: usize,
    /// The longest duplicate key.
    pub duplicate_key_bytes_max: usize,
    /// The most names that one worker announces.
    pub names_max: usize,
    /// The most bytes that these names have, all together.
    pub names_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            packet_bytes_max: crate::wire::Limits::default().packet_bytes_max,
            duplicate_key_bytes_max: 255,
            names_max: WORKER_NAMES_MAX,
            names_bytes_max: WORKER_NAMES_BYTES_MAX,
        }
    }
}

impl Limits {
    /// The most input that the decoder may need to have before it gives a request.
    #[must_use]
    pub fn input_bytes_max(&self) -> usize {
        self.packet_bytes_max.saturating_add(HEADER_BYTES)
    }
}

/// Why there is no packet. The draft says nothing about errors: each of these ends the
/// conversation, most of them after an error packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DraftError {
    /// The packet does not begin with [`MAGIC`]: the peer is out of step.
    #[error("not the draft's magic")]
    WrongMagic,
    /// The packet says that it is longer than the limit.
    #[error("a packet of {bytes} bytes is over the limit")]
    TooLong {
        /// The length in its header.
        bytes: u32,
    },
    /// There is no such type, or it is one that clients do not send.
    #[error("unknown packet type {0:#04x}")]
    UnknownType(u8),
    /// The data does not fit the type.
    #[error("malformed packet of type {0:#04x}")]
    Malformed(u8),
    /// An earlier error has ended the conversation.
    #[error("the connection is to close")]
    Closed,
}

impl DraftError {
    /// The error packet to send before closing; `None` is silence.
    #[must_use]
    pub fn reply(self) -> Option<ErrorCode> {
        match self {
            Self::WrongMagic | Self::Closed => None,
            Self::TooLong { .. } => Some(ErrorCode::TooLong),
            Self::UnknownType(_) => Some(ErrorCode::UnknownType),
            Self::Malformed(_) => Some(ErrorCode::Malformed),
        }
    }
}

/// Reads what one connection sends.
#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
    is_closed: bool,
}

impl Decoder {
    /// A decoder for a new connection.
    #[must_use]
    pub fn new(limits: Limits) -> Decoder {
        Decoder { limits, is_closed: false }
    }

    /// Takes one packet off the front of `input`. `None` means that more bytes are needed; what
    /// is there stays in `input`, and the caller appends to it.
    ///
    /// # Errors
    ///
    /// A [`DraftError`]: send its [`DraftError::reply`], then close. Every further call says
    /// [`DraftError::Closed`].
    pub fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Request>, DraftError> {
        if self.is_closed {
            return Err(DraftError::Closed);
        }
        let packet = take_packet(input, self.limits.packet_bytes_max);
        let outcome = match packet {
            Ok(Some((kind, data))) => read(kind, data, &self.limits).map(Some),
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        self.is_closed = outcome.is_err();
        outcome
    }
}

/// Takes type and data of a whole packet off the input.
fn take_packet(
    input: &mut BytesMut,
    packet_bytes_max: usize,
) -> Result<Option<(u8, Bytes)>, DraftError> {
    let seen = input.len().min(MAGIC.len());
    if input.get(..seen) != MAGIC.get(..seen) {
        return Err(DraftError::WrongMagic);
    }
    let Some(mut header) = input.get(MAGIC.len()..HEADER_BYTES) else { return Ok(None) };
    let (kind, length) = (header.get_u8(), header.get_u32());
    let bytes = usize::try_from(length).unwrap_or(usize::MAX);
    if bytes > packet_bytes_max {
        return Err(DraftError::TooLong { bytes: length });
    }
    if input.len() - HEADER_BYTES < bytes {
        return Ok(None);
    }
    input.advance(HEADER_BYTES);
    Ok(Some((kind, input.split_to(bytes).freeze())))
}

/// Takes what stands before the next NUL, and the NUL.
fn take_name(data: &mut Bytes) -> Option<Bytes> {
    let end = memchr(0, data)?;
    let name = data.split_to(end);
    data.advance(1);
    Some(name)
}

fn read(kind: u8, mut data: Bytes, limits: &Limits) -> Result<Request, DraftError> {
    let malformed = DraftError::Malformed(kind);
    let nothing =
        |data: &Bytes, request| if data.is_empty() { Ok(request) } else { Err(malformed) };
    match kind {
        kind::NOOP => nothing(&data, Request::Noop),
        kind::WORKER_CONNECT => {
            let names = read_names(data, limits).ok_or(malformed)?;
            Ok(Request::WorkerConnect { names })
        }
        kind::WORKER_DISCONNECT => nothing(&data, Request::WorkerDisconnect),
        kind::WORKER_SLEEP => nothing(&data, Request::WorkerSleep),
        kind::JOB_CREATE_REQ => {
            let job = read_job(data, limits).ok_or(malformed)?;
            Ok(Request::JobCreate(job))
        }
        kind::JOB_ASSIGN_REQ => nothing(&data, Request::JobAssign),
        kind::JOB_STATUS_ANNOUNCE => {
            Progress::parse(&data).map(Request::JobStatusAnnounce).ok_or(malformed)
        }
        kind::JOB_STATUS_REQ => Ok(Request::JobStatus { handle: data }),
        kind::JOB_COMPLETE_ANNOUNCE => {
            let code = data.try_get_u8().map_err(|_| malformed)?;
            Ok(Request::JobCompleteAnnounce { code, result: data })
        }
        kind::JOB_COMPLETE_REQ => Ok(Request::JobComplete { handle: data }),
        other => Err(DraftError::UnknownType(other)),
    }
}

/// Without any names the worker can do nothing. One NUL behind the last name is accepted.
fn read_names(mut data: Bytes, limits: &Limits) -> Option<Vec<Bytes>> {
    let mut names = Vec::new();
    let mut left = limits.names_bytes_max;
    while !data.is_empty() {
        let name = take_name(&mut data).unwrap_or_else(|| std::mem::take(&mut data));
        if !is_name(&name) || names.len() == limits.names_max {
            return None;
        }
        left = left.checked_sub(name.len())?;
        names.push(name);
    }
    Some(names)
}

fn read_job(mut data: Bytes, limits: &Limits) -> Option<NewJob> {
    let name = take_name(&mut data).filter(|name| is_name(name))?;
    let duplicate_key = take_name(&mut data)?;
    let flags = data.try_get_u8().ok()?;
    let kind = JobKind::from_byte(data.try_get_u8().ok()?)?;
    let is_short = duplicate_key.len() <= limits.duplicate_key_bytes_max;
    is_short.then_some(NewJob { name, duplicate_key, flags, kind, payload: data })
}

fn is_name(name: &[u8]) -> bool {
    (1..=FUNCTION_BYTES_MAX).contains(&name.len())
}
