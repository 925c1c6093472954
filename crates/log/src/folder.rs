//! Which files a log's folder holds, and what can be wrong with it.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use thiserror::Error;

use crate::{
    bounds::BOUNDS_FILE,
    contract::Position,
    copy::RESTORING_FILE,
    disk::{Disk, DiskFile, FolderLock, LOCK_FILE, LockError},
    frame::SegmentHeader,
    survey::Damage,
};

/// Why a folder can not be opened as a log.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum OpenError {
    /// Another process works on it.
    #[error("{folder} is in use by {}: stop that server first", holder(*.pid))]
    Locked { folder: String, pid: Option<u32> },
    /// It holds files, and none of them is a log's.
    #[error("{folder} holds other files ({file}) and no log: choose an empty or a new folder")]
    Foreign { folder: String, file: String },
    /// A newer release wrote it.
    #[error("{path} has format {found}, this release reads format {supported}: use a newer one")]
    NewerVersion { path: String, found: u32, supported: u32 },
    /// Something that had been durable is not there any more.
    #[error(
        "{file} in {folder} is damaged at byte {offset}, record {position}: {reason}; bring the files \
         back from a backup if you have one; `spindle verify {folder}` lists the records that are \
         lost otherwise, `spindle verify --repair {folder}` goes on without them and keeps all files"
    )]
    Corrupt { folder: String, file: String, offset: u64, position: Position, reason: &'static str },
    /// It holds no log.
    #[error("{folder} holds no log")]
    NoLog { folder: String },
    /// A restore has begun there and not ended.
    #[error("{folder} was not restored to its end: run `spindle restore` to it again, or empty it")]
    Unfinished { folder: String },
    /// The disk refused.
    #[error("cannot {operation} {path}: {source}{}", hint(.source))]
    Failed { operation: &'static str, path: String, source: io::Error },
    /// The options contradict each other.
    #[error("{0}")]
    Options(&'static str),
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            " (the server's user must be able to write there)"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            " (a new log needs room for its first segment)"
        }
        _ => "",
    }
}

impl OpenError {
    /// Wraps what a disk said about one file of a folder.
    pub(crate) fn failed<'a>(
        disk: &'a dyn Disk,
        operation: &'static str,
        file: &'a str,
    ) -> impl FnOnce(io::Error) -> Self + 'a {
        move |source| Self::Failed { operation, path: path(disk, file), source }
    }

    pub(crate) fn damaged(disk: &dyn Disk, damage: Damage) -> Self {
        let Damage { file, offset, position, reason, .. } = damage;
        Self::Corrupt { folder: disk.folder(), file, offset, position, reason }
    }

    pub(crate) fn not_taken(disk: &dyn Disk, error: LockError) -> Self {
        match error {
            LockError::Held { pid } => Self::Locked { folder: disk.folder(), pid },
            LockError::Failed(source) => Self::failed(disk, "lock", LOCK_FILE)(source),
        }
    }
}

pub(crate) fn path(disk: &dyn Disk, file: &str) -> String {
    format!("{}/{file}", disk.folder())
}

const SEGMENT: &str = ".segment";
const SPARE: &str = ".spare";
const FILLING: &str = ".filling";
/// What repairs of older releases saved.
const DAMAGED: &str = ".damaged";
/// What the folders of repairs begin with.
const REPAIR: &str = "repair-";
const BEGUN: &str = ".begun";

/// What a file is, by its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FileKind {
    /// Part of the log, from this position on.
    Segment(Position),
    /// Zeros (or bytes of an older life) waiting to become a segment.
    Spare(u64),
    /// A spare that is not ready.
    Filling(u64),
    /// What a repair kept: a folder, or a file in one.
    Aside,
    /// No server has started since a repair began that keeps files in the folder of this number.
    Begun(u64),
    /// Where the log must begin and end.
    Bounds,
    Lock,
    /// A restore has not ended.
    Restoring,
    Foreign,
}

pub(crate) fn segment_name(first: Position) -> String {
    format!("{first:0>20}{SEGMENT}", first = first.0)
}

pub(crate) fn spare_name(number: u64) -> String {
    format!("{number}{SPARE}")
}

pub(crate) fn filling_name(number: u64) -> String {
    format!("{number}{FILLING}")
}

pub(crate) fn repair_name(number: u64) -> String {
    format!("{REPAIR}{number}")
}

/// The number of a repair's folder.
pub(crate) fn repair_number(name: &str) -> Option<u64> {
    name.strip_prefix(REPAIR)?.parse().ok()
}

