//! The shadow: what a disk would hold if the power failed now.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::leak::Leak;
use crate::tree::{Entry, Tree, inode_path};

/// Above this many dirty ranges of one file they are merged, so that a file that is never synced
/// does not fill the memory.
const RANGES_MAX: usize = 4_096;
const COPY_BYTES: usize = 256 * 1024;

/// Device and inode number: which file, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileKey {
    pub(crate) dev: u64,
    pub(crate) ino: u64,
}

impl FileKey {
    fn of(file: &File) -> io::Result<Self> {
        let meta = file.metadata()?;
        Ok(Self { dev: meta.dev(), ino: meta.ino() })
    }
}

/// What the library saw and did, for the report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) writes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) file_syncs: u64,
    pub(crate) synced_bytes: u64,
    pub(crate) dir_syncs: u64,
    pub(crate) entries: u64,
    pub(crate) leaked_bytes: u64,
    /// Troubles that a setting asked for.
    pub(crate) failed_syncs: u64,
    pub(crate) failed_writes: u64,
    pub(crate) no_room: u64,
    pub(crate) short_writes: u64,
    pub(crate) no_descriptor: u64,
    pub(crate) clock_jumps: u64,
}

impl Counts {
    /// Fixed width, so that a rewrite in place never leaves the end of an older one.
    fn report(&self) -> String {
        format!(
            "writes {:020}\nwritten_bytes {:020}\nfile_syncs {:020}\nsynced_bytes {:020}\n\
             dir_syncs {:020}\nentries {:020}\nleaked_bytes {:020}\nfailed_syncs {:020}\n\
             failed_writes {:020}\nno_room {:020}\nshort_writes {:020}\nno_descriptor {:020}\n\
             clock_jumps {:020}\n",
            self.writes,
            self.written_bytes,
            self.file_syncs,
            self.synced_bytes,
            self.dir_syncs,
            self.entries,
            self.leaked_bytes,
            self.failed_syncs,
            self.failed_writes,
            self.no_room,
            self.short_writes,
            self.no_descriptor,
            self.clock_jumps,
        )
    }
}

struct Inode {
    serial: u64,
    /// The visible file, opened for reading.
    visible: File,
    /// Its durable copy.
    durable: File,
    durable_len: u64,
    /// Ranges written since the last sync.
    dirty: Vec<(u64, u64)>,
    /// The smallest size since the last sync: bytes above it are no longer the old ones.
    len_min: u64,
    resized: bool,
}

/// The shadow of one visible folder.
pub(crate) struct Shadow {
    inodes: PathBuf,
    files: HashMap<FileKey, Inode>,
    /// Shadow inodes without a visible name, kept while a waiting entry needs them.
    nameless: Vec<u64>,
    tree: Tree,
    next_serial: u64,
    counts: Counts,
    report: Option<File>,
    leak: Option<Leak>,
}

impl Shadow {
    /// Makes the shadow at `store` anew: everything in `visible` now is durable.
    pub(crate) fn create(visible: &Path, store: &Path) -> io::Result<Self> {
        // It gets its name when it is complete: a kill may come before that.
        let making = store.with_added_extension("making");
        for stale in [store, &making] {
            if stale.exists() {
                fs::remove_dir_all(stale)?;
            }
        }
        fs::create_dir_all(making.join("tree"))?;
        fs::create_dir_all(making.join("inodes"))?;
        let mut shadow = Self {
            tree: Tree::new(&making),
            inodes: making.join("inodes"),
            files: HashMap::new(),
            nameless: Vec::new(),
            next_serial: 1,
            counts: Counts::default(),
            report: None,
            leak: None,
        };
        shadow.adopt(visible, Path::new(""))?;
        shadow.tree.sync_all()?;
        fs::rename(&making, store)?;
        shadow.tree = Tree::new(store);
        shadow.inodes = store.join("inodes");
        Ok(shadow)
    }

    /// Counts go to this file from now on.
    pub(crate) fn report_to(&mut self, path: &Path) -> io::Result<()> {
        self.report = Some(File::create(path)?);
        self.refresh_report()
    }

    /// Lets some unsynced bytes through from now on.
    pub(crate) fn leak(&mut self, seed: u64) {
        self.leak = Some(Leak::new(seed));
    }

