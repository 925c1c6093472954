//! Starts a job's process, keeps what it prints, reports how it ended.

mod capture;
mod command;
mod identity;
mod process;
mod signal;

pub use capture::Output;
pub use command::{Launcher, LauncherError, LauncherSettings};
pub use identity::ProcessId;
pub use process::{Ending, SignalRequest};
pub use signal::SignalNumber;
