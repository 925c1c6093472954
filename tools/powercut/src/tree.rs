//! The durable directory entries: changes wait here until their directory is synced.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A change of a directory. Paths are relative to the visible folder.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    /// A file was created; `serial` names its shadow inode.
    Create { path: PathBuf, serial: u64 },
    /// A directory was created.
    CreateDir { path: PathBuf },
    /// A file was unlinked.
    Remove { path: PathBuf },
    /// A directory was removed.
    RemoveDir { path: PathBuf },
    /// A file was renamed, over another one perhaps.
    Rename { from: PathBuf, to: PathBuf },
}

impl Entry {
    fn folders(&self) -> Vec<&Path> {
        match self {
            Self::Create { path, .. }
            | Self::CreateDir { path }
            | Self::Remove { path }
            | Self::RemoveDir { path } => vec![folder_of(path)],
            Self::Rename { from, to } => vec![folder_of(from), folder_of(to)],
        }
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

struct Waiting {
    entry: Entry,
    synced: bool,
}

/// The shadow's directory tree and the changes that are not in it yet.
pub(crate) struct Tree {
    root: PathBuf,
    inodes: PathBuf,
    waiting: Vec<Waiting>,
}

impl Tree {
    /// The tree of a shadow folder that is there, with nothing waiting.
    pub(crate) fn new(store: &Path) -> Self {
        Self { root: store.join("tree"), inodes: store.join("inodes"), waiting: Vec::new() }
    }

    /// Notes a change that has just happened in the visible folder.
    pub(crate) fn note(&mut self, entry: Entry) {
        self.waiting.push(Waiting { entry, synced: false });
    }

    /// Makes every change of `folder` durable; returns how many changes reached the shadow.
    pub(crate) fn sync(&mut self, folder: &Path) -> io::Result<u64> {
        // A rename between two folders is one transaction, so it takes the other folder along.
        let mut folders = HashSet::from([folder.to_path_buf()]);
        loop {
            let known = folders.len();
            for waiting in self.waiting.iter().filter(|w| !w.synced) {
                let touched = waiting.entry.folders();
                if touched.iter().any(|f| folders.contains(*f)) {
                    folders.extend(touched.into_iter().map(Path::to_path_buf));
                }
            }
            if folders.len() == known {
                break;
            }
        }
        for waiting in &mut self.waiting {
            if waiting.entry.folders().iter().any(|f| folders.contains(*f)) {
                waiting.synced = true;
            }
        }
        self.apply_synced()
    }

    /// Makes every change durable.
    pub(crate) fn sync_all(&mut self) -> io::Result<u64> {
        for waiting in &mut self.waiting {
            waiting.synced = true;
        }
        self.apply_synced()
    }

    /// Whether a change that waits needs this shadow inode.
    pub(crate) fn awaits(&self, serial: u64) -> bool {
        self.waiting
            .iter()
            .any(|w| matches!(&w.entry, Entry::Create { serial: s, .. } if *s == serial))
    }

    fn apply_synced(&mut self) -> io::Result<u64> {
        // A synced change whose own folder has no durable name yet goes on waiting for that name,
        // and so does everything after it in the same folder: order within a folder is kept.
        let mut blocked: HashSet<PathBuf> = HashSet::new();
        let mut applied = 0;
        let mut left = Vec::new();
        for waiting in std::mem::take(&mut self.waiting) {
            let folders = waiting.entry.folders();
            let stuck = folders.iter().any(|f| blocked.contains(*f) || !self.root.join(f).is_dir());
            if waiting.synced && !stuck {
                self.apply(&waiting.entry)?;
                applied += 1;
            } else {
                blocked.extend(folders.into_iter().map(Path::to_path_buf));
                left.push(waiting);
            }
        }
        self.waiting = left;
        Ok(applied)
    }

    fn apply(&self, entry: &Entry) -> io::Result<()> {
        match entry {
            Entry::Create { path, serial } => {
                fs::hard_link(inode_path(&self.inodes, *serial), self.root.join(path))
            }
            Entry::CreateDir { path } => fs::create_dir(self.root.join(path)),
            Entry::Remove { path } => absent_is_fine(fs::remove_file(self.root.join(path))),
            // What was below it and is not durably gone goes with it.
            Entry::RemoveDir { path } => absent_is_fine(fs::remove_dir_all(self.root.join(path))),
            Entry::Rename { from, to } => fs::rename(self.root.join(from), self.root.join(to)),
        }
    }
}

/// Where the shadow inode `serial` lives.
pub(crate) fn inode_path(inodes: &Path, serial: u64) -> PathBuf {
    inodes.join(serial.to_string())
}

fn absent_is_fine(outcome: io::Result<()>) -> io::Result<()> {
    match outcome {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