    fn adopt(&mut self, visible: &Path, folder: &Path) -> io::Result<()> {
        for entry in fs::read_dir(visible.join(folder))? {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            let kind = entry.file_type()?;
            if kind.is_dir() {
                self.tree.note(Entry::CreateDir { path: path.clone() });
                self.adopt(visible, &path)?;
            } else if kind.is_file() {
                let file = File::open(entry.path())?;
                let key = FileKey::of(&file)?;
                self.opened(key, &path, || Ok(file))?;
                let size = entry.metadata()?.len();
                self.wrote(key, 0, size)?;
                self.sync_file(key)?;
            }
        }
        self.counts = Counts::default();
        Ok(())
    }

    /// A file was opened. One that is not known yet has just been created; `visible` then gives a
    /// descriptor to read it with.
    pub(crate) fn opened(
        &mut self,
        key: FileKey,
        path: &Path,
        visible: impl FnOnce() -> io::Result<File>,
    ) -> io::Result<()> {
        if self.files.contains_key(&key) {
            return Ok(());
        }
        let serial = self.next_serial;
        self.next_serial += 1;
        let durable = File::create_new(inode_path(&self.inodes, serial))?;
        self.files.insert(
            key,
            Inode {
                serial,
                visible: visible()?,
                durable,
                durable_len: 0,
                dirty: Vec::new(),
                len_min: 0,
                resized: false,
            },
        );
        self.tree.note(Entry::Create { path: path.to_path_buf(), serial });
        Ok(())
    }

    /// Whether this file is one of the visible folder's.
    pub(crate) fn knows(&self, key: FileKey) -> bool {
        self.files.contains_key(&key)
    }

    /// Bytes from `start` to `end` were written.
    pub(crate) fn wrote(&mut self, key: FileKey, start: u64, end: u64) -> io::Result<()> {
        let Some(inode) = self.files.get_mut(&key) else { return Ok(()) };
        self.counts.writes += 1;
        self.counts.written_bytes += end - start;
        match inode.dirty.last_mut() {
            Some(last) if last.1 == start => last.1 = end,
            _ => inode.dirty.push((start, end)),
        }
        if inode.dirty.len() > RANGES_MAX {
            inode.dirty = merged(std::mem::take(&mut inode.dirty));
        }
        let durable_len = inode.durable_len.min(inode.len_min);
        let part = self.leak.as_mut().and_then(|leak| leak.part(start, end, durable_len));
        if let Some((from, to)) = part {
            self.counts.leaked_bytes += inode.copy(from, to)?;
        }
        // A process that never syncs has a report too.
        if self.counts.writes.is_power_of_two() { self.refresh_report() } else { Ok(()) }
    }

    /// The size was set to `len`, by truncation or by allocation.
    pub(crate) fn resized(&mut self, key: FileKey, len: u64) {
        if let Some(inode) = self.files.get_mut(&key) {
            inode.len_min = inode.len_min.min(len);
            inode.resized = true;
        }
    }

    /// The file was synced: its bytes and its size are durable now.
    pub(crate) fn sync_file(&mut self, key: FileKey) -> io::Result<()> {
        let Some(inode) = self.files.get_mut(&key) else { return Ok(()) };
        self.counts.file_syncs += 1;
        self.counts.synced_bytes += inode.settle()?;
        self.refresh_report()
    }

    /// The file's sync failed: what it should have made durable never will be.
    pub(crate) fn lose_unsynced(&mut self, key: FileKey) {
        if let Some(inode) = self.files.get_mut(&key) {
            inode.dirty.clear();
        }
    }

    /// A directory changed.
    pub(crate) fn changed(&mut self, entry: Entry) {
        self.tree.note(entry);
    }

    /// A file lost its last visible name, by unlink or by a rename over it.
    pub(crate) fn nameless(&mut self, key: FileKey) {
        if let Some(inode) = self.files.remove(&key) {
            self.nameless.push(inode.serial);
        }
    }

    /// The directory was synced: its entries are durable now.
    pub(crate) fn sync_dir(&mut self, folder: &Path) -> io::Result<()> {
        self.counts.dir_syncs += 1;
        self.counts.entries += self.tree.sync(folder)?;
        self.forget_nameless()?;
        self.refresh_report()
    }

    /// Everything is durable now.
    pub(crate) fn sync_all(&mut self) -> io::Result<()> {
        let keys: Vec<FileKey> = self.files.keys().copied().collect();
        for key in keys {
            self.sync_file(key)?;
        }
        self.counts.entries += self.tree.sync_all()?;
        self.forget_nameless()?;
        self.refresh_report()
    }

