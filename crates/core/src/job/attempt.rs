//! Leases and attempts: the one under way, those that have ended, and why.

use bytes::Bytes;

use super::Origin;

/// A lease that somebody holds.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct HeldLease {
    /// The epoch it was given in; with the job's attempt count it is the lease's token.
    #[prost(uint64, tag = "1")]
    pub epoch: u64,
    /// The connection or registered worker that holds it; only meaningful in its epoch.
    #[prost(uint64, tag = "2")]
    pub holder: u64,
    /// Whether it ends with the holder's connection.
    #[prost(bool, tag = "3")]
    pub bound: bool,
    /// When it runs out.
    #[prost(fixed64, optional, tag = "4")]
    pub deadline_ms: Option<u64>,
    /// When it was given.
    #[prost(fixed64, tag = "5")]
    pub started_ms: u64,
    /// The holder's door, which decides how the lease ends.
    #[prost(enumeration = "Origin", tag = "6")]
    pub door: i32,
    /// The worker's name, as far as its door has one.
    #[prost(bytes = "bytes", tag = "7")]
    pub worker: Bytes,
}

/// One past attempt.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Attempt {
    /// Its number, from 1.
    #[prost(uint32, tag = "1")]
    pub attempt: u32,
    /// When it began.
    #[prost(fixed64, tag = "2")]
    pub started_ms: u64,
    /// When it ended.
    #[prost(fixed64, tag = "3")]
    pub ended_ms: u64,
    /// How it ended.
    #[prost(enumeration = "Cause", tag = "4")]
    pub cause: i32,
    /// The holder's door.
    #[prost(enumeration = "Origin", tag = "5")]
    pub door: i32,
    /// The worker's name.
    #[prost(bytes = "bytes", tag = "6")]
    pub worker: Bytes,
    /// What its worker reported when it failed.
    #[prost(message, optional, boxed, tag = "7")]
    pub words: Option<Box<Words>>,
}

/// The texts of a failed attempt, cut short: a job has up to 32 attempts in memory and in each of
/// its images. The job's outcome has the texts of the last failure in full.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Words {
    /// The beginning of the message.
    #[prost(bytes = "bytes", tag = "1")]
    pub message: Bytes,
    /// The beginning of the error. A MessagePack value is kept whole or not at all.
    #[prost(bytes = "bytes", tag = "2")]
    pub error: Bytes,
    /// The beginning of the code.
    #[prost(bytes = "bytes", tag = "3")]
    pub code: Bytes,
}

/// How many bytes of a failed attempt's message are kept.
pub const MESSAGE_BYTES_KEPT: usize = 256;
/// How many bytes of a failed attempt's error are kept.
pub const ERROR_BYTES_KEPT: usize = 256;
/// How many bytes of a failed attempt's code are kept.
pub const CODE_BYTES_KEPT: usize = 64;

/// A job keeps this many of its first attempts, and as many of its last.
pub const ATTEMPTS_KEPT: usize = 16;

/// Why a lease ended, or why a job is gone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, prost::Enumeration)]
#[repr(i32)]
pub enum Cause {
    /// The worker completed it.
    Completed = 0,
    /// The worker failed it.
    Failed = 1,
    /// The lease's deadline passed.
    Timeout = 2,
    /// The holder's connection closed.
    HolderGone = 3,
    /// The worker gave it back on its own.
    Released = 4,
    /// The lease never left the server: the attempt is given back.
    Undone = 5,
    /// The server restarted.
    Restarted = 6,
    /// A person cancelled it.
    Cancelled = 7,
    /// A person deleted it.
    Deleted = 8,
    /// Its TTL or its retention passed.
    Expired = 9,
    /// Its result was read and is kept no longer.
    Consumed = 10,
    /// A named limit dropped it.
    Limit = 11,
    /// A foreground job that no client waits for any more.
    Abandoned = 12,
    /// Its payload failed its checksum.
    Damaged = 13,
}
