//! The backup's table of contents: `manifest.json`, replaced as a whole.

use std::{io, path::Path};

use serde::{Deserialize, Serialize};
use spindle_log::{
    Position,
    copy::{FORMAT, SegmentFacts},
    disk::{Disk, DiskFile},
};

use crate::{error::BackupError, source::Listing};

/// The name of the manifest in a backup's folder.
pub const MANIFEST_FILE: &str = "manifest.json";
/// The next manifest until it is durable.
pub(crate) const NEW_MANIFEST_FILE: &str = "manifest.new";

/// A copy that takes the place of a damaged one, until it is whole.
pub(crate) const NEW_COPY_FILE: &str = "copy.new";

/// The version of the manifest's format. A release reads its own and older ones.
pub const MANIFEST_FORMAT: u32 = 1;
/// A manifest of a log of 100 TiB is shorter.
const MANIFEST_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// What is in a backup.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of this file's format.
    pub format: u32,
    /// The version of the segments' format.
    pub log_format: u32,
    /// When it was taken, RFC 3339.
    pub taken_at: String,
    /// Which log it is of, if that one keeps no files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_id: Option<String>,
    /// The oldest record's position.
    pub first: Position,
    /// The position after the newest record.
    pub end: Position,
    /// The copies, oldest first. They follow each other without a gap.
    pub segments: Vec<Kept>,
}

/// A copy of a segment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Kept {
    /// Its file. Bytes in it beyond the first `bytes` are not part of the backup.
    pub file: String,
    /// What is in it.
    #[serde(flatten)]
    pub facts: SegmentFacts,
    /// Records with damaged payloads or results, as they were at the source.
    pub damaged_records: u64,
}

/// Whether a folder holds a backup.
#[must_use]
pub fn is_backup(folder: &Path) -> bool {
    folder.join(MANIFEST_FILE).is_file()
}

impl Manifest {
    pub(crate) fn new(segments: Vec<Kept>, taken_at: String, log_id: Option<String>) -> Self {
        let first = segments.first().map(|kept| kept.facts.first).unwrap_or_default();
        let end = segments.last().map(|kept| kept.facts.next).unwrap_or_default();
        Self { format: MANIFEST_FORMAT, log_format: FORMAT, taken_at, log_id, first, end, segments }
    }

    /// How many bytes the copies take.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|kept| kept.facts.bytes).sum()
    }

    /// Reads the manifest of a folder, if there is one.
    pub(crate) fn read(disk: &dyn Disk) -> Result<Option<Self>, BackupError> {
        let failed = |operation| BackupError::failed(disk, operation, MANIFEST_FILE);
        let file = match disk.open(MANIFEST_FILE, false) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(failed("open"))?,
        };
        let wrong = |reason: String| BackupError::Manifest { folder: disk.folder(), reason };
        let bytes = file.len().map_err(failed("measure"))?;
        if bytes > MANIFEST_BYTES_MAX {
            return Err(wrong(format!("it has {bytes} bytes")));
        }
        let mut text = vec![0; bytes as usize];
        file.read_at(&mut text, 0).map_err(failed("read"))?;
        let manifest: Self =
            serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
        if manifest.format > MANIFEST_FORMAT || manifest.log_format > FORMAT {
            return Err(wrong("a newer release wrote it: use that one".to_owned()));
        }
        manifest.listing().check().map_err(wrong)?;
        if let Some(kept) = manifest.segments.iter().find(|kept| !is_copy(&kept.file)) {
            return Err(wrong(format!("`{}` is no name of a copy", kept.file)));
        }
        Ok(Some(manifest))
    }

    /// Puts it in the place of the one before, in one step.
    pub(crate) fn write(&self, disk: &dyn Disk) -> Result<(), BackupError> {
        let failed = |operation| BackupError::failed(disk, operation, NEW_MANIFEST_FILE);
        let mut text =
            serde_json::to_vec_pretty(self).map_err(io::Error::other).map_err(failed("make"))?;
        text.push(b'\n');
        remove_if_there(disk, NEW_MANIFEST_FILE)?;
        let file = disk.create(NEW_MANIFEST_FILE).map_err(failed("create"))?;
        write_durably(&*file, &text).map_err(failed("write"))?;
        disk.rename(NEW_MANIFEST_FILE, MANIFEST_FILE).map_err(failed("rename"))?;
        disk.sync_folder().map_err(BackupError::failed(disk, "sync", ""))
    }

    /// What it says of the log.
    pub(crate) fn listing(&self) -> Listing {
        let segments = self.segments.iter().map(|kept| kept.facts.clone()).collect();
        Listing { format: self.log_format, first: self.first, end: self.end, segments }
    }
}

fn write_durably(file: &dyn DiskFile, bytes: &[u8]) -> io::Result<()> {
    file.write_at(bytes, 0)?;
    file.sync()
}

pub(crate) fn remove_if_there(disk: &dyn Disk, name: &str) -> Result<(), BackupError> {
    match disk.remove(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(BackupError::failed(disk, "remove", name)),
    }
}

const COPY: &str = ".copy";

/// The name of a segment's copy. A server does not take it for a segment: it must not start here.
pub(crate) fn copy_name(first: Position) -> String {
    format!("{first:0>20}{COPY}", first = first.0)
}

/// Whether that is the name of a copy.
pub(crate) fn is_copy(name: &str) -> bool {
    let number = name.strip_suffix(COPY);
    number.is_some_and(|number| number.len() == 20 && number.bytes().all(|b| b.is_ascii_digit()))
}
