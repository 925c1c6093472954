//! All gates in one go.

mod gearman;
mod heavy;
mod http;
mod jobq;
mod lists;
mod plain;
mod polls;
mod session;

pub(crate) use session::run;
