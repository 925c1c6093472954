//! How the server is set up: one table of settings, and where each value comes from.
//!
//! [`TABLE`](table::TABLE) makes the flags of `spindle serve`, the names in the environment, the
//! keys of the file, what `spindle config` prints and the page `docs/configuration.md`.

mod address;
mod cluster;
mod doors;
mod error;
mod file;
mod parse;
mod reading;
mod resolve;
mod show;
mod table;

pub use cluster::{LogSync, parse_log_sync, refuse_log_url};
pub use doors::Missing;
pub use parse::{LogFormat, parse_collector};
pub use resolve::{InForce, Resolved, SettingFlags, Source, resolve};
pub use show::{print_json, print_reference, print_table};
pub use table::Config;