pub(crate) fn begun_name(number: u64) -> String {
    format!("{REPAIR}{number}{BEGUN}")
}

pub(crate) fn file_kind(name: &str) -> FileKind {
    let number = |suffix| name.strip_suffix(suffix).and_then(|number| number.parse().ok());
    if name == LOCK_FILE {
        FileKind::Lock
    } else if name == RESTORING_FILE {
        FileKind::Restoring
    } else if name == BOUNDS_FILE {
        FileKind::Bounds
    } else if let Some(number) = name.strip_suffix(BEGUN).and_then(repair_number) {
        FileKind::Begun(number)
    } else if name.ends_with(DAMAGED) || name.starts_with(REPAIR) {
        FileKind::Aside
    } else if let Some(first) = number(SEGMENT) {
        FileKind::Segment(Position(first))
    } else if let Some(number) = number(SPARE) {
        FileKind::Spare(number)
    } else if let Some(number) = number(FILLING) {
        FileKind::Filling(number)
    } else {
        FileKind::Foreign
    }
}

/// What repairs have kept: folders, and files beside the segments.
pub(crate) fn asides(names: &[String]) -> Vec<String> {
    let kept = names.iter().filter(|name| file_kind(name) == FileKind::Aside);
    let mut kept: Vec<String> =
        kept.map(|name| name.split('/').next().unwrap_or(name).to_owned()).collect();
    kept.sort_unstable();
    kept.dedup();
    kept
}

/// Checks the folder before even a lock file is made: it may be a user's home folder.
pub(crate) fn refuse_foreign(disk: &dyn Disk) -> Result<(), OpenError> {
    let mut foreign = Vec::new();
    for name in disk.list().map_err(OpenError::failed(disk, "list", ""))? {
        match file_kind(&name) {
            FileKind::Segment(_) | FileKind::Bounds => return Ok(()),
            FileKind::Foreign if name != "lost+found" => foreign.push(name),
            _ => {}
        }
    }
    foreign.sort_unstable();
    match foreign.into_iter().next() {
        Some(file) => Err(OpenError::Foreign { folder: disk.folder(), file }),
        None => Ok(()),
    }
}

/// Takes a folder that is only read. On a read-only file system no server can be at work on it, and no lock file can be
/// made: there it needs no lock.
pub(crate) fn lock_to_read(disk: &dyn Disk) -> Result<Option<FolderLock>, OpenError> {
    match disk.lock() {
        Err(LockError::Failed(error)) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
            Ok(None)
        }
        taken => taken.map(Some).map_err(|error| OpenError::not_taken(disk, error)),
    }
}

const FILL_BYTES: usize = 256 * 1024;
/// How much of a new file is synced at once: a large sync delays the syncs of the log itself.
const FILL_SYNC_BYTES: u64 = 1024 * 1024;

static ZEROS: [u8; FILL_BYTES] = [0; FILL_BYTES];

/// What [`create_zeroed`] does after a step that kept the disk busy for so long: it may wait, or give
/// up with an error.
pub(crate) type Rest<'a> = &'a mut dyn FnMut(Duration) -> io::Result<Next>;

/// How to go on with a file that is partly filled.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Fill,
    /// A thread waits for the file: if its space is claimed, that is enough.
    Suffice,
}

/// Makes a file of zeros, durable except for its name. Real zeros: in a file that only has its
/// space allocated, every sync of a first write also has to sync the file's extents (4 KiB take 0.2
/// instead of 0.14 ms, 4 MiB 3.3 instead of 3 ms).
pub(crate) fn create_zeroed(
    disk: &dyn Disk,
    name: &str,
    bytes: u64,
    rest: Rest,
) -> io::Result<Arc<dyn DiskFile>> {
    let file = disk.create(name)?;
    let filled = file.claim(bytes).and_then(|is_claimed| fill(&*file, bytes, is_claimed, rest));
    if let Err(error) = filled {
        // Half a file is of no use, and another thread may be waiting for its space.
        let _ = disk.remove(name);
        return Err(error);
    }
    Ok(file)
}

fn fill(file: &dyn DiskFile, bytes: u64, is_claimed: bool, rest: Rest) -> io::Result<()> {
    let mut offset = 0;
    while offset < bytes {
        let begun = Instant::now();
        let upto = bytes.min(offset + FILL_SYNC_BYTES);
        while offset < upto {
            let step = (upto - offset).min(FILL_BYTES as u64);
            file.write_zeros(offset, step)?;
            offset += step;
        }
        file.sync()?;
        if rest(begun.elapsed())? == Next::Suffice && is_claimed {
            break;
        }
    }
    Ok(())
}

