//! Numbers for people and for metrics. Nothing here decides anything.
//!
//! [`numbers`] and [`footprint`] follow the events behind the lock; [`gauges`] reads them.

mod failures;
mod fingerprint;
mod footprint;
mod gauges;
mod job_spans;
mod meters;
mod numbers;
mod retention;
mod stats;
mod traffic;
mod workers;

pub use failures::FailedAttempts;
pub use fingerprint::{FINGERPRINT_CHARS_MAX, failure_words, fingerprint_of};
pub(crate) use footprint::Footprint;
pub use gauges::Gauges;
pub(crate) use meters::Meters;
pub use meters::{MeterReadings, Readings};
pub(crate) use numbers::Numbers;
pub use stats::Stats;
pub use traffic::{QueueTraffic, Tally};
pub use workers::WorkerView;
