//! The memory of Spindle: a gapless sequence of opaque records that survives crashes.
//!
//! Everything that ever changes in the server is an event; the engine packs events into
//! *records* and appends them here, and after a crash it folds them again. This crate stores the
//! records and knows nothing of jobs.
//!
//! Where to start reading:
//!
//! - [`Log`] is the contract, with a drawing of its positions. Every log keeps it, and
//!   `log_conformance` of `spindle-testkit` is the suite that checks it: a new log (over a
//!   database, say) is done when `log_conformance::run` passes on it.
//! - [`FileLog`] is the default: segment files in a folder, one write and one `fdatasync` for all
//!   records submitted together. The `frame` module describes the file format.
//! - [`MemoryLog`] forgets everything when the process ends: tests and `--memory`.
//! - [`SharedLog`] is the additional contract of a log that several nodes share. Such logs are crates of their own,
//!   over systems that are distributed already; [`Runs`] plays the part of segments in them.
//! - [`disk`] is the seam below the file log: a real folder, or the simulated one of
//!   `spindle-testkit`, which tears writes, loses what was not synced and runs full when a test
//!   wants it to.
//! - [`copy`] is what backups are made of: segments to read, and the check of a copy.
//! - [`verify`] reads a folder and says whether it is sound, and can cut it where it is not (the `repair` module says how
//!   that can be interrupted and what is kept). A small file beside the segments (the `bounds` module) says which
//!   segment is the oldest and where the log ended, so that the loss of a segment is noticed.
//!
//! No runtime is involved: plain threads and blocking calls. The engine's log thread calls
//! [`Log::submit`] for each record and then [`Log::next_ack`] for each, in order:
//!
//! ```
//! use spindle_log::{Ack, Log, MemoryLog, Position, Record};
//!
//! let log = MemoryLog::new();
//! let record = Record { epoch: 1, bytes: "three events".into() };
//! log.submit(log.next(), &record)?;
//! assert!(matches!(log.next_ack(), Ack::Committed(Position(0))));
//! assert_eq!(log.read_at(Position(0), 6, 6)?, "events");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod ahead;
mod bounds;
mod contract;
pub mod copy;
pub mod disk;
mod faults;
mod file;
mod folder;
mod frame;
mod health;
mod memory;
mod parts;
mod quick;
mod repair;
mod room;
mod runs;
mod salvage;
mod scan;
mod shared;
mod survey;
pub mod verify;

pub use bounds::VERSION as BOUNDS_FORMAT;
pub use contract::{
    Ack, Log, LogError, Position, ReadError, Record, Space, Stored, StoredRecords, SubmitError,
    slice_of,
};
#[doc(hidden)]
pub use faults::Faults;
pub use file::{FileLog, FileLogOptions, SyncPolicy};
pub use folder::OpenError;
pub use health::{LogHealth, LogLag, LogServer, LogServerRole, LogServerState};
pub use memory::MemoryLog;
pub use parts::{CheckedPart, PartsOf, no_parts};
pub use quick::{QuickLook, quick_look};
pub use room::Room;
pub use runs::Runs;
pub use shared::{ANNOUNCEMENT_BYTES_MAX, OnAnnouncement, Opening, SharedLog};
