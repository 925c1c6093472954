//! All gates in one go.

mod gearman;
mod heavy;
mod http;
mod plain;
mod session;

pub(crate) use session::run;
