//! `spindle demo`: all of Spindle in one command, in a folder that is removed at its end.
//!
//! ```text
//!            route: one queue each                      place: a child process
//!   ┌────────────────────────────────────┐          ┌──────────────────────────┐
//!   │ submitter (crew)   worker (crew)   │  doors   │ spindle serve            │
//!   │ Gearman            jobd worker     │ <──────> │ on ports of its own, in  │
//!   │ Workq              LightJQ ...     │          │ a temporary folder       │
//!   └─────────────────┬──────────────────┘          └──────────────────────────┘
//!                     │ what was answered                    ^
//!                     v                                      │ SIGKILL when half is accepted,
//!                 account ── what the server shows ──────────┘ and a start on the same folder
//! ```
//!
//! - `route`: which door jobs come in through, and which one they are worked through
//! - `task`: one job, and how it is recognized in whatever form a door gives its payload
//! - `doors`: a submitter and a worker for each protocol, made of the clients that there are
//! - `crew`: the threads, which go on after the server was killed
//! - `account`: what became of each job; a job that the server accepted and nobody finished is lost
//! - `place`: the server as a process, its folder, its ports
//! - `process`: a child process that ends with the demo, and free ports
//! - `cluster`: the same jobs on three nodes, whose leader is killed
//! - `past`: the hour before, for the charts
//! - `business`: queues as a company has them, from a seed: what the pages show afterwards
//! - `show`: progress and the table
//!
//! The server's own word is not enough for the account: a job counts as done if a worker got it
//! through the route's door *and* the server, which was killed in between, shows it as done.

mod account;
mod business;
mod cluster;
mod crew;
mod doors;
mod past;
mod place;
mod process;
mod route;
mod show;
mod task;

use std::{
    io::{self, BufRead, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, sleep},
    time::{Duration, Instant},
};

use anyhow::Context;

pub use self::process::attached;
use self::{
    crew::{Crew, Numbers, SUBMIT_PAUSE, Shared},
    place::Stage,
    show::Screen,
};
use crate::{cli::DemoArgs, exit::Code, signals};

/// How often to check how far the jobs are.
const LOOK: Duration = Duration::from_millis(50);
/// After this many looks without any progress, the account is made all the same.
const IDLE_LOOKS_MAX: u32 = 2_400;

/// Runs the demo. The exit code says whether a job was lost.
pub fn demo(args: &DemoArgs) -> anyhow::Result<Code> {
    if args.cluster {
        return cluster::demo(args);
    }
    let stage = Stage::default();
    let closed = stage.clone();
    to_its_end(move || closed.close(), || perform(args, &stage))
}

/// Runs `perform`, and calls `close`, which ends all servers and removes their folder: at the end, also
/// after an error, or when a signal asks for the end.
fn to_its_end(
    close: impl Fn() + Clone + Send + 'static,
    perform: impl FnOnce() -> anyhow::Result<Code>,
) -> anyhow::Result<Code> {
    let asked = Arc::<AtomicBool>::default();
    close_when_asked(&close, &asked).context("cannot watch for signals")?;
    let outcome = perform();
    while asked.load(Ordering::SeqCst) {
        // A signal has ended the servers. Its thread ends the program, with the code for that signal.
        thread::park();
    }
    close();
    outcome
}

fn perform(args: &DemoArgs, stage: &Stage) -> anyhow::Result<Code> {
    let screen = Screen::new(args.jobs);
    screen.line("an hour of jobs is made up first, for the charts".to_owned());
    let http = stage.open().context("cannot start a server")?;
    screen.line(format!("a server runs on ports and in a folder of its own: http://{http}/"));
    let addresses = stage.addresses()?;
    let shared = Arc::new(Shared::new(vec![addresses], SUBMIT_PAUSE));
    shared.begin(0, args.jobs);
    doors::prepare(&addresses.http()).context("cannot set its queues")?;
    let crew = Crew::start(&shared).context("cannot start threads")?;
    let outcome = run(stage, &shared, &screen);
    shared.stop();
    screen.end();
    // After an error the threads are not waited for: without a server they would not end soon.
    outcome?;
    crew.join();
    let rows = crew::audit(&shared).context("the server does not say what it has done")?;
    screen.line("now the queues get what a company has in them, for the pages".to_owned());
    business::furnish(&addresses).context("cannot fill the queues")?;
    let lost = show::print_table(&rows, &mut io::stdout().lock())?;
    if !args.once {
        await_enter(&format!("http://{http}/"))?;
    }
    Ok(if lost == 0 { Code::Ok } else { Code::Error })
}

/// Watches the jobs to their end, and kills the server when half of them are accepted.
fn run(stage: &Stage, shared: &Shared, screen: &Screen) -> anyhow::Result<()> {
    let (mut idle, mut before, mut was_killed) = (0, Numbers::default(), false);
    let mut client = shared.client();
    loop {
        sleep(LOOK);
        let now = shared.numbers();
        screen.show(shared);
        if !was_killed && now.accepted * 2 >= now.all {
            was_killed = true;
            kill(stage, shared, screen, now)?;
        }
        let is_drained = |left| left == 0;
        if was_killed && now.accepted == now.all && client.unfinished().is_ok_and(is_drained) {
            return Ok(());
        }
        idle = if now == before { idle + 1 } else { 0 };
        if idle == IDLE_LOOKS_MAX {
            let trouble = shared.trouble().unwrap_or_else(|| "nobody saw an error".to_owned());
            screen.line(format!("nothing happens any more ({trouble}): this is how it stands"));
            return Ok(());
        }
        before = now;
    }
}

/// Kills the server as a crash would, and starts it on what it left.
fn kill(stage: &Stage, shared: &Shared, screen: &Screen, now: Numbers) -> anyhow::Result<()> {
    shared.close_gate();
    let pid = stage.kill()?;
    let Numbers { accepted, worked, .. } = now;
    screen.line(format!(
        "SIGKILL for the server, process {pid}: {accepted} jobs accepted, {worked} worked so far"
    ));
    let begun = Instant::now();
    stage.restart().context("the server does not start again")?;
    let ms = begun.elapsed().as_millis();
    screen.line(format!("it runs again after {ms} ms, on the same folder; everybody goes on"));
    shared.open_gate();
    Ok(())
}

/// Signals that end programs, and a terminal that goes, end the servers and remove the folder too.
fn close_when_asked(
    close: &(impl Fn() + Clone + Send + 'static),
    asked: &Arc<AtomicBool>,
) -> io::Result<()> {
    let end = || {
        let (close, asked) = (close.clone(), asked.clone());
        move |code: i32| -> ! {
            asked.store(true, Ordering::SeqCst);
            close();
            std::process::exit(code);
        }
    };
    let (of_first, of_hangup) = (end(), end());
    signals::on_hangup(move || of_hangup(Code::Error as i32))?;
    signals::watch(move |ending| of_first(ending.code()), |_| {})
}

fn await_enter(page: &str) -> io::Result<()> {
    let mut err = io::stderr().lock();
    writeln!(err, "\nThe web page: {page}")?;
    writeln!(err, "Enter ends the server and removes its folder.")?;
    drop(err);
    io::stdin().lock().read_line(&mut String::new())?;
    Ok(())
}
