//! The engine from outside, one step at a time: no thread runs unless a test starts them, and the
//! clock moves when a test says so.

mod bench;
mod commits;
mod ends;
mod feed;
mod ids;
mod join;
mod limits;
mod payloads;
mod sleep;
mod space;
mod survey;
mod time;
mod watch;
