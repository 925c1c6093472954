//! Changed jobs, for a door that keeps a copy of its jobs beside the engine.
//!
//! [`Options::copied`](crate::Options::copied) names that door.

mod changes;
mod slices;

pub(crate) use changes::ChangeSet;
pub use slices::{Change, Changes};
