//! The log on a NATS JetStream stream, which several nodes share and which survives the loss of
//! machines.
//!
//! The stream *is* the log. Each record is one message, the server numbers messages without gaps and
//! for ever, and a record's position is its message's sequence minus 1. There are no consumers, no
//! message ids, and no files of Spindle's own.
//!
//! ```text
//!   subject `spindle.log`                                        subject `spindle.committed`
//!        │ published with "the last sequence must be 4711"              ^ every committed record
//!        v                                                              │ again, by the leader
//!   ┌──────────────── stream `spindle`, on three servers ───────────────┴──┐
//!   │  purged  │ 4690 │ 4691 │  ...  │ 4710 │ 4711 │                        │
//!   └──────────────────────────────────────────────────────────────────────┘
//!              ^ a trim purges up to here      ^ an append is compared with this
//! ```
//!
//! Where to start reading:
//!
//! - [`NatsLog`] keeps the contract of [`Log`](spindle_log::Log) and
//!   [`SharedLog`](spindle_log::SharedLog); `log.rs` has it in terms of the stream, `state.rs` what a
//!   process knows and has on its way.
//! - `append.rs` sends records, several at once, and finds out what became of one whose answer was
//!   bad or lost. Its page also says how two writers can interfere, and what a fold has to do about
//!   it.
//! - `read.rs` fetches records by their number from any server that has the stream; the newest are in
//!   memory (`tail.rs`). `record.rs` is a record's header, and the check of what is read.
//! - `watch.rs` notices what other nodes append, within about as long as an append takes.
//! - `settings.rs` has the settings of the stream. It is made when the log is first opened; a stream
//!   that is there is compared with them, and refused when it could lose or reorder records.
//! - `durability.rs` finds out whether the servers sync.
//!
//! The crate runs async-nats on one thread of its own. The contract's calls block, and may come from
//! any thread, those of other runtimes included.
//!
//! # What is promised
//!
//! *Committed* means that most servers of the stream have the record, each synced to its disk, if
//! the servers run with `jetstream { sync_interval: always }`. The default of NATS is a sync every two minutes:
//! machines that fail together lose the records confirmed since the last one. So a log is not opened unless each server
//! that keeps the stream was asked and said that it syncs. Users cannot see that; name the monitoring addresses or a
//! login of the system account ([`SyncCheck`]). A server that is down is not asked, and configuration that is changed
//! later is not noticed.
//!
//! [`SharedLog::refresh`](spindle_log::SharedLog::refresh) returns what the leader of the stream says. A leader that
//! was cut off from the other servers still believes that it leads for up to 10 s, and may not have the newest records.
//! Only an append is certain: it needs most servers. A node that campaigns refreshes, reads, and appends; if it had not
//! read everything, the append is a Conflict.
//!
//! When the servers elect a new leader, which takes 4 to 9 s, records are answered as *Unknown*
//! every two seconds and offered again by the writer. A full stream is waited for in the same way,
//! with a warning in the log file.
//!
//! # What the servers need
//!
//! NATS 2.10 or newer with JetStream, `max_payload` of at least 256 KiB, and for the user of the log:
//! publish `spindle.>` and `$JS.API.>`, subscribe `spindle.>` and `_INBOX.>`. Only Spindle may have those rights: any
//! client that can publish to the log's subjects can write to the log.

mod append;
mod connect;
mod durability;
mod error;
mod log;
mod open;
mod options;
mod read;
mod record;
mod server;
mod settings;
mod sizes;
mod state;
mod tail;
mod watch;

pub use error::OpenError;
pub use log::NatsLog;
pub use options::{IN_FLIGHT_MAX, Login, NatsLogOptions, SyncCheck};
