//! Reads a backup and says whether all of it is there and sound.

use std::io;

use spindle_log::{
    PartsOf,
    copy::{SegmentFacts, check_copy},
    disk::{Disk, FolderLock, LockError},
};

use crate::{
    error::BackupError,
    manifest::{Kept, Manifest},
};

/// What a backup was found to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checked {
    /// What it should hold.
    pub manifest: Manifest,
    /// What is wrong with it: nothing, if it can be restored.
    pub findings: Vec<Finding>,
}

/// Something that is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The file.
    pub file: String,
    /// What is wrong with it.
    pub reason: String,
}

impl Checked {
    /// Whether it can be restored.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }
}

/// Reads all of a backup. `parts_of` is what a server opens its log with.
pub fn check(disk: &dyn Disk, parts_of: PartsOf) -> Result<Checked, BackupError> {
    let _lock = lock_if_writable(disk)?;
    let manifest = Manifest::read(disk)?;
    let manifest = manifest.ok_or_else(|| BackupError::NoBackup { folder: disk.folder() })?;
    let mut findings = Vec::new();
    let mut last: Option<&SegmentFacts> = None;
    for kept in &manifest.segments {
        if let Some(reason) = wrong_with(disk, kept, last, parts_of)? {
            findings.push(Finding { file: kept.file.clone(), reason });
        }
        last = Some(&kept.facts);
    }
    Ok(Checked { manifest, findings })
}

/// A read-only medium needs no lock.
fn lock_if_writable(disk: &dyn Disk) -> Result<Option<FolderLock>, BackupError> {
    match disk.lock() {
        Ok(lock) => Ok(Some(lock)),
        Err(LockError::Failed(error))
            if matches!(
                error.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(BackupError::not_taken(disk, error)),
    }
}

/// What is wrong with a copy; it should follow `last`.
pub(crate) fn wrong_with(
    disk: &dyn Disk,
    kept: &Kept,
    last: Option<&SegmentFacts>,
    parts_of: PartsOf,
) -> Result<Option<String>, BackupError> {
    let file = match disk.open(&kept.file, false) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Some("it is not there".to_owned()));
        }
        other => other.map_err(BackupError::failed(disk, "open", &kept.file))?,
    };
    let bytes = file.len().map_err(BackupError::failed(disk, "measure", &kept.file))?;
    if bytes < kept.facts.bytes {
        return Ok(Some(format!("it has {bytes} bytes, not {}", kept.facts.bytes)));
    }
    let checked = match check_copy(&file, kept.facts.bytes, None, parts_of) {
        Ok(checked) => checked,
        Err(error) => match BackupError::of_copy(disk, &kept.file, error) {
            BackupError::Damaged { reason, .. } => return Ok(Some(reason)),
            other => return Err(other),
        },
    };
    if let Some(reason) = checked.bad {
        let (at, record) = (checked.facts.bytes, checked.facts.next);
        return Ok(Some(format!("damaged at byte {at}, record {record}: {reason}")));
    }
    if checked.facts != kept.facts {
        return Ok(Some("its records are not those that were backed up".to_owned()));
    }
    if checked.damaged_parts > kept.damaged_records {
        let more = checked.damaged_parts - kept.damaged_records;
        return Ok(Some(format!(
            "{more} more payloads or results are damaged than when it was taken"
        )));
    }
    if last.is_some_and(|last| !checked.follows(last)) {
        return Ok(Some("it does not follow the copy before it".to_owned()));
    }
    Ok(None)
}
