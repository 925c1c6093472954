//! The settings an engine starts with.

use spindle_core::Defaults;
use spindle_core::job::Origin;

/// Settings of an engine.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of the newest records kept in memory; older payloads are read from the log.
    pub payload_memory_bytes: usize,
    /// Over this many bytes that are not durable yet, callers have to wait.
    pub undurable_bytes_max: usize,
    /// Largest payload or result.
    pub payload_bytes_max: usize,
    /// Bytes of foreground payloads and results kept in memory at once.
    pub foreground_bytes_max: usize,
    /// Bytes of pieces of results that workers have reported and not finished yet, over all jobs;
    /// above it watchers still get them, but they are not kept for the result.
    pub streamed_bytes_max: usize,
    /// Waits at once, over all connections.
    pub waits_max: usize,
    /// Unbound leases live at least this long after a start (at most the job's TTR).
    pub grace_ms: u64,
    /// At a start the wall clock is believed up to this long after the log's last time.
    pub away_max_ms: u64,
    /// Bytes appended again in one step of compaction.
    pub compaction_bytes: usize,
    /// The door that keeps a copy of its jobs: its changes are noted, see
    /// [`Replica`](crate::Replica). None costs nothing.
    pub copied: Option<Origin>,
    /// What protocols give jobs that say nothing themselves.
    pub defaults: Defaults,
    /// Keys the hashes of names from outside.
    pub seed: u64,
    /// Switches that only the simulator turns on.
    #[doc(hidden)]
    pub faults: Faults,
}

impl Default for Options {
    fn default() -> Self {
        const MIB: usize = 1 << 20;
        Options {
            payload_memory_bytes: 64 * MIB,
            undurable_bytes_max: 8 * MIB,
            payload_bytes_max: 64 * MIB,
            foreground_bytes_max: 256 * MIB,
            streamed_bytes_max: 256 * MIB,
            waits_max: 100_000,
            grace_ms: 30_000,
            away_max_ms: 30 * 24 * 3600 * 1000,
            compaction_bytes: 256 * 1024,
            copied: None,
            defaults: Defaults::default(),
            seed: 0,
            faults: Faults::default(),
        }
    }
}

/// Planted faults, to prove that the simulator finds them.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Answers leave when their record is written, before it is synced.
    pub answer_before_sync: bool,
    /// Old records go before the images that replace them are committed.
    pub trim_before_commit: bool,
    /// "Duplicate" is answered before the job it speaks of is durable.
    pub duplicate_answered_early: bool,
    /// What a lease decides is not waited for where it must not be forgotten.
    pub lease_not_awaited: bool,
    /// A start forgets which keys are taken.
    pub keys_forgotten: bool,
    /// A start forgets when unfinished jobs expire.
    pub expiry_forgotten: bool,
    /// Those of the core.
    pub core: spindle_core::state::Faults,
}
