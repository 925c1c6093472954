//! Compaction: what still lives in the oldest part of the log is appended again at its end, then the
//! old part goes. No snapshots: the log never holds much more than twice what lives in it.

mod progress;
mod rounds;

pub(crate) use progress::Compactor;
