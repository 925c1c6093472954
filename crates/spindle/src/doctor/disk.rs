//! How much room the disk has, and how fast it makes a write durable, which every commit waits for.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process,
    time::{Duration, Instant},
};

use nix::{fcntl::OFlag, sys::statvfs::statvfs};
use spindle_log::Room;

use super::{Findings, said};
use crate::config::Config;

/// The limits of the measurement, in time and in writes.
const MEASURE_FOR: Duration = Duration::from_secs(1);
const WRITES_MAX: usize = 500;
/// One write: a small commit.
const WRITE_BYTES: usize = 4096;
/// If a disk's slowest syncs take longer, clients that submit jobs notice it.
const SLOW: Duration = Duration::from_millis(50);

/// Checks the disk that the data folder is on, or will be.
pub fn check(config: &Config, findings: &mut Findings) {
    let Some(folder) = nearest(&config.data) else { return };
    check_room(&folder, config, findings);
    match measure(&folder) {
        Ok(times) => judge_speed(times, findings),
        Err(error) => {
            let found = format!("cannot write to {}: {}", folder.display(), said(&error));
            findings.wrong("disk-speed", found, "let the server's user write there, or make room");
        }
    }
}

/// Judges how long durable writes took.
fn judge_speed(mut times: Vec<Duration>, findings: &mut Findings) {
    times.sort_unstable();
    let Some(last) = times.len().checked_sub(1) else { return };
    let at = |share: usize| times[last * share / 100];
    let (half, slow) = (at(50), at(99));
    let found = format!(
        "a write of 4 KiB is durable after {} (half of them), {} (99 of 100)",
        shown(half),
        shown(slow)
    );
    if slow > SLOW {
        let advice = "nothing is acknowledged faster: a local SSD, fewer neighbours, or \
                      --sync interval:10ms if the last ones may be lost";
        findings.warn("disk-speed", found, advice);
    } else {
        findings.ok("disk-speed", found);
    }
}

/// The folder, or the one above it that is there.
fn nearest(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    path.ancestors().find(|folder| folder.is_dir()).map(Path::to_owned)
}

fn check_room(folder: &Path, config: &Config, findings: &mut Findings) {
    let Ok(Room { free_bytes: free, .. }) = Room::at(folder) else { return };
    let taken: u64 = fs::read_dir(&config.data)
        .map(|entries| {
            entries.flatten().filter_map(|it| it.metadata().ok()).map(|it| it.len()).sum()
        })
        .unwrap_or(0);
    let found = format!("{} MiB are free, the data takes {} MiB", free >> 20, taken >> 20);
    let advice = "make room: the server refuses jobs when it can prepare no segment";
    if free < 2 * config.segment_bytes {
        findings.wrong("disk-room", found, advice);
    } else if free < taken {
        let advice = "make room for as much again: compaction writes before it drops";
        findings.warn("disk-room", found, advice);
    } else {
        findings.ok("disk-room", found);
    }
    let inodes = statvfs(folder);
    if inodes.is_ok_and(|room| room.files_available() == 0 && room.files() > 0) {
        findings.wrong("disk-room", "the file system has no inode left", "remove small files");
    }
}

/// How long each of some durable writes takes. The file has no name, or loses it at once.
fn measure(folder: &Path) -> io::Result<Vec<Duration>> {
    let file = nameless(folder)?;
    // Like the log, it writes into space that is allocated already.
    file.write_all_at(&vec![0; WRITE_BYTES * WRITES_MAX], 0)?;
    file.sync_all()?;
    let block = [0x5a; WRITE_BYTES];
    let (begun, mut times) = (Instant::now(), Vec::new());
    while times.len() < WRITES_MAX && begun.elapsed() < MEASURE_FOR {
        let at = Instant::now();
        file.write_all_at(&block, (times.len() * WRITE_BYTES) as u64)?;
        file.sync_data()?;
        times.push(at.elapsed());
    }
    Ok(times)
}

fn nameless(folder: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    let without = options.clone().custom_flags(OFlag::O_TMPFILE.bits()).open(folder);
    if without.is_ok() {
        return without;
    }
    // Not every file system has nameless files.
    let path = folder.join(format!("doctor-{}.tmp", process::id()));
    let file = options.create_new(true).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

fn shown(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn a_disk_is_slow_by_its_slowest_syncs() {
        let ms = Duration::from_millis;
        let judged = |slow: &[Duration]| {
            let quick = (1..=101 - slow.len() as u64).map(|number| ms(number) / 100);
            let mut findings = Findings::default();
            judge_speed(slow.iter().copied().chain(quick).collect(), &mut findings);
            let [finding] = &findings.0[..] else { panic!("{}", findings.0.len()) };
            (finding.verdict, finding.found.clone())
        };
        // Of 101 writes, the slowest is left out.
        let (verdict, found) = judged(&[ms(900)]);
        assert_eq!(verdict, Verdict::Ok);
        assert!(found.contains("0.51 ms (half of them), 1.00 ms (99 of 100)"), "{found}");
        assert_eq!(judged(&[ms(900), SLOW]).0, Verdict::Ok);
        let (verdict, found) = judged(&[ms(900), SLOW + ms(1)]);
        assert_eq!(verdict, Verdict::Warning);
        assert!(found.contains("51.00 ms (99 of 100)"), "{found}");
        let mut none = Findings::default();
        judge_speed(Vec::new(), &mut none);
        assert!(none.0.is_empty());
    }
}