/// Turns a prepared file into a segment: its header is durable before its name says so, its name
/// before anything is appended.
pub(crate) fn name_segment(
    disk: &dyn Disk,
    file: &dyn DiskFile,
    name: &str,
    header: SegmentHeader,
) -> Result<String, (&'static str, io::Error)> {
    let segment = segment_name(header.first);
    file.write_at(&header.encode(), 0).map_err(|error| ("write", error))?;
    file.sync().map_err(|error| ("sync", error))?;
    disk.rename(name, &segment).map_err(|error| ("rename", error))?;
    disk.sync_folder().map_err(|error| ("sync the folder of", error))?;
    Ok(segment)
}

/// Makes the segment that a log begins with, all of it durable.
pub(crate) fn begin_segment(
    disk: &dyn Disk,
    header: SegmentHeader,
    number: u64,
    bytes: u64,
) -> Result<(String, Arc<dyn DiskFile>), OpenError> {
    let filling = filling_name(number);
    let file = create_zeroed(disk, &filling, bytes, &mut |_| Ok(Next::Fill))
        .map_err(OpenError::failed(disk, "create", &filling))?;
    let name = name_segment(disk, &*file, &filling, header)
        .map_err(|(operation, error)| OpenError::failed(disk, operation, &filling)(error))?;
    Ok((name, file))
}

/// Reads a file from `from` to `upto`, or to its end, and gives each step to `take` with its
/// offset.
pub(crate) fn read_in_steps(
    file: &dyn DiskFile,
    (from, upto): (u64, u64),
    step_bytes: usize,
    mut take: impl FnMut(&[u8], u64) -> io::Result<()>,
) -> io::Result<()> {
    let mut buffer = vec![0; step_bytes];
    let mut offset = from;
    while offset < upto {
        let step = (upto - offset).min(step_bytes as u64) as usize;
        let read = file.read_at(&mut buffer[..step], offset)?;
        if read == 0 {
            break;
        }
        take(&buffer[..read], offset)?;
        offset += read as u64;
    }
    Ok(())
}

/// Whether a file has nothing but zeros in this range. What is not zero is given to `found` with
/// its offset, a step at a time.
pub(crate) fn is_zero(
    file: &dyn DiskFile,
    range: (u64, u64),
    mut found: impl FnMut(&[u8], u64) -> io::Result<()>,
) -> io::Result<bool> {
    let mut is_zero = true;
    read_in_steps(file, range, FILL_BYTES, |bytes, offset| {
        if *bytes == ZEROS[..bytes.len()] {
            return Ok(());
        }
        is_zero = false;
        found(bytes, offset)
    })?;
    Ok(is_zero)
}

/// Writes zeros over all that is not zero in this range. Returns whether there was anything.
pub(crate) fn zero(file: &dyn DiskFile, range: (u64, u64)) -> io::Result<bool> {
    is_zero(file, range, |bytes, offset| file.write_at(&ZEROS[..bytes.len()], offset))
        .map(|was_zero| !was_zero)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_files_are() {
        assert_eq!(segment_name(Position(7)), "00000000000000000007.segment");
        assert_eq!(file_kind(&segment_name(Position(7))), FileKind::Segment(Position(7)));
        assert_eq!(file_kind(&segment_name(Position(u64::MAX))).clone(), {
            FileKind::Segment(Position(u64::MAX))
        });
        assert_eq!(file_kind(&spare_name(3)), FileKind::Spare(3));
        assert_eq!(file_kind(&filling_name(3)), FileKind::Filling(3));
        assert_eq!(file_kind("00.segment.damaged"), FileKind::Aside);
        assert_eq!(file_kind(&repair_name(2)), FileKind::Aside);
        assert_eq!(file_kind("repair-2/00.segment"), FileKind::Aside);
        assert_eq!(file_kind(&begun_name(2)), FileKind::Begun(2));
        assert_eq!(file_kind("repair-2.begun/x"), FileKind::Aside);
        assert_eq!(file_kind("bounds"), FileKind::Bounds);
        assert_eq!(file_kind("lock"), FileKind::Lock);
        assert_eq!(file_kind("restoring"), FileKind::Restoring);
        assert_eq!(file_kind("x.segment"), FileKind::Foreign);
        assert_eq!(file_kind("notes.txt"), FileKind::Foreign);
    }
}
