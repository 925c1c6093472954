//! The contract every log keeps. The words MUST and MUST NOT bind implementations.

use std::{fmt, io, sync::Arc};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::copy::SegmentReader;

/// A record's number. Positions are gapless and never used twice.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Position(pub u64);

impl Position {
    /// The position right after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What is appended: bytes the log does not look into, and who wrote them.
#[derive(Clone, Debug)]
pub struct Record {
    /// The writer's epoch. On a shared log it tells a writer whether a stored record is its own.
    pub epoch: u64,
    /// The record itself, at most [`Log::record_bytes_max`] long.
    pub bytes: Bytes,
}

/// A record read back.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Where it stands in the log.
    pub position: Position,
    /// The epoch it was submitted with.
    pub epoch: u64,
    /// Its bytes. They may be a slice of a larger read buffer: copy what is kept for long.
    pub bytes: Bytes,
    /// Parts of it that carry a checksum of their own ([`CheckedPart`](crate::CheckedPart)) do not
    /// match it. All other bytes are proven.
    pub damaged: bool,
}

/// What became of one submitted record.
#[derive(Debug)]
pub enum Ack {
    /// The record is in the log, as durable as the log's sync policy promises and never less.
    Committed(Position),
    /// Another writer's record stands at that position (shared logs only).
    Conflict {
        /// The position that was asked for.
        at: Position,
        /// The record that stands there, where the log can tell: it may be one's own, from a try
        /// whose answer was lost.
        stored: Option<Record>,
    },
    /// The answer was lost: the record may be in the log, or come into it later. The writer MUST
    /// submit nothing else; it takes the answers of all records that it has submitted behind this
    /// one, and then submits the identical records again, from this position on, until they are
    /// Committed or Conflict.
    Unknown(Position),
    /// The log can not go on: stop the process. Memory may be ahead of the log.
    Fatal(LogError),
}

/// How much room the log has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Space {
    /// Enough to go on.
    Ample,
    /// The disk is full and only the reserve is left: append nothing but what frees space.
    ReserveOnly,
    /// No further segment can be prepared for a reason other than room (errors of the disk, files that may not be
    /// made). What is left is a reserve, as on a full disk; a trim can make it longer here, too.
    CannotGrow,
}

impl Space {
    /// Nothing but what frees space is to be appended.
    #[must_use]
    pub fn is_reserve(self) -> bool {
        self != Self::Ample
    }
}

/// Why a log failed for good, or an operation on it did.
#[derive(Clone, Debug, Error)]
pub enum LogError {
    /// The disk refused. After this the log takes nothing more: what a failed write or sync left
    /// behind can not be known, so nothing is tried again on it.
    #[error("cannot {operation} {file}: {source}")]
    Failed {
        /// What was being done ("write", "sync", ...).
        operation: &'static str,
        /// The file it was done to.
        file: String,
        /// What the operating system said.
        source: Arc<io::Error>,
    },
    /// The folder at the log's path, or the lock file in it, is not the one that was opened.
    #[error("{folder} was taken away from the server: {source}")]
    FolderLost {
        /// The folder.
        folder: String,
        /// What has changed.
        source: Arc<io::Error>,
    },
    /// [`Log::next_ack`] was called with no submitted record left unanswered.
    #[error("no submitted record waits for its acknowledgement")]
    NothingSubmitted,
}

/// Why a record was not taken. The log is as if it had never been submitted.
#[derive(Clone, Debug, Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum SubmitError {
    /// The record names another position than the next one.
    #[error("position {at} is not the next one, {next}")]
    Conflict { at: Position, next: Position },
    /// The record is longer than [`Log::record_bytes_max`].
    #[error("a record of {bytes} bytes is over the log's maximum of {max}")]
    TooLarge { bytes: u64, max: u32 },
    /// There is no room for the record now: the disk is full and the reserve is used up, or no
    /// further segment can be prepared for another reason. To be tried again: it succeeds when a
    /// trim has given space back, room was made on the disk, or the other reason is gone.
    #[error("the log has no room now")]
    Full,
    /// An earlier failure stopped the log for good.
    #[error("the log failed earlier: {0}")]
    Poisoned(LogError),
}

