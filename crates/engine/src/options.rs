//! The settings an engine starts with.

use std::sync::Arc;

use spindle_core::Defaults;
use spindle_core::job::Origin;
use spindle_core::seat::Seat;

use crate::commit::record::VERSION;
use crate::places::PlacesBoard;
use crate::spans::SpanSink;

/// Settings of an engine.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of the newest records kept in memory; older payloads are read from the log.
    pub payload_memory_bytes: usize,
    /// When more bytes than this are not durable yet, callers have to wait.
    pub undurable_bytes_max: usize,
    /// New jobs are refused while the log is this long. At least a few segments.
    pub log_bytes_max: u64,
    /// Largest payload or result.
    pub payload_bytes_max: usize,
    /// Bytes of foreground payloads and results kept in memory at once.
    pub foreground_bytes_max: usize,
    /// Bytes of pieces of results that workers have reported and not finished yet, over all jobs;
    /// above it watchers still get them, but they are not kept for the result.
    pub streamed_bytes_max: usize,
    /// Bytes of output that workers write for people, over all jobs; above it the oldest is
    /// dropped.
    pub output_bytes_max: usize,
    /// Waits at once, over all connections.
    pub waits_max: usize,
    /// Unbound leases live at least this long after a start (at most the job's TTR).
    pub grace_ms: u64,
    /// At a start the wall clock is believed up to this long after the log's last time.
    pub away_max_ms: u64,
    /// A lease is answered only when its own record is durable: a crash forgets no lease that a worker has.
    pub durable_leases: bool,
    /// Bytes appended again in one step of compaction.
    pub compaction_bytes: usize,
    /// Records go to a log that takes several at a time as long as there are places, whether or not that was found to
    /// be quicker than one at a time.
    pub always_together: bool,
    /// The door that keeps a copy of its jobs: its changes are noted, see
    /// [`Replica`](crate::Replica). If none is set, this costs nothing.
    pub copied: Option<Origin>,
    /// Defaults that protocols give to jobs that do not set a value.
    pub defaults: Defaults,
    /// Which of a cluster's logs this is; the ids of the jobs made there contain it.
    pub seat: Seat,
    /// Keys the hashes of names from outside.
    pub seed: u64,
    /// Random bytes of this process, on a log that is shared: they stand in the record that begins
    /// its epoch, so that no other process writes the same record.
    pub nonce: [u8; 16],
    /// The newest version of records that it reads; another one than the program's only in tests.
    pub format: u8,
    /// Where the places of a followed log are shown.
    pub board: PlacesBoard,
    /// Where the spans of jobs that belong to a trace go; if none is set, they cost nothing.
    pub spans: Option<Arc<dyn SpanSink>>,
    /// Switches that only the simulator turns on.
    #[doc(hidden)]
    pub faults: Faults,
}

impl Options {
    /// Whether every lease waits for its own record.
    pub(crate) fn leases_wait(&self) -> bool {
        self.durable_leases && !self.faults.lease_answered_early
    }
}

impl Default for Options {
    fn default() -> Self {
        const MIB: usize = 1 << 20;
        Options {
            payload_memory_bytes: 64 * MIB,
            undurable_bytes_max: 8 * MIB,
            log_bytes_max: u64::MAX,
            payload_bytes_max: 64 * MIB,
            foreground_bytes_max: 256 * MIB,
            streamed_bytes_max: 256 * MIB,
            output_bytes_max: 32 * MIB,
            waits_max: 100_000,
            grace_ms: 30_000,
            away_max_ms: 30 * 24 * 3600 * 1000,
            durable_leases: false,
            compaction_bytes: 256 * 1024,
            always_together: false,
            copied: None,
            defaults: Defaults::default(),
            seat: Seat::default(),
            seed: 0,
            nonce: [0; 16],
            format: VERSION,
            board: PlacesBoard::default(),
            spans: None,
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
    /// The durable position moves to a record whose answer came before that of an earlier one.
    pub acknowledged_out_of_order: bool,
    /// An answer opens the gates of all that is on its way.
    pub gate_opened_by_earlier_batch: bool,
    /// A lost answer is taken for a good one.
    pub unknown_is_committed: bool,
    /// A leader of a shared log answers whether it holds the lease or not.
    pub lease_unchecked: bool,
    /// A new leader does not wait until its epoch record is committed, and is not silent.
    pub epoch_not_awaited: bool,
    /// A new leader answers while the lease of the one before it may run.
    pub silence_skipped: bool,
    /// An append that is tried again proves the time of the later try.
    pub later_try_proves: bool,
    /// What a deposed leader has appended behind its successor's epoch record is folded.
    pub late_append_taken: bool,
    /// Old records go before the images that replace them are committed.
    pub trim_before_commit: bool,
    /// "Duplicate" is answered before the job it speaks of is durable.
    pub duplicate_answered_early: bool,
    /// A lease is answered before its own record is durable, though leases should wait for it.
    pub lease_answered_early: bool,
    /// A lease is answered before its own record is durable where it must not be forgotten.
    pub lease_not_awaited: bool,
    /// Any clock is believed.
    pub clock_believed: bool,
    /// Time that is set forward counts for leases.
    pub leases_set_forward: bool,
    /// A start forgets which keys are taken.
    pub keys_forgotten: bool,
    /// A start forgets when unfinished jobs expire.
    pub expiry_forgotten: bool,
    /// A start forgets when schedules fire.
    pub schedules_forgotten: bool,
    /// A start forgets which jobs wait for which.
    pub flows_forgotten: bool,
    /// The planted faults of the core.
    pub core: spindle_core::state::Faults,
}
