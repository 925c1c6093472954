//! What a server did in the last hour and in the last day, for charts.
//!
//! Rates and latencies of the server, rates and depths of its busiest queues, and failures by
//! fingerprint: all in bounded memory, whatever goes through the server. It decides nothing, and no
//! job depends on it.
//!
//! The core is pure: [`Book`] is given what happened since the last time ([`Look`]) and asked for
//! points. It is made of
//!
//! - `slots`: a row of slots of equal length in time, the oldest of which go
//! - `counts`: what a slot counts, of the server, of a queue and of failures
//! - `latency`: percentiles of a histogram
//! - `busiest`: a table of the most frequent keys of a stream
//! - `book`: all of these together; `ask`: the questions that it answers
//!
//! Around it are
//!
//! - `file`, `image`: the small file that brings it over a restart
//! - `recorder`: a thread that looks at the engine every ten seconds
//!
//! **Times.** All times are the engine's, in milliseconds since 1970, which never go back while a
//! server runs. A look shares what it found out over the slots between the last look and itself. When
//! more than a minute lies between the two, the machine was suspended or its clock was set forward:
//! then what was counted belongs to the last ten seconds, and what lies between is a gap, as is the
//! time in which no server ran. What a file says of times that lie ahead, because the log or the file
//! was changed for another, is dropped when it is read.

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
