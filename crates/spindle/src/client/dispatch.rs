//! Which command does what.

use super::{add, clock, inspect, results, work};
use crate::{cli::ClientCommand, exit::Code};

/// Runs a client command.
pub fn run(command: ClientCommand) -> anyhow::Result<Code> {
    match command {
        ClientCommand::Add(args) => add::add(&args),
        ClientCommand::Run(args) => results::run(&args),
        ClientCommand::Schedule(args) => add::schedule(&args),
        ClientCommand::Result(args) => results::result(&args),
        ClientCommand::Work(args) => work::work(&args),
        ClientCommand::Job(args) => inspect::job(&args),
        ClientCommand::Jobs(args) => inspect::jobs(&args),
        ClientCommand::Queues(args) => inspect::queues(&args),
        ClientCommand::Delete(args) => inspect::delete(&args),
        ClientCommand::Clock(args) => clock::clock(&args),
    }
}
