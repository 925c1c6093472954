//! What a peer can do wrong, and the answer to it.

use spindle_access::Denied;

use super::{PacketType, Request};

/// The ERROR packets, each a code that clients know and a text.
///
/// The first group is gearmand's own, byte for byte; the second is for input that gearmand accepts
/// or hangs on, with codes from gearmand's vocabulary.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ErrorReply {
    /// A WORK_STATUS, WORK_COMPLETE or WORK_FAIL for a job this connection does not hold.
    WorkResultJobNotFound,
    /// A WORK_DATA or WORK_WARNING for a job this connection does not hold.
    WorkDataJobNotFound,
    /// A WORK_EXCEPTION for a job this connection does not hold.
    WorkExceptionJobNotFound,
    /// The function is at its `maxqueue`.
    QueueFull,
    /// An OPTION_REQ for something other than exceptions.
    UnknownOption,
    /// A unique (or a reducer) of more than 64 bytes.
    UniqueTooLarge,
    /// A handle of more than 64 bytes.
    HandleTooLarge,
    /// A packet of an unknown type, or of one that only servers send.
    CommandNotExpected,
    /// A packet that says it is a response.
    RequestMagicExpected,

    /// A packet over the limit.
    PacketTooLarge,
    /// A payload or result over the limit.
    PayloadTooLarge,
    /// A function of more than 512 bytes.
    FunctionTooLarge,
    /// A function name that is empty or has a NUL in it.
    BadFunctionName,
    /// A packet with fewer arguments than its type has.
    ArgumentMissing,
    /// A SUBMIT_JOB_SCHED that never matches.
    BadSchedule,
    /// The disk is full.
    DiskFull,
    /// The log cannot be made longer, for another reason than room.
    LogCannotGrow,
    /// The log is as large as it may be.
    LogFull,
    /// Too many clients wait or sleep, too many jobs are kept in memory, or a worker names too many
    /// functions, or too many bytes of them.
    TooMany,
    /// The server stops.
    Stopping,
    /// A token is needed, and none was presented, or one that is unknown or has expired.
    Unauthenticated,
    /// The token does not allow this.
    Denied,
    /// The function's queue is on another shard, which a router asks instead.
    OtherShard,
    /// Over a limit of the engine that has no error code of its own here.
    Refused,
}

impl ErrorReply {
    /// The code of [`ErrorReply::OtherShard`].
    pub const OTHER_SHARD: &str = "OTHER_SHARD";

    /// The error for a worker's packet about a job that it does not hold.
    #[must_use]
    pub fn of_job_not_held(request: &Request) -> ErrorReply {
        match request {
            Request::WorkData { .. } | Request::WorkWarning { .. } => Self::WorkDataJobNotFound,
            Request::WorkException { .. } => Self::WorkExceptionJobNotFound,
            _ => Self::WorkResultJobNotFound,
        }
    }

    /// The error for a client that may not do something.
    #[must_use]
    pub fn of_denied(denied: Denied) -> ErrorReply {
        if denied.is_unauthenticated() { Self::Unauthenticated } else { Self::Denied }
    }

