//! The parts of a backup: segments as far as they are committed, and the check of a copy.
//!
//! A segment only ever grows at its end, and never changes once the next one has begun. So a copy
//! of its first bytes stays good for ever, and is continued where it ended. Frames are chained
//! ([`SegmentSum`]): two copies of a segment that end with the same sum are the same.
//!
//! Of a log that keeps no files, [`CopyWriter`] makes copies as if it had segments; [`read_copy`] reads the records of
//! any copy.

use std::{fmt, io, str::FromStr, sync::Arc};

use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use crate::{
    bounds::{Bounds, BoundsFile},
    contract::{Position, Stored},
    disk::{Disk, DiskFile, FolderLock},
    faults::Faults,
    folder::{FileKind, OpenError, file_kind, lock_to_read, segment_name},
    frame::{
        BadHeader, FORMAT_VERSION, FrameHeader, SEGMENT_HEADER_BYTES, SegmentHeader, encode_frame,
    },
    parts::PartsOf,
    scan::{Expected, Frames, NoFrame},
    survey::{Manner, Surveyed, survey},
};

/// The version of the segments' format that this release writes.
pub const FORMAT: u32 = FORMAT_VERSION;

/// A file with this name says that a folder is being restored: such a folder is refused by every
/// opening.
pub const RESTORING_FILE: &str = "restoring";

/// The name of a segment's file in a log's folder.
#[must_use]
pub fn segment_file(first: Position) -> String {
    segment_name(first)
}

/// Identifies a segment's bytes: its salt and the CRC-32C of its last frame, which covers that of
/// the frame before it, and so on from the first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct SegmentSum {
    salt: u32,
    crc: u32,
}

impl fmt::Display for SegmentSum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}{:08x}", self.salt, self.crc)
    }
}

/// A text that is no [`SegmentSum`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a segment's sum has 16 hexadecimal digits")]
pub struct NoSum;

impl FromStr for SegmentSum {
    type Err = NoSum;

    fn from_str(text: &str) -> Result<Self, NoSum> {
        let is_hex = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u64::from_str_radix(text, 16).ok().filter(|_| is_hex).ok_or(NoSum)?;
        Ok(Self { salt: (number >> 32) as u32, crc: number as u32 })
    }
}

impl From<SegmentSum> for String {
    fn from(sum: SegmentSum) -> Self {
        sum.to_string()
    }
}

impl TryFrom<String> for SegmentSum {
    type Error = NoSum;

    fn try_from(text: String) -> Result<Self, NoSum> {
        text.parse()
    }
}

/// A segment, or the beginning of one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SegmentFacts {
    /// Its first position.
    pub first: Position,
    /// The position after its last record.
    pub next: Position,
    /// How many bytes of the file that is, its header included.
    pub bytes: u64,
    /// The sum that identifies these bytes.
    pub sum: SegmentSum,
}

/// A segment that can be read. While it is there, a trim removes the segment's file without
/// writing over it.
pub struct SegmentReader {
    facts: SegmentFacts,
    file: Arc<dyn DiskFile>,
    _held: Arc<dyn Send + Sync>,
}

impl SegmentReader {
    pub(crate) fn new(
        (salt, crc): (u32, u32),
        (first, next): (Position, Position),
        bytes: u64,
        file: Arc<dyn DiskFile>,
        held: Arc<dyn Send + Sync>,
    ) -> Self {
        let facts = SegmentFacts { first, next, bytes, sum: SegmentSum { salt, crc } };
        Self { facts, file, _held: held }
    }

    /// What can be read.
    #[must_use]
    pub fn facts(&self) -> &SegmentFacts {
        &self.facts
    }

    /// At most `len` bytes from `offset` on: fewer where the segment ends.
    pub fn read(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let left = self.facts.bytes.saturating_sub(offset);
        let mut bytes = BytesMut::zeroed(len.min(usize::try_from(left).unwrap_or(usize::MAX)));
        let read = self.file.read_at(&mut bytes, offset)?;
        if read < bytes.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(bytes.freeze())
    }
}

/// Notes where a log of these segments begins and ends, in a folder that was made of copies. Without
/// that note it would be damaged.
pub fn begin_bounds(disk: &dyn Disk, segments: &[&SegmentFacts]) -> io::Result<()> {
    let (Some(oldest), Some(newest)) = (segments.first(), segments.last()) else { return Ok(()) };
    let (first, reached) = (oldest.first, newest.next);
    let bounds = Bounds { first, newest: newest.first, reached, end: None };
    BoundsFile::create(disk, bounds).map(drop)
}

