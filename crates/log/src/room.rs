//! How much room a disk has, for people and alerts: the log itself finds out what it can still claim.

use std::io;
use std::path::Path;

use nix::sys::statvfs::statvfs;

/// The room of the file system that a folder is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// Bytes that are free for users other than root.
    pub free_bytes: u64,
    /// Bytes of all of it, without what is kept for root.
    pub bytes: u64,
}

impl Room {
    /// That of the file system that a folder is on.
    ///
    /// # Errors
    ///
    /// There is no such folder, or the file system does not answer.
    pub fn at(folder: &Path) -> io::Result<Room> {
        let found = statvfs(folder)?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.fragment_size());
        let free_bytes = bytes(found.blocks_available());
        let used_blocks = found.blocks().saturating_sub(found.blocks_free());
        Ok(Room { free_bytes, bytes: bytes(used_blocks).saturating_add(free_bytes) })
    }
}
