//! The client's half: what a server answers, out of bytes.

use bytes::{Buf, Bytes, BytesMut};

use super::arguments::Arguments;
use super::packet::RESPONSE_MAGIC;
use super::{HEADER_BYTES, PacketType, encode, parse_number};

/// A job given to a worker.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Assignment {
    /// The job.
    pub handle: Bytes,
    /// What to do.
    pub function: Bytes,
    /// The unique; `None` in JOB_ASSIGN, which has no field for it.
    pub unique: Option<Bytes>,
    /// The reducer; only in JOB_ASSIGN_ALL.
    pub reducer: Option<Bytes>,
    /// With what.
    pub payload: Bytes,
}

/// How far a job is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct JobStatus {
    /// Whether the server knows the job, which it does until it is finished.
    pub is_known: bool,
    /// Whether a worker has it.
    pub is_running: bool,
    /// Done so far, as the worker last said.
    pub numerator: u64,
    /// Of so much.
    pub denominator: u64,
}

/// One packet of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Response {
    /// A submit was taken.
    JobCreated {
        /// The job.
        handle: Bytes,
    },
    /// A grab got a job; the absent fields say which of the three packets it is.
    JobAssign(Assignment),
    /// A grab got none.
    NoJob,
    /// There may be work: grab again.
    Noop,
    /// How far the job is.
    WorkStatus {
        /// The job.
        handle: Bytes,
        /// Done so far, as text.
        numerator: Bytes,
        /// Of so much, as text.
        denominator: Bytes,
    },
    /// A part of the result.
    WorkData {
        /// The job.
        handle: Bytes,
        /// The part.
        data: Bytes,
    },
    /// A warning.
    WorkWarning {
        /// The job.
        handle: Bytes,
        /// The warning.
        data: Bytes,
    },
    /// Done.
    WorkComplete {
        /// The job.
        handle: Bytes,
        /// The result, or its last part.
        result: Bytes,
    },
    /// Failed.
    WorkFail {
        /// The job.
        handle: Bytes,
    },
    /// Failed with an exception.
    WorkException {
        /// The job.
        handle: Bytes,
        /// The exception.
        data: Bytes,
    },
    /// The answer to GET_STATUS.
    Status {
        /// The job, as asked for.
        handle: Bytes,
        /// How far it is.
        status: JobStatus,
    },
    /// The answer to GET_STATUS_UNIQUE.
    StatusUnique {
        /// The unique, as asked for.
        unique: Bytes,
        /// How far its job is.
        status: JobStatus,
        /// How many clients wait for it.
        clients: u64,
    },
    /// What was to be said back.
    Echo {
        /// The same bytes.
        data: Bytes,
    },
    /// An option was switched on.
    Option {
        /// As sent.
        name: Bytes,
    },
    /// Something was refused.
    Error {
        /// The code.
        code: Bytes,
        /// For people.
        text: Bytes,
    },
}

/// Why bytes of a server are no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ResponseError {
    /// Not the magic of a response.
    #[error("not a response of a gearman server")]
    WrongMagic,
    /// Longer than the caller takes.
    #[error("a response of {bytes} bytes is over the limit")]
    TooLong {
        /// The length in its header.
        bytes: u32,
    },
    /// Not a type that servers send.
    #[error("packet type {0} is not for a server to send")]
    UnexpectedType(u32),
    /// A NUL is missing.
    #[error("packet type {0:?} with too few arguments")]
    ArgumentMissing(PacketType),
}

