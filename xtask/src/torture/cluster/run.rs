//! One run of the mode: cycles, the end, and the summary.

use std::any::Any;
use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};

use super::cluster::Cluster;
use super::faults::{self, Fault, Group};
use super::report::{Pulse, Report};
use crate::torture::client::Client;
use crate::torture::cycles::{check, close, no_complaints, work_off};
use crate::torture::doors::{self, Clients, Manner, QUEUE, TRAVELLING, Tally};
use crate::torture::job::Dice;
use crate::torture::load::{Books, Load, QUEUES};
use crate::torture::mode::{LogKind, Options};
use crate::torture::server::Addresses;

/// The pause between two actions of a client: a run is long, and every job is looked at in every
/// cycle.
const PACE: Duration = Duration::from_millis(60);
/// Stops and partitions last so many times the longest calm.
const FAULT_TIMES: u32 = 5;
/// The shortest time for which a process is dead, long enough for answers under way to arrive.
const DEAD_AT_LEAST: Duration = Duration::from_secs(1);
/// A process that clients can do without stays dead until they are answered, but at most this long.
const DEAD_AT_MOST: Duration = Duration::from_secs(20);
/// The longest time for which a server that clients cannot do without is dead.
const NEEDED_DEAD: Duration = Duration::from_secs(2);
/// This many answers show that clients are served.
const ANSWERS: u64 = 20;
const SERVED_WITHIN: Duration = Duration::from_secs(60);
/// Leases of jobs that clients of all doors work on, in lengths of a fault, and at least.
const TTR_FAULTS: u32 = 3;
const TTR_AT_LEAST: Duration = Duration::from_secs(5);
/// How often something is tried whose connection may end, because the lead may change at any time.
const TRIES: usize = 5;
/// How long the workers at the end work between two looks.
const WORKED_FOR: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(5);

/// A run for each kind of log.
pub fn torture(options: &Options, root: &Path) -> Result<String> {
    let runs = options.logs.iter().map(|kind| {
        let folder = root.join(kind.name());
        fs::create_dir_all(&folder)?;
        // The test helpers that start servers panic if one does not start.
        let run = AssertUnwindSafe(|| of_log(*kind, options, &folder));
        let outcome = catch_unwind(run).unwrap_or_else(|panic| Err(said_by(&*panic)));
        outcome.with_context(|| format!("with a log in {}", kind.name()))
    });
    Ok(runs.collect::<Result<Vec<_>>>()?.join("\n"))
}

fn said_by(panic: &(dyn Any + Send)) -> anyhow::Error {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    anyhow!("{}", text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic"))
}

fn of_log(kind: LogKind, options: &Options, folder: &Path) -> Result<String> {
    let cluster = Cluster::start(kind, options.shards, &options.program, folder)?;
    let pulse = Pulse::new(cluster.addresses().len());
    let mut run = Run {
        options,
        cluster,
        books: Books::of_cluster(),
        doors: Mutex::new(doors::Books::of_cluster()),
        travellers: Mutex::new(doors::Books::of_cluster_without_done_jobs()),
        pulse,
        report: Report::default(),
    };
    let outcome = run.whole(kind);
    if outcome.is_err() {
        run.cluster.keep_messages(folder)?;
    }
    outcome
}

struct Run<'a> {
    options: &'a Options,
    cluster: Cluster,
    books: Books,
    doors: Mutex<doors::Books>,
    /// Of jobs in the queue that moves, if there are several shards.
    travellers: Mutex<doors::Books>,
    pulse: Pulse,
    report: Report,
}

