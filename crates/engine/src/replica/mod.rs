//! What a door that keeps a copy of its jobs beside the engine asks for: which of them have changed.
//!
//! Which door that is, [`Options::copied`](crate::Options::copied) says.

mod changes;
mod slices;

pub(crate) use changes::ChangeSet;
pub use slices::{Change, Changes};
