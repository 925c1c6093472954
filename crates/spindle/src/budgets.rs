//! How much clients may make the server hold, by the memory that it may use.

use std::{fs, path::Path};

use nix::{
    sys::resource::{RLIM_INFINITY, Resource, getrlimit},
    unistd::{SysconfVar, sysconf},
};
use spindle_budget::{BYTES_MAX, Budgets};

use crate::config::Config;

/// The budgets of a server with these settings.
pub fn budgets(config: &Config) -> Budgets {
    let usual = usual_bytes(memory_bytes());
    let bytes = |setting: Option<u64>| {
        setting.map_or(usual, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
    };
    Budgets::new(bytes(config.unfinished_input_max), bytes(config.unread_output_max))
}

/// An eighth of the memory for each of the two: a large request is in memory up to three times while
/// it is decoded and written to the log, and half of the memory is for jobs.
fn usual_bytes(memory_bytes: u64) -> usize {
    usize::try_from(memory_bytes / 8).map_or(BYTES_MAX, |eighth| eighth.min(BYTES_MAX))
}

/// The machine's memory, or less if the control group or the limits of the process say so.
fn memory_bytes() -> u64 {
    let sysconf = |name| sysconf(name).ok().flatten().and_then(|value| u64::try_from(value).ok());
    let pages = sysconf(SysconfVar::_PHYS_PAGES).zip(sysconf(SysconfVar::PAGE_SIZE));
    let machine = pages.map_or(u64::MAX, |(count, bytes)| count.saturating_mul(bytes));
    let process = getrlimit(Resource::RLIMIT_AS).map_or(RLIM_INFINITY, |(soft, _)| soft);
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    machine.min(process).min(group_bytes(Path::new("/sys/fs/cgroup"), &groups))
}

/// The least limit of the control groups that `/proc/self/cgroup` names (cgroups(7)), and of those
/// around them. In a container, the path may be that of the host: then the root is the group.
fn group_bytes(root: &Path, groups: &str) -> u64 {
    let mut least = u64::MAX;
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (root, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            _ if controllers.split(',').any(|it| it == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let group = root.join(path.trim_start_matches('/'));
        for folder in group.ancestors().take_while(|folder| folder.starts_with(&root)) {
            let limit = fs::read_to_string(folder.join(file)).unwrap_or_default();
            // A group without a limit has the word `max`, or a number larger than any memory.
            least = least.min(limit.trim().parse().unwrap_or(u64::MAX));
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_machines_hold_an_eighth_and_large_ones_256_mib() {
        assert_eq!(usual_bytes(512 << 20), 64 << 20);
        assert_eq!(usual_bytes((2 << 30) - 8), (256 << 20) - 1);
        assert_eq!(usual_bytes(2 << 30), 256 << 20);
        assert_eq!(usual_bytes(u64::MAX), 256 << 20);
    }

    #[test]
    fn the_tightest_group_around_the_process_counts() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("a/memory.max", "1000\n");
        put("a/b/memory.max", "max\n");
        put("memory/c/memory.limit_in_bytes", "700\n");
        let bytes = |groups: &str| group_bytes(root.path(), groups);
        assert_eq!(bytes("0::/a/b\n"), 1000);
        assert_eq!(bytes("0::/a/b\n5:cpu,memory:/c\n1:name=systemd:/c\n"), 700);
        assert_eq!(bytes("0::/\n"), u64::MAX);
        assert_eq!(bytes("0::/not/there\n3:memory:/no\nnonsense"), u64::MAX);
        put("memory.max", "500");
        assert_eq!(bytes("0::/host/path\n"), 500);
        assert!(memory_bytes() < u64::MAX);
    }
}
