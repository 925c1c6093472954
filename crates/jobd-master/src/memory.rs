//! How much memory this process has, in the five fields of Node.js that `status` answers with.

use std::fs;

use serde::{Deserialize, Serialize};

/// `memoryUsage` of a status, in bytes. Only `rss` means the same as in the original.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryUsage {
    /// Memory that is resident.
    pub rss: u64,
    /// Data segments, resident or not.
    pub heap_total: u64,
    /// Anonymous memory that is resident.
    pub heap_used: u64,
    /// Always 0: there is no second heap here.
    pub external: u64,
    /// Always 0.
    pub array_buffers: u64,
}

impl MemoryUsage {
    /// What the system says about this process; zeroes where it says nothing.
    pub fn now() -> Self {
        Self::from_status(&fs::read_to_string("/proc/self/status").unwrap_or_default())
    }

    fn from_status(status: &str) -> Self {
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
            kib.unwrap_or(0) * 1024
        };
        Self {
            rss: bytes("VmRSS"),
            heap_total: bytes("VmData"),
            heap_used: bytes("RssAnon"),
            external: 0,
            array_buffers: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_the_systems_page() {
        let status = "Name:\tjobd\nVmRSS:\t    1234 kB\nRssAnon:\t 200 kB\nVmData:\t 9000 kB\n";
        let usage = MemoryUsage::from_status(status);
        assert_eq!((usage.rss, usage.heap_total, usage.heap_used), (1_263_616, 9_216_000, 204_800));
        assert_eq!(MemoryUsage::from_status("").rss, 0);
        assert!(MemoryUsage::now().rss > 0);
    }
}
