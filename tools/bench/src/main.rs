//! `spindle-bench`: the gates of the project, each measured beside a peer in the same run.
//!
//! It is a black-box tool: it knows the published protocols and nothing of how Spindle works. One
//! thread drives all connections through epoll, because load and server share a small machine and
//! every microsecond that the load uses is lost to the server.
//!
//! Where to start reading: [`suite`] is the table of all suites, and a new one is a new row there.
//! [`run`] does to a server what a row asks for; [`session`] alternates the servers and judges.
//! [`server`] starts and stops the servers measured, [`peer`] has the peers that are part of this
//! program, [`shares`] floods one door beside clients of all, [`pages`] reads the web pages beside
//! a load, [`order`] submits jobs that wait for others or take turns, [`schedules`] has schedules
//! fire beside a load, [`backups`] takes backups beside one, [`nodes`] kills leaders of a log that
//! is shared, [`workers`] starts workers of client libraries, [`load`] plays a plan over many
//! connections, [`wire`] is the protocols as bytes.

mod backups;
mod cli;
mod figures;
mod http;
mod load;
mod machine;
mod nodes;
mod order;
mod pages;
mod peer;
mod process;
mod report;
mod run;
mod schedules;
mod server;
mod session;
mod shares;
mod stats;
mod suite;
mod wire;
mod workers;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let outcome = match cli::Cli::parse().command {
        cli::Command::Suite(args) => session::run(&args),
        cli::Command::Flood(args) => shares::flood(&args),
        cli::Command::EchoServer(args) => peer::echo::serve(&args),
        cli::Command::HttpServer(args) => peer::axum::serve(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("spindle-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