/// A folder that no server works on, read through and found sound. No other process can take it.
pub struct StillLog {
    /// Its segments, oldest first.
    pub segments: Vec<SegmentReader>,
    _lock: Option<FolderLock>,
}

impl StillLog {
    /// Takes a folder and reads all of it. Damage that `parts_of` does not name is an error.
    pub fn open(disk: &dyn Disk, parts_of: PartsOf) -> Result<Self, OpenError> {
        // Without a segment there is nothing to lock, and the folder may belong to something else.
        let names = disk.list().map_err(OpenError::failed(disk, "list", ""))?;
        if !names.iter().any(|name| matches!(file_kind(name), FileKind::Segment(_))) {
            return Err(OpenError::NoLog { folder: disk.folder() });
        }
        let lock = lock_to_read(disk)?;
        let manner = Manner { write: false, faults: Faults::default(), parts_of };
        let mut found = survey(disk, manner, &mut |_| {})?;
        if let Some(damage) = found.damage.take() {
            return Err(OpenError::damaged(disk, damage));
        }
        let segments = found.segments.into_iter().map(Surveyed::into_reader).collect();
        Ok(Self { segments: without_empty_end(segments), _lock: lock })
    }
}

/// An open segment without a record is left out where there is another: a log that ends with it is
/// the same log.
pub(crate) fn without_empty_end(mut segments: Vec<SegmentReader>) -> Vec<SegmentReader> {
    if segments.len() > 1 && segments.last().is_some_and(|last| last.facts.is_empty()) {
        segments.pop();
    }
    segments
}

impl SegmentFacts {
    /// Whether it holds no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.first == self.next
    }
}

impl Surveyed {
    fn into_reader(self) -> SegmentReader {
        let (salt, positions) = (self.header.salt, (self.header.first, self.next()));
        SegmentReader::new((salt, self.last_crc), positions, self.end, self.file, Arc::new(()))
    }
}

/// What was found in a copy of a segment.
#[derive(Clone, Debug)]
pub struct CheckedCopy {
    /// The sound part of it, from its beginning.
    pub facts: SegmentFacts,
    /// The CRC of the frame before its first: the last one of the segment before it.
    follows: u32,
    /// Records of which parts are damaged that carry a checksum of their own. They count as sound.
    pub damaged_parts: u64,
    /// Why the sound part ends before the bytes that were asked for.
    pub bad: Option<&'static str>,
}

impl CheckedCopy {
    /// Whether it continues the log right behind another segment.
    #[must_use]
    pub fn follows(&self, before: &SegmentFacts) -> bool {
        self.facts.first == before.next && self.follows == before.sum.crc
    }
}

/// Reads the first `upto` bytes of a copy, frame by frame, and checks each.
///
/// Frames before `known`, which were checked before, are not read again. The first one that is not
/// sound ends the check and is no error.
///
/// # Errors
///
/// The disk refused, or the file does not begin like a segment of this release.
pub fn check_copy(
    file: &Arc<dyn DiskFile>,
    upto: u64,
    known: Option<&SegmentFacts>,
    parts_of: PartsOf,
) -> Result<CheckedCopy, CopyError> {
    walk(file, upto, known, parts_of, &mut |_| Ok::<(), CopyError>(()))
}

/// As [`check_copy`] of all of a copy that has been checked, and hands over its records, until one is answered with an
/// error. They may be slices of a larger buffer.
///
/// # Errors
///
/// As [`check_copy`], and those of `each`.
pub fn read_copy<E: From<CopyError>>(
    file: &Arc<dyn DiskFile>,
    upto: u64,
    parts_of: PartsOf,
    each: &mut dyn FnMut(Stored) -> Result<(), E>,
) -> Result<CheckedCopy, E> {
    walk(file, upto, None, parts_of, each)
}

