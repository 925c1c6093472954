//! The data folder: whose it is, whether it is locked, and whether its segments look sound.

use std::{fs, io, os::unix::fs::MetadataExt, path::Path, thread, time::Duration};

use nix::unistd::{AccessFlags, access, geteuid};
use spindle_backup::is_backup;
use spindle_engine::record::{checked_parts, written_ms};
use spindle_log::{
    OpenError,
    disk::{Disk, LockError, RealDisk},
    quick_look,
};

use super::{Findings, NO_START, said};
use crate::config::Config;

/// What other checks have to know of the folder.
#[derive(Debug, Default)]
pub struct Looked {
    /// How many files the log has.
    pub segments: usize,
    /// The time of the newest record, in milliseconds since 1970.
    pub newest_ms: Option<u64>,
    /// A server works on the folder.
    pub is_live: bool,
}

/// A server that is at work can look like damage for a moment: what is wrong is looked at this often before it is said.
const LOOKS: usize = 3;
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// Checks the folder.
pub fn check(config: &Config, findings: &mut Findings) -> Looked {
    let path = &config.data;
    let shown = path.display();
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            findings.ok("folder", format!("{shown} is not there: the server makes it"));
            return Looked::default();
        }
        Err(error) => {
            let found = format!("cannot look at {shown}: {}", said(&error));
            findings.wrong("folder", found, "let the server's user into it");
            return Looked::default();
        }
    };
    if !metadata.is_dir() {
        findings.wrong("folder", format!("{shown} is no folder"), "name a folder with --data");
        return Looked::default();
    }
    if is_backup(path) {
        let advice = "make a data folder of it with `spindle restore`";
        findings.wrong("folder", format!("{shown} is a backup"), advice);
        return Looked::default();
    }
    check_owner(path, &metadata, findings);
    let disk = match RealDisk::open(path) {
        Ok(disk) => disk,
        Err(error) => {
            let found = format!("cannot open {shown}: {}", said(&error));
            findings.wrong("folder", found, "let the server's user into it");
            return Looked::default();
        }
    };
    check_log(&disk, findings)
}

fn check_owner(path: &Path, metadata: &fs::Metadata, findings: &mut Findings) {
    let shown = path.display();
    let (owner, mode) = (metadata.uid(), metadata.mode() & 0o7777);
    let mine = geteuid().as_raw();
    if mode & 0o077 != 0 {
        let advice = format!("chmod 700 {shown}: jobs may hold secrets");
        findings.warn("folder", format!("others can reach {shown} (mode {mode:04o})"), &advice);
    }
    let writable = access(path, AccessFlags::R_OK | AccessFlags::W_OK | AccessFlags::X_OK);
    if writable.is_err() {
        let found = format!("user {mine} may not write to {shown}, which is that of user {owner}");
        findings.wrong(
            "folder",
            found,
            "run this as the server's user; if it is that one, chown it",
        );
        return;
    }
    let foreign = foreign_files(path, owner);
    if let Some(file) = foreign {
        let found = format!("{} is of another user than the folder", file.display());
        let advice = format!("chown -R {owner} {shown}, as the server's user is");
        findings.wrong("folder", found, &advice);
        return;
    }
    findings.ok("folder", format!("{shown}, of user {owner}, mode {mode:04o}"));
}

/// A file that the folder's owner may not be able to write.
fn foreign_files(path: &Path, owner: u32) -> Option<std::path::PathBuf> {
    let entries = fs::read_dir(path).ok()?;
    let mut files = entries.flatten().map(|entry| entry.path());
    files.find(|file| {
        let is_foreign = fs::symlink_metadata(file).is_ok_and(|it| it.uid() != owner);
        is_foreign && file.file_name().is_none_or(|name| name != "lost+found")
    })
}

fn check_log(disk: &RealDisk, findings: &mut Findings) -> Looked {
    let mut look = quick_look(disk, checked_parts, false);
    let segments = look.segments;
    if segments == 0 {
        match look.refusal {
            Some(error) => findings.wrong("log", error.to_string(), advice(&error)),
            None => findings.ok("log", "there is none yet"),
        }
        return Looked::default();
    }
    match disk.lock() {
        Ok(_) => findings.ok("lock", "no server works on the folder"),
        Err(LockError::Held { pid: Some(pid) }) => {
            findings.ok("lock", format!("process {pid} works on the folder"));
        }
        Err(LockError::Held { pid: None }) => findings.ok("lock", "a process works on the folder"),
        Err(LockError::Failed(error)) => {
            let advice = "let the server's user write the file `lock` in the folder";
            findings.wrong("lock", said(&error), advice);
        }
    }
    for _ in 1..LOOKS {
        if look.refusal.is_none() {
            break;
        }
        thread::sleep(BETWEEN_LOOKS);
        look = quick_look(disk, checked_parts, is_live(disk));
    }
    match look.refusal {
        Some(error) => findings.wrong("log", error.to_string(), advice(&error)),
        None => {
            let (count, bytes) = (look.segments, look.bytes);
            let noun = if count == 1 { "segment" } else { "segments" };
            let found = format!("{count} {noun}, {bytes} bytes; `spindle verify` reads all of it");
            findings.ok("log", found);
        }
    }
    let newest_ms = look.newest.and_then(|newest| written_ms(&newest.bytes));
    Looked { segments, newest_ms, is_live: is_live(disk) }
}

fn advice(refusal: &OpenError) -> &'static str {
    match refusal {
        // There is no log to mend.
        OpenError::Foreign { .. } => NO_START,
        _ => {
            "the server does not start: copy the folder before you mend anything; `spindle verify` says more"
        }
    }
}

fn is_live(disk: &RealDisk) -> bool {
    matches!(disk.lock(), Err(LockError::Held { .. }))
}
