//! What a simulated disk holds: what the system sees, what would survive a power cut, and the
//! difference between the two.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    ops::Range,
};

/// The unit that a disk writes whole or not at all.
pub(super) const SECTOR_BYTES: usize = 512;

/// A kind of disk operation, to place a fault on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Operation {
    /// Writing into a file.
    Write,
    /// Making a file's bytes durable.
    Sync,
    /// Creating a file.
    Create,
    /// Renaming a file.
    Rename,
    /// Removing a file.
    Remove,
    /// Making the folder's names durable.
    SyncFolder,
}

/// What happens to an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It fails with an input/output error. A write leaves any part of itself behind; what a
    /// failed sync should have saved is lost for good, as on a real system.
    InputOutput,
    /// It fails for want of space.
    NoSpace,
    /// The power goes while it runs: every operation from this one on fails until
    /// [`SimDisk::crash`](super::SimDisk::crash) brings the machine up again.
    PowerCut,
}

#[derive(Clone, Default)]
pub(super) struct Inode {
    /// What a reader sees.
    pub(super) bytes: Vec<u8>,
    /// What survives a power cut for certain.
    durable: Vec<u8>,
    /// Sectors in which the two may differ and any of them may survive.
    dirty: BTreeSet<usize>,
}

#[derive(Clone)]
enum NameChange {
    Add(String),
    Remove(String),
    Rename(String, String),
}

#[derive(Clone, Default)]
pub(super) struct State {
    random: u64,
    next_inode: u64,
    pub(super) inodes: BTreeMap<u64, Inode>,
    pub(super) names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    pending: Vec<(u64, NameChange)>,
    pub(super) faults: BTreeMap<(Operation, u64), Fault>,
    done: BTreeMap<Operation, u64>,
    pub(super) operations: u64,
    cut_after: Option<u64>,
    pub(super) powered: bool,
    pub(super) locked: bool,
    /// Handles of an older boot are dead.
    pub(super) boot: u64,
    pub(super) capacity: Option<u64>,
    /// A fault of the program that uses it: it never syncs the folder.
    pub(super) skips_folder_syncs: bool,
    /// A file, and the offset of a byte in it, which cannot be read.
    pub(super) unreadable: Option<(u64, usize)>,
}

impl State {
    pub(super) fn new(seed: u64) -> Self {
        Self { random: seed, powered: true, ..Self::default() }
    }

    pub(super) fn random(&mut self) -> u64 {
        crate::random::next(&mut self.random)
    }

    fn coin(&mut self) -> bool {
        self.random() & 1 == 1
    }

    pub(super) fn plan(&mut self, operation: Operation, nth: u64, fault: Fault) {
        let done = self.done.get(&operation).copied().unwrap_or(0);
        self.faults.insert((operation, done + nth), fault);
    }

    pub(super) fn copy(&self) -> Self {
        let (faults, cut_after, unreadable, locked) = Default::default();
        Self { faults, cut_after, unreadable, locked, powered: true, ..self.clone() }
    }

    pub(super) fn cut_after(&mut self, operations: u64) {
        self.cut_after = Some(self.operations + operations);
    }

    pub(super) fn check_power(&self, boot: u64) -> io::Result<()> {
        if self.powered && self.boot == boot {
            return Ok(());
        }
        Err(io::Error::other("the simulated power is off"))
    }

    /// Counts an operation and says which fault was planned for it.
    pub(super) fn begin(&mut self, operation: Operation, boot: u64) -> io::Result<Option<Fault>> {
        self.check_power(boot)?;
        self.operations += 1;
        let done = self.done.entry(operation).or_default();
        let fault = self.faults.remove(&(operation, *done));
        *done += 1;
        let cut = self.cut_after.is_some_and(|last| self.operations > last);
        Ok(if cut { Some(Fault::PowerCut) } else { fault })
    }

    /// Counts an operation on the folder, which fails whole if a fault was planned for it.
    pub(super) fn attempt(&mut self, operation: Operation) -> io::Result<()> {
        let fault = self.begin(operation, self.boot)?;
        self.fail(fault)
    }

    /// Fails if a byte of this range of a file cannot be read.
    pub(super) fn check_readable(&self, id: u64, range: Range<usize>) -> io::Result<()> {
        match self.unreadable {
            Some((file, at)) if file == id && range.contains(&at) => Err(input_output()),
            _ => Ok(()),
        }
    }

