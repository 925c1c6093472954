//! The door, one session at a time, without sockets.
//!
//! - `access`: who may send what
//! - `jobs`: submits, ends, and what clients hear; who may finish
//! - `unique`: submits of the same work
//! - `tokens`: tokens whose entries change
//! - `workers`: grabs, sleep, timeouts, lost workers
//! - `status`: questions about jobs, and the text commands
//! - `doors`: jobs that come from or go to other doors
//! - `held`: what clients make the server hold
//! - `limits`: bad input, a log that is behind, clients that do not read

mod access;
mod doors;
mod harness;
mod held;
mod jobs;
mod limits;
mod status;
mod tokens;
mod unique;
mod workers;