impl Run<'_> {
    fn whole(&mut self, kind: LogKind) -> Result<String> {
        let cycles = self.options.cycles as usize;
        let groups = Group::ALL.len();
        ensure!(cycles >= groups, "a cluster has {groups} groups of faults: give it more cycles");
        let mut dice = Dice::new(self.options.seed);
        let possible = faults::possible(self.cluster.no_network().is_none());
        let faults = faults::deal(&possible, cycles, &mut dice);
        let ttr_ms = ttr(self.options).as_millis() as u64;
        self.retried(0, |at| {
            doors::keep_for_long(at, ttr_ms)?;
            doors::keep_nothing(at, ttr_ms)
        })?;
        let begun = Instant::now();
        for (cycle, fault) in faults.iter().enumerate() {
            let outcome = self.cycle(cycle, *fault, &mut dice);
            outcome.with_context(|| format!("in cycle {cycle}, {}", fault.name()))?;
            eprintln!(
                "{} cycle {cycle} at {:.0} s: {}, {:.1} s without an answer",
                kind.name(),
                begun.elapsed().as_secs_f64(),
                fault.name(),
                self.report.newest(*fault).as_secs_f64()
            );
        }
        self.finish().context("at the end")?;
        let expected =
            if cycles < faults::deck_len(&possible) { &faults[..] } else { &possible[..] };
        let happened = self.report.faults(expected)?;
        let moved = self.moved()?;
        let (tally, of_doors) = (self.books.open().tally(), open(&self.doors).tally());
        let partitions = match self.cluster.no_network() {
            Some(reason) => format!("; no partitions: {reason}"),
            None => String::new(),
        };
        Ok(format!(
            "torture cluster, log in {}: {cycles} cycles: {happened}{partitions}{moved}; faults that last: {:.1} s; \
             acknowledged {} adds, {} leases, {} finishes, {} deletes, {} looks at jobs beside them; through all doors: {}; {} given out again that \
             nobody had finished; answers in calm: {} through the leader, {} through followers; {} servers of the log that did not catch \
             up were started anew; nothing lost, nothing \
             done again\n{}",
            kind.name(),
            fault_time(self.options).as_secs_f64(),
            tally.adds,
            tally.leases,
            tally.finishes,
            tally.deletes,
            tally.looks,
            doors::summary(&of_doors)?,
            of_doors.again,
            self.report.through_leader,
            self.report.through_followers,
            self.cluster.restarts(),
            self.report.silences(),
        ))
    }

    /// A summary of shards and moves, if there were any; an error if they tested nothing.
    fn moved(&self) -> Result<String> {
        let (shards, moves) = (self.options.shards, self.report.moves);
        if shards == 1 {
            return Ok(String::new());
        }
        let Tally { submits, finishes, again, .. } = open(&self.travellers).tally();
        let submits: u64 = submits.iter().sum();
        ensure!(
            moves > 0 && submits > 0 && finishes > 0,
            "{moves} moves, {submits} submits and {finishes} finishes: the test proves nothing of moves"
        );
        Ok(format!(
            "; {shards} shards, {moves} moves of queues; in the one that went on moving acknowledged {submits} \
             submits, {finishes} finishes, and {again} given out again that nobody had finished"
        ))
    }

    /// A fault under load, and a look at every job.
    fn cycle(&mut self, cycle: usize, fault: Fault, dice: &mut Dice) -> Result<()> {
        let nodes = self.cluster.addresses();
        let workq = nodes.iter().map(|at| at.workq).collect();
        let load = Load::through(&self.books, workq, PACE);
        let manner = |queue| manner(self.options, &self.pulse, queue);
        let mut scene = Scene {
            cluster: &mut self.cluster,
            pulse: &self.pulse,
            report: &mut self.report,
            calm: calm(self.options, dice),
            lasts: fault_time(self.options),
        };
        let (outcome, surprises) = load.during(dice.next(), || {
            let all = Clients::All;
            let mut play = || scene.play(fault, dice);
            let travel = || {
                if self.options.shards == 1 {
                    return play();
                }
                doors::through_nodes(&self.travellers, &nodes, manner(TRAVELLING), all, play)
            };
            doors::through_nodes(&self.doors, &nodes, manner(QUEUE), all, travel)
        });
        outcome?;
        surprises?;
        no_complaints(self.books.open().complaints())?;
        self.look_at_all(cycle, false)
    }

    /// Looks at every job, through one node.
    fn look_at_all(&self, first: usize, is_last: bool) -> Result<()> {
        self.retried(first, |at| {
            check(&self.books, &mut Client::connect(at.workq)?)?;
            no_complaints(self.books.open().complaints())?;
            doors::check(&self.doors, at, is_last)?;
            doors::check(&self.travellers, at, is_last)
        })
    }

    /// Tries something with one node and, if its connection ends, with the next.
    fn retried(&self, first: usize, what: impl Fn(Addresses) -> Result<()>) -> Result<()> {
        let nodes = self.cluster.addresses();
        let mut tries = (first..first + TRIES).map(|turn| nodes[turn % nodes.len()]);
        loop {
            let at = tries.next().with_context(|| format!("tried {TRIES} times"))?;
            let Err(why) = what(at) else { return Ok(()) };
            let broken = why.downcast_ref::<io::Error>().map(io::Error::kind);
            if broken.is_none_or(|kind| kind == io::ErrorKind::InvalidData) {
                return Err(why);
            }
            eprintln!("a connection ended while jobs were looked at: {why:#}");
            self.cluster.await_whole(0)?;
        }
    }

    /// All jobs are worked off, and are done after all nodes were killed at once.
    fn finish(&mut self) -> Result<()> {
        let deadline = Instant::now() + 2 * ttr(self.options) + SERVED_WITHIN;
        let nodes = self.cluster.addresses();
        let books = [(&self.doors, QUEUE), (&self.travellers, TRAVELLING)];
        while let Some((books, queue)) = books.iter().find(|(it, _)| open(it).unfinished() > 0) {
            ensure!(Instant::now() < deadline, "{} jobs are not done", open(books).unfinished());
            let work = || {
                thread::sleep(WORKED_FOR);
                Ok(())
            };
            let manner = manner(self.options, &self.pulse, queue);
            doors::through_nodes(books, &nodes, manner, Clients::Workers, work)?;
            self.look_at_all(0, false)?;
        }
        self.retried(0, |at| work_off(&self.books, &mut Client::connect(at.workq)?))?;
        close(&self.books, &mut Client::connect(nodes[1].workq)?)?;
        self.look_at_all(2, true)?;
        self.cluster.restart_all_nodes()?;
        self.look_at_all(0, true)
    }
}