impl Response {
    /// Appends the packet as a server sends it.
    pub fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::JobCreated { handle } => encode::job_created(out, handle),
            Self::JobAssign(Assignment { handle, function, unique, reducer, payload }) => {
                match (unique, reducer) {
                    (None, _) => encode::job_assign(out, handle, function, payload),
                    (Some(unique), None) => {
                        encode::job_assign_uniq(out, handle, function, unique, payload);
                    }
                    (Some(unique), Some(reducer)) => {
                        encode::job_assign_all(out, handle, function, unique, reducer, payload);
                    }
                }
            }
            Self::NoJob => encode::no_job(out),
            Self::Noop => encode::noop(out),
            Self::WorkStatus { handle, numerator, denominator } => {
                encode::work_status(out, handle, numerator, denominator);
            }
            Self::WorkData { handle, data } => encode::work_data(out, handle, data),
            Self::WorkWarning { handle, data } => encode::work_warning(out, handle, data),
            Self::WorkComplete { handle, result } => encode::work_complete(out, handle, result),
            Self::WorkFail { handle } => encode::work_fail(out, handle),
            Self::WorkException { handle, data } => encode::work_exception(out, handle, data),
            Self::Status { handle, status } => encode::status(out, handle, *status),
            Self::StatusUnique { unique, status, clients } => {
                encode::status_unique(out, unique, *status, *clients);
            }
            Self::Echo { data } => encode::echo(out, data),
            Self::Option { name } => encode::option(out, name),
            Self::Error { code, text } => encode::error_parts(out, code, text),
        }
    }
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
    let seen = input.len().min(RESPONSE_MAGIC.len());
    if input.get(..seen) != RESPONSE_MAGIC.get(..seen) {
        return Err(ResponseError::WrongMagic);
    }
    let Some(mut header) = input.get(RESPONSE_MAGIC.len()..HEADER_BYTES) else {
        return Ok(None);
    };
    let (number, length) = (header.get_u32(), header.get_u32());
    let kind = PacketType::from_number(number).ok_or(ResponseError::UnexpectedType(number))?;
    let bytes = usize::try_from(length).unwrap_or(usize::MAX);
    if bytes > packet_bytes_max {
        return Err(ResponseError::TooLong { bytes: length });
    }
    if input.len() - HEADER_BYTES < bytes {
        return Ok(None);
    }
    input.advance(HEADER_BYTES);
    read(kind, input.split_to(bytes).freeze()).map(Some)
}

fn read(kind: PacketType, data: Bytes) -> Result<Response, ResponseError> {
    use PacketType as P;
    let mut arguments = Arguments::new(data);
    let mut next = || arguments.next().ok_or(ResponseError::ArgumentMissing(kind));
    Ok(match kind {
        P::JobCreated => Response::JobCreated { handle: arguments.rest() },
        P::JobAssign | P::JobAssignUniq | P::JobAssignAll => Response::JobAssign(Assignment {
            handle: next()?,
            function: next()?,
            unique: if kind == P::JobAssign { None } else { Some(next()?) },
            reducer: if kind == P::JobAssignAll { Some(next()?) } else { None },
            payload: arguments.rest(),
        }),
        P::NoJob => Response::NoJob,
        P::Noop => Response::Noop,
        P::WorkStatus => Response::WorkStatus {
            handle: next()?,
            numerator: next()?,
            denominator: arguments.rest(),
        },
        P::WorkData => Response::WorkData { handle: next()?, data: arguments.rest() },
        P::WorkWarning => Response::WorkWarning { handle: next()?, data: arguments.rest() },
        P::WorkComplete => Response::WorkComplete { handle: next()?, result: arguments.rest() },
        P::WorkFail => Response::WorkFail { handle: arguments.rest() },
        P::WorkException => Response::WorkException { handle: next()?, data: arguments.rest() },
        P::StatusRes => {
            let (handle, [is_known, is_running, numerator]) =
                (next()?, [next()?, next()?, next()?]);
            let status = read_status([is_known, is_running, numerator, arguments.rest()]);
            Response::Status { handle, status }
        }
        P::StatusResUnique => {
            let (unique, numbers) = (next()?, [next()?, next()?, next()?, next()?]);
            let clients = parse_number(&arguments.rest());
            Response::StatusUnique { unique, status: read_status(numbers), clients }
        }
        P::EchoRes => Response::Echo { data: arguments.rest() },
        P::OptionRes => Response::Option { name: arguments.rest() },
        P::Error => Response::Error { code: next()?, text: arguments.rest() },
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
