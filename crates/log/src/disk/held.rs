//! Holds a directory against other processes, and notices when it is taken away.

use std::{
    ffi::CString,
    fs::File,
    io::{self, Read},
    os::{fd::AsFd, unix::ffi::OsStrExt, unix::fs::FileExt},
    path::Path,
    process,
};

use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg, OFlag, openat},
    sys::stat::{FileStat, Mode, fstat, stat},
};

use super::{Hold, LOCK_FILE, LockError, real::FILE_MODE};

/// A directory and the lock file in it, both locked.
///
/// The directory's lock keeps others out even when the lock file is removed or replaced; some network file systems have
/// no locks for directories, and there the file's lock has to be enough.
pub(super) struct HeldFolder {
    _folder_lock: Option<Flock<File>>,
    _file_lock: Flock<File>,
    folder_path: CString,
    /// What the folder's path must lead to. The lock file alone does not tell: it may be linked into another folder.
    folder_stat: FileStat,
    file_path: CString,
    /// What the lock file's path must lead to.
    file_stat: FileStat,
}

impl HeldFolder {
    /// Locks a directory that is open and stands at `path`.
    pub(super) fn take(folder: &File, path: &Path) -> Result<Self, LockError> {
        let folder_lock = match Flock::lock(folder.try_clone()?, FlockArg::LockExclusiveNonblock) {
            Ok(held) => Some(held),
            Err((_, Errno::EWOULDBLOCK)) => return Err(LockError::Held { pid: holder(folder) }),
            Err((_, errno)) => {
                tracing::warn!(folder = %path.display(), %errno, "a directory cannot be locked here: its lock file has to do");
                None
            }
        };
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_CLOEXEC;
        let mode = Mode::from_bits_truncate(FILE_MODE);
        let file = openat(folder, LOCK_FILE, flags, mode).map_err(io::Error::from)?;
        let file = match Flock::lock(File::from(file), FlockArg::LockExclusiveNonblock) {
            Ok(held) => held,
            Err((_, Errno::EWOULDBLOCK)) => return Err(LockError::Held { pid: holder(folder) }),
            Err((_, errno)) => return Err(LockError::Failed(errno.into())),
        };
        // The lock is the flock; the text only tells people which process has it.
        file.set_len(0)?;
        file.write_all_at(format!("{}\n", process::id()).as_bytes(), 0)?;
        let c_path =
            |path: &Path| CString::new(path.as_os_str().as_bytes()).map_err(io::Error::from);
        let held = Self {
            folder_stat: fstat(folder).map_err(io::Error::from)?,
            _folder_lock: folder_lock,
            file_stat: fstat(file.as_fd()).map_err(io::Error::from)?,
            _file_lock: file,
            folder_path: c_path(path)?,
            file_path: c_path(&path.join(LOCK_FILE))?,
        };
        held.check()?;
        Ok(held)
    }

    /// What has changed, when the paths do not lead to the folder and the lock file that are locked.
    fn lost(folder: Result<bool, Errno>, file: Result<bool, Errno>) -> io::Error {
        let text = match (folder, file) {
            (_, Err(errno)) | (Err(errno), _)
                if matches!(errno, Errno::EACCES | Errno::EIO | Errno::ENOMEM) =>
            {
                return errno.into();
            }
            (Ok(true), Err(_)) => "its lock file was removed",
            (Ok(true), Ok(_)) => "its lock file was replaced",
            _ => "the folder was moved, removed or replaced",
        };
        io::Error::other(format!("{text}; another server may be at work on it"))
    }
}

impl Hold for HeldFolder {
    fn check(&self) -> io::Result<()> {
        let is_own = |path: &CString, own| stat(&**path).map(|found| is_same(&found, own));
        let folder = is_own(&self.folder_path, &self.folder_stat);
        match (folder, is_own(&self.file_path, &self.file_stat)) {
            (Ok(true), Ok(true)) => Ok(()),
            (folder, file) => Err(Self::lost(folder, file)),
        }
    }
}

fn is_same(one: &FileStat, other: &FileStat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

/// The process that holds a directory, as far as its lock file says.
fn holder(folder: &File) -> Option<u32> {
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    let mut text = String::new();
    let file = openat(folder, LOCK_FILE, flags, Mode::empty()).ok()?;
    File::from(file).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
