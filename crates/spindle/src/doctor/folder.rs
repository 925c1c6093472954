//! The data folder: whose it is, whether it is locked, and whether its segments look sound.

use std::{fs, io, os::unix::fs::MetadataExt, path::Path};

use nix::unistd::{AccessFlags, access, geteuid};
use spindle_backup::is_backup;
use spindle_engine::record::{checked_parts, written_ms};
use spindle_log::{
    disk::{Disk, LockError, RealDisk},
    quick_look,
};

use super::{Findings, said};
use crate::config::Config;

/// Checks the folder. Gives the time of the newest record, in milliseconds since 1970.
pub fn check(config: &Config, findings: &mut Findings) -> Option<u64> {
    let path = &config.data;
    let shown = path.display();
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            findings.ok("folder", format!("{shown} is not there: the server makes it"));
            return None;
        }
        Err(error) => {
            let found = format!("cannot look at {shown}: {}", said(&error));
            findings.wrong("folder", found, "let the server's user into it");
            return None;
        }
    };
    if !metadata.is_dir() {
        findings.wrong("folder", format!("{shown} is no folder"), "name a folder with --data");
        return None;
    }
    if is_backup(path) {
        let advice = "make a data folder of it with `spindle restore`";
        findings.wrong("folder", format!("{shown} is a backup"), advice);
        return None;
    }
    check_owner(path, &metadata, findings);
    let disk = match RealDisk::open(path) {
        Ok(disk) => disk,
        Err(error) => {
            let found = format!("cannot open {shown}: {}", said(&error));
            findings.wrong("folder", found, "let the server's user into it");
            return None;
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

fn check_log(disk: &RealDisk, findings: &mut Findings) -> Option<u64> {
    let look = match quick_look(disk, checked_parts) {
        Ok(look) => look,
        Err(error) => {
            findings.wrong("log", error.to_string(), "`spindle verify` says more");
            return None;
        }
    };
    if look.segments == 0 {
        findings.ok("log", "there is none yet");
        return None;
    }
    let size = format!("{} segments, {} bytes", look.segments, look.bytes);
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
    match look.wrong {
        Some((file, reason)) => {
            let advice = "stop the server, copy the folder, then: spindle verify";
            findings.wrong("log", format!("{file}: {reason}"), advice);
        }
        None => findings.ok("log", format!("{size}; `spindle verify` reads all of it")),
    }
    written_ms(&look.newest?.bytes)
}
