//! A client's half of the draft.

use crate::wire::draft::{DraftError, HEADER_BYTES, MAGIC, NewJob, Progress, Reply, Request, kind};
use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::Encode;
use super::response::take_argument;

fn put_packet(out: &mut BytesMut, kind: u8, data: &[u8]) {
    out.put_slice(&MAGIC);
    out.put_u8(kind);
    out.put_u32(u32::try_from(data.len()).expect("a length that a header can hold"));
    out.put_slice(data);
}

impl Encode for Request {
    fn encode(&self, out: &mut BytesMut) {
        let mut put = |kind, data: &[u8]| put_packet(out, kind, data);
        match self {
            Self::Noop => put(kind::NOOP, b""),
            Self::WorkerConnect { names } => put(kind::WORKER_CONNECT, &names.join(&0)),
            Self::WorkerDisconnect => put(kind::WORKER_DISCONNECT, b""),
            Self::WorkerSleep => put(kind::WORKER_SLEEP, b""),
            Self::JobCreate(NewJob { name, duplicate_key, flags, kind: job, payload }) => {
                let start = [&name[..], duplicate_key, &[*flags, *job as u8]].join(&0);
                put(kind::JOB_CREATE_REQ, &[&start, &payload[..]].concat());
            }
            Self::JobAssign => put(kind::JOB_ASSIGN_REQ, b""),
            Self::JobStatusAnnounce(Progress { numerator, denominator, remaining_s }) => {
                let numbers = [numerator, denominator, remaining_s].map(|it| it.to_be_bytes());
                put(kind::JOB_STATUS_ANNOUNCE, numbers.as_flattened());
            }
            Self::JobStatus { handle } => put(kind::JOB_STATUS_REQ, handle),
            Self::JobCompleteAnnounce { code, result } => {
                put(kind::JOB_COMPLETE_ANNOUNCE, &[&[*code], &result[..]].concat());
            }
            Self::JobComplete { handle } => put(kind::JOB_COMPLETE_REQ, handle),
        }
    }
}

/// Takes one packet off the front of `input`. `None` means that more bytes are needed; what is
/// there stays in `input`.
///
/// # Errors
///
/// A [`DraftError`] when the server does not keep to the protocol.
pub fn decode_reply(
    input: &mut BytesMut,
    packet_bytes_max: usize,
) -> Result<Option<Reply>, DraftError> {
    if !MAGIC.iter().zip(&input[..]).all(|(expected, byte)| expected == byte) {
        return Err(DraftError::WrongMagic);
    }
    let Some(mut header) = input.get(MAGIC.len()..HEADER_BYTES) else { return Ok(None) };
    let (kind, length) = (header.get_u8(), header.get_u32());
    let bytes = length as usize;
    if bytes > packet_bytes_max {
        return Err(DraftError::TooLong { bytes: length });
    }
    if input.len() - HEADER_BYTES < bytes {
        return Ok(None);
    }
    input.advance(HEADER_BYTES);
    read(kind, input.split_to(bytes).freeze()).map(Some)
}

fn read(kind: u8, mut data: Bytes) -> Result<Reply, DraftError> {
    let malformed = DraftError::Malformed(kind);
    Ok(match kind {
        kind::NOOP => Reply::Noop,
        kind::JOB_CREATE_RES => Reply::JobCreated { handle: data },
        kind::JOB_ASSIGN_RES => {
            let name = take_argument(&mut data).ok_or(malformed)?;
            Reply::JobAssigned { name, payload: data }
        }
        kind::JOB_STATUS_RES => {
            let mut next = || data.try_get_u32().map_err(|_| malformed);
            let progress =
                Progress { numerator: next()?, denominator: next()?, remaining_s: next()? };
            if !data.is_empty() {
                return Err(malformed);
            }
            Reply::JobStatus(progress)
        }
        kind::JOB_COMPLETE_RES => {
            let elapsed_s = data.try_get_u32().map_err(|_| malformed)?;
            let code = data.try_get_u8().map_err(|_| malformed)?;
            Reply::JobComplete { elapsed_s, code, result: data }
        }
        kind::ERROR => {
            let code = data.try_get_u8().map_err(|_| malformed)?;
            Reply::Error { code, text: data }
        }
        other => return Err(DraftError::UnknownType(other)),
    })
}