    /// Code and text as they are sent.
    #[must_use]
    pub fn parts(self) -> (&'static str, &'static str) {
        match self {
            Self::WorkResultJobNotFound => ("JOB_NOT_FOUND", "Job given in work result not found"),
            Self::WorkDataJobNotFound => ("JOB_NOT_FOUND", "Job does not exist on server"),
            Self::WorkExceptionJobNotFound => {
                ("JOB_NOT_FOUND", "An exception was received for a job that does not exist")
            }
            Self::QueueFull => ("QUEUE_ERROR", "Job queue is full"),
            Self::UnknownOption => ("UNKNOWN_OPTION", "Server does not recognize given option"),
            Self::UniqueTooLarge => ("ARGUMENT_TOO_LARGE", "Unique value too large"),
            Self::HandleTooLarge => (
                "ARGUMENT_TOO_LARGE",
                "Error occurred due to GEARMAND_JOB_HANDLE_SIZE being too small from snprintf",
            ),
            Self::CommandNotExpected => ("INVALID_COMMAND", "Command not expected"),
            Self::RequestMagicExpected => ("INVALID_MAGIC", "Request magic expected"),
            Self::PacketTooLarge => ("ARGUMENT_TOO_LARGE", "Packet too large"),
            Self::PayloadTooLarge => ("ARGUMENT_TOO_LARGE", "Workload too large"),
            Self::FunctionTooLarge => ("ARGUMENT_TOO_LARGE", "Function value too large"),
            Self::BadFunctionName => ("INVALID_FUNCTION_NAME", "Function name is not usable"),
            Self::ArgumentMissing => ("INVALID_PACKET", "Packet has too few arguments"),
            Self::BadSchedule => ("INVALID_PACKET", "Schedule never matches"),
            Self::DiskFull => ("QUEUE_ERROR", "Disk full"),
            Self::LogCannotGrow => ("QUEUE_ERROR", "Log cannot grow"),
            Self::LogFull => ("QUEUE_ERROR", "Log full"),
            Self::TooMany => ("QUEUE_ERROR", "Too many of these at once"),
            Self::Stopping => ("SERVER_ERROR", "Server is stopping"),
            Self::Unauthenticated => (
                "AUTHENTICATION_REQUIRED",
                "The token is missing, not known or expired: send the line auth TOKEN",
            ),
            Self::Denied => ("PERMISSION_DENIED", "The token is not for this"),
            Self::OtherShard => (Self::OTHER_SHARD, "The function's queue is on another shard"),
            Self::Refused => ("QUEUE_ERROR", "Request is outside the limits"),
        }
    }
}

/// Why there is no request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WireError {
    /// The packet begins with the magic of neither a request nor a response.
    #[error("neither a request nor a line")]
    WrongMagic,
    /// The packet says that it comes from a server.
    #[error("a response came where a request belongs")]
    ResponseMagic,
    /// The packet says that it is longer than the limit.
    #[error("a packet of {bytes} bytes is over the limit")]
    PacketTooLong {
        /// The length in its header.
        bytes: u32,
    },
    /// No line end within the limit.
    #[error("a line is over the limit")]
    LineTooLong,
    /// The published protocol has no such type.
    #[error("unknown packet type {0}")]
    UnknownType(u32),
    /// A type that only servers send.
    #[error("packet type {0:?} is not for a client or worker to send")]
    UnexpectedType(PacketType),
    /// A NUL is missing.
    #[error("packet type {0:?} with too few arguments")]
    ArgumentMissing(PacketType),
    /// Over 512 bytes.
    #[error("function name over the limit")]
    FunctionTooLong,
    /// Empty, or with a NUL.
    #[error("function name empty or with a NUL")]
    BadFunctionName,
    /// A unique or a reducer over 64 bytes.
    #[error("unique over the limit")]
    UniqueTooLong,
    /// Over 64 bytes.
    #[error("handle over the limit")]
    HandleTooLong,
    /// A field of a schedule that is neither empty nor a number in its range.
    #[error("schedule that never matches")]
    BadSchedule,
    /// An earlier error has ended the conversation.
    #[error("the connection is to close")]
    Closed,
}

impl WireError {
    /// The ERROR packet that answers it; `None` is silence.
    #[must_use]
    pub fn reply(self) -> Option<ErrorReply> {
        match self {
            Self::WrongMagic | Self::LineTooLong | Self::Closed => None,
            Self::ResponseMagic => Some(ErrorReply::RequestMagicExpected),
            Self::PacketTooLong { .. } => Some(ErrorReply::PacketTooLarge),
            Self::UnknownType(_) | Self::UnexpectedType(_) => Some(ErrorReply::CommandNotExpected),
            Self::ArgumentMissing(_) => Some(ErrorReply::ArgumentMissing),
            Self::FunctionTooLong => Some(ErrorReply::FunctionTooLarge),
            Self::BadFunctionName => Some(ErrorReply::BadFunctionName),
            Self::UniqueTooLong => Some(ErrorReply::UniqueTooLarge),
            Self::HandleTooLong => Some(ErrorReply::HandleTooLarge),
            Self::BadSchedule => Some(ErrorReply::BadSchedule),
        }
    }

    /// Whether the connection closes after the answer. If not, the packet has been passed over
    /// and decoding goes on.
    #[must_use]
    pub fn closes(self) -> bool {
        matches!(
            self,
            Self::WrongMagic
                | Self::PacketTooLong { .. }
                | Self::LineTooLong
                | Self::UnknownType(_)
                | Self::Closed
        )
    }
}
