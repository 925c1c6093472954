//! What can be wrong with a backup.

use std::io;

use spindle_log::{
    OpenError, Position,
    copy::CopyError,
    disk::{Disk, LockError},
};
use thiserror::Error;

/// Why a backup was not taken, not read or not restored.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum BackupError {
    /// The folder for the backup holds something else.
    #[error("{folder} holds other files ({file}) and no backup: choose an empty or a new folder")]
    Foreign { folder: String, file: String },
    /// Another process works on it.
    #[error("{folder} is in use by another process: wait until that one has ended")]
    InUse { folder: String },
    /// There is no backup.
    #[error("{folder} holds no backup: it has no manifest.json")]
    NoBackup { folder: String },
    /// The manifest can not be used.
    #[error("{folder}/manifest.json will not do: {reason}")]
    Manifest { folder: String, reason: String },
    /// The source's listing is not a log.
    #[error("the source lists segments that are no log: {reason}")]
    Listing { reason: String },
    /// The folder has the backup of another log.
    #[error(
        "{folder} has the backup of another log, or of this one before it was repaired or \
         restored ({reason}): back up to a new folder"
    )]
    OtherLog { folder: String, reason: String },
    /// A copy is not what its source, or the manifest, says.
    #[error("{folder}/{file}: {reason}")]
    Damaged { folder: String, file: String, reason: String },
    /// The source dropped segments faster than they were copied.
    #[error(
        "the server dropped segments {0} times before they were copied: back up when it is less busy"
    )]
    TooFast(usize),
    /// The log that is backed up has no record.
    #[error("the log has no record yet: there is nothing to back up")]
    Empty,
    /// The log that is backed up does not give a record.
    #[error("record {at} of the log cannot be read: {reason}")]
    Record { at: Position, reason: String },
    /// The log that was to be filled holds something else.
    #[error(
        "the log holds other records than the backup ({reason}): restore to a log that is not there yet"
    )]
    OtherRecords { reason: String },
    /// Another process has appended to a log while it was being filled.
    #[error(
        "another process has appended record {at} to the log while it was restored: stop all servers of that log, \
         remove it, and run the restore again"
    )]
    NotAlone { at: Position },
    /// The log that is filled does not take a record.
    #[error(
        "the log does not take record {at}: {reason}; run the same restore again, and it goes on"
    )]
    NotTaken { at: Position, reason: String },
    /// The source failed.
    #[error(transparent)]
    Source(Box<dyn std::error::Error + Send + Sync>),
    /// The data folder to restore to is not empty.
    #[error("{folder} is not empty ({file} is there): restore to a new folder")]
    NotEmpty { folder: String, file: String },
    /// The restored folder does not open.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A disk refused.
    #[error("cannot {operation} {path}: {source}")]
    Failed { operation: &'static str, path: String, source: io::Error },
}

impl BackupError {
    pub(crate) fn failed<'a>(
        disk: &'a dyn Disk,
        operation: &'static str,
        file: &'a str,
    ) -> impl FnOnce(io::Error) -> Self + 'a {
        move |source| {
            let path = format!("{}/{file}", disk.folder());
            Self::Failed { operation, path, source }
        }
    }

    pub(crate) fn not_taken(disk: &dyn Disk, error: LockError) -> Self {
        match error {
            LockError::Held { .. } => Self::InUse { folder: disk.folder() },
            LockError::Failed(source) => Self::failed(disk, "lock", "")(source),
        }
    }

    pub(crate) fn damaged(disk: &dyn Disk, file: &str, reason: impl Into<String>) -> Self {
        Self::Damaged { folder: disk.folder(), file: file.to_owned(), reason: reason.into() }
    }

    pub(crate) fn unread(at: Position, error: impl ToString) -> Self {
        Self::Record { at, reason: error.to_string() }
    }

    pub(crate) fn of_copy(disk: &dyn Disk, file: &str, error: CopyError) -> Self {
        match error {
            CopyError::Failed(source) => Self::failed(disk, "read", file)(source),
            other => Self::damaged(disk, file, other.to_string()),
        }
    }
}
