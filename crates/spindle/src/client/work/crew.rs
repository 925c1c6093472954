//! Starts the workers, ends them, sums up.

use std::{sync::Arc, thread};

use super::{orders::Orders, process::find, worker::Work};
use crate::{
    cli::WorkArgs,
    client::{progress::Progress, server::Server, session::Session},
    exit::{Code, Failure},
    queue_name::QueueName,
    signals,
};

/// Runs a command once for each job of some queues.
pub fn work(args: &WorkArgs) -> anyhow::Result<Code> {
    if let Some(program) = args.command.first()
        && find(program).is_none()
    {
        let told = format!("cannot run {}: there is no such program", program.display());
        return Err(Failure::with(Code::Error, told));
    }
    let server = Server::of(&args.common)?;
    // A wrong address is told at once; later the server may go and come back.
    let mut session = server.open()?;
    session.greet().map_err(|error| server.told(error, "server"))?;
    let progress = if args.drain && !args.common.json {
        Progress::of(ready(&mut *session, &args.queues))
    } else {
        Progress::hidden()
    };
    drop(session);
    let jobs_max = if args.once { Some(1) } else { args.max_jobs };
    let orders = Arc::new(Orders::new(jobs_max));
    watch_signals(&orders)?;
    let work = Work {
        queues: &args.queues,
        command: &args.command,
        drain: args.drain,
        json: args.common.json,
        server: &server,
        orders: &orders,
        progress: &progress,
    };
    thread::scope(|scope| {
        for worker in 0..args.at_once.into() {
            let work = &work;
            scope.spawn(move || work.go(worker));
        }
    });
    while orders.is_killed() {
        // The thread that killed the commands ends the process, with the code that says so.
        thread::park();
    }
    progress.end();
    let summary = orders.sum_up();
    let is_bounded = args.drain || jobs_max.is_some();
    // One job that failed has been told of already.
    let is_told = args.common.json || (args.once && summary.failed > 0);
    if !is_told {
        eprintln!("{} completed, {} failed", summary.completed, summary.failed);
    }
    match summary.fatal {
        Some(error) => Err(error),
        None if is_bounded && summary.failed > 0 => Ok(Code::JobFailed),
        None => Ok(Code::Ok),
    }
}

/// How many jobs there are to do; a queue that is not there has none.
fn ready(session: &mut dyn Session, queues: &[QueueName]) -> u64 {
    queues.iter().filter_map(|queue| session.queue(queue).ok()).map(|queue| queue.jobs.ready).sum()
}

fn watch_signals(orders: &Arc<Orders>) -> anyhow::Result<()> {
    let (first, second) = (Arc::clone(orders), Arc::clone(orders));
    signals::watch(
        move |ending| {
            let running = first.stop();
            if running > 0 {
                let name = ending.name;
                eprintln!("{name}: waiting for {running} running; another {name} kills them");
            }
        },
        move |_| second.kill_all(),
    )?;
    Ok(())
}