    fn forget_nameless(&mut self) -> io::Result<()> {
        let (kept, gone) = self.nameless.drain(..).partition(|serial| self.tree.awaits(*serial));
        self.nameless = kept;
        let gone: Vec<u64> = gone;
        gone.into_iter().try_for_each(|serial| fs::remove_file(inode_path(&self.inodes, serial)))
    }

    /// Counts an event that has no other effect; the report shows it at once.
    pub(crate) fn count(&mut self, happened: impl FnOnce(&mut Counts)) -> io::Result<()> {
        happened(&mut self.counts);
        self.refresh_report()
    }

    fn refresh_report(&self) -> io::Result<()> {
        match &self.report {
            Some(file) => file.write_all_at(self.counts.report().as_bytes(), 0),
            None => Ok(()),
        }
    }
}

impl Inode {
    /// Copies what is dirty; returns the number of bytes copied.
    fn settle(&mut self) -> io::Result<u64> {
        if self.dirty.is_empty() && !self.resized {
            return Ok(0);
        }
        let len = self.visible.metadata()?.len();
        let keep = self.len_min.min(len);
        if keep < self.durable_len {
            self.durable.set_len(keep)?;
        }
        let mut copied = 0;
        for (start, end) in merged(std::mem::take(&mut self.dirty)) {
            copied += self.copy(start, end.min(len))?;
        }
        self.durable.set_len(len)?;
        self.durable_len = len;
        self.len_min = len;
        self.resized = false;
        Ok(copied)
    }

    fn copy(&self, start: u64, end: u64) -> io::Result<u64> {
        let mut buffer = vec![0; COPY_BYTES.min(end.saturating_sub(start) as usize)];
        let mut at = start;
        while at < end {
            let want = buffer.len().min((end - at) as usize);
            let n = self.visible.read_at(&mut buffer[..want], at)?;
            if n == 0 {
                break;
            }
            self.durable.write_all_at(&buffer[..n], at)?;
            at += n as u64;
        }
        Ok(at - start.min(at))
    }
}

fn merged(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    let mut out: Vec<(u64, u64)> = Vec::with_capacity(ranges.len());
    for (start, end) in ranges {
        match out.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => out.push((start, end)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_are_one() {
        assert_eq!(merged(vec![(8, 9), (0, 4), (4, 6), (1, 2)]), vec![(0, 6), (8, 9)]);
    }

    #[test]
    fn a_range_shrunk_away_and_grown_again_is_zero_in_the_shadow() {
        let dir = tempfile::tempdir().unwrap();
        let (data, store) = (dir.path().join("data"), dir.path().join("shadow"));
        fs::create_dir(&data).unwrap();
        fs::write(data.join("a"), b"0123456789").unwrap();
        let mut shadow = Shadow::create(&data, &store).unwrap();
        assert_eq!(fs::read(store.join("tree/a")).unwrap(), b"0123456789");

        let file = File::options().write(true).open(data.join("a")).unwrap();
        let key = FileKey::of(&file).unwrap();
        file.set_len(4).unwrap();
        shadow.resized(key, 4);
        file.write_all_at(b"z", 8).unwrap();
        shadow.wrote(key, 8, 9).unwrap();
        assert_eq!(fs::read(store.join("tree/a")).unwrap(), b"0123456789");
        shadow.sync_file(key).unwrap();
        assert_eq!(fs::read(store.join("tree/a")).unwrap(), b"0123\0\0\0\0z");
        assert_eq!(shadow.counts.written_bytes, 1);
    }

    #[test]
    fn a_leak_reaches_the_shadow_without_a_sync() {
        let dir = tempfile::tempdir().unwrap();
        let (data, store) = (dir.path().join("data"), dir.path().join("shadow"));
        fs::create_dir(&data).unwrap();
        fs::write(data.join("a"), vec![b'-'; 4_096]).unwrap();
        let mut shadow = Shadow::create(&data, &store).unwrap();
        shadow.leak(1);
        let file = File::options().write(true).open(data.join("a")).unwrap();
        let key = FileKey::of(&file).unwrap();
        for _ in 0..20 {
            file.write_all_at(&[b'x'; 4_096], 0).unwrap();
            shadow.wrote(key, 0, 4_096).unwrap();
        }
        assert!(shadow.counts.leaked_bytes > 0);
        assert!(fs::read(store.join("tree/a")).unwrap().contains(&b'x'));
    }
}
