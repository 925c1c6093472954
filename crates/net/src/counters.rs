//! Counters of the TCP server, for metrics.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Counts since the start, and the connections open now. They are statistics: any memory ordering
/// will do to read them.
#[derive(Debug, Default)]
pub struct NetCounters {
    /// Connections accepted since the start.
    pub accepted: AtomicU64,
    /// Connections closed at once because the server was full.
    pub refused: AtomicU64,
    /// Sockets open now, over all doors, including those that only wait for their client to read
    /// the last answer.
    pub open: AtomicUsize,
    /// Reads that brought bytes. Against requests, they show how well pipelining works.
    pub reads: AtomicU64,
    /// Writes that sent bytes. Against answers, they show how well batching works.
    pub writes: AtomicU64,
    /// Bytes read from the sockets, encrypted ones as they came.
    pub bytes_in: AtomicU64,
    /// Bytes written to the sockets.
    pub bytes_out: AtomicU64,
}

/// Bytes and calls of one turn, added to the shared counters once per turn.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    reads: u64,
    writes: u64,
    bytes_in: u64,
    bytes_out: u64,
}

impl Traffic {
    pub(crate) fn note_read(&mut self, count: usize) {
        self.reads += 1;
        self.bytes_in += count as u64;
    }

    pub(crate) fn note_write(&mut self, count: usize) {
        self.writes += 1;
        self.bytes_out += count as u64;
    }

    pub(crate) fn publish(&mut self, counters: &NetCounters) {
        if self.reads > 0 {
            counters.reads.fetch_add(self.reads, Ordering::Relaxed);
            counters.bytes_in.fetch_add(self.bytes_in, Ordering::Relaxed);
        }
        if self.writes > 0 {
            counters.writes.fetch_add(self.writes, Ordering::Relaxed);
            counters.bytes_out.fetch_add(self.bytes_out, Ordering::Relaxed);
        }
        *self = Traffic::default();
    }
}
