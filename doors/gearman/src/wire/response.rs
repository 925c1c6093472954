//! What a server answers: written by the server, read by clients.

use bytes::{Bytes, BytesMut};

use super::arguments::Arguments;
use super::number::Decimal;
use super::packet::{RESPONSE_MAGIC, read_header, starts_like, take_data, write};
use super::{ErrorReply, PacketType, parse_number};

/// A job given to a worker.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Assignment<B = Bytes> {
    /// The job.
    pub handle: B,
    /// What to do.
    pub function: B,
    /// The unique; `None` in JOB_ASSIGN, which has no field for it.
    pub unique: Option<B>,
    /// The reducer; only in JOB_ASSIGN_ALL.
    pub reducer: Option<B>,
    /// With what.
    pub payload: B,
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

/// One packet of a server. The server writes slices (`B` is `&[u8]`); a client reads [`Bytes`].
///
/// A handle is not checked: give the bytes of a [`super::Handle`], or the handle of the question.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the fields have the protocol's own names")]
pub enum Response<B = Bytes> {
    /// A submit was taken (and is durable, unless it is of a foreground job).
    JobCreated { handle: B },
    /// A grab got a job; the absent fields say which of the three packets it is.
    JobAssign(Assignment<B>),
    /// A grab got none.
    NoJob,
    /// There may be work: grab again.
    Noop,
    /// How far the job is, in the worker's own text.
    WorkStatus { handle: B, numerator: B, denominator: B },
    /// A part of the result.
    WorkData { handle: B, data: B },
    /// A warning.
    WorkWarning { handle: B, data: B },
    /// Done, with the result or its last part.
    WorkComplete { handle: B, result: B },
    /// Failed.
    WorkFail { handle: B },
    /// Failed with an exception, for clients that have asked for exceptions.
    WorkException { handle: B, data: B },
    /// The answer to GET_STATUS, with the handle of the question.
    Status { handle: B, status: JobStatus },
    /// The answer to GET_STATUS_UNIQUE, with the unique of the question and how many clients wait
    /// for the job.
    StatusUnique { unique: B, status: JobStatus, clients: u64 },
    /// What was to be said back.
    Echo { data: B },
    /// An option was switched on; its name as sent.
    Option { name: B },
    /// Something was refused. The text is for people.
    Error { code: B, text: B },
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

impl<B: AsRef<[u8]>> Response<B> {
    /// Appends the packet.
    pub fn encode(&self, out: &mut BytesMut) {
        use PacketType as P;
        let of = B::as_ref;
        let mut put = |kind, arguments: &[&[u8]]| write(out, RESPONSE_MAGIC, kind, arguments);
        match self {
            Self::JobCreated { handle } => put(P::JobCreated, &[of(handle)]),
            Self::JobAssign(Assignment { handle, function, unique, reducer, payload }) => {
                let (handle, function, payload) = (of(handle), of(function), of(payload));
                match (unique.as_ref().map(of), reducer.as_ref().map(of)) {
                    (None, _) => put(P::JobAssign, &[handle, function, payload]),
                    (Some(unique), None) => {
                        put(P::JobAssignUniq, &[handle, function, unique, payload]);
                    }
                    (Some(unique), Some(reducer)) => {
                        put(P::JobAssignAll, &[handle, function, unique, reducer, payload]);
                    }
                }
            }
            Self::NoJob => put(P::NoJob, &[]),
            Self::Noop => put(P::Noop, &[]),
            Self::WorkStatus { handle, numerator, denominator } => {
                put(P::WorkStatus, &[of(handle), of(numerator), of(denominator)]);
            }
            Self::WorkData { handle, data } => put(P::WorkData, &[of(handle), of(data)]),
            Self::WorkWarning { handle, data } => put(P::WorkWarning, &[of(handle), of(data)]),
            Self::WorkComplete { handle, result } => {
                put(P::WorkComplete, &[of(handle), of(result)])
            }
            Self::WorkFail { handle } => put(P::WorkFail, &[of(handle)]),
            Self::WorkException { handle, data } => put(P::WorkException, &[of(handle), of(data)]),
            Self::Status { handle, status } => {
                let numbers = status.numbers();
                let [known, running, done, total] = numbers.each_ref().map(Decimal::as_bytes);
                put(P::StatusRes, &[of(handle), known, running, done, total]);
            }
            Self::StatusUnique { unique, status, clients } => {
                let (numbers, clients) = (status.numbers(), Decimal::new(*clients));
                let [known, running, done, total] = numbers.each_ref().map(Decimal::as_bytes);
                let arguments = [of(unique), known, running, done, total, clients.as_bytes()];
                put(P::StatusResUnique, &arguments);
            }
            Self::Echo { data } => put(P::EchoRes, &[of(data)]),
            Self::Option { name } => put(P::OptionRes, &[of(name)]),
            Self::Error { code, text } => put(P::Error, &[of(code), of(text)]),
        }
    }
}

impl ErrorReply {
    /// Appends the ERROR packet.
    pub fn encode(self, out: &mut BytesMut) {
        let (code, text) = self.parts();
        Response::Error { code, text }.encode(out);
    }
}

impl JobStatus {
    fn numbers(self) -> [Decimal; 4] {
        let (is_known, is_running) = (self.is_known.into(), self.is_running.into());
        [is_known, is_running, self.numerator, self.denominator].map(Decimal::new)
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
    if !starts_like(input, &RESPONSE_MAGIC) {
        return Err(ResponseError::WrongMagic);
    }
    let Some((number, length)) = read_header(input) else { return Ok(None) };
    let kind = PacketType::from_number(number).ok_or(ResponseError::UnexpectedType(number))?;
    let bytes = usize::try_from(length).unwrap_or(usize::MAX);
    if bytes > packet_bytes_max {
        return Err(ResponseError::TooLong { bytes: length });
    }
    take_data(input, bytes).map(|data| read(kind, data)).transpose()
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