/// Why a read gave nothing.
#[derive(Clone, Debug, Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum ReadError {
    /// The position is below [`Log::first`].
    #[error("position {position} was trimmed, the log begins at {first}")]
    Trimmed { position: Position, first: Position },
    /// No committed record stands at the position.
    #[error("position {position} is not in the log, which ends at {next}")]
    Absent { position: Position, next: Position },
    /// The record is shorter than the slice asked for.
    #[error("record {position} has {bytes} bytes, not the {len} at {offset} that were asked for")]
    OutOfRange { position: Position, offset: u32, len: u32, bytes: u32 },
    /// The bytes on disk are not the ones that were written.
    #[error("record {position} is damaged: {file} at byte {offset}: {reason}")]
    Damaged { position: Position, file: String, offset: u64, reason: &'static str },
    /// The disk refused.
    #[error("cannot read {file}: {source}")]
    Failed { file: String, source: Arc<io::Error> },
}

/// Bytes `offset..offset + len` of the record at the position, as [`Log::read_at`] returns them, for a record whose
/// bytes are all in memory.
pub fn slice_of(
    record: &Bytes,
    position: Position,
    offset: u32,
    len: u32,
) -> Result<Bytes, ReadError> {
    let end = u64::from(offset) + u64::from(len);
    if end > record.len() as u64 {
        let bytes = u32::try_from(record.len()).unwrap_or(u32::MAX);
        return Err(ReadError::OutOfRange { position, offset, len, bytes });
    }
    Ok(record.slice(offset as usize..offset as usize + len as usize))
}

/// Records in order, as [`Log::read`] gives them. Ends after the first error.
pub type StoredRecords = Box<dyn Iterator<Item = Result<Stored, ReadError>> + Send>;

