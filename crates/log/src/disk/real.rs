//! A folder of the file system, by plain blocking system calls.

use std::{
    fs::{self, DirBuilder, File},
    hash::{BuildHasher, Hasher, RandomState},
    io,
    os::unix::fs::{DirBuilderExt, FileExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use nix::{
    errno::Errno,
    fcntl::{FallocateFlags, OFlag, fallocate, openat, renameat},
    sys::stat::{Mode, mkdirat},
    unistd::{UnlinkatFlags, unlinkat},
};
use parking_lot::Mutex;

use super::{
    Disk, DiskFile, FolderLock, LockError, direct::DirectFile, held::HeldFolder, write_zeros,
};

/// Jobs may hold secrets: only the server's own user reads them.
pub(super) const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;

/// A directory. Its files are named relative to the directory that was opened, whatever stands at the path later.
pub struct RealDisk {
    path: PathBuf,
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

    fn file(&self, name: &str, flags: OFlag) -> io::Result<Arc<dyn DiskFile>> {
        let mode = Mode::from_bits_truncate(FILE_MODE);
        let file = openat(&self.folder, name, flags | OFlag::O_CLOEXEC, mode)?;
        Ok(Arc::new(RealFile::new(file.into(), self.direct)))
    }
}

/// A new directory's own name must survive a power cut too.
fn sync_parent(path: &Path) -> io::Result<()> {
    match fs::canonicalize(path)?.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

fn names_in(folder: &Path) -> io::Result<Vec<String>> {
    fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into())).collect()
}

impl Disk for RealDisk {
    fn folder(&self) -> String {
        self.path.display().to_string()
    }

    fn lock(&self) -> Result<FolderLock, LockError> {
        HeldFolder::take(&self.folder, &self.path).map(FolderLock::new)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        names_in(&self.path)
    }

    fn list_aside(&self, folder: &str) -> io::Result<Vec<String>> {
        match names_in(&self.path.join(folder)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            names => names,
        }
    }

    fn open(&self, name: &str, write: bool) -> io::Result<Arc<dyn DiskFile>> {
        self.file(name, if write { OFlag::O_RDWR } else { OFlag::O_RDONLY })
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.file(name, OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(renameat(&self.folder, from, &self.folder, to)?)
    }

    fn move_aside(&self, from: &str, folder: &str, to: &str) -> io::Result<()> {
        match mkdirat(&self.folder, folder, Mode::from_bits_truncate(FOLDER_MODE)) {
            Ok(()) => self.sync_folder()?,
            Err(Errno::EEXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let aside = File::from(openat(&self.folder, folder, flags, Mode::empty())?);
        renameat(&self.folder, from, &aside, to)?;
        aside.sync_all()?;
        self.sync_folder()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&self.folder, name, UnlinkatFlags::NoRemoveDir)?)
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
    direct: Mutex<Direct>,
}

/// The second handle of a file, for direct access.
enum Direct {
    /// Opened when it is first needed, and again after [`DiskFile::settle`].
    Closed,
    Open(Arc<DirectFile>),
    /// Not available, or not wanted.
    Without,
}

impl RealFile {
    fn new(file: File, direct: bool) -> Self {
        Self { file, direct: Mutex::new(if direct { Direct::Closed } else { Direct::Without }) }
    }

    fn direct(&self) -> Option<Arc<DirectFile>> {
        let mut direct = self.direct.lock();
        if let Direct::Closed = *direct {
            let opened = DirectFile::open(&self.file);
            *direct = opened.map_or(Direct::Without, |file| Direct::Open(Arc::new(file)));
        }
        if let Direct::Open(file) = &*direct { Some(file.clone()) } else { None }
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

    fn settle(&self) {
        let mut direct = self.direct.lock();
        if let Direct::Open(_) = *direct {
            *direct = Direct::Closed;
        }
    }

    fn claim(&self, len: u64) -> io::Result<bool> {
        let len = i64::try_from(len).map_err(io::Error::other)?;
        match fallocate(&self.file, FallocateFlags::empty(), 0, len) {
            Ok(()) => Ok(true),
            Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => Ok(false),
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
