//! Jobs that wait for others.

/// A job waits for at most this many others.
pub const AFTER_MAX: usize = 100;

/// What becomes of a job when one that it waits for ends without being done. That one is then dead
/// (a cancelled job is dead too), or gone by a deletion, its TTL or a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, prost::Enumeration)]
#[repr(i32)]
pub enum OnDead {
    /// It is cancelled.
    Cancel = 0,
    /// It runs all the same: it waits for their end only.
    Run = 1,
    /// It goes on waiting for a dead job, which may be retried. A job that is gone cannot be waited
    /// for: then it is cancelled.
    Wait = 2,
}

impl OnDead {
    /// All, in the order of their numbers.
    pub const ALL: [OnDead; 3] = [OnDead::Cancel, OnDead::Run, OnDead::Wait];
}

/// Which jobs a job waits for, or waited for.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct After {
    /// All of them, ascending, each once.
    #[prost(uint64, repeated, tag = "1")]
    pub jobs: Vec<u64>,
    /// What happens when one of them ends without being done.
    #[prost(enumeration = "OnDead", tag = "2")]
    pub on_dead: i32,
    /// Those that it still waits for, ascending. None once it has finished.
    #[prost(uint64, repeated, tag = "3")]
    pub open: Vec<u64>,
    /// The job by whose end it would have been cancelled if it had not been deleted then; 0 if
    /// there is none. It is cancelled if its deletion is undone.
    #[prost(uint64, tag = "4")]
    pub cancelled_by: u64,
}
