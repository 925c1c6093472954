//! Backups of a log: a folder with copies of its segments, and a manifest that says which.
//!
//! ```text
//!  a folder, or a running server            the backup's folder              a new data folder
//!  ┌───────────────────┐   back_up     ┌──────────────────────┐   restore   ┌────────────────┐
//!  │ listing, segments │ ────────────> │ manifest.json        │ ──────────> │ segments       │
//!  │ (Source)          │  new bytes    │ 00…022.copy, …       │  checked    │                │
//!  └───────────────────┘  only         └──────────────────────┘  first      └────────────────┘
//! ```
//!
//! - `source`: where segments come from; [`FolderSource`] is a folder that no server works on
//! - `manifest`: the backup's table of contents
//! - `take`: [`back_up`] copies new bytes and replaces the manifest; `segment` copies one segment
//! - `records`: [`back_up_records`] does the same for a log that keeps no files
//! - `check`: [`check`] reads a backup and says whether all of it is there and sound
//! - `restore`: [`restore`] makes a data folder from it; `fill`: [`fill`] fills a log that keeps no files
//!
//! What a backup relies on: a segment grows at its end only and never changes once the next one has
//! begun. So a copy is continued where it ended, and copies that the old manifest names stay good
//! while a new backup is taken: a crash leaves the old one as it was.

mod check;
mod error;
mod fill;
mod manifest;
mod records;
mod restore;
mod segment;
mod source;
mod take;

pub use check::{Checked, Finding, check};
pub use error::BackupError;
pub use fill::fill;
pub use manifest::{Kept, MANIFEST_FILE, MANIFEST_FORMAT, Manifest, is_backup};
pub use records::{Found, RecordSource, Records, back_up_records};
pub use restore::{Restored, restore};
pub use source::{FolderSource, Listing, Source, SourceError};
pub use take::{Manner, Taken, back_up};
