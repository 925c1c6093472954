//! Reads: jobs and their payloads, lists, scans, counts, and the feed of events.
//!
//! A read takes the lock for a short and bounded time, copies what it needs, and fetches payloads
//! and finished jobs from the log without it. Its answer carries the gate of what it reveals.

mod feed;
mod jobs;
mod listing;
mod preview;
mod scan;
mod survey;

pub(crate) use feed::is_in_feed;
pub use feed::{FeedError, FeedEvent, FeedId, FeedIdError, FeedPage};
pub use jobs::{FetchError, JobRef};
pub use listing::{JobLine, QueueLine};
pub use scan::{ScanPage, ScannedJob};
pub use survey::{Counts, Survey};
