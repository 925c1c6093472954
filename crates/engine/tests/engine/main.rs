//! The engine from outside, one step at a time: no thread runs unless a test starts them, and the
//! clock moves when a test says so.

mod admission;
mod audit;
mod batch;
mod cannot_grow;
mod clock;
mod commits;
mod compaction;
mod constraints;
mod ends;
mod explain;
mod feed;
mod folder;
mod full_disk;
mod harness;
mod ids;
mod join;
mod large_changes;
mod limits;
mod log_limit;
mod payloads;
mod scan;
mod schedules;
mod space;
mod start;
mod survey;
mod time;
mod traffic;
mod turns;
mod undo;
mod unmatched;
mod unreadable;
mod updates;
mod wakeups;
mod watch;
mod worker_leases;
