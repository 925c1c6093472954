//! A disk in memory that fails on command, the same way every time for the same seed.

mod state;

use std::{
    io,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use spindle_log::disk::{Disk, DiskFile, FolderLock, Hold, LockError};

use state::State;
pub use state::{Fault, Operation};

/// A simulated folder. Clones are the same folder, so a test can keep one in hand while a log
/// works on another.
///
/// Bytes are durable once their file is synced, names once the folder is. [`crash`](Self::crash)
/// is a power cut: of what is not durable, any subset of 512-byte sectors and of changed names
/// survives, as the seed chooses, and every open handle goes dead.
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

impl SimDisk {
    /// An empty folder. The seed decides what crashes leave.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: Arc::new(Mutex::new(State::new(seed))) }
    }

    /// Cuts the power and brings the machine up again. Planned faults are forgotten.
    pub fn crash(&self) {
        self.state.lock().lose_power();
    }

    /// Ends the process but not the machine: open handles go dead, the lock is free, and what was
    /// written stays as it is, durable or not.
    pub fn kill(&self) {
        let mut state = self.state.lock();
        state.boot += 1;
        state.locked = false;
        state.powered = true;
    }

    /// Replaces this folder with another one with the same files, as `mv` and `cp -r` do, or only
    /// its lock file: the process that holds the folder has lost it.
    pub fn take_away(&self) {
        self.state.lock().locked = false;
    }

    /// Plans a fault for the `nth` operation of its kind from now on, 0 being the next one.
    pub fn fail(&self, operation: Operation, nth: u64, fault: Fault) {
        self.state.lock().plan(operation, nth, fault);
    }

    /// Forgets planned faults that did not happen yet. Says whether there was one.
    pub fn forget_faults(&self) -> bool {
        let mut state = self.state.lock();
        let faults = std::mem::take(&mut state.faults);
        !faults.is_empty()
    }

    /// Lets `operations` more changes through (writes, syncs, creates, renames, removes); the
    /// power goes during the one after them.
    pub fn cut_power_after(&self, operations: u64) {
        self.state.lock().cut_after(operations);
    }

    /// How many changes were made or tried so far.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.state.lock().operations
    }

    /// Whether a planned cut took the power; [`crash`](Self::crash) brings it back.
    #[must_use]
    pub fn is_powered(&self) -> bool {
        self.state.lock().powered
    }

    /// A separate copy of this folder as it is now, with no open handles or lock and without
    /// planned faults. Later changes of one do not affect the other.
    #[must_use]
    pub fn copy(&self) -> Self {
        Self { state: Arc::new(Mutex::new(self.state.lock().copy())) }
    }

    /// From now on this byte of a file cannot be read, with anything that is read together with it, until
    /// [`heal`](Self::heal). No crash changes that. Nothing happens if there is no such file.
    pub fn spoil(&self, name: &str, offset: usize) {
        let mut state = self.state.lock();
        state.unreadable = state.names.get(name).map(|id| (*id, offset));
    }

    /// All bytes can be read again.
    pub fn heal(&self) {
        self.state.lock().unreadable = None;
    }

    /// Limits the bytes of all files together; a write that needs more fails for want of space.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state.lock().capacity = bytes;
    }

    /// The bytes of all files together.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.state.lock().used()
    }

    /// All names, sorted.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.state.lock().names.keys().cloned().collect()
    }

    /// What a file holds, if there is one of that name.
    #[must_use]
    pub fn contents(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.state.lock();
        let id = state.names.get(name)?;
        state.inodes.get(id).map(|inode| inode.bytes.clone())
    }

    /// Puts a file there, durable, or replaces it.
    pub fn put(&self, name: &str, bytes: Vec<u8>) {
        let mut state = self.state.lock();
        let id = state.names.get(name).copied().unwrap_or_else(|| state.add(name));
        state.sync_names();
        if let Some(inode) = state.inodes.get_mut(&id) {
            inode.replace(bytes);
        }
    }

    /// From now on syncs of the folder have no effect, as if the program never made them.
    pub fn skip_folder_syncs(&self) {
        self.state.lock().skips_folder_syncs = true;
    }

    /// Turns one bit of a file over, as ageing disks do. `bit` is 0 to 7. Nothing happens beyond
    /// the end of the file.
    pub fn flip_bit(&self, name: &str, offset: usize, bit: u8) {
        if let Some(mut bytes) = self.contents(name)
            && let Some(byte) = bytes.get_mut(offset)
        {
            *byte ^= 1 << (bit & 7);
            self.put(name, bytes);
        }
    }

    /// The next number of the disk's own random sequence.
    #[must_use]
    pub fn random(&self) -> u64 {
        self.state.lock().random()
    }
}

struct HeldLock {
    state: Weak<Mutex<State>>,
    boot: u64,
}

