//! Several nodes on one shared log: leaders that sleep, are cut off and are deposed, appends of two writers, lost and
//! late acknowledgements. Clients keep account of what they were told.
//!
//! Every request is answered by a node that believes it leads, if the engine lets the answer go
//! ([`Engine::released`]). Two rules must hold: an answer agrees with everything that any node told
//! before the request; and every node that takes over has folded all of that.

mod clients;
mod wire;

use std::collections::BTreeSet;
use std::sync::Arc;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spindle_core::job::Origin;
use spindle_core::{JobId, State, Status};
use spindle_engine::{
    Committed, Engine, Gated, JobRef, Options, StartError, Takeover, WorkResult, fold_state,
};
use spindle_log::{Log, MemoryLog, Record};
use spindle_testkit::{ManualClock, new_job, submit_to};

use crate::counts::Counts;
use crate::faults::Planted;
use clients::{Answer, Asked, Clients};
use wire::{Sea, Wire};

const NODES: usize = 3;
/// Steps of one seed.
const STEPS: u64 = 40_000;
/// Time between two steps, at most.
const STEP_MS: u64 = 4;
const START_MS: u64 = 1_700_000_000_000;

/// Runs a seed.
///
/// # Errors
///
/// The rule that does not hold, and after which step that was seen.
pub fn run(seed: u64, planted: Planted, trace: bool) -> Result<Counts, String> {
    let mut world = World::new(seed, planted);
    for step in 0..STEPS {
        let done = world.step().map_err(|why| format!("step {step}: {why}"))?;
        if trace {
            println!("{step}: {done}");
        }
    }
    world.end()?;
    Ok(world.counts)
}

/// A node. Its clock always goes on.
struct Node {
    clock: Arc<ManualClock>,
    lead: Option<Lead>,
    /// For how many more steps it is stopped.
    sleeps: u64,
    /// How far it has read the log while it follows.
    folded: usize,
}

struct Lead {
    engine: Engine,
    wire: Arc<Wire>,
    answers: Vec<Answer>,
}

struct World {
    rng: ChaCha8Rng,
    sea: Sea,
    nodes: Vec<Node>,
    clients: Clients,
    queues: u64,
    /// All jobs that were ever decided on, told of or not.
    ids: BTreeSet<u64>,
    planted: Planted,
    counts: Counts,
}

impl World {
    fn new(seed: u64, planted: Planted) -> World {
        let clocks: Vec<_> = (0..NODES).map(|_| Arc::new(ManualClock::new(START_MS))).collect();
        let node = |clock: &Arc<ManualClock>| {
            clock.advance(1);
            Node { clock: Arc::clone(clock), lead: None, sleeps: 0, folded: 0 }
        };
        World {
            rng: ChaCha8Rng::seed_from_u64(seed),
            nodes: clocks.iter().map(node).collect(),
            sea: Sea::new(seed, clocks),
            clients: Clients::default(),
            queues: 0,
            ids: BTreeSet::new(),
            planted,
            counts: Counts::default(),
        }
    }

