//! `jobctl`: asks a worker or a master something and prints the answer.
//!
//! `flags` has the command line, `command` its meaning, `client` sends requests, `print` shows
//! answers, `grid` draws tables as the original does.

mod client;
mod code;
mod command;
mod flags;
mod grid;
mod password;
mod print;
mod run;

pub use run::main;
