//! Starts the workers, ends them, sums up.

use std::{process, sync::Arc, thread, time::Duration};

use super::{orders::Orders, outage::Outage, process::find, worker::Work};
use crate::{
    cli::WorkArgs,
    client::{Line, backoff::Backoff, progress::Progress, server::Server, session::Session},
    exit::{Code, Failure, whole},
    queue_name::QueueName,
    signals,
};

/// Runs a command once for each job of some queues.
pub fn work(args: &WorkArgs) -> anyhow::Result<Code> {
    if let Some(program) = args.command.first()
        && find(program).is_none()
    {
        let message = format!("cannot run {}: there is no such program", program.display());
        return Err(Failure::with(Code::Error, message));
    }
    let server = Server::of(&args.common)?;
    let jobs_max = if args.once { Some(1) } else { args.max_jobs };
    let orders = Arc::new(Orders::new(jobs_max));
    watch_signals(&orders)?;
    let mut session = first_session(&server, &orders)?;
    let progress = if args.drain && !args.common.json {
        Progress::of(ready(&mut *session, &args.queues))
    } else {
        Progress::hidden()
    };
    drop(session);
    let work = Work {
        queues: &args.queues,
        command: &args.command,
        drain: args.drain,
        kill_after: Duration::from_millis(args.kill_after.into()),
        keep_running: args.keep_running,
        json: args.common.json,
        server: &server,
        orders: &orders,
        progress: &progress,
        outage: &Outage::none(&server, &progress),
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
    // The bad end of the one job of --once has been printed already.
    let is_reported = args.common.json || (args.once && summary.has_bad_end());
    if !is_reported {
        eprintln!("{summary}");
    }
    match summary.fatal {
        Some(error) => Err(error),
        None if is_bounded && summary.has_bad_end() => Ok(Code::JobFailed),
        None => Ok(Code::Ok),
    }
}

/// The first session. Waits for a server that is not there yet; other errors are returned.
fn first_session(server: &Server, orders: &Orders) -> anyhow::Result<Box<dyn Session>> {
    let mut backoff = Backoff::new();
    let mut has_said_so = false;
    loop {
        let greeted = server.try_open(&Line::default()).and_then(|mut session| {
            session.greet()?;
            Ok(session)
        });
        match greeted {
            Ok(session) => {
                if has_said_so {
                    eprintln!("{server} answers");
                }
                orders.begin();
                return Ok(session);
            }
            Err(error) if error.may_pass() => {
                if !has_said_so {
                    let message = whole(&server.explain(error, "server"));
                    eprintln!("{message}; waiting until it answers");
                }
                has_said_so = true;
                thread::sleep(backoff.next());
            }
            Err(error) => return Err(server.explain(error, "server")),
        }
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
            if !first.has_begun() {
                // There is no job to finish: the process ends as if signals were not watched.
                process::exit(ending.code());
            }
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
