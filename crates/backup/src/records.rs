//! Takes a backup of a log that keeps no files: its records are written as if they were copies of segments.
//!
//! There are no segments to list: this module decides where each copy ends, and the manifest says how far they go. So a
//! backup is continued behind its last record, if the log has the same record there as the copy. Records that the log
//! has trimmed are dropped by whole copies, as a log drops segments.

use std::{mem, sync::Arc};

use spindle_log::{
    Position, ReadError, Stored,
    copy::{CopyWriter, SegmentFacts, read_copy},
    disk::{Disk, DiskFile},
};

use crate::{
    error::BackupError,
    manifest::{Kept, Manifest, copy_name, remove_if_there},
    take::{LISTINGS_MAX, Manner, Taken, drop_others, refuse_foreign},
};

/// Once a copy has this many bytes, the next one is begun.
const COPY_BYTES: u64 = 64 * 1024 * 1024;

/// Records in order, as [`RecordSource::read`] gives them. Ends after the first error.
pub type Records<'a> = Box<dyn Iterator<Item = Result<Stored, ReadError>> + 'a>;

/// A log that keeps no files.
pub trait RecordSource {
    /// Looks at the log as it is now: which one it is, the oldest position that it has, and the one behind its newest
    /// record. The end MUST be looked up after the beginning, so that everything that a trim relied upon is there.
    fn look(&mut self) -> Result<Found, BackupError>;

    /// The records from a position on up to the end that was found. With `behind`, the newest record of the backup, they
    /// are those that follow it.
    fn read(&mut self, from: Position, behind: Option<&Stored>) -> Result<Records<'_>, ReadError>;

    /// Whether a record of the log is what a copy has of it.
    fn is_same(&self, in_log: &Stored, in_copy: &Stored) -> bool;
}

/// What there is to back up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// Which log it is.
    pub log_id: String,
    /// The oldest record's position.
    pub first: Position,
    /// The position after the newest record.
    pub end: Position,
}

/// Takes a backup of a log that keeps no files, `taken_at` a time (RFC 3339). A folder with an older backup of the same
/// log gets what is new. `progress` learns of what is written: its bytes.
///
/// # Errors
///
/// After an error, and after a crash at any point, the folder holds the backup it held before.
pub fn back_up_records(
    disk: &dyn Disk,
    source: &mut dyn RecordSource,
    manner: Manner,
    taken_at: String,
    progress: &mut dyn FnMut(usize),
) -> Result<Taken, BackupError> {
    refuse_foreign(disk)?;
    let _lock = disk.lock().map_err(|error| BackupError::not_taken(disk, error))?;
    let before = Manifest::read(disk)?;
    for _ in 0..LISTINGS_MAX {
        let found = source.look()?;
        if found.first == found.end {
            return Err(BackupError::Empty);
        }
        let kept = match &before {
            Some(before) => continued(disk, source, &found, before, manner)?,
            None => None,
        };
        let begun_anew = before.is_some() && kept.is_none();
        let from = kept.as_ref().map_or(found.first, |kept| kept.last.position.next());
        let behind = kept.as_ref().map(|kept| kept.last.clone());
        let mut copies = Copies::begin(disk, kept, &found, progress)?;
        let records = source.read(from, behind.as_ref());
        match copies.take_all(records, found.end) {
            Ok(()) => {}
            // The log was trimmed faster than it was read.
            Err(NotTaken::Trimmed) => continue,
            Err(NotTaken::Failed(error)) => return Err(error),
        }
        let (segments, copied_bytes) = copies.finish()?;
        disk.sync_folder().map_err(BackupError::failed(disk, "sync", ""))?;
        let manifest = Manifest::new(segments, taken_at, Some(found.log_id));
        manifest.write(disk)?;
        let dropped = drop_others(disk, &manifest)?;
        return Ok(Taken { manifest, copied_bytes, dropped, renewed: 0, begun_anew });
    }
    Err(BackupError::TooFast(LISTINGS_MAX))
}

/// An older backup that can be continued.
struct Older {
    segments: Vec<Kept>,
    file: Arc<dyn DiskFile>,
    last: Stored,
}

/// Looks whether an older backup is one of this log, and reaches to where the log begins now.
fn continued(
    disk: &dyn Disk,
    source: &mut dyn RecordSource,
    found: &Found,
    before: &Manifest,
    manner: Manner,
) -> Result<Option<Older>, BackupError> {
    let other = |reason: &str| {
        let reason = reason.to_owned();
        Err(BackupError::OtherLog { folder: disk.folder(), reason })
    };
    if before.log_id.as_ref() != Some(&found.log_id) {
        return other("the database or the stream that it was in is another one");
    }
    if found.end < before.end {
        return other(&format!("it ends at {}, the backup at {}", found.end, before.end));
    }
    let needed: Vec<Kept> =
        before.segments.iter().filter(|kept| kept.facts.next > found.first).cloned().collect();
    let Some((newest, closed)) = needed.split_last() else { return Ok(None) };
    for kept in closed {
        if let Some(reason) = manner.wrong_with(disk, kept)? {
            let reason = format!("the copy is damaged: take a backup to a new folder ({reason})");
            return Err(BackupError::damaged(disk, &kept.file, reason));
        }
    }
    let file =
        disk.open(&newest.file, true).map_err(BackupError::failed(disk, "open", &newest.file))?;
    let mut last = None;
    let mut note = |stored: Stored| {
        last = Some(stored);
        Ok(())
    };
    let read = read_copy(&file, newest.facts.bytes, manner.parts_of, &mut note);
    let checked = read.map_err(|error| BackupError::of_copy(disk, &newest.file, error))?;
    let Some(last) = last.filter(|_| checked.facts == newest.facts) else {
        let reason = "the copy is damaged: take a backup to a new folder";
        return Err(BackupError::damaged(disk, &newest.file, reason));
    };
    let stored = match source.read(last.position, None).and_then(|mut read| read.next().transpose())
    {
        Err(ReadError::Trimmed { .. }) => return Ok(None),
        read => read.map_err(|error| BackupError::unread(last.position, error))?,
    };
    if !stored.is_some_and(|stored| source.is_same(&stored, &last)) {
        return other(&format!("record {} is not as it was", last.position));
    }
    Ok(Some(Older { segments: needed, file, last }))
}

