//! What a server did in the last hour and in the last day, for charts.
//!
//! Rates and latencies of the server, rates and depths of its busiest queues, and failures by
//! fingerprint: all in bounded memory, whatever goes through the server. The history decides
//! nothing, and no job depends on it.
//!
//! The core is pure: a [`Book`] is told what happened since the last time ([`Look`]) and answers
//! with points. Its modules are
//!
//! - `slots`: a row of slots of equal length in time, from which the oldest are dropped
//! - `counts`: what a slot counts, of the server, of a queue and of failures
//! - `latency`: percentiles of a histogram
//! - `busiest`: a table of the most frequent keys of a stream
//! - `book`: all of these together; `ask`: the questions that a book answers
//!
//! Around it are
//!
//! - `file`, `image`: the small file that carries the history over a restart
//! - `recorder`: a thread that looks at the engine every ten seconds
//!
//! **Times.** All times are the engine's, in milliseconds since 1970, which never go back while a
//! server runs. Each look distributes its counts over the slots since the last look. When more than a
//! minute lies between two looks, the machine was suspended or its clock was set forward: then the
//! counts belong to the last ten seconds, and the time before those is a gap, as is the time in which
//! no server ran. Entries of a file for times that lie ahead, because the log or the file was
//! replaced by another, are dropped when the file is read.

mod ask;
mod book;
mod busiest;
mod counts;
mod file;
mod image;
mod latency;
mod recorder;
mod slots;

pub use ask::{Group, Points, Range, Share};
pub use book::{Book, Look, QueueNews};
pub use busiest::Busiest;
pub use counts::{Commits, Failed, QueueSlot, ServerSlot};
pub use file::{FileError, VERSION as FILE_FORMAT};
pub use latency::{BUCKETS, percentile_us};
pub use recorder::{History, Recorder};
pub use slots::{Slot, Slots, Tier};
