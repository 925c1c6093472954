//! The facts about the machine that every figure depends on.

use anyhow::{Context, Result};
use serde::Serialize;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::stats::Latencies;

/// How many blocks are written and synced to measure the cost of a sync.
const SYNC_PROBES: u64 = 2_000;
const PROBE_TIME_MAX: Duration = Duration::from_secs(3);
const BLOCK_BYTES: usize = 4096;
/// The disk counts as unsettled while syncs take this many times as long as before.
const UNSETTLED: f64 = 1.5;
const SETTLE_TIME_MAX: Duration = Duration::from_secs(30);
/// The probe goes round in a file of this many blocks, as a log does in a prepared segment.
const FILE_BLOCKS: u64 = 1024;

/// One machine, as it was when the figures were taken.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    /// Cores this process may use.
    pub(crate) cores: usize,
    /// The processor's name.
    pub(crate) processor: String,
    /// The kernel's release.
    pub(crate) kernel: String,
    /// Processes that wanted to run during the last minute.
    pub(crate) load_average: f64,
    /// Median time of a 4 KiB write and fdatasync inside a prepared file.
    pub(crate) sync_us: f64,
    /// The 99th percentile of the same.
    pub(crate) sync_p99_us: f64,
}

impl Machine {
    /// Looks at this machine, and at the disk under `dir`.
    pub(crate) fn inspect(dir: &Path) -> Result<Self> {
        let sync = sync_latencies(dir)?.percentiles().context("no sync was measured")?;
        let load_average = fs::read_to_string("/proc/loadavg")?;
        let load_average = load_average.split(' ').next().and_then(|text| text.parse().ok());
        let processors = fs::read_to_string("/proc/cpuinfo")?;
        let processor = processors.lines().find_map(|line| {
            line.strip_prefix("model name").and_then(|rest| rest.split_once(": "))
        });
        Ok(Self {
            cores: std::thread::available_parallelism()?.get(),
            processor: processor.map_or("unknown", |(_, name)| name).to_owned(),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            load_average: load_average.unwrap_or(f64::NAN),
            sync_us: sync.p50_us,
            sync_p99_us: sync.p99_us,
        })
    }

    /// Waits until syncs are about as fast as when the machine was inspected: after large files
    /// were removed, a disk is busy for a while.
    pub(crate) fn settle(&self, dir: &Path) -> Result<()> {
        let began = Instant::now();
        while began.elapsed() < SETTLE_TIME_MAX {
            let sync = sync_latencies(dir)?.percentiles().context("no sync was measured")?;
            if sync.p50_us < self.sync_us * UNSETTLED && sync.p99_us < self.sync_p99_us * UNSETTLED
            {
                return Ok(());
            }
        }
        eprintln!("the disk is slower than at first: figures may be too");
        Ok(())
    }

    /// One line for people.
    pub(crate) fn describe(&self) -> String {
        format!(
            "{} cores ({}), Linux {}, load average {:.2}, \
             fdatasync of 4 KiB {:.0} us (p99 {:.0} us)",
            self.cores,
            self.processor,
            self.kernel,
            self.load_average,
            self.sync_us,
            self.sync_p99_us
        )
    }
}

/// Times a write and a sync of one block, again and again.
fn sync_latencies(dir: &Path) -> Result<Latencies> {
    let file = tempfile::tempfile_in(dir)
        .with_context(|| format!("cannot make a file in {}", dir.display()))?;
    prepare(&file)?;
    let mut latencies = Latencies::new();
    let began = Instant::now();
    for probe in 0..SYNC_PROBES {
        let block = [probe as u8; BLOCK_BYTES];
        let before = Instant::now();
        file.write_all_at(&block, probe % FILE_BLOCKS * BLOCK_BYTES as u64)?;
        file.sync_data()?;
        latencies.record(before.elapsed());
        if began.elapsed() > PROBE_TIME_MAX {
            break;
        }
    }
    Ok(latencies)
}

/// Writes zeros all over `file` first: a sync of blocks that were only reserved pays for the
/// file system's journal too.
fn prepare(file: &File) -> Result<()> {
    for block in 0..FILE_BLOCKS {
        file.write_all_at(&[0; BLOCK_BYTES], block * BLOCK_BYTES as u64)?;
    }
    file.sync_all()?;
    Ok(())
}

/// Refuses folders in memory, where a sync costs nothing and the figures would flatter.
pub(crate) fn require_disk(dir: &Path) -> Result<()> {
    let kind = nix::sys::statfs::statfs(dir)
        .with_context(|| format!("cannot look at {}", dir.display()))?
        .filesystem_type();
    anyhow::ensure!(
        kind != nix::sys::statfs::TMPFS_MAGIC,
        "{} is in memory, where a sync costs nothing: name a folder on a disk with --dir",
        dir.display()
    );
    Ok(())
}

/// Refuses a suite that would fill the disk.
pub(crate) fn require_room(dir: &Path, bytes: u64, suite: &str) -> Result<()> {
    let disk = nix::sys::statvfs::statvfs(dir)
        .with_context(|| format!("cannot look at {}", dir.display()))?;
    let free = disk.blocks_available().saturating_mul(disk.fragment_size());
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    anyhow::ensure!(
        bytes <= free,
        "{suite} writes up to {:.1} GiB, and {} has {:.1} GiB free: free some, or name a folder on \
         another disk with --dir",
        gib(bytes),
        dir.display(),
        gib(free)
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_that_does_not_fit_on_the_disk_is_refused() {
        let dir = std::env::temp_dir();
        require_room(&dir, 0, "small").unwrap();
        let refusal = require_room(&dir, u64::MAX, "large").unwrap_err().to_string();
        assert!(refusal.starts_with("large writes up to 17179869184.0 GiB, and "), "{refusal}");
        assert!(refusal.ends_with("with --dir"), "{refusal}");
    }
}
