//! What the engine tells those who waited.

use std::sync::Arc;

use bytes::Bytes;
use spindle_core::{BytesRef, JobId, JobImage};

/// A deferred answer.
#[derive(Clone, Debug)]
pub enum Answer {
    /// A job was leased to the one who waited.
    Leased(Box<LeasedJob>),
    /// The job is done or dead; its outcome is in the image.
    Finished(Arc<JobImage>),
    /// The job went away without a result: deleted, or its TTL passed.
    Gone(JobId),
    /// The wait ran out.
    TimedOut,
    /// The log has room again for what was refused as busy.
    Room,
    /// The feed has something newer.
    FeedMoved,
}

/// A lease that was given.
#[derive(Clone, Debug)]
pub struct LeasedJob {
    /// The job.
    pub id: JobId,
    /// Workq's name for it.
    pub uuid: Option<[u8; 16]>,
    /// Its queue.
    pub queue: Bytes,
    /// Where its payload is; [`crate::Engine::bytes`] fetches it.
    pub payload: BytesRef,
    /// How long the lease lasts, if it ends by itself.
    pub length_ms: Option<u64>,
    /// The epoch, first half of the token.
    pub epoch: u64,
    /// The attempt, second half of the token.
    pub attempt: u32,
    /// Its names besides Workq's.
    pub keys: Vec<spindle_core::job::Key>,
}
