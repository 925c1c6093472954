//! `spindle-bench`: load over Workq, Gearman and HTTP against Spindle and, in the same run, against
//! any other server of these protocols, against beanstalkd and gearmand, and against a bare TCP
//! echo server and a bare HTTP handler as the limits of the machine.
//!
//! It is a black-box tool: it knows the published protocols and nothing of Spindle's crates.
//! One thread drives all connections through epoll, because load and server share a small
//! machine and every microsecond the load spends is one the server does not get.
//!
//! Where to start reading: [`load`] is the engine that plays a [`load::Plan`] against an
//! address; [`scenario`] makes plans out of the sub-commands; [`suite`] plays the gates of the
//! project and judges them; [`server`] starts and stops what is measured.

mod ask;
mod check;
mod cli;
mod echo;
mod gate;
mod http_server;
mod jobs;
mod load;
mod machine;
mod process;
mod report;
mod scenario;
mod server;
mod stats;
mod suite;
mod target;
mod wire;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let outcome = match cli::Cli::parse().command {
        cli::Command::Lifecycle(args) => scenario::lifecycle(&args),
        cli::Command::Submit(args) => scenario::submit(&args),
        cli::Command::Drain(args) => scenario::drain(&args),
        cli::Command::Openloop(args) => scenario::openloop(&args),
        cli::Command::Memory(args) => scenario::memory(&args),
        cli::Command::Roundtrip(args) => scenario::roundtrip(&args),
        cli::Command::Suite(args) => suite::run(&args),
        cli::Command::EchoServer(args) => echo::serve(&args),
        cli::Command::HttpServer(args) => http_server::serve(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("spindle-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
