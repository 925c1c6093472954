//! What the server answers.

use bytes::{Bytes, BytesMut};

use super::number::Decimal;
use super::packet::write_response;
use super::{ErrorReply, PacketType};

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
    /// All there is to do.
    pub denominator: u64,
}

/// One packet of a server. The server writes slices (`B` is `&[u8]`); tests read [`Bytes`].
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
    /// The data of an ECHO_REQ, sent back.
    Echo { data: B },
    /// An option was switched on; its name as sent.
    Option { name: B },
    /// Something was refused. The text is for people.
    Error { code: B, text: B },
}

impl<B: AsRef<[u8]>> Response<B> {
    /// Appends the packet.
    pub fn encode(&self, out: &mut BytesMut) {
        use PacketType as P;
        let of = B::as_ref;
        let mut put = |kind, arguments: &[&[u8]]| write_response(out, kind, arguments);
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
