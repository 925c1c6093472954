//! The commands for people: they talk to a server through its HTTP door, or its Workq door.
//!
//! - `dispatch`: which command does what
//! - `server`, `session`, `view`: the requests of commands and the answers to them, whichever door they
//!   go through; `workq` and `web` are the two doors, `lost` says why a worker lost its job
//! - `native`: what only the native API can do
//! - `add`, `lines`, `results`, `job`, `jobs`, `inspect`, `work`: jobs and workers
//! - `bulk`, `change`, `edit`, `purge`, `confirm`: changes, and whether they are meant
//! - for operators: `batches`, `constraint`, `cron`, `queue`, `events`, `status` and `attention`, `why`,
//!   `workers`, `clock`, `cluster`
//!   of a server
//! - `export`, `import`: all jobs, to a file and from it; `take_over`: those of servers of other
//!   kinds; `batch`: many jobs in one request
//! - `payload`, `progress`, `when`, `times`, `backoff`: payloads, progress bars, times as they are
//!   typed and as they are shown, pauses

mod add;
mod attention;
mod audit;
mod backoff;
mod batch;
mod batches;
mod bulk;
mod change;
mod clock;
mod cluster;
mod confirm;
mod constraint;
mod cron;
mod dispatch;
mod edit;
mod events;
mod export;
mod flow;
mod follow;
mod import;
mod inspect;
mod job;
mod jobs;
mod lines;
mod logs;
mod lost;
mod native;
mod payload;
mod progress;
mod purge;
mod queue;
mod results;
pub mod server;
pub mod session;
mod status;
mod take_over;
pub mod times;
pub mod view;
pub mod web;
pub mod when;
mod why;
mod work;
mod workers;
mod workq;

pub use dispatch::run;
pub use native::Native;
pub use session::AskError;
pub use spindle_client::Line;
pub use web::ApiRequest;
