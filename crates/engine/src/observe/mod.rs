//! Numbers for people and for metrics. Nothing here decides anything.

mod gauges;
mod meters;
mod retention;
mod traffic;
mod workers;

pub use gauges::Gauges;
pub(crate) use meters::Meters;
pub use meters::{MeterReadings, Readings};
pub(crate) use retention::DroppedNews;
pub(crate) use traffic::Traffic;
pub use traffic::{QueueTraffic, Tally};
pub use workers::WorkerView;
pub(crate) use workers::Workers;
