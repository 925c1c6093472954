//! Clients that wait: for a job, for a job's end, to be called to work, for room in the log.
//!
//! [`list`] is the list of them, [`calls`] notes which sleepers were called for what, [`reports`] what holders of
//! leases say of their jobs, [`output`] what they write for people; together they make up [`waiting`], which follows
//! the events. [`hand_off`] serves the waiting clients. [`ends`], [`wakeups`], [`watch`] and [`follow`] have the
//! methods that doors call.

mod calls;
mod ends;
mod follow;
mod hand_off;
mod list;
mod output;
mod reports;
mod waiting;
mod wakeups;
mod watch;

pub(crate) use calls::Spare;
pub use follow::Activity;
pub(crate) use hand_off::HELD_MS;
pub use list::Caller;
pub(crate) use list::{Wait, WaitFor};
pub use output::{OUTPUT_BYTES_MAX, OUTPUT_PIECE_BYTES_MAX, OutputFrom, OutputPage, OutputPiece};
pub use reports::Progress;
pub(crate) use waiting::Waiting;
pub use wakeups::SleepReply;
