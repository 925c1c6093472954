//! `spindle demo --cluster`: three nodes on one log, jobs through every door of any of them, and the node
//! that leads killed again and again.
//!
//! ```text
//!     node-1   node-2   node-3      this program three times, each a process
//!        │   jobs │        │
//!        └────────┼────────┘
//!              the log              of --log, or three nats-servers that were started for it
//! ```
//!
//! - `nats`: log servers of the demo's own
//! - `server`: a process, what it is started with, and how it is started again
//! - `stage`: all servers and their folder, who leads, and the end of all
//! - `rounds`: jobs in rounds; in the middle of each the leader is killed, at its end every job is
//!   accounted for
//!
//! Routes, doors, tasks and accounts are those of the demo of one server. A client that loses its
//! connection goes to the next node.

mod nats;
mod rounds;
mod server;
mod stage;

use std::{io, sync::Arc, time::Duration};

use anyhow::{Context, bail};

use self::{
    rounds::Rounds,
    stage::{Node, Plan, Stage},
};
use super::{
    crew::{AnyNode, Crew, SUBMIT_PAUSE, Shared},
    doors,
    route::ROUTES,
    show::{self, Screen},
    to_its_end,
};
use crate::{cli::DemoArgs, client::view::Queue, exit::Code};

/// Between two submits of a route, when the demo goes on until it is ended: a round of 200 jobs takes 20 s.
const PAUSE: Duration = Duration::from_millis(100);

/// Runs it. The exit code says whether a job was lost.
pub fn demo(args: &DemoArgs) -> anyhow::Result<Code> {
    let plan = Plan::of(args)?;
    let stage = Stage::default();
    let closed = stage.clone();
    to_its_end(move || closed.close(), || perform(args, &plan, &stage))
}

fn perform(args: &DemoArgs, plan: &Plan, stage: &Stage) -> anyhow::Result<Code> {
    let screen = Screen::of_lines();
    screen.line(format!("three nodes are started; {}", plan.log()));
    let nodes = stage.open(plan).context("cannot start a cluster")?;
    for Node { name, addresses } in &nodes {
        let pid = stage.id(name)?;
        screen.line(format!("{name} is process {pid}, its pages are http://{}/", addresses.http));
    }
    let pause = if args.once { SUBMIT_PAUSE } else { PAUSE };
    let addresses = nodes.iter().map(|node| node.addresses).collect();
    let shared = Arc::new(Shared::new(addresses, pause));
    let mut client = shared.client();
    check_is_ours(&mut client)?;
    client.ask(doors::prepare).context("cannot set its queues")?;
    let crew = Crew::start(&shared).context("cannot start threads")?;
    let mut rounds = Rounds::new(stage, &nodes, &shared, &screen)?;
    if !args.once {
        screen.line("Ctrl-C ends it.".to_owned());
        loop {
            rounds.play(args.jobs)?;
        }
    }
    let rows = rounds.play(args.jobs);
    shared.stop();
    // After an error the threads are not waited for: without a leader they would not end soon.
    let rows = rows?;
    crew.join();
    let lost = show::print_table(&rows, &mut io::stdout().lock())?;
    Ok(if lost == 0 { Code::Ok } else { Code::Error })
}

/// Checks that there are no other queues in the log: the demo's workers would take their jobs.
fn check_is_ours(client: &mut AnyNode) -> anyhow::Result<()> {
    let mut strange = None;
    let asked = client.ask(|node| {
        node.for_each("/api/v1/queues", "queues", |queue: Queue| {
            let name = queue.queue_name();
            if !ROUTES.iter().any(|route| route.queue == name.bytes()) {
                strange = Some(name);
            }
        })
    });
    asked.context("no node says which queues there are")?;
    let Some(queue) = strange else { return Ok(()) };
    bail!(
        "the log is in use: it has a queue {queue}. Name a log of the demo's own: another stream or database, or \
         ?schema=NAME"
    )
}