fn walk<E: From<CopyError>>(
    file: &Arc<dyn DiskFile>,
    upto: u64,
    known: Option<&SegmentFacts>,
    parts_of: PartsOf,
    each: &mut dyn FnMut(Stored) -> Result<(), E>,
) -> Result<CheckedCopy, E> {
    let header = header_of(&**file)?;
    let start = SegmentFacts {
        first: header.first,
        next: header.first,
        bytes: SEGMENT_HEADER_BYTES as u64,
        sum: SegmentSum { salt: header.salt, crc: header.prev_crc },
    };
    let follows = header.prev_crc;
    let known = known.filter(|known| (known.first, known.sum.salt) == (header.first, header.salt));
    let mut facts = known.cloned().unwrap_or(start);
    let range = (facts.bytes, upto);
    let mut frames = Frames::new(file.clone(), header.salt, range, parts_of);
    let (mut damaged_parts, mut bad) = (0, None);
    while facts.bytes < upto {
        let expected = Expected { position: facts.next, prev_crc: Some(facts.sum.crc) };
        match frames.take(expected) {
            Ok(frame) => {
                each(frames.stored(facts.next, &frame))?;
                facts.next = facts.next.next();
                facts.sum.crc = frame.crc;
                facts.bytes = frames.offset();
                damaged_parts += u64::from(frame.damaged);
            }
            Err(NoFrame::Bad(reason)) => {
                bad = Some(reason);
                break;
            }
            Err(NoFrame::Failed(error)) => return Err(CopyError::from(error).into()),
        }
    }
    Ok(CheckedCopy { facts, follows, damaged_parts, bad })
}

/// What is written to a copy at once.
const PIECE_BYTES: usize = 1024 * 1024;

/// Writes records to a copy, one behind the other, as the frames of a segment.
pub struct CopyWriter {
    file: Arc<dyn DiskFile>,
    /// What is in the copy and in the piece.
    facts: SegmentFacts,
    /// Frames that are not written yet.
    piece: Vec<u8>,
}

impl CopyWriter {
    /// Begins a copy in an empty file, behind another one if there is one. `salt` is a number that cannot be guessed
    /// ([`Disk::salt`]).
    #[must_use]
    pub fn begin(
        file: Arc<dyn DiskFile>,
        salt: u32,
        first: Position,
        before: Option<&SegmentFacts>,
    ) -> Self {
        let crc = before.map_or(0, |before| before.sum.crc);
        let header = SegmentHeader { salt, first, prev_crc: crc, keeps_bounds: true };
        let (piece, sum) = (header.encode().to_vec(), SegmentSum { salt, crc });
        let facts = SegmentFacts { first, next: first, bytes: piece.len() as u64, sum };
        Self { file, facts, piece }
    }

    /// Goes on behind these facts of a copy, which were checked. What stands there in the file is written over.
    #[must_use]
    pub fn continued(file: Arc<dyn DiskFile>, facts: SegmentFacts) -> Self {
        Self { file, facts, piece: Vec::new() }
    }

    /// What it holds by now.
    #[must_use]
    pub fn facts(&self) -> &SegmentFacts {
        &self.facts
    }

    /// Appends the record at [`SegmentFacts::next`] of the facts. It need not be in the file yet.
    pub fn push(&mut self, epoch: u64, record: &[u8]) -> io::Result<()> {
        let SegmentSum { salt, crc } = self.facts.sum;
        let at = self.facts.next;
        let before = self.piece.len();
        // All copies are durable before their existence is reported.
        let header = FrameHeader { position: at, epoch, synced_upto: at, prev_crc: crc };
        self.facts.sum.crc = encode_frame(&mut self.piece, salt, header, record);
        self.facts.bytes += (self.piece.len() - before) as u64;
        self.facts.next = at.next();
        if self.piece.len() >= PIECE_BYTES { self.write() } else { Ok(()) }
    }

    /// Makes all of it durable, but for the file's name.
    pub fn finish(mut self) -> io::Result<SegmentFacts> {
        self.write()?;
        self.file.sync()?;
        Ok(self.facts)
    }

    fn write(&mut self) -> io::Result<()> {
        self.file.write_at(&self.piece, self.facts.bytes - self.piece.len() as u64)?;
        self.piece.clear();
        Ok(())
    }
}

/// Why a copy can not be read at all.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// Its header is not what a segment begins with.
    #[error("{0}")]
    Header(&'static str),
    /// A newer release wrote it.
    #[error("it has format {0}, this release reads format {FORMAT}: use a newer one")]
    NewerFormat(u32),
    /// The disk refused.
    #[error(transparent)]
    Failed(#[from] io::Error),
}

fn header_of(file: &dyn DiskFile) -> Result<SegmentHeader, CopyError> {
    let mut bytes = [0; SEGMENT_HEADER_BYTES];
    file.read_at(&mut bytes, 0)?;
    SegmentHeader::decode(&bytes).map_err(|bad| match bad {
        BadHeader::Magic => CopyError::Header("it does not begin like a segment"),
        BadHeader::Checksum => CopyError::Header("the segment's header is damaged"),
        BadHeader::Version(found) => CopyError::NewerFormat(found),
    })
}
