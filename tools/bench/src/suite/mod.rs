//! All gates in one go.

mod heavy;
mod plain;
mod session;

pub(crate) use session::run;
