//! The file that carries the history over a restart: `history` in the data folder, beside the log
//! but not part of it.
//!
//! It holds eight bytes that identify it, the version of the format and the checksum (CRC-32C) of the
//! rest, both little-endian, then a protobuf message (`image.rs`). It is written anew and renamed,
//! but not synced: a crash loses at most the counts since the last write, and a power cut at most the
//! file.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::book::Book;

/// Its name in the data folder.
const NAME: &str = "history";
/// Where a file that cannot be read is kept; it replaces an earlier one.
const ASIDE: &str = "history.unreadable";
const MAGIC: &[u8; 8] = b"spindleH";
/// The version of its format.
pub const VERSION: u32 = 1;
const HEAD_BYTES: usize = 16;
/// No file of ours is longer: a full history takes a tenth.
const BYTES_MAX: u64 = 16 << 20;

/// Why a file cannot be read.
#[derive(Debug, Error)]
pub enum FileError {
    /// The disk refused.
    #[error(transparent)]
    Failed(#[from] io::Error),
    /// A newer release wrote it, or an older one.
    #[error("it has format {0}, this release reads {VERSION}")]
    Version(u32),
    /// Its bytes are not what was written.
    #[error("it is damaged")]
    Damaged,
}

/// Where the history is kept, if it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct File {
    folder: Option<PathBuf>,
    /// Which folder stood there at the beginning.
    identity: Option<(u64, u64)>,
}

/// The device and the number of a folder, if there is one.
fn identity(folder: &Path) -> Option<(u64, u64)> {
    fs::metadata(folder).ok().map(|found| (found.dev(), found.ino()))
}

impl File {
    /// The file in a data folder; without a folder, nothing is kept.
    pub fn new(folder: Option<PathBuf>) -> File {
        let identity = folder.as_deref().and_then(identity);
        File { folder, identity }
    }

    /// Whether there is a place to keep it.
    pub fn is_kept(&self) -> bool {
        self.folder.is_some()
    }

    /// The history up to this time. A file that cannot be read is set aside with a warning, and a new
    /// history begins: no start fails because of it.
    pub fn open(&self, now_ms: u64) -> Book {
        let Some(folder) = &self.folder else { return Book::default() };
        match read(&folder.join(NAME)) {
            Ok(Some(mut book)) => {
                book.forget_after(now_ms);
                book
            }
            Ok(None) => Book::default(),
            Err(error) => {
                let (path, aside) = (folder.join(NAME), folder.join(ASIDE));
                let path = path.display();
                match fs::rename(folder.join(NAME), &aside) {
                    Ok(()) => tracing::warn!(
                        "the charts begin anew: {path} cannot be read ({error}) and is now {}",
                        aside.display()
                    ),
                    Err(_) => {
                        tracing::warn!("the charts begin anew: {path} cannot be read ({error})");
                    }
                }
                Book::default()
            }
        }
    }

    /// Writes it. If that fails, a later write makes up for it. Nothing is written into a folder that has replaced the
    /// one of the beginning: it may be another server's, or is to stay empty.
    pub fn save(&self, book: &Book) {
        let Some(folder) = &self.folder else { return };
        if identity(folder) != self.identity {
            tracing::debug!("the history of the charts is not written: the folder is another one");
            return;
        }
        let fresh = folder.join(NAME).with_extension("new");
        let written = fs::write(&fresh, framed(&book.encode()))
            .and_then(|()| fs::rename(&fresh, folder.join(NAME)));
        if let Err(error) = written {
            tracing::debug!("the history of the charts is not written: {error}");
            // A partly written file may take room that the log needs.
            let _ = fs::remove_file(&fresh);
        }
    }
}

/// Reads the file. None: there is none.
fn read(path: &Path) -> Result<Option<Book>, FileError> {
    let bytes = match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Ok(found) if found.len() > BYTES_MAX => return Err(FileError::Damaged),
        _ => fs::read(path)?,
    };
    let body = unframed(&bytes)?;
    Book::decode(body).map(Some).ok_or(FileError::Damaged)
}

fn framed(body: &[u8]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(crc32c::crc32c(body).to_le_bytes());
    bytes.extend(body);
    bytes
}

fn unframed(bytes: &[u8]) -> Result<&[u8], FileError> {
    let (head, body) = bytes.split_at_checked(HEAD_BYTES).ok_or(FileError::Damaged)?;
    let number =
        |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    if !head.starts_with(MAGIC) {
        return Err(FileError::Damaged);
    }
    match number(8) {
        VERSION if number(12) == crc32c::crc32c(body) => Ok(body),
        VERSION => Err(FileError::Damaged),
        other => Err(FileError::Version(other)),
    }
}
