//! Workq's clients against a whole server: real sockets, the engine, a log, and a clock that is
//! moved by hand. What a client sends and what it must get are written down byte by byte.

mod access;
mod arguments;
mod crowd;
mod end_of_input;
mod foreign;
mod harness;
mod held;
mod jobs;
mod leases;
mod offers;
mod page;
mod restart;
mod run;
mod session;
mod shapes;
mod time;
