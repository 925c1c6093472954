//! A slower disk for a process, by the system's control groups; needs root.

use anyhow::{Context, Result, bail};
use std::fmt::Display;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const FIRST: &str = "/sys/fs/cgroup/blkio";
const SECOND: &str = "/sys/fs/cgroup";

/// Limits the bytes per second that a process can write to the disk that this folder is on, until
/// the process ends.
pub(super) fn limit(process: impl Display, folder: &Path, bytes_per_s: u64) -> Result<()> {
    let (disk, name) = (disk_of(folder)?, format!("spindle-bench-{process}"));
    let (first, second) = (Path::new(FIRST), Path::new(SECOND));
    let (group, file, text) = if first.join("cgroup.procs").exists() {
        let text = format!("{disk} {bytes_per_s}");
        (first.join(name), "blkio.throttle.write_bps_device", text)
    } else if second.join("cgroup.controllers").exists() {
        (second.join(name), "io.max", format!("{disk} wbps={bytes_per_s}"))
    } else {
        bail!("there are no control groups to slow a process down with");
    };
    fs::create_dir_all(&group).with_context(|| format!("cannot make {}", group.display()))?;
    for (file, text) in [(file, text), ("cgroup.procs", process.to_string())] {
        let path = group.join(file);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// The numbers of the whole disk that a folder is on, as `254:0`.
fn disk_of(folder: &Path) -> Result<String> {
    let device = fs::metadata(folder).with_context(|| folder.display().to_string())?.dev();
    let (major, minor) = (nix::sys::stat::major(device), nix::sys::stat::minor(device));
    let block = Path::new("/sys/dev/block").join(format!("{major}:{minor}"));
    // A partition's folder in sysfs is inside that of its disk.
    let numbers = if block.join("partition").exists() { "../dev" } else { "dev" };
    let path = fs::canonicalize(&block)
        .with_context(|| format!("{} is on no disk", folder.display()))?
        .join(numbers);
    Ok(fs::read_to_string(&path).with_context(|| path.display().to_string())?.trim().to_owned())
}
