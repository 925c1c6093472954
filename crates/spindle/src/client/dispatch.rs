//! Which command does what.

use super::{
    add, audit, batches, change, clock, cluster, constraint, cron, edit, events, export, flow,
    import, inspect, job, jobs, lines, logs, purge, queue, results, status, take_over, why, work,
    workers,
};
use crate::{cli::ClientCommand, exit::Code, top};

/// Runs a client command.
pub fn run(command: ClientCommand) -> anyhow::Result<Code> {
    match command {
        ClientCommand::Add(args) => match &args.lines {
            Some(path) => lines::add_lines(&args, path),
            None => add::add(&args),
        },
        ClientCommand::Run(args) => results::run(&args),
        ClientCommand::Schedule(args) => add::schedule(&args),
        ClientCommand::Result(args) => results::result(&args),
        ClientCommand::Work(args) => work::work(&args),
        ClientCommand::Job(args) => job::job(&args),
        ClientCommand::Jobs(args) => jobs::jobs(&args),
        ClientCommand::Cron(args) => cron::cron(&args),
        ClientCommand::Batch(args) => batches::batch(&args),
        ClientCommand::Queues(args) => inspect::queues(&args),
        ClientCommand::Queue(args) => queue::queue(&args),
        ClientCommand::Delete(args) => inspect::delete(&args),
        ClientCommand::Why(args) => why::why(&args),
        ClientCommand::Flow(args) => flow::flow(&args),
        ClientCommand::Retry(args) => change::retry(&args),
        ClientCommand::Cancel(args) => change::cancel(&args),
        ClientCommand::Move(args) => edit::move_to(&args),
        ClientCommand::Edit(args) => edit::edit(&args),
        ClientCommand::Park(args) => edit::park(&args),
        ClientCommand::Release(args) => edit::release(&args),
        ClientCommand::Pause(args) => change::pause(&args),
        ClientCommand::Resume(args) => change::resume(&args),
        ClientCommand::Purge(args) => purge::purge(&args),
        ClientCommand::Status(args) => status::status(&args),
        ClientCommand::Top(args) => top::top(&args),
        ClientCommand::Workers(args) => workers::workers(&args),
        ClientCommand::Constraint(args) => constraint::constraint(&args),
        ClientCommand::Export(args) => export::export(&args),
        ClientCommand::Import(args) => match args.from {
            Some(source) => take_over::take_over(&args, source),
            None => import::import(&args),
        },
        ClientCommand::Events(args) => events::events(&args),
        ClientCommand::Logs(args) => logs::logs(&args),
        ClientCommand::Audit(args) => audit::audit(&args),
        ClientCommand::Clock(args) => clock::clock(&args),
        ClientCommand::Cluster(args) => cluster::cluster(&args),
    }
}
