//! Compaction: live data in the oldest part of the log is appended again at its end, then the old
//! part is dropped. No snapshots: the log never holds much more than twice its live data.

mod progress;
mod rounds;

pub(crate) use progress::Compactor;
