//! Where the segments of a backup come from.

use std::error::Error;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use spindle_log::{
    OpenError, PartsOf, Position,
    copy::{FORMAT, SegmentFacts, SegmentReader, StillLog},
    disk::Disk,
};

/// What there is to copy: a log as it is at one time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Listing {
    /// The version of the segments' format.
    pub format: u32,
    /// The oldest record's position.
    pub first: Position,
    /// The position after the newest record.
    pub end: Position,
    /// The segments, oldest first.
    pub segments: Vec<SegmentFacts>,
}

impl Listing {
    pub(crate) fn new(segments: Vec<SegmentFacts>) -> Self {
        let first = segments.first().map(|segment| segment.first).unwrap_or_default();
        let end = segments.last().map(|segment| segment.next).unwrap_or_default();
        Self { format: FORMAT, first, end, segments }
    }

    /// Says what keeps it from being a log, if anything does.
    pub(crate) fn check(&self) -> Result<(), String> {
        let (Some(first), Some(last)) = (self.segments.first(), self.segments.last()) else {
            return Err("there is no segment".to_owned());
        };
        if (first.first, last.next) != (self.first, self.end) {
            return Err("the segments do not begin and end where the log does".to_owned());
        }
        if self.segments.iter().any(|segment| segment.next < segment.first) {
            return Err("a segment ends before it begins".to_owned());
        }
        let gap = self.segments.windows(2).find(|pair| pair[0].next != pair[1].first);
        match gap {
            Some(pair) => Err(format!("record {} is missing", pair[0].next)),
            None if self.format > FORMAT => {
                let found = self.format;
                Err(format!(
                    "it has format {found}, this release reads format {FORMAT}: use a newer one"
                ))
            }
            None => Ok(()),
        }
    }
}

/// Why a source gave nothing.
#[derive(Debug)]
pub enum SourceError {
    /// The segment was dropped: a new listing does not have it.
    Gone,
    /// Something else.
    Failed(Box<dyn Error + Send + Sync>),
}

/// A log that is copied.
pub trait Source {
    /// What there is now.
    fn listing(&mut self) -> Result<Listing, SourceError>;

    /// At most `len` bytes of a listed segment from `offset` on, and at least one.
    fn read(&mut self, first: Position, offset: u64, len: usize) -> Result<Bytes, SourceError>;
}

/// A data folder that no server works on.
pub struct FolderSource {
    segments: Vec<SegmentReader>,
    /// Keeps servers from starting on the folder.
    _log: StillLog,
}

impl FolderSource {
    /// Takes a folder, reads it through and refuses damage, except to what `parts_of` names.
    pub fn open(disk: &dyn Disk, parts_of: PartsOf) -> Result<Self, OpenError> {
        let mut log = StillLog::open(disk, parts_of)?;
        Ok(Self { segments: std::mem::take(&mut log.segments), _log: log })
    }
}

impl Source for FolderSource {
    fn listing(&mut self) -> Result<Listing, SourceError> {
        Ok(Listing::new(self.segments.iter().map(|segment| segment.facts().clone()).collect()))
    }

    fn read(&mut self, first: Position, offset: u64, len: usize) -> Result<Bytes, SourceError> {
        let found = self.segments.iter().find(|segment| segment.facts().first == first);
        let segment = found.ok_or(SourceError::Gone)?;
        segment.read(offset, len).map_err(|error| SourceError::Failed(Box::new(error)))
    }
}