enum NotTaken {
    Trimmed,
    Failed(BackupError),
}

impl From<BackupError> for NotTaken {
    fn from(error: BackupError) -> Self {
        Self::Failed(error)
    }
}

/// The copies of a backup, of which the last one is written.
struct Copies<'a> {
    disk: &'a dyn Disk,
    progress: &'a mut dyn FnMut(usize),
    closed: Vec<Kept>,
    open: Kept,
    writer: CopyWriter,
    copied_bytes: u64,
}

impl<'a> Copies<'a> {
    fn begin(
        disk: &'a dyn Disk,
        older: Option<Older>,
        found: &Found,
        progress: &'a mut dyn FnMut(usize),
    ) -> Result<Self, BackupError> {
        let continued = older.and_then(|Older { mut segments, file, .. }| {
            let open = segments.pop()?;
            let writer = CopyWriter::continued(file, open.facts.clone());
            Some((segments, open, writer))
        });
        let (closed, open, writer) = match continued {
            Some(continued) => continued,
            None => {
                let (open, writer) = begin_copy(disk, found.first, None)?;
                (Vec::new(), open, writer)
            }
        };
        Ok(Self { disk, progress, closed, open, writer, copied_bytes: 0 })
    }

    fn take_all(
        &mut self,
        records: Result<Records<'_>, ReadError>,
        end: Position,
    ) -> Result<(), NotTaken> {
        let failed = |at: Position, error: ReadError| match error {
            ReadError::Trimmed { .. } => NotTaken::Trimmed,
            error => BackupError::unread(at, error).into(),
        };
        let next = |copies: &Self| copies.writer.facts().next;
        for stored in records.map_err(|error| failed(next(self), error))? {
            let stored = stored.map_err(|error| failed(next(self), error))?;
            if stored.position != next(self) {
                let reason = format!("record {} came in its place", stored.position);
                return Err(BackupError::unread(next(self), reason).into());
            }
            self.push(&stored)?;
        }
        if next(self) == end {
            return Ok(());
        }
        Err(BackupError::unread(next(self), "it is missing").into())
    }

    fn push(&mut self, stored: &Stored) -> Result<(), BackupError> {
        if self.writer.facts().bytes >= COPY_BYTES {
            let before = self.writer.facts().clone();
            let (open, writer) = begin_copy(self.disk, stored.position, Some(&before))?;
            let full = (mem::replace(&mut self.open, open), mem::replace(&mut self.writer, writer));
            let closed = finish_copy(self.disk, full)?;
            self.closed.push(closed);
        }
        let before = self.writer.facts().bytes;
        let pushed = self.writer.push(stored.epoch, &stored.bytes);
        pushed.map_err(BackupError::failed(self.disk, "write", &self.open.file))?;
        self.open.damaged_records += u64::from(stored.damaged);
        let bytes = self.writer.facts().bytes - before;
        self.copied_bytes += bytes;
        (self.progress)(usize::try_from(bytes).unwrap_or(usize::MAX));
        Ok(())
    }

    /// All copies, durable but for their names, and how many bytes were written.
    fn finish(mut self) -> Result<(Vec<Kept>, u64), BackupError> {
        let last = finish_copy(self.disk, (self.open, self.writer))?;
        self.closed.push(last);
        Ok((self.closed, self.copied_bytes))
    }
}

fn begin_copy(
    disk: &dyn Disk,
    first: Position,
    before: Option<&SegmentFacts>,
) -> Result<(Kept, CopyWriter), BackupError> {
    let file = copy_name(first);
    // A file that an interrupted backup has left.
    remove_if_there(disk, &file)?;
    let created = disk.create(&file).map_err(BackupError::failed(disk, "create", &file))?;
    let writer = CopyWriter::begin(created, disk.salt(), first, before);
    Ok((Kept { file, facts: writer.facts().clone(), damaged_records: 0 }, writer))
}

fn finish_copy(disk: &dyn Disk, (kept, writer): (Kept, CopyWriter)) -> Result<Kept, BackupError> {
    let facts = writer.finish().map_err(BackupError::failed(disk, "write", &kept.file))?;
    Ok(Kept { facts, ..kept })
}
