//! Makes a data folder of a backup.

use std::sync::Arc;

use spindle_log::{
    FileLog, FileLogOptions, PartsOf,
    copy::{RESTORING_FILE, begin_bounds, segment_file},
    disk::Disk,
};

use crate::{
    check::{Checked, check},
    error::BackupError,
    manifest::{Kept, Manifest, remove_if_there},
};

const PIECE_BYTES: usize = 1024 * 1024;
/// A segment without a record gets room for some, since no other segment may have its name.
const EMPTY_SEGMENT_BYTES: u64 = 64 * 1024;

/// The size of the spare for the next segment: as small as possible, since the server prepares its
/// own.
const SPARE_BYTES: u64 = 4096;

/// A folder that was restored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Restored {
    /// What is in it.
    pub manifest: Manifest,
}

/// Checks all of a backup, and copies it to an empty folder as the log that it was. A folder with
/// only the remains of an interrupted restore counts as empty.
///
/// # Errors
///
/// When the backup is not sound nothing is written. A folder that is left unfinished is refused by
/// every server.
pub fn restore(
    from: &dyn Disk,
    to: Arc<dyn Disk>,
    parts_of: PartsOf,
    progress: &mut dyn FnMut(usize),
) -> Result<Restored, BackupError> {
    let leftovers = refuse_full(&*to)?;
    let Checked { manifest, findings } = check(from, parts_of)?;
    if let Some(finding) = findings.into_iter().next() {
        return Err(BackupError::damaged(from, &finding.file, finding.reason));
    }
    let lock = to.lock().map_err(|error| BackupError::not_taken(&*to, error))?;
    if leftovers.is_empty() {
        to.create(RESTORING_FILE).map_err(BackupError::failed(&*to, "create", RESTORING_FILE))?;
    }
    to.sync_folder().map_err(BackupError::failed(&*to, "sync", ""))?;
    for name in leftovers.iter().filter(|name| *name != RESTORING_FILE) {
        remove_if_there(&*to, name)?;
    }
    for kept in &manifest.segments {
        put_back(from, &*to, kept, progress)?;
    }
    let segments: Vec<_> = manifest.segments.iter().map(|kept| &kept.facts).collect();
    begin_bounds(&*to, &segments).map_err(BackupError::failed(
        &*to,
        "note the bounds of the log in",
        "",
    ))?;
    to.sync_folder().map_err(BackupError::failed(&*to, "sync", ""))?;
    to.remove(RESTORING_FILE).map_err(BackupError::failed(&*to, "remove", RESTORING_FILE))?;
    to.sync_folder().map_err(BackupError::failed(&*to, "sync", ""))?;
    drop(lock);
    // Read once more, as a server reads it.
    let options = FileLogOptions {
        parts_of,
        background: false,
        segment_bytes: SPARE_BYTES,
        ..FileLogOptions::default()
    };
    drop(FileLog::open(to, options)?);
    Ok(Restored { manifest })
}

/// Refuses a folder that holds anything. Gives the files that an interrupted restore left.
fn refuse_full(to: &dyn Disk) -> Result<Vec<String>, BackupError> {
    let names = to.list().map_err(BackupError::failed(to, "list", ""))?;
    let mut names: Vec<_> =
        names.into_iter().filter(|name| !matches!(name.as_str(), "lost+found" | "lock")).collect();
    if names.iter().any(|name| name == RESTORING_FILE) {
        return Ok(names);
    }
    names.sort_unstable();
    match names.into_iter().next() {
        Some(file) => Err(BackupError::NotEmpty { folder: to.folder(), file }),
        None => Ok(Vec::new()),
    }
}

fn put_back(
    from: &dyn Disk,
    to: &dyn Disk,
    kept: &Kept,
    progress: &mut dyn FnMut(usize),
) -> Result<(), BackupError> {
    let name = segment_file(kept.facts.first);
    let source =
        from.open(&kept.file, false).map_err(BackupError::failed(from, "open", &kept.file))?;
    let file = to.create(&name).map_err(BackupError::failed(to, "create", &name))?;
    let mut buffer = vec![0; PIECE_BYTES];
    let mut offset = 0;
    while offset < kept.facts.bytes {
        let len = (kept.facts.bytes - offset).min(PIECE_BYTES as u64) as usize;
        let piece = &mut buffer[..len];
        let read = source.read_at(piece, offset);
        let read = read.map_err(BackupError::failed(from, "read", &kept.file))?;
        if read < len {
            return Err(BackupError::damaged(from, &kept.file, "it became shorter"));
        }
        file.write_at(piece, offset).map_err(BackupError::failed(to, "write", &name))?;
        offset += len as u64;
        progress(len);
    }
    if kept.facts.is_empty() {
        let zeros = EMPTY_SEGMENT_BYTES - kept.facts.bytes;
        file.write_zeros(kept.facts.bytes, zeros)
            .map_err(BackupError::failed(to, "write", &name))?;
    }
    file.sync().map_err(BackupError::failed(to, "sync", &name))
}
