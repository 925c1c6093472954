//! `jobctl`: asks a worker or a master something and prints the answer.
//!
//! `flags` is what can be typed, `command` what it means, `client` asks, `print` shows, `grid`
//! draws tables as the original does.

mod client;
mod code;
mod command;
mod flags;
mod grid;
mod password;
mod print;
mod run;

pub use run::main;