impl Hold for HeldLock {
    fn check(&self) -> io::Result<()> {
        let lost = || Err(io::Error::other("the simulated folder is another one"));
        let Some(state) = self.state.upgrade() else { return lost() };
        let state = state.lock();
        if state.boot == self.boot && state.locked { Ok(()) } else { lost() }
    }
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        if let Some(state) = self.state.upgrade() {
            let mut state = state.lock();
            if state.boot == self.boot {
                state.locked = false;
            }
        }
    }
}

impl Disk for SimDisk {
    fn folder(&self) -> String {
        "simulated".to_owned()
    }

    fn lock(&self) -> Result<FolderLock, LockError> {
        let mut state = self.state.lock();
        state.check_power(state.boot)?;
        if state.locked {
            return Err(LockError::Held { pid: Some(std::process::id()) });
        }
        state.locked = true;
        let held = HeldLock { state: Arc::downgrade(&self.state), boot: state.boot };
        Ok(FolderLock::new(held))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let state = self.state.lock();
        state.check_power(state.boot)?;
        Ok(state.names.keys().cloned().collect())
    }

    fn list_aside(&self, folder: &str) -> io::Result<Vec<String>> {
        let own = |name: String| Some(name.strip_prefix(folder)?.strip_prefix('/')?.to_owned());
        Ok(self.list()?.into_iter().filter_map(own).collect())
    }

    fn open(&self, name: &str, _write: bool) -> io::Result<Arc<dyn DiskFile>> {
        let state = self.state.lock();
        state.check_power(state.boot)?;
        let id = *state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(SimFile { state: self.state.clone(), id, boot: state.boot }))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state.lock();
        state.attempt(Operation::Create)?;
        if state.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let id = state.add(name);
        Ok(Arc::new(SimFile { state: self.state.clone(), id, boot: state.boot }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        state.attempt(Operation::Rename)?;
        state.rename(from, to)
    }

    fn move_aside(&self, from: &str, folder: &str, to: &str) -> io::Result<()> {
        self.rename(from, &format!("{folder}/{to}"))?;
        self.sync_folder()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        state.attempt(Operation::Remove)?;
        state.remove(name)
    }

    fn sync_folder(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        state.attempt(Operation::SyncFolder)?;
        if !state.skips_folder_syncs {
            state.sync_names();
        }
        Ok(())
    }

    fn salt(&self) -> u32 {
        self.state.lock().random() as u32
    }
}

struct SimFile {
    state: Arc<Mutex<State>>,
    id: u64,
    boot: u64,
}

impl DiskFile for SimFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.state.lock();
        state.check_power(self.boot)?;
        let inode = state.inodes.get(&self.id).ok_or(io::ErrorKind::NotFound)?;
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(inode.bytes.len());
        let count = buffer.len().min(inode.bytes.len() - start);
        state.check_readable(self.id, start..start + count)?;
        buffer[..count].copy_from_slice(&inode.bytes[start..start + count]);
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        let fault = state.begin(Operation::Write, self.boot)?;
        if fault == Some(Fault::NoSpace) {
            return state.fail(fault);
        }
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        let len = self.len_in(&state)?;
        let growth = (offset + bytes.len()).saturating_sub(len) as u64;
        if growth > 0 && state.capacity.is_some_and(|limit| state.used() + growth > limit) {
            return state.fail(Some(Fault::NoSpace));
        }
        let written = match fault {
            // Any part of a failed write may have got through.
            Some(Fault::InputOutput) => (state.random() % (bytes.len() as u64 + 1)) as usize,
            _ => bytes.len(),
        };
        if let Some(inode) = state.inodes.get_mut(&self.id) {
            inode.write(&bytes[..written], offset);
        }
        state.fail(fault)
    }

    fn claim(&self, len: u64) -> io::Result<bool> {
        let mut state = self.state.lock();
        state.check_power(self.boot)?;
        let growth = len.saturating_sub(self.len_in(&state)? as u64);
        if state.capacity.is_some_and(|limit| state.used() + growth > limit) {
            return state.fail(Some(Fault::NoSpace)).map(|()| false);
        }
        if let Some(inode) = state.inodes.get_mut(&self.id) {
            inode.write(&[], usize::try_from(len).map_err(io::Error::other)?);
        }
        Ok(true)
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        let fault = state.begin(Operation::Sync, self.boot)?;
        let inode = state.inodes.get_mut(&self.id).ok_or(io::ErrorKind::NotFound)?;
        match fault {
            None => inode.sync(),
            Some(Fault::InputOutput | Fault::NoSpace) => inode.forget_dirty(),
            // A cut in the middle of a sync: some sectors made it, which the crash decides.
            Some(Fault::PowerCut) => {}
        }
        state.fail(fault)
    }

    fn len(&self) -> io::Result<u64> {
        let state = self.state.lock();
        state.check_power(self.boot)?;
        Ok(self.len_in(&state)? as u64)
    }
}

impl SimFile {
    fn len_in(&self, state: &State) -> io::Result<usize> {
        let inode = state.inodes.get(&self.id).ok_or(io::ErrorKind::NotFound)?;
        Ok(inode.bytes.len())
    }
}
