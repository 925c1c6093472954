//! Reads: jobs and their payloads, lists, scans, counts, and the feed of events.
//!
//! A read takes the lock for a short and bounded time, copies what it needs, and fetches payloads
//! and finished jobs from the log without it. Its answer carries the gate of what it reveals.

mod bytes;
mod explain;
mod feed;
mod flow;
mod jobs;
mod queues;
mod scan;
mod segments;
mod survey;

pub use bytes::FetchError;
pub use explain::Explanation;
pub use feed::{FeedError, FeedEvent, FeedId, FeedIdError, FeedPage};
pub use flow::{BlockerNow, FlowNode, JobFlow};
pub(crate) use jobs::retried;
pub use jobs::{JobProgress, JobRef};
pub use queues::{QueueLine, QueueView};
pub use scan::{JobLine, ScanPage, ScannedJob};
pub(crate) use survey::jobs_of;
pub use survey::{Counts, EventSummary, Survey};
