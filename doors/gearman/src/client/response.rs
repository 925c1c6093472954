//! A client's decoder of the published protocol.

use crate::wire::{Assignment, HEADER_BYTES, JobStatus, PacketType, Response, parse_number};
use bytes::{Buf, Bytes, BytesMut};

const MAGIC: &[u8] = b"\0RES";

/// Why bytes from a server are not an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ResponseError {
    /// Not the magic of a response.
    #[error("the answer is not one of Gearman's")]
    WrongMagic,
    /// Longer than the caller allows.
    #[error("an answer of {bytes} bytes is too long")]
    TooLong {
        /// The length in its header.
        bytes: u32,
    },
    /// Not a type that servers send.
    #[error("servers send no packet of type {0}")]
    UnexpectedType(u32),
    /// A NUL is missing.
    #[error("an argument is missing in a packet of type {0:?}")]
    ArgumentMissing(PacketType),
}

/// Takes one packet off the front of `input`. `None` means that more bytes are needed; what is
/// there stays in `input`.
///
/// # Errors
///
/// A [`ResponseError`] when the server does not keep to the protocol.
pub fn decode_response(
    input: &mut BytesMut,
    packet_bytes_max: usize,
) -> Result<Option<Response>, ResponseError> {
    let Some((kind, packet)) = take_response(input, packet_bytes_max)? else { return Ok(None) };
    read(kind, packet.slice(HEADER_BYTES..)).map(Some)
}

/// The same, undecoded: the packet's type, and all its bytes, the header included. The arguments
/// are not parsed.
///
/// # Errors
///
/// A [`ResponseError`] when the server does not keep to the protocol.
pub fn take_response(
    input: &mut BytesMut,
    packet_bytes_max: usize,
) -> Result<Option<(PacketType, Bytes)>, ResponseError> {
    if !MAGIC.iter().zip(&input[..]).all(|(expected, byte)| expected == byte) {
        return Err(ResponseError::WrongMagic);
    }
    let Some(mut header) = input.get(MAGIC.len()..HEADER_BYTES) else { return Ok(None) };
    let (number, length) = (header.get_u32(), header.get_u32());
    let kind = PacketType::from_number(number).ok_or(ResponseError::UnexpectedType(number))?;
    let bytes = length as usize;
    if bytes > packet_bytes_max {
        return Err(ResponseError::TooLong { bytes: length });
    }
    if input.len() - HEADER_BYTES < bytes {
        return Ok(None);
    }
    Ok(Some((kind, input.split_to(HEADER_BYTES + bytes).freeze())))
}

/// Takes what stands before the next NUL, and the NUL.
pub(super) fn take_argument(data: &mut Bytes) -> Option<Bytes> {
    let end = data.iter().position(|byte| *byte == 0)?;
    let argument = data.split_to(end);
    data.advance(1);
    Some(argument)
}

fn read(kind: PacketType, data: Bytes) -> Result<Response, ResponseError> {
    use PacketType as P;
    let mut rest = data;
    let mut next = || take_argument(&mut rest).ok_or(ResponseError::ArgumentMissing(kind));
    Ok(match kind {
        P::JobCreated => Response::JobCreated { handle: rest },
        P::JobAssign | P::JobAssignUniq | P::JobAssignAll => Response::JobAssign(Assignment {
            handle: next()?,
            function: next()?,
            unique: if kind == P::JobAssign { None } else { Some(next()?) },
            reducer: if kind == P::JobAssignAll { Some(next()?) } else { None },
            payload: rest,
        }),
        P::NoJob => Response::NoJob,
        P::Noop => Response::Noop,
        P::WorkStatus => {
            Response::WorkStatus { handle: next()?, numerator: next()?, denominator: rest }
        }
        P::WorkData => Response::WorkData { handle: next()?, data: rest },
        P::WorkWarning => Response::WorkWarning { handle: next()?, data: rest },
        P::WorkComplete => Response::WorkComplete { handle: next()?, result: rest },
        P::WorkFail => Response::WorkFail { handle: rest },
        P::WorkException => Response::WorkException { handle: next()?, data: rest },
        P::StatusRes => {
            let (handle, [is_known, is_running, numerator]) =
                (next()?, [next()?, next()?, next()?]);
            let status = read_status([is_known, is_running, numerator, rest]);
            Response::Status { handle, status }
        }
        P::StatusResUnique => {
            let (unique, numbers) = (next()?, [next()?, next()?, next()?, next()?]);
            let clients = parse_number(&rest);
            Response::StatusUnique { unique, status: read_status(numbers), clients }
        }
        P::EchoRes => Response::Echo { data: rest },
        P::OptionRes => Response::Option { name: rest },
        P::Error => Response::Error { code: next()?, text: rest },
        _ => return Err(ResponseError::UnexpectedType(kind.number())),
    })
}

fn read_status([is_known, is_running, numerator, denominator]: [Bytes; 4]) -> JobStatus {
    JobStatus {
        is_known: &is_known[..] != b"0",
        is_running: &is_running[..] != b"0",
        numerator: parse_number(&numerator),
        denominator: parse_number(&denominator),
    }
}