    /// Turns a planned fault into the error the caller sees.
    pub(super) fn fail(&mut self, fault: Option<Fault>) -> io::Result<()> {
        match fault {
            None => Ok(()),
            Some(Fault::InputOutput) => Err(input_output()),
            Some(Fault::NoSpace) => Err(io::ErrorKind::StorageFull.into()),
            Some(Fault::PowerCut) => {
                self.powered = false;
                Err(io::Error::other("the simulated power is off"))
            }
        }
    }

    pub(super) fn used(&self) -> u64 {
        self.names.values().filter_map(|id| self.inodes.get(id)).map(|i| i.bytes.len() as u64).sum()
    }

    pub(super) fn add(&mut self, name: &str) -> u64 {
        let id = self.next_inode;
        self.next_inode += 1;
        self.inodes.insert(id, Inode::default());
        self.names.insert(name.to_owned(), id);
        self.pending.push((id, NameChange::Add(name.to_owned())));
        id
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let id = self.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        self.names.insert(to.to_owned(), id);
        self.pending.push((id, NameChange::Rename(from.to_owned(), to.to_owned())));
        Ok(())
    }

    pub(super) fn remove(&mut self, name: &str) -> io::Result<()> {
        let id = self.names.remove(name).ok_or(io::ErrorKind::NotFound)?;
        self.pending.push((id, NameChange::Remove(name.to_owned())));
        Ok(())
    }

    pub(super) fn sync_names(&mut self) {
        self.pending.clear();
        self.durable_names.clone_from(&self.names);
    }

    /// Any subset of the changed sectors survives, and any subset of the changed names: a change
    /// of a file's name only when the earlier ones of that file did.
    pub(super) fn lose_power(&mut self) {
        let mut lost = BTreeSet::new();
        for (id, change) in std::mem::take(&mut self.pending) {
            if lost.contains(&id) || self.coin() {
                lost.insert(id);
                continue;
            }
            match change {
                NameChange::Add(name) => {
                    self.durable_names.insert(name, id);
                }
                NameChange::Remove(name) => {
                    self.durable_names.remove(&name);
                }
                NameChange::Rename(from, to) => {
                    self.durable_names.remove(&from);
                    self.durable_names.insert(to, id);
                }
            }
        }
        self.names.clone_from(&self.durable_names);
        let named: BTreeSet<u64> = self.names.values().copied().collect();
        self.inodes.retain(|id, _| named.contains(id));
        let mut inodes = std::mem::take(&mut self.inodes);
        for inode in inodes.values_mut() {
            inode.lose_power(|| self.coin());
        }
        self.inodes = inodes;
        self.faults.clear();
        self.cut_after = None;
        self.powered = true;
        self.locked = false;
        self.boot += 1;
    }
}

fn input_output() -> io::Error {
    io::Error::from_raw_os_error(5)
}

impl Inode {
    pub(super) fn write(&mut self, bytes: &[u8], offset: usize) {
        let end = offset + bytes.len();
        if self.bytes.len() < end {
            // The sectors that a longer file gains are as unsure as those written.
            self.dirty.extend(self.bytes.len() / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES));
            self.bytes.resize(end, 0);
        }
        self.bytes[offset..end].copy_from_slice(bytes);
        self.dirty.extend(offset / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES));
    }

    pub(super) fn sync(&mut self) {
        for sector in std::mem::take(&mut self.dirty) {
            self.save(sector);
        }
    }

    /// After a failed sync a real system marks the pages as clean, so no later sync saves them.
    pub(super) fn forget_dirty(&mut self) {
        self.dirty.clear();
    }

    fn save(&mut self, sector: usize) {
        let start = sector * SECTOR_BYTES;
        let end = (start + SECTOR_BYTES).min(self.bytes.len());
        if start >= end {
            return;
        }
        if self.durable.len() < end {
            self.durable.resize(end, 0);
        }
        self.durable[start..end].copy_from_slice(&self.bytes[start..end]);
    }

    fn lose_power(&mut self, mut coin: impl FnMut() -> bool) {
        for sector in std::mem::take(&mut self.dirty) {
            if coin() {
                self.save(sector);
            }
        }
        self.bytes.clone_from(&self.durable);
    }

    /// Replaces the bytes, durably: for fixtures and for damage done from outside.
    pub(super) fn replace(&mut self, bytes: Vec<u8>) {
        self.durable.clone_from(&bytes);
        self.bytes = bytes;
        self.dirty.clear();
    }
}
