//! The small file by which a worker finds its own rows again after it was killed.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use nix::fcntl::{Flock, FlockArg};
use thiserror::Error;
use tracing::error;

use crate::table::Mark;

const FIRST_WORDS: &str = "jobd-mark ";

/// Why a worker cannot use its state file.
#[derive(Debug, Error)]
pub enum StateError {
    /// It cannot be made, read or written.
    #[error("cannot use the state file {}: {cause}; set state_file to a path that can be written",
        .path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// Another process works with it.
    #[error("the state file {} is in use: another jobd runs with it; give each its own state_file",
        .path.display())]
    InUse {
        /// Which file.
        path: PathBuf,
    },
    /// It is some other file.
    #[error("{} is not a state file of jobd; set state_file to another path", .path.display())]
    Foreign {
        /// Which file.
        path: PathBuf,
    },
}

/// An open state file. It holds one thing, the worker's mark, which is on disk before the first
/// row carries it. A lock makes sure that no two processes carry the same mark.
#[derive(Debug)]
pub struct StateFile {
    mark: Mark,
    /// The file, locked. Without one, the mark is forgotten at the end.
    file: Option<(PathBuf, Flock<File>)>,
}

impl StateFile {
    /// Opens the file, or works without one when it cannot be made.
    ///
    /// # Errors
    /// [`StateError::InUse`] or [`StateError::Foreign`].
    pub fn open_or_forget(path: &Path) -> Result<Self, StateError> {
        match Self::open(path) {
            Err(error @ StateError::Io { .. }) => {
                error!("{error}; until then a killed worker's accepted jobs stay accepted");
                Ok(Self { mark: new_mark(), file: None })
            }
            opened => opened,
        }
    }

    /// Opens the file, or makes it with a new mark.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn open(path: &Path) -> Result<Self, StateError> {
        let failed = |cause| StateError::Io { path: path.to_owned(), cause };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        fs::create_dir_all(folder).map_err(failed)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(failed)?;
        let mut file = locked(file).ok_or_else(|| StateError::InUse { path: path.to_owned() })?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed)?;
        let mark = match bytes.strip_suffix(b"\n") {
            Some(line) => known(line).ok_or(StateError::Foreign { path: path.to_owned() })?,
            // New, or a machine that stopped while it was written: then no row carries it yet.
            None if FIRST_WORDS.as_bytes().starts_with(&bytes)
                || bytes.starts_with(FIRST_WORDS.as_bytes()) =>
            {
                let mark = new_mark();
                (|| {
                    file.seek(SeekFrom::Start(0))?;
                    file.set_len(0)?;
                    file.write_all(format!("{FIRST_WORDS}{}\n", mark.owner()).as_bytes())?;
                    file.sync_all()?;
                    File::open(folder)?.sync_all()
                })()
                .map_err(failed)?;
                mark
            }
            None => return Err(StateError::Foreign { path: path.to_owned() }),
        };
        Ok(Self { mark, file: Some((path.to_owned(), file)) })
    }

    /// The worker's mark.
    pub fn mark(&self) -> &Mark {
        &self.mark
    }

    /// Where results are kept that could not be written before the end.
    pub fn spool_path(&self) -> Option<PathBuf> {
        let (path, _) = self.file.as_ref()?;
        let mut name = path.as_os_str().to_owned();
        name.push(".results");
        Some(PathBuf::from(name))
    }
}

/// Locks the file, which a process that is just being killed may still hold for a moment.
fn locked(mut file: File) -> Option<Flock<File>> {
    const TRIES: u32 = 20;
    const PAUSE: Duration = Duration::from_millis(25);
    for _ in 0..TRIES {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Some(lock),
            Err((unlocked, _)) => file = unlocked,
        }
        thread::sleep(PAUSE);
    }
    None
}

fn known(line: &[u8]) -> Option<Mark> {
    Mark::new(std::str::from_utf8(line).ok()?.strip_prefix(FIRST_WORDS)?)
}

fn new_mark() -> Mark {
    const CHARACTERS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let owner: String = (0..Mark::OWNER_CHARS)
        .map(|_| char::from(CHARACTERS[rand::random_range(0..CHARACTERS.len())]))
        .collect();
    Mark::new(&owner).expect("made of the characters that marks are made of")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_stays_the_same_and_two_files_have_two() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/a.state");
        let mark = StateFile::open(&path).unwrap().mark().clone();
        assert_eq!(*StateFile::open(&path).unwrap().mark(), mark);
        assert_ne!(*StateFile::open(&folder.path().join("b.state")).unwrap().mark(), mark);
    }

    #[test]
    fn a_file_in_use_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.state");
        let _held = StateFile::open(&path).unwrap();
        assert!(matches!(StateFile::open(&path), Err(StateError::InUse { .. })));
    }

    #[test]
    fn a_half_written_file_is_made_anew_and_a_foreign_one_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.state");
        for half in ["", "jobd-", "jobd-mark abc"] {
            fs::write(&path, half).unwrap();
            let mark = StateFile::open(&path).unwrap().mark().clone();
            assert_eq!(fs::read_to_string(&path).unwrap(), format!("jobd-mark {}\n", mark.owner()));
        }
        for foreign in ["something", "jobd-mark AB\n", "\n"] {
            fs::write(&path, foreign).unwrap();
            let refused = StateFile::open(&path);
            assert!(matches!(refused, Err(StateError::Foreign { .. })), "{foreign:?}");
            assert_eq!(fs::read_to_string(&path).unwrap(), foreign);
        }
    }
}