fn open(books: &Mutex<doors::Books>) -> MutexGuard<'_, doors::Books> {
    books.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A cycle, as its clients' work goes on.
struct Scene<'a> {
    cluster: &'a mut Cluster,
    pulse: &'a Pulse,
    report: &'a mut Report,
    /// Before and after the fault.
    calm: Duration,
    /// How long stops and partitions last.
    lasts: Duration,
}

impl Scene<'_> {
    /// One shard's leader, or its log's, is hit, while queues move.
    fn play(&mut self, fault: Fault, dice: &mut Dice) -> Result<()> {
        let shards = self.cluster.shards();
        let shard = dice.below(shards.into()) as u8;
        let roles = self.cluster.await_whole(shard)?;
        let before = self.pulse.answers();
        thread::sleep(self.calm);
        self.await_answers()?;
        let answers =
            self.pulse.answers().into_iter().zip(before).map(|(now, before)| now - before);
        for (node, answers) in answers.enumerate() {
            let through_leader = node == roles.leader;
            let count = if through_leader {
                &mut self.report.through_leader
            } else {
                &mut self.report.through_followers
            };
            *count += answers;
        }

        let roles = self.cluster.await_whole(shard)?;
        if shards > 1 {
            self.move_queues(dice)?;
        }
        let plan = roles.plan(fault, dice);
        // As the nodes write times, so that their messages can be read beside it.
        eprintln!("{}: {}, {plan:?}", jiff::Timestamp::now(), fault.name());
        self.pulse.begin();
        self.cluster.hit(&plan)?;
        match fault.group() {
            Group::Kills => {
                let survives = self.cluster.survives_the_loss_of_one();
                self.wait_for_others(survives || !plan.kills_log());
            }
            Group::Stops | Group::Partitions => thread::sleep(self.lasts),
        }
        self.cluster.heal(&plan)?;
        self.cluster.await_whole(shard)?;
        self.await_answers()?;
        self.report.add(fault, self.pulse.longest());
        thread::sleep(self.calm);
        Ok(())
    }

    /// Queues begin to move. Those that keep their done jobs do it once in a run: they never come to rest.
    fn move_queues(&mut self, dice: &mut Dice) -> Result<()> {
        let shards = u64::from(self.cluster.shards());
        for queue in QUEUES.split(' ').chain([QUEUE, TRAVELLING]) {
            let begins = self.cluster.move_queue(queue, dice.below(shards) as u8)?;
            self.report.moves += u64::from(begins);
        }
        Ok(())
    }

    /// Something was killed: waits until clients are answered without it, if they can be.
    fn wait_for_others(&self, can_do_without: bool) {
        let limit = if can_do_without { DEAD_AT_MOST } else { NEEDED_DEAD };
        let killed = Instant::now();
        thread::sleep(DEAD_AT_LEAST);
        let answers = self.pulse.count() + ANSWERS;
        while self.pulse.count() < answers && killed.elapsed() < limit {
            thread::sleep(POLL);
        }
    }

    fn await_answers(&self) -> Result<()> {
        let (deadline, wanted) = (Instant::now() + SERVED_WITHIN, self.pulse.count() + ANSWERS);
        while self.pulse.count() < wanted {
            if Instant::now() > deadline {
                bail!("clients are not answered\n{}", self.cluster.messages());
            }
            thread::sleep(POLL);
        }
        Ok(())
    }
}

/// How long stops and partitions last.
fn fault_time(options: &Options) -> Duration {
    Duration::from_secs_f64(options.seconds) * FAULT_TIMES
}

/// How long leases last in the queues that clients of all doors work on.
fn ttr(options: &Options) -> Duration {
    (fault_time(options) * TTR_FAULTS).max(TTR_AT_LEAST)
}

fn manner<'a>(options: &Options, pulse: &'a Pulse, queue: &'static str) -> Manner<'a> {
    let ttr_ms = ttr(options).as_millis() as u64;
    Manner { queue, until_it_ends: false, ttr_ms, pace: PACE, pulse: Some(pulse) }
}

/// A quarter of the longest calm at least.
fn calm(options: &Options, dice: &mut Dice) -> Duration {
    let longest_ms = (options.seconds * 1_000.0) as u64;
    Duration::from_millis(longest_ms / 4 + dice.below(longest_ms.max(2) * 3 / 4))
}
