//! The engine from outside, one step at a time: no thread runs unless a test starts them, and the
//! clock moves when a test says so.

mod commits;
mod constraints;
mod ends;
mod feed;
mod harness;
mod held;
mod ids;
mod jobq;
mod join;
mod limits;
mod many;
mod payloads;
mod seek;
mod sleep;
mod space;
mod survey;
mod time;
mod traffic;
mod turns;
mod unmatched;
mod watch;
