//! The commands for people: they talk to a server through its HTTP door, or its Workq door.
//!
//! - `dispatch`: which command does what
//! - `server`, `session`, `view`: what commands ask of a server, whichever door they go through, and
//!   what it tells; `workq` and `web` are the two doors, `line` the connection below, `lost` why a
//!   worker has its job no more
//! - `native`: what only the native API can do
//! - `add`, `lines`, `results`, `inspect`, `work`: jobs and workers
//! - `bulk`, `change`, `constraint`, `queue`, `events`, `why`, `workers`, `clock`: for who looks after
//!   a server
//! - `payload`, `progress`, `when`, `backoff`: what is read, what is shown meanwhile, times, pauses

mod add;
mod backoff;
mod bulk;
mod change;
mod clock;
mod constraint;
mod dispatch;
mod events;
mod inspect;
mod line;
mod lines;
mod lost;
mod native;
mod payload;
mod progress;
mod queue;
mod results;
mod server;
mod session;
mod view;
mod web;
mod when;
mod why;
mod work;
mod workers;
mod workq;

pub use dispatch::run;