    fn step(&mut self) -> Result<&'static str, String> {
        let at = self.rng.random_range(0..NODES);
        self.sea.pass(STEP_MS);
        if let Some(left) = self.nodes[at].sleeps.checked_sub(1) {
            self.nodes[at].sleeps = left;
            return Ok("sleeps");
        }
        match self.rng.random_range(0..1000) {
            0..6 => {
                self.nodes[at].sleeps = self.rng.random_range(1..200);
                Ok("stops")
            }
            6..7 => {
                self.counts.crashes += u64::from(self.nodes[at].lead.take().is_some());
                Ok("crashes")
            }
            7..9 => self.take_over(at),
            9..300 => {
                self.sea.arrive();
                Ok("a record arrives")
            }
            300..480 => Ok(self.submit_record(at)),
            480..620 => Ok(self.take_ack(at)),
            620..680 => {
                if let Some(lead) = &self.nodes[at].lead {
                    lead.engine.lead_step();
                }
                Ok("looks at its lease")
            }
            680..820 => self.let_go(at),
            _ => self.ask(at),
        }
    }

    /// A node campaigns at the log, whatever the others do.
    fn take_over(&mut self, at: usize) -> Result<&'static str, String> {
        self.nodes[at].lead = None;
        let wire = self.sea.open();
        let options =
            Options { nonce: self.rng.random(), faults: self.planted.engine, ..Options::default() };
        let handle = Arc::clone(&wire);
        let clock = self.nodes[at].clock.clone();
        let engine = Engine::follow(clock, options, move |fold| {
            fold.begin(handle.first());
            for stored in handle.read(handle.first())? {
                fold.record(stored?)?;
            }
            fold.caught_up()?;
            let next = handle.next();
            Ok(Takeover { log: handle, next })
        });
        match engine {
            Ok(engine) => {
                self.counts.takeovers += 1;
                self.nodes[at].lead = Some(Lead { engine, wire, answers: Vec::new() });
                self.check_state(at)?;
                Ok("leads")
            }
            Err(StartError::Conflict | StartError::Unanswered) => Ok("does not lead"),
            Err(error) => Err(format!("the log cannot be folded: {error}")),
        }
    }

    /// Checks that a node that has won the log has folded everything that was told, and no record
    /// that follows the epoch record of another node than its writer.
    fn check_state(&mut self, at: usize) -> Result<(), String> {
        let Some(lead) = &self.nodes[at].lead else { return Ok(()) };
        let is_in = |id| look(&lead.engine, id).without_waiting("the judge looks");
        if !self.planted.engine.epoch_not_awaited {
            self.clients.check_all(is_in)?;
            let (mut counting, mut highest) = (self.sea.records(), 0);
            let all = counting.len();
            counting.retain(|record| {
                highest = highest.max(record.epoch);
                record.epoch == highest
            });
            self.counts.fenced += (all - counting.len()) as u64;
            let state = folded(&counting)?;
            for id in self.ids.iter().copied().map(JobId) {
                let (has, counts) = (is_in(id), found_in(&state, id));
                if has != counts {
                    return Err(format!("{id} is {has:?} in the state, and {counts:?} in the log"));
                }
            }
        }
        Ok(())
    }

    fn submit_record(&mut self, at: usize) -> &'static str {
        let Some(lead) = &self.nodes[at].lead else { return "follows" };
        lead.engine.submit_once();
        "submits"
    }

    fn take_ack(&mut self, at: usize) -> &'static str {
        let Some(lead) = &self.nodes[at].lead else { return "follows" };
        if !lead.wire.is_answered() {
            if !self.rng.random_ratio(1, 8) {
                return "waits for an answer";
            }
            self.counts.lost_answers += 1;
            lead.wire.give_up();
        }
        let is_lost = lead.engine.take_ack_once() == Committed::Unknown;
        if is_lost && self.rng.random_ratio(1, 3) {
            // A cause that delays answers delays the node's other work, too.
            self.nodes[at].sleeps = self.rng.random_range(100..400);
            return "loses an answer, and stops";
        }
        if lead.engine.failure().is_some() {
            // It closes its doors, and follows.
            self.nodes[at].lead = None;
            self.counts.deposed += 1;
            return "leads no more";
        }
        "takes an answer"
    }

    /// Looks which answers may leave.
    fn let_go(&mut self, at: usize) -> Result<&'static str, String> {
        let Some(lead) = &mut self.nodes[at].lead else { return Ok("follows") };
        let Some(released) = lead.engine.released() else { return Ok("holds its answers back") };
        let (leave, stay): (Vec<_>, Vec<_>) =
            std::mem::take(&mut lead.answers).into_iter().partition(|it| it.gate <= released);
        lead.answers = stay;
        self.counts.answers += leave.len() as u64;
        leave.iter().try_for_each(|answer| self.clients.hear(answer))?;
        Ok("answers")
    }

    fn ask(&mut self, at: usize) -> Result<&'static str, String> {
        let known = self.clients.known();
        // The newest jobs are the least certain ones.
        let newest = &known[known.len().saturating_sub(8)..];
        let one = (!newest.is_empty()).then(|| newest[self.rng.random_range(0..newest.len())]);
        let what = self.rng.random_range(0..5);
        if self.nodes[at].lead.is_none() {
            return match one.filter(|_| self.planted.followers_answer) {
                Some(id) => self.follower_answers(at, id),
                None => Ok("follows"),
            };
        }
        self.counts.commands += 1;
        let since = self.clients.count();
        let Some(lead) = &mut self.nodes[at].lead else { return Ok("follows") };
        let (asked, gate) = match (what, one) {
            (0, Some(id)) => {
                let result = WorkResult { success: true, ..WorkResult::default() };
                let (done, gate) =
                    seen(lead.engine.jobs().finish_unfinished(JobRef::Id(id), result));
                (Asked::Finish { id, is_taken: done.is_ok() }, gate)
            }
            (1..=3, Some(id)) => {
                let (found, gate) = seen(look(&lead.engine, id));
                (Asked::Find { id, found }, gate)
            }
            _ => {
                self.queues += 1;
                let queue = self.queues;
                let job = new_job(submit_to(&queue.to_string(), Origin::Api), b"x");
                let (id, gate) = seen(lead.engine.jobs().submit(job));
                self.ids.extend(id.iter().map(|id| id.0));
                (Asked::Submit { queue, id: id.ok() }, gate)
            }
        };
        lead.answers.push(Answer { asked, gate, since });
        Ok("is asked")
    }

    /// A planted fault: it answers by what it has read.
    fn follower_answers(&mut self, at: usize, id: JobId) -> Result<&'static str, String> {
        let records = self.sea.records();
        let node = &mut self.nodes[at];
        node.folded = self.rng.random_range(node.folded..=records.len());
        let found = found_in(&folded(&records[..node.folded])?, id);
        let since = self.clients.count();
        let answer =
            Answer { asked: Asked::Find { id, found }, gate: spindle_engine::Gate::OPEN, since };
        self.clients.hear(&answer)?;
        Ok("answers, though it follows")
    }

    /// Somebody takes over at last, and has all that was told.
    fn end(&mut self) -> Result<(), String> {
        self.nodes.iter_mut().for_each(|node| node.lead = None);
        for _ in 0..100 {
            if self.take_over(0)? == "leads" {
                return Ok(());
            }
        }
        Err("nobody can lead any more".to_owned())
    }
}

