//! What the street counts, for metrics.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Counts since the start, and the connections open now. Read them with any ordering; they are
/// statistics.
#[derive(Debug, Default)]
pub struct NetCounters {
    /// Connections taken up, ever.
    pub accepted: AtomicU64,
    /// Connections closed at once because the server was full.
    pub refused: AtomicU64,
    /// Sockets open now, over all doors, those included that only wait for their client to read
    /// the last answer.
    pub open: AtomicUsize,
    /// Bytes read.
    pub bytes_in: AtomicU64,
    /// Bytes written.
    pub bytes_out: AtomicU64,
}

/// Bytes of one turn, added to the shared counters once per turn.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
}

impl Traffic {
    pub(crate) fn publish(&mut self, counters: &NetCounters) {
        if self.bytes_in > 0 {
            counters.bytes_in.fetch_add(self.bytes_in, Ordering::Relaxed);
        }
        if self.bytes_out > 0 {
            counters.bytes_out.fetch_add(self.bytes_out, Ordering::Relaxed);
        }
        *self = Traffic::default();
    }
}