/// A gapless sequence of records.
///
/// ```text
///    trimmed          committed: can be read           submitted   free
///  ............|====================================|............|- - - - -
///              ^                                    ^            ^
///           first()                        next_ack() answers  next()
///                                          this one next
///
///              |----- run -----|----- run -----|- open run -      a trim drops whole runs
///                              ^
///                   segment_end_before(first())
/// ```
///
/// - `first() <= next()` MUST hold at any time. Neither MUST ever decrease, not even when
///   everything was trimmed, and a log that keeps its records MUST NOT decrease them across
///   a restart either, below the last committed record. The one exception is an Unknown, which
///   takes records back.
/// - A record is submitted, then acknowledged. Acknowledgements MUST come in the order of
///   submission, one for each; any number of records MAY be submitted before the first is
///   acknowledged. Only a Committed acknowledgement says that a record is in the log: a record that
///   was submitted and not acknowledged may or may not be there after a crash, but the records that
///   are there MUST be a prefix of those submitted.
/// - What stands behind a record that is not Committed is not Committed either: after a Conflict
///   all records that were submitted behind it MUST be answered as Conflict, and after an Unknown
///   as Unknown. On a shared log it is not enough to compare positions: by the time a record arrives, another writer's
///   may stand in front of it. An Unknown takes its record back: [`next`](Self::next) MUST be the first unknown
///   position once all those answers were taken.
/// - A record that is submitted again and already stands there, by its epoch and its bytes, MUST be
///   answered as Committed, or as a Conflict that shows it. Such a Conflict is as good as Committed:
///   it says nothing of the records behind, which are answered as behind a Committed one.
/// - One thread at a time submits, and one at a time takes acknowledgements. These MUST be the same
///   thread, unless [`in_flight_max`](Self::in_flight_max) is over 1. Any thread may do all the rest
///   meanwhile. Reads MUST NOT wait for a sync.
pub trait Log: Send + Sync + 'static {
    /// The oldest position that can be read, if any record can: `first() == next()` when empty.
    fn first(&self) -> Position;

    /// The position the next submit must name. Counts records that are submitted but not yet
    /// acknowledged.
    fn next(&self) -> Position;

    /// Hands a record to the log.
    ///
    /// For any `at` other than [`next`](Self::next), trimmed positions included, this MUST be
    /// [`SubmitError::Conflict`] - or, on a shared log that learns of it later, become
    /// [`Ack::Conflict`]. A record over [`record_bytes_max`](Self::record_bytes_max) MUST be
    /// refused as [`SubmitError::TooLarge`]. After an error the log MUST be as before the call.
    ///
    /// What is submitted and not acknowledged stays in memory: the caller bounds it.
    fn submit(&self, at: Position, record: &Record) -> Result<(), SubmitError>;

    /// What became of the oldest submitted record that has no answer yet. May block. A log that
    /// writes in batches does its work here, for all records submitted so far at once.
    ///
    /// A log MUST NOT answer [`Ack::Committed`] before the record is as durable as its sync policy
    /// promises. After one [`Ack::Fatal`] every later call and every submit MUST fail too, except
    /// for [`LogError::NothingSubmitted`], which says only that there was nothing to answer.
    fn next_ack(&self) -> Ack;

    /// How many records a writer should have on their way: submitted, and their acknowledgement not
    /// taken. A log that does its work in [`next_ack`](Self::next_ack), on the thread that calls it,
    /// says 1: a writer hands over all that it has, however many records, and takes all answers
    /// before it submits more. A log that says more works by itself: `submit` passes the record on and returns, and
    /// `next_ack` only waits. Then the disks at its other end can serve several records at once. There `submit` MUST
    /// NOT wait for an answer to be taken, and `next_ack` MUST return in bounded time: an answer that does not come is
    /// [`Ack::Unknown`]. It MUST be the same number for as long as the log is open.
    fn in_flight_max(&self) -> usize {
        1
    }

    /// The committed records from `from` on, in order, up to the end of what is committed at the
    /// time of the call. Below [`first`](Self::first) MUST be [`ReadError::Trimmed`], above
    /// [`next`](Self::next) MUST be [`ReadError::Absent`]. A trim MUST NOT disturb an iterator
    /// that was given out before it.
    fn read(&self, from: Position) -> Result<StoredRecords, ReadError>;

    /// `len` bytes of one committed record, from its byte `offset` on. Cheap: at most one read of
    /// an open file. It does not check the bytes; a caller that needs a check keeps a checksum.
    fn read_at(&self, position: Position, offset: u32, len: u32) -> Result<Bytes, ReadError>;

    /// Gives back the space of records below `position`. The log keeps them in runs (segments)
    /// and drops those that end at or below it; the open run stays. So `first() <= position`
    /// afterwards, and everything from `position` on MUST still be there. A position beyond what
    /// is committed counts as the end of what is committed.
    ///
    /// Whatever the sync policy, all committed records MUST be durable before anything is dropped,
    /// and what was dropped MUST stay dropped after a crash once this returned.
    fn trim_before(&self, position: Position) -> Result<(), LogError>;

    /// Whether the log can still be acknowledged to. A log that checks this itself before each acknowledgement is asked
    /// now and then all the same, so that a failure is noticed while it is idle, too. An error is as final as
    /// [`Ack::Fatal`].
    fn check(&self) -> Result<(), LogError> {
        Ok(())
    }

    /// Nothing more is appended: an orderly stop. Makes all committed records durable, and a log that keeps them notes
    /// where it ends, so that the next opening notices if records are missing there. A record that is submitted all the
    /// same MUST be taken as before, and the note MUST be withdrawn durably before the record is in the log.
    fn end(&self) -> Result<(), LogError> {
        Ok(())
    }

    /// The longest record the log takes, in bytes.
    fn record_bytes_max(&self) -> u32;

    /// Whether no other process can write to this log while it is open here.
    fn is_exclusive(&self) -> bool;

    /// How much room there is.
    fn space(&self) -> Space;

    /// About how many bytes can still be appended before the log needs more of the disk: what is
    /// left of the open run, and what is prepared. [`u64::MAX`] when nothing is prepared ahead.
    fn room_bytes(&self) -> u64;

    /// Bytes that the kept records take, framing included, space prepared for later excluded.
    fn bytes_on_disk(&self) -> u64;

    /// How many files the log keeps open: more, the longer it is. None of a log that keeps no files.
    fn open_files(&self) -> usize {
        0
    }

    /// The first position after the run that holds `from`: what a trim must reach to free that
    /// run. `None` when it is the open run, which no trim frees. A `from` below
    /// [`first`](Self::first) counts as `first`.
    fn segment_end_before(&self, from: Position) -> Option<Position>;

    /// About how many bytes the committed records in `from..to` take.
    fn bytes_between(&self, from: Position, to: Position) -> u64;

    /// The segments as they are now, oldest first, up to what is committed, to be copied; `None` of a
    /// log that keeps no files. Reads a few bytes of each: do not call it on a thread that others wait for.
    fn segments(&self) -> Option<Result<Vec<SegmentReader>, ReadError>> {
        None
    }

    /// The segment that begins at `first`, as far as it is committed. `Ok(None)` when there is none,
    /// or none any more.
    fn segment(&self, _first: Position) -> Result<Option<SegmentReader>, ReadError> {
        Ok(None)
    }
}