/// Which job it is, and how it is.
fn look(engine: &Engine, id: JobId) -> Gated<Option<(Option<u64>, Status)>> {
    let queue = engine.jobs().queue_of(JobRef::Id(id));
    let queue = queue.map(|name| name.and_then(|name| number(&name)));
    queue.and_then(|queue| {
        engine.jobs().find(JobRef::Id(id)).map(|found| found.map(|(_, status)| (queue, status)))
    })
}

fn number(name: &[u8]) -> Option<u64> {
    std::str::from_utf8(name).ok()?.parse().ok()
}

fn seen<T>(answer: Gated<T>) -> (T, spindle_engine::Gate) {
    let gate = answer.gate();
    (answer.without_waiting("the simulator judges when it leaves"), gate)
}

fn folded(records: &[Record]) -> Result<State, String> {
    let log = MemoryLog::new();
    for record in records {
        log.submit(log.next(), record).map_err(|error| error.to_string())?;
        log.next_ack();
    }
    fold_state(&log, &Options::default()).map_err(|error| error.to_string())
}

fn found_in(state: &State, id: JobId) -> Option<(Option<u64>, Status)> {
    let found = state.job(id)?;
    let queue = state.queue_of(&found).and_then(|queue| number(queue.name()));
    Some((queue, found.status()))
}
