//! Less of a processor for a process, by the system's control groups; needs root.

use anyhow::{Context, Result, bail};
use std::fmt::Display;
use std::fs;
use std::path::Path;

/// How often what a process has used is counted anew. Short, so that nothing stands still for long.
const PERIOD_US: u64 = 10_000;

/// Lets a process have so much of one processor, until it ends.
pub(super) fn limit(process: impl Display, share: f64) -> Result<()> {
    let quota_us = (PERIOD_US as f64 * share) as u64;
    let name = format!("spindle-bench-{process}");
    let (first, second) = (Path::new("/sys/fs/cgroup/cpu"), Path::new("/sys/fs/cgroup"));
    let (group, limits) = if first.join("cgroup.procs").exists() {
        let period = ("cpu.cfs_period_us", PERIOD_US.to_string());
        (first.join(name), vec![period, ("cpu.cfs_quota_us", quota_us.to_string())])
    } else if second.join("cgroup.controllers").exists() {
        (second.join(name), vec![("cpu.max", format!("{quota_us} {PERIOD_US}"))])
    } else {
        bail!("there are no control groups to slow a process down with");
    };
    fs::create_dir_all(&group).with_context(|| format!("cannot make {}", group.display()))?;
    for (file, text) in limits.into_iter().chain([("cgroup.procs", process.to_string())]) {
        let path = group.join(file);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
