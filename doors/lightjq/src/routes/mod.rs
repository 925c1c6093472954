//! What the routes do: requests turned into calls of the engine.

pub(crate) mod constraints;
pub(crate) mod done;
pub(crate) mod jobs;
pub(crate) mod polling;
pub(crate) mod schema;
pub(crate) mod shown;
pub(crate) mod workers;
