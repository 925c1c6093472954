//! Which command does what.

use super::{add, change, clock, constraint, events, inspect, queue, results, why, work, workers};
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
        ClientCommand::Queue(args) => queue::queue(&args),
        ClientCommand::Delete(args) => inspect::delete(&args),
        ClientCommand::Why(args) => why::why(&args),
        ClientCommand::Retry(args) => change::retry(&args),
        ClientCommand::Cancel(args) => change::cancel(&args),
        ClientCommand::Move(args) => change::move_to(&args),
        ClientCommand::Pause(args) => change::pause(&args),
        ClientCommand::Resume(args) => change::resume(&args),
        ClientCommand::Purge(args) => change::purge(&args),
        ClientCommand::Workers(args) => workers::workers(&args),
        ClientCommand::Constraint(args) => constraint::constraint(&args),
        ClientCommand::Events(args) => events::events(&args),
        ClientCommand::Clock(args) => clock::clock(&args),
    }
}
