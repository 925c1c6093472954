//! The small file by which a worker finds its own rows again after it was killed.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use nix::fcntl::{Flock, FlockArg};
use thiserror::Error;
use tracing::error;

use super::{
    begun::Begun,
    state_line::{First, Header, LINE_BYTES},
};
use crate::table::Mark;

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
    /// Another process uses it.
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
    /// A later jobd wrote it.
    #[error("the state file {} was written by a newer jobd; run that one", .path.display())]
    Newer {
        /// Which file.
        path: PathBuf,
    },
}

/// An open state file. It holds the worker's mark, which is on disk before the first row carries
/// it, and the rows that have begun. A lock makes sure that no two processes carry the same mark;
/// it is released when the last part of this that uses the file is dropped.
#[derive(Debug)]
pub struct StateFile {
    mark: Mark,
    /// Without a file, the mark is forgotten at the end.
    file: Option<Opened>,
}

#[derive(Debug)]
struct Opened {
    path: PathBuf,
    file: Arc<Flock<File>>,
    header: Header,
    /// What is behind the first line.
    lines: Vec<u8>,
}

impl StateFile {
    /// Opens the file, or works without one when it cannot be made: never [`StateError::Io`].
    pub(super) fn open_or_forget(path: &Path) -> Result<Self, StateError> {
        match Self::open(path) {
            Err(error @ StateError::Io { .. }) => {
                error!("{error}; until then rows of a killed worker stay accepted or running");
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
        let (header, lines) = match Header::read(&bytes) {
            First::Header(header) => (header, bytes.split_off(bytes.len().min(LINE_BYTES))),
            First::Nothing => (make(&file, folder).map_err(failed)?, Vec::new()),
            First::Newer => return Err(StateError::Newer { path: path.to_owned() }),
            First::Foreign => return Err(StateError::Foreign { path: path.to_owned() }),
        };
        let opened = Opened { path: path.to_owned(), file: Arc::new(file), header, lines };
        Ok(Self { mark: opened.header.mark.clone(), file: Some(opened) })
    }

    /// The worker's mark.
    pub fn mark(&self) -> &Mark {
        &self.mark
    }

    /// Which rows of this table have begun, as far as the file knows. From now on the returned
    /// value keeps the file.
    pub(super) fn begun(&self, table: String) -> Begun {
        let Some(Opened { file, header, lines, .. }) = &self.file else {
            return Begun::in_memory();
        };
        Begun::read(Arc::clone(file), header.clone(), lines, table)
    }

    /// Where results are kept that could not be written before the end.
    pub(super) fn spool_path(&self) -> Option<PathBuf> {
        let mut name = self.file.as_ref()?.path.as_os_str().to_owned();
        name.push(".results");
        Some(PathBuf::from(name))
    }
}

/// Makes a new file, also in place of one that was left half written when a machine stopped.
fn make(file: &File, folder: &Path) -> io::Result<Header> {
    let header = Header::new(new_mark());
    file.set_len(0)?;
    file.write_all_at(&header.line(), 0)?;
    file.sync_all()?;
    File::open(folder)?.sync_all()?;
    Ok(header)
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
    use crate::{launcher::ProcessId, table::RowId, worker::state_line::line};

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
            assert_eq!(fs::read(&path).unwrap(), Header::new(mark).line(), "{half:?}");
        }
        for foreign in ["something", "jobd-mark AB\n", "\n"] {
            fs::write(&path, foreign).unwrap();
            let refused = StateFile::open(&path);
            assert!(matches!(refused, Err(StateError::Foreign { .. })), "{foreign:?}");
            assert_eq!(fs::read_to_string(&path).unwrap(), foreign);
        }
    }

    #[test]
    fn a_file_of_a_newer_jobd_is_left_alone_and_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.state");
        fs::write(&path, "jobd-mark abcdefghi 3 more\n").unwrap();
        let refused = StateFile::open_or_forget(&path).unwrap_err();
        assert!(refused.to_string().ends_with("was written by a newer jobd; run that one"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "jobd-mark abcdefghi 3 more\n");
    }

    fn begun(path: &Path) -> Begun {
        StateFile::open(path).unwrap().begun("a table".to_owned())
    }

    /// The same of a file that is not there.
    fn new(path: &Path) -> Begun {
        let mut begun = begun(path);
        assert_eq!(begun.known(), None);
        begun.complete_with([]);
        begun
    }

    /// What the next life of a worker knows.
    fn known(path: &Path) -> Option<Vec<i64>> {
        let known = begun(path).known();
        known.map(|ids| {
            let mut ids: Vec<i64> = ids.iter().map(|id| id.0).collect();
            ids.sort_unstable();
            ids
        })
    }

    #[test]
    fn what_began_is_known_to_the_next_life_until_it_has_ended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.state");
        let mut begun = new(&path);
        let this = ProcessId::of(std::process::id()).unwrap();
        for id in [i64::MIN, 7, 8, i64::MAX] {
            begun.begin(RowId(id)).unwrap();
        }
        begun.is_process(RowId(8), this);
        begun.end(RowId(7));
        drop(begun);
        assert_eq!(known(&path), Some(vec![i64::MIN, 8, i64::MAX]));
        let begun = self::begun(&path);
        assert_eq!((begun.process(RowId(8)), begun.process(RowId(i64::MAX))), (Some(this), None));
    }

    #[test]
    fn the_file_is_as_long_as_the_most_that_ran_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.state");
        drop(new(&path));
        for _ in 0..3 {
            let mut begun = begun(&path);
            for id in 0..1000 {
                begun.begin(RowId(id)).unwrap();
                begun.end(RowId(id - 10));
            }
            for id in 990..1000 {
                begun.end(RowId(id));
            }
        }
        assert_eq!(fs::metadata(&path).unwrap().len(), 64 * 12);
        assert_eq!(known(&path), Some(vec![]));
    }

    #[test]
    fn a_torn_last_line_is_none_and_a_line_that_means_nothing_makes_all_doubtful() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.state");
        new(&path).begin(RowId(5)).unwrap();
        let whole = fs::read(&path).unwrap();
        fs::write(&path, [&whole[..], b"began 6"].concat()).unwrap();
        assert_eq!(known(&path), Some(vec![5]));
        // The next row takes the place of the torn line.
        begun(&path).begin(RowId(7)).unwrap();
        assert_eq!(known(&path), Some(vec![5, 7]));
        for broken in ["began x", "ended 6", "began 6 7", "began 6 7 x"] {
            fs::write(&path, [&whole[..], &line(broken)].concat()).unwrap();
            assert_eq!(known(&path), None, "{broken}");
        }
    }

    #[test]
    fn the_old_form_another_boot_and_another_table_know_nothing_until_they_are_completed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.state");
        let other_boot = format!("{:<63}\n{:<63}\n", "jobd-mark abcdefghi 2 x", "began 9");
        for before in ["jobd-mark abcdefghi\n", &other_boot] {
            fs::write(&path, before).unwrap();
            assert_eq!(known(&path), None, "{before:?}");
            assert_eq!(fs::read_to_string(&path).unwrap(), before, "a look changes nothing");
            let mut begun = begun(&path);
            begun.begin(RowId(3)).unwrap();
            begun.complete_with([4, 5].map(RowId));
            drop(begun);
            assert_eq!(StateFile::open(&path).unwrap().mark().owner(), "abcdefghi");
            assert_eq!(known(&path), Some(vec![3, 4, 5]), "{before:?}");
        }
        let other = StateFile::open(&path).unwrap().begun("another table".to_owned());
        assert_eq!(other.known(), None);
    }
}
