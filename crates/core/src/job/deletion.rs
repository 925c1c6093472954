//! Deletions that can be undone.

/// A deletion that can be undone lasts no longer than this: a day, in milliseconds.
pub const UNDO_MS_MAX: u64 = 86_400_000;

/// What is kept of a job's deletion while it can be undone.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Deletion {
    /// When the job is gone, at the latest.
    #[prost(fixed64, tag = "1")]
    pub gone_ms: u64,
    /// The request that deleted it: the number of its entry in the audit log.
    #[prost(uint64, tag = "2")]
    pub request: u64,
    /// The job was parked before, and is so again after an undo.
    #[prost(bool, tag = "3")]
    pub was_parked: bool,
}
