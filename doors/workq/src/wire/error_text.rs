//! The texts that follow `-CLIENT-ERROR`.

use std::fmt;

/// What a client did wrong, in the exact words the protocol's clients know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorText {
    /// The first word of the line, or the object of `inspect`, is no command.
    UnknownCommand,
    /// The number of arguments or of flags is wrong for the command.
    InvalidCommandArgs,
    /// A flag has no name, no value, or comes twice.
    InvalidCommandFlags,
    /// The announced size is no size, over the limit, or not what was sent.
    InvalidPayloadSize,
    /// The same as [`ErrorText::InvalidPayloadSize`], in the words that `fail` uses.
    InvalidResultSize,
    /// The id is no UUID, or one that this command may not name.
    InvalidId,
    /// The name is empty, too long, or has letters outside its alphabet.
    InvalidName,
    /// The time to run is no number from 1 to 86,400,000.
    InvalidTtr,
    /// The time to live is no number from 1 to 2^64-1.
    InvalidTtl,
    /// The scheduled time is not in the protocol's form, or has passed together with the TTL.
    InvalidTime,
    /// `-max-attempts` is no number from 0 to 255.
    InvalidMaxAttempts,
    /// `-max-fails` is no number from 0 to 255.
    InvalidMaxFails,
    /// `-priority` is outside the command's range.
    InvalidPriority,
    /// The wait-timeout is no number from 0 to 86,400,000.
    InvalidWaitTimeout,
    /// The cursor offset is no number from 0 to 2^32-1.
    InvalidCursorOffset,
    /// The limit is no number from 1 to 100.
    InvalidLimit,
    /// A job with this id is known already.
    DuplicateJob,
    /// The job is finished already.
    DuplicateResult,
    /// `extend` names a job that nobody holds, `take` one that is not on offer. Extensions of ours.
    NotLeased,
}

impl ErrorText {
    /// The words as they go over the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UnknownCommand => "Unknown command",
            Self::InvalidCommandArgs => "Invalid command args",
            Self::InvalidCommandFlags => "Invalid command flags",
            Self::InvalidPayloadSize => "Invalid payload size",
            Self::InvalidResultSize => "Invalid result size",
            Self::InvalidId => "Invalid ID",
            Self::InvalidName => "Invalid Name",
            Self::InvalidTtr => "Invalid TTR",
            Self::InvalidTtl => "Invalid TTL",
            Self::InvalidTime => "Invalid Time",
            Self::InvalidMaxAttempts => "Invalid Max Attempts",
            Self::InvalidMaxFails => "Invalid Max Fails",
            Self::InvalidPriority => "Invalid Priority",
            Self::InvalidWaitTimeout => "Invalid wait timeout",
            Self::InvalidCursorOffset => "Invalid cursor offset",
            Self::InvalidLimit => "Invalid limit",
            Self::DuplicateJob => "Duplicate job",
            Self::DuplicateResult => "Duplicate result",
            Self::NotLeased => "Not leased",
        }
    }
}

impl fmt::Display for ErrorText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
