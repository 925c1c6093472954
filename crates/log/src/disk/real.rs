//! A folder of the file system, by plain blocking system calls.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    hash::{BuildHasher, Hasher, RandomState},
    io::{self, Read},
    os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process,
    sync::{Arc, OnceLock},
};

use nix::{
    errno::Errno,
    fcntl::{FallocateFlags, Flock, FlockArg, fallocate},
};

use super::{Disk, DiskFile, FolderLock, LOCK_FILE, LockError, direct::DirectFile, write_zeros};

/// Jobs may hold secrets: only the server's own user reads them.
const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;

/// A directory.
pub struct RealDisk {
    path: PathBuf,
    /// Kept open to sync the directory with one call.
    folder: File,
    /// Whether segments are filled, appended to and read once past the page cache.
    direct: bool,
}

impl RealDisk {
    /// Opens a directory; creates it, and those above it, where they are missing.
    pub fn create_or_open(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        if !path.exists() {
            DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(&path)?;
            sync_parent(&path)?;
        }
        Self::open(path)
    }

    /// Opens a directory that exists.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        if !path.is_dir() {
            let missing = !path.exists();
            return Err(if missing {
                io::ErrorKind::NotFound.into()
            } else {
                io::ErrorKind::NotADirectory.into()
            });
        }
        let folder = File::open(&path)?;
        Ok(Self { path, folder, direct: false })
    }
}

impl RealDisk {
    /// Fills and appends to files past the page cache, and reads them so at a start, where the file system can: faster
    /// when every append is synced, slower when none is.
    #[must_use]
    pub fn with_direct_access(self, direct: bool) -> Self {
        Self { direct, ..self }
    }
}

/// A new directory's own name must survive a power cut too.
fn sync_parent(path: &Path) -> io::Result<()> {
    match fs::canonicalize(path)?.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

impl Disk for RealDisk {
    fn folder(&self) -> String {
        self.path.display().to_string()
    }

    fn lock(&self) -> Result<FolderLock, LockError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(FILE_MODE)
            .open(self.path.join(LOCK_FILE))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(held) => {
                // The lock is the flock; the text only tells a person who has it.
                held.set_len(0)?;
                held.write_all_at(format!("{}\n", process::id()).as_bytes(), 0)?;
                Ok(FolderLock::new(held))
            }
            Err((mut file, Errno::EWOULDBLOCK)) => {
                let mut text = String::new();
                let pid =
                    file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
                Err(LockError::Held { pid })
            }
            Err((_, errno)) => Err(LockError::Failed(errno.into())),
        }
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        Ok(names)
    }

    fn open(&self, name: &str, write: bool) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(write).open(self.path.join(name))?;
        Ok(Arc::new(RealFile::new(file, self.direct)))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(FILE_MODE)
            .open(self.path.join(name))?;
        Ok(Arc::new(RealFile::new(file, self.direct)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync_folder(&self) -> io::Result<()> {
        self.folder.sync_all()
    }

    fn salt(&self) -> u32 {
        // The standard library seeds every RandomState from the system's randomness.
        let random = RandomState::new().build_hasher().finish();
        (random ^ (random >> 32)) as u32
    }
}

struct RealFile {
    file: File,
    /// Opened when it is needed first; `None` if there is no such thing, or none is wanted.
    direct: OnceLock<Option<DirectFile>>,
}

impl RealFile {
    fn new(file: File, direct: bool) -> Self {
        let direct = if direct { OnceLock::new() } else { OnceLock::from(None) };
        Self { file, direct }
    }

    fn direct(&self) -> Option<&DirectFile> {
        self.direct.get_or_init(|| DirectFile::open(&self.file)).as_ref()
    }
}

impl DiskFile for RealFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match self.file.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn read_once(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let done = match self.direct() {
            Some(direct) => direct.read(buffer, offset)?,
            None => 0,
        };
        // The end of the file, or what can not be read directly.
        Ok(done + self.read_at(&mut buffer[done..], offset + done as u64)?)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn write_zeros(&self, offset: u64, len: u64) -> io::Result<()> {
        match self.direct() {
            Some(direct) if direct.write_zeros(offset, len)? => Ok(()),
            _ => write_zeros(self, offset, len),
        }
    }

    fn append_durably(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if let Some(direct) = self.direct()
            && direct.append(bytes, offset, |buffer, at| self.read_at(buffer, at))?
        {
            return Ok(());
        }
        self.write_at(bytes, offset)?;
        self.sync()
    }

    fn claim(&self, len: u64) -> io::Result<()> {
        let len = i64::try_from(len).map_err(io::Error::other)?;
        match fallocate(&self.file, FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, len) {
            Ok(()) | Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        self.file.metadata().map(|metadata| metadata.len())
    }
}
