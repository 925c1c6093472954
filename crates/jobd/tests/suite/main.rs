//! The suite as its users meet it: bytes to a worker, bytes to a master, `jobctl` at the shell. The
//! conversations are those recorded from the original; where the answer differs on purpose, the
//! test says so.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod ctl;
mod encrypted;
mod examples;
mod fake_table;
mod handle;
mod killed;
mod master;
mod pages;
mod peer;
mod php;
mod programs;
mod recovery;
mod service;
mod stand_in;
mod starts;
mod together;
mod trouble;
mod worker;
mod worker_jobs;
mod world;
