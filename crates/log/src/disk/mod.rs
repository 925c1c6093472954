//! The seam below the file log: one flat folder of files.
//!
//! [`RealDisk`] is a directory, by plain system calls. The tests' simulated disk
//! (`spindle-testkit`) is a directory in memory that fails the way disks do, as determined by a
//! seed. Code above this seam must survive both.

mod direct;
mod held;
mod real;

use std::{io, sync::Arc};

pub use real::RealDisk;
use thiserror::Error;

/// Unit and alignment of reads and writes past the page cache: what every disk and file system takes.
pub(crate) const BLOCK_BYTES: usize = 4096;

/// A folder that holds a log. Names are plain file names.
pub trait Disk: Send + Sync + 'static {
    /// The folder as a person would name it.
    fn folder(&self) -> String;

    /// Takes the folder for this process until the returned guard is dropped. Nothing at the folder's path is touched
    /// by the other methods once that path leads to another folder.
    fn lock(&self) -> Result<FolderLock, LockError>;

    /// The names of all files in the folder, in no particular order.
    fn list(&self) -> io::Result<Vec<String>>;

    /// The names of all files in a folder inside this one, in no particular order: none if there is no such folder.
    fn list_aside(&self, folder: &str) -> io::Result<Vec<String>>;

    /// Opens a file for reading and, when `write` says so, writing. One in a folder inside is named with it: `folder/name`.
    fn open(&self, name: &str, write: bool) -> io::Result<Arc<dyn DiskFile>>;

    /// Creates a file that does not exist yet. Its name is durable after
    /// [`sync_folder`](Self::sync_folder), its bytes after [`DiskFile::sync`].
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Gives a file another name, which is not taken. Durable after `sync_folder`.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Moves a file into a folder inside this one, which is made when it is missing, under a name that is not taken
    /// there. All of that is durable then.
    fn move_aside(&self, from: &str, folder: &str, to: &str) -> io::Result<()>;

    /// Removes a name. Durable after `sync_folder`; open handles stay good.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes all names created, changed and removed so far durable.
    fn sync_folder(&self) -> io::Result<()>;

    /// A number that cannot be guessed, so that bytes from outside can not pass for the log's own.
    /// A simulated disk takes it from its seed.
    fn salt(&self) -> u32;
}

/// An open file. Every method may be called from several threads at once.
pub trait DiskFile: Send + Sync {
    /// Reads into `buffer` from `offset`; fewer bytes than asked for only at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// As [`read_at`](Self::read_at), for bytes that are not read again soon: they need not stay in the page cache.
    /// Fastest with `offset`, the length of `buffer` and its address being multiples of a block of the disk.
    fn read_once(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_at(buffer, offset)
    }

    /// Writes all of `bytes` at `offset`, making the file longer when needed.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Writes `len` zeros at `offset`, making the file longer when needed.
    fn write_zeros(&self, offset: u64, len: u64) -> io::Result<()> {
        write_zeros(self, offset, len)
    }

    /// Writes all of `bytes` at the file's written end and makes them durable. Up to the next block
    /// of the disk, zeros may be written behind them.
    fn append_durably(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_at(bytes, offset)?;
        self.sync()
    }

    /// Closes what only [`read_once`](Self::read_once) and [`append_durably`](Self::append_durably) need, until they
    /// are called again: files that are kept open for reading are many, and descriptors are not.
    fn settle(&self) {}

    /// Makes a file `len` bytes long, with zeros behind what it has, and claims the space for them at once, where the
    /// file system can: `false` where it cannot, and then nothing was done. An error means that the space
    /// is not there.
    fn claim(&self, len: u64) -> io::Result<bool>;

    /// Makes the file's bytes durable.
    fn sync(&self) -> io::Result<()>;

    /// How long the file is.
    fn len(&self) -> io::Result<u64>;

    /// Whether the file has no byte.
    fn is_empty(&self) -> io::Result<bool> {
        self.len().map(|len| len == 0)
    }
}

fn write_zeros(file: &(impl DiskFile + ?Sized), offset: u64, len: u64) -> io::Result<()> {
    static ZEROS: [u8; 256 * 1024] = [0; 256 * 1024];
    let end = offset + len;
    for at in (offset..end).step_by(ZEROS.len()) {
        file.write_at(&ZEROS[..ZEROS.len().min((end - at) as usize)], at)?;
    }
    Ok(())
}

/// Holds a folder until it is dropped.
pub struct FolderLock {
    held: Box<dyn Hold>,
}

/// What holds a folder, and releases it when it is dropped.
pub trait Hold: Send + Sync + 'static {
    /// Whether the folder at the path is still the one that is held, and its lock file the one that is locked. If not,
    /// another process may have that folder, or this one's files may be gone: an error that says what has changed.
    ///
    /// It is asked before each acknowledgement, so it takes a microsecond or two.
    fn check(&self) -> io::Result<()>;
}

impl FolderLock {
    /// A lock that dropping `held` releases.
    pub fn new(held: impl Hold) -> Self {
        Self { held: Box::new(held) }
    }

    /// As [`Hold::check`].
    pub fn check(&self) -> io::Result<()> {
        self.held.check()
    }
}

/// Why a folder could not be taken.
#[derive(Debug, Error)]
pub enum LockError {
    /// Another process has it.
    #[error("another process holds the folder")]
    Held {
        /// That process, when the lock file names it.
        pid: Option<u32>,
    },
    /// The lock file can not be made or locked.
    #[error(transparent)]
    Failed(#[from] io::Error),
}

/// The name of the lock file inside the folder.
pub(crate) const LOCK_FILE: &str = "lock";
