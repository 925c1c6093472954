//! The whole engine on one thread: core, group commit, a log on a disk that loses unsynced writes,
//! a clock moved by hand. Every answer is judged when it comes, and the state after each crash.

mod asks;
mod callers;
mod clocks;
mod crashes;
mod deliveries;
mod full;
mod history;
mod joins;
mod large;
mod lost;
mod network;
mod people;
mod reads;
mod recovery;
mod relabel;
mod repair;
mod rot;
mod schedules;
mod server;
mod waits;

use std::collections::BTreeSet;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spindle_core::seat::Seat;
use spindle_core::{JobId, Status};
use spindle_engine::{Committed, Gate, Gated};
use spindle_testkit::disk::Operation;

use crate::counts::Counts;
use crate::faults::Planted;
use crate::model::Model;
use crate::workload::{Profile, Step, View, Workload};
use callers::Callers;
use clocks::Clocks;
use full::Phases;
use history::History;
use joins::Persisted;
use large::Large;
use rot::Rot;
use server::Server;
use waits::Waits;

/// A rule that does not hold, and after which step that was seen.
#[derive(Debug, thiserror::Error)]
#[error("step {step}: {why}\n  after {what}")]
pub struct Violation {
    step: u64,
    what: String,
    why: String,
}

type Judged<T = ()> = Result<T, String>;

/// What the engine answered, and what the answer waits for. The simulator sees both at once,
/// because it judges whether the gate keeps its promise.
fn seen<T>(answer: Gated<T>) -> (T, Gate) {
    let gate = answer.gate();
    (answer.without_waiting("the simulator judges what the gate promises"), gate)
}

/// Commands of one seed, at least.
pub const COMMANDS_MIN: u64 = 2_000;
/// After this many a trim must have come. Rarely, a seed keeps so much alive that its log does not
/// reach twice that size for thousands of commands.
const COMMANDS_MAX: u64 = 20 * COMMANDS_MIN;
/// Crashes of one seed, at least.
const CRASHES_MIN: u64 = 3;
/// Commits until all is durable, at most.
const TRIES_MAX: u32 = 10_000;
/// A complete comparison of model and state every so many steps.
const COMPARE_EVERY: u64 = 32;

/// One seed's run.
pub struct Run {
    rng: ChaCha8Rng,
    workload: Workload,
    server: Server,
    model: Model,
    history: History,
    waits: Waits,
    /// Ids that durable answers revealed.
    known_ids: BTreeSet<u64>,
    /// The id that the next job has to get. A crash leaves that open.
    next_id: Option<JobId>,
    /// The newest epoch of a lease that a durable answer revealed.
    known_epoch: u64,
    persisted: Vec<Persisted>,
    large: Large,
    rot: Rot,
    losses: ChaCha8Rng,
    callers: Callers,
    clocks: Clocks,
    /// The server was stopped in order just now.
    ended: bool,
    phases: Phases,
    /// The request of a person that is under way, until a crash.
    request: Option<people::Request>,
    /// What was accepted on a full disk and is not durable yet.
    full_changes_undurable: u64,
    planted: Planted,
    counts: Counts,
    seen_trims: u64,
    step: u64,
    /// Errors of the disk that were planned since the power went last.
    errors_planned: Vec<Operation>,
    /// Some bytes cannot be read.
    unreadable: bool,
    trace: bool,
    /// Compare after every step.
    slow: bool,
}

impl Run {
    /// Runs a seed of everything; `trace` prints every step, and compares everything after each.
    pub fn seed(seed: u64, planted: Planted, trace: bool) -> Result<Counts, Violation> {
        Run::seed_of(Profile::Mixed, seed, planted, trace)
    }

    /// Runs a seed of this profile.
    pub fn seed_of(
        profile: Profile,
        seed: u64,
        planted: Planted,
        trace: bool,
    ) -> Result<Counts, Violation> {
        let alone = crate::log_alone::run(seed, planted).map_err(|why| Violation {
            step: 0,
            what: "the log alone".into(),
            why,
        })?;
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x51_3d1e);
        let is_in_flight = profile == Profile::InFlight;
        // Every fourth log is one of two shards.
        let shards = if seed % 4 == 3 { 2 } else { 1 };
        let seat = Seat { shard: 0, shards };
        let server = Server::begin(rng.random(), planted, is_in_flight, seat)
            .map_err(|why| Violation { step: 0, what: "the first start".into(), why })?;
        let now_ms = server.now_ms();
        let mut model = server.empty_model();
        model.leave_ids();
        model.moved.seat = seat;
        let phases = if is_in_flight { Phases::none() } else { Phases::new(&mut rng) };
        let mut run = Run {
            rng,
            workload: Workload::new(seed, profile),
            server,
            history: History::new(&model),
            model,
            waits: Waits::default(),
            known_ids: BTreeSet::new(),
            next_id: None,
            known_epoch: 0,
            persisted: Vec::new(),
            large: Large::default(),
            rot: Rot::new(seed),
            losses: lost::draws(seed),
            callers: Callers::new(seed, planted, now_ms),
            clocks: Clocks::new(seed),
            ended: false,
            phases,
            request: None,
            full_changes_undurable: 0,
            planted,
            counts: Counts::default(),
            seen_trims: 0,
            step: 0,
            errors_planned: Vec::new(),
            unreadable: false,
            trace,
            slow: trace,
        };
        run.live().map(|mut counts| {
            counts.crashes += alone.crashes;
            counts
        })
    }

    fn live(&mut self) -> Result<Counts, Violation> {
        self.started().map_err(|why| self.violation("the first start", why))?;
        let crash_every = COMMANDS_MIN / (CRASHES_MIN + 3);
        let mut crash_at = self.rng.random_range(50..crash_every);
        while self.counts.commands < COMMANDS_MIN || !self.has_seen_enough() {
            self.step += 1;
            match self.turn_phase() {
                Ok(crash) => crash_at = crash.unwrap_or(crash_at),
                // Answers of a dead server do not count.
                Err(_) if self.server.is_dead() => {}
                Err(why) => return Err(self.violation("the disk is full, or no more", why)),
            }
            let now_ms = self.server.now_ms();
            let view = View { model: &self.model, finished: None, now_ms };
            let mut step = self.workload.step(view);
            if self.counts.commands >= crash_at {
                crash_at = self.counts.commands + self.rng.random_range(50..crash_every);
                step = Step::Restart;
            }
            if self.trace {
                println!("{} at {now_ms}: {step:?}", self.step);
            }
            self.take(&step).map_err(|why| self.violation(&format!("{step:?}"), why))?;
            let view = View { model: &self.model, finished: None, now_ms: self.server.now_ms() };
            let (one, other) = (self.workload.schedules(view), self.workload.batches(view));
            for command in one.into_iter().chain(other) {
                let step = Step::Ask(command);
                if self.trace {
                    println!("{} beside it: {step:?}", self.step);
                }
                self.take(&step).map_err(|why| self.violation(&format!("{step:?}"), why))?;
            }
            self.wait_for_batch().map_err(|why| self.violation("a wait for a batch", why))?;
            if self.counts.commands > COMMANDS_MAX {
                return Err(self.violation("all of it", "no trim came".into()));
            }
        }
        self.crash().map_err(|why| self.violation("the last crash", why))?;
        Ok(self.counts)
    }

    fn has_seen_enough(&self) -> bool {
        self.counts.crashes >= CRASHES_MIN && self.counts.trims >= 1
    }

    fn violation(&self, what: &str, why: String) -> Violation {
        Violation { step: self.step, what: what.to_owned(), why }
    }

    /// One step and what goes on beside it. A dead server is found out here.
    fn take(&mut self, step: &Step) -> Judged {
        let taken = self.take_alive(step);
        if self.server.is_dead() {
            return self.crash();
        }
        taken
    }

    fn take_alive(&mut self, step: &Step) -> Judged {
        // A start, too, may have let time pass.
        self.happen_what_is_due()?;
        self.set_clock()?;
        match step {
            Step::Advance(ms) => self.server.clock.advance(*ms),
            Step::Restart => return self.plan_crash(),
            Step::Trim => self.compaction(40)?,
            Step::Ask(command) => {
                self.ask(command)?;
                self.take_deliveries()?;
            }
        }
        self.happen_what_is_due()?;
        if self.rng.random_ratio(1, 6) {
            self.read()?;
        }
        if self.rng.random_ratio(1, 5) {
            self.commit()?;
        }
        if self.rng.random_ratio(1, 4) {
            self.compaction(1)?;
        }
        if self.rng.random_ratio(1, 6) && !self.server.is_dead() {
            self.relabel()?;
        }
        if (self.slow || self.step.is_multiple_of(COMPARE_EVERY)) && !self.server.is_dead() {
            self.compare()?;
        }
        Ok(())
    }

    /// Ticks, in the engine and in the model, schedules that fire, and the answers that brings.
    fn happen_what_is_due(&mut self) -> Judged {
        self.tick()?;
        while self.fire_schedule()? {
            // The job that a schedule has replaced may be one finished job too many.
            self.tick()?;
        }
        let now_ms = self.server.now_ms();
        match self.waits.overdue(&self.model, now_ms) {
            Some(ticket) => Err(format!("{ticket:?} should have timed out")),
            None => Ok(()),
        }
    }

    fn tick(&mut self) -> Judged {
        self.server.engine().tick_once();
        self.follow_tick()?;
        let before = self.finished();
        self.take_deliveries()?;
        if self.finished() > before {
            // A lease given in this tick came upon a spent job, which is one finished job too many.
            self.follow_tick()?;
        }
        Ok(())
    }

    /// How many jobs have ended.
    fn finished(&self) -> usize {
        self.model.jobs().filter(|job| job.status().is_finished()).count()
    }

    /// The model does what the engine has done in a tick.
    fn follow_tick(&mut self) -> Judged {
        let held = self.server.held();
        // The disk may have become full between two that went.
        let kept = if held.surplus { self.kept_by_engine() } else { BTreeSet::new() };
        let mut steps_max = if held.due { self.steps_of_tick() } else { usize::MAX };
        self.change_many(|model, now_ms, mut versions| {
            loop {
                if steps_max > 0 {
                    model.happen_what_is_due(now_ms, steps_max, versions.as_deref_mut());
                }
                if held.due {
                    steps_max = 0;
                }
                // A caller may have waited for a job that went.
                if !model.drop_surplus(|id| !kept.contains(&id)) {
                    break;
                }
            }
        })
    }

    /// How many steps of what is due the engine has taken before there was no room for the next one.
    fn steps_of_tick(&self) -> usize {
        let mut versions = vec![self.model.clone()];
        let now_ms = self.server.now_ms();
        self.model.clone().happen_what_is_due(now_ms, usize::MAX, Some(&mut versions));
        self.server
            .engine()
            .inspect(|state| {
                // The engine first forgets the jobs of clients that have gone, so these prove
                // nothing.
                let is_taken = |step: &[Model]| {
                    let [before, after] = step else { return false };
                    before.jobs().filter(|job| !job.foreground).any(|job| {
                        let id = JobId(job.id);
                        match (after.job(id), state.image(id)) {
                            (Some(after), _) if after.revision == job.revision => false,
                            (Some(_), Some(image)) => image.revision > job.revision,
                            (Some(_), None) => state.status(id).is_some(),
                            (None, _) => state.status(id).is_none(),
                        }
                    })
                };
                // A step may change no job, but a batch.
                versions.windows(2).collect::<Vec<_>>().into_iter().rposition(is_taken)
            })
            .map_or(0, |last| last + 1)
    }

    /// The jobs of the model that the engine has as well.
    fn kept_by_engine(&self) -> BTreeSet<u64> {
        let ids = self.model.jobs().map(|job| job.id);
        self.server
            .engine()
            .inspect(|state| ids.filter(|id| state.status(JobId(*id)).is_some()).collect())
    }

    /// Something changes the model: the change gets a number and is remembered with the position
    /// it stands at.
    fn change(&mut self, change: impl FnOnce(&mut Model, u64)) -> Judged {
        let before = self.model.clone();
        let now_ms = self.server.now_ms();
        change(&mut self.model, now_ms);
        self.model.settle_turns();
        self.model.count_batches(now_ms);
        self.record(&before, Vec::new());
        Ok(())
    }

    /// As [`Run::change`], for one that changes job after job: a crash may leave a part of it. It notes the versions of
    /// jobs between the first and the last, if asked to.
    fn change_many(
        &mut self,
        change: impl FnOnce(&mut Model, u64, Option<&mut Vec<Model>>),
    ) -> Judged {
        let before = self.model.clone();
        let mut versions = Vec::new();
        let may_be_torn = self.history.may_be_torn(self.server.tail());
        let now_ms = self.server.now_ms();
        change(&mut self.model, now_ms, may_be_torn.then_some(&mut versions));
        self.model.settle_turns();
        self.model.count_batches(now_ms);
        if may_be_torn {
            versions.push(self.model.clone());
        }
        self.record(&before, versions);
        Ok(())
    }

    fn record(&mut self, before: &Model, versions: Vec<Model>) {
        self.drop_abandoned();
        let tail = self.server.tail();
        self.count_flows(before);
        self.history.record(before, &self.model, versions, tail);
    }

    /// Counts what became of flows and batches in a change.
    fn count_flows(&mut self, before: &Model) {
        let Run { model, counts, .. } = self;
        for job in model.jobs() {
            let was_blocked = before.job(JobId(job.id)).map(|job| job.status() == Status::Blocked);
            let is_blocked = job.status() == Status::Blocked;
            counts.blocked += u64::from(is_blocked && was_blocked != Some(true));
            let goes_on = matches!(job.status(), Status::Ready | Status::Scheduled);
            counts.unblocked += u64::from(goes_on && was_blocked == Some(true));
        }
        for batch in model.batches() {
            let before = before.batch(batch.opened.id);
            let was_sealed = before.is_some_and(|batch| batch.is_sealed);
            let had_ended = before.is_some_and(|batch| batch.ended_ms().is_some());
            counts.batches_sealed += u64::from(batch.is_sealed && !was_sealed);
            counts.batches_ended += u64::from(batch.ended_ms().is_some() && !had_ended);
        }
    }

    /// Drops foreground jobs whose lease ended after all clients stopped waiting.
    fn drop_abandoned(&mut self) {
        for id in self.waits.abandoned_and_free(&self.model) {
            self.model.forget(id);
        }
    }

    /// Commits. What was due and had to wait happens as soon as there is room.
    fn commit_once(&mut self) -> Judged<Committed> {
        let outcome = self.server.engine().commit_once();
        self.counts.lost_answers += u64::from(outcome == Committed::Unknown);
        self.let_timers_go_on()?;
        Ok(outcome)
    }

    fn let_timers_go_on(&mut self) -> Judged {
        if self.server.held().any() && !self.server.is_dead() {
            self.counts.timers_held += 1;
            self.happen_what_is_due()?;
        }
        Ok(())
    }

    /// Commits all that is decided, as often as it takes when answers are lost.
    fn commit_all(&mut self) -> Judged {
        for _ in 0..TRIES_MAX {
            match self.commit_once()? {
                Committed::Some | Committed::Unknown => {}
                Committed::Nothing | Committed::Full | Committed::Failed => return Ok(()),
            }
        }
        Err("what is decided never gets into the log".into())
    }

    fn commit(&mut self) -> Judged {
        if self.server.is_in_flight() && self.rng.random_ratio(5, 6) {
            return self.fly();
        }
        let outcome = self.commit_once()?;
        self.judge_commit(outcome)?;
        self.server.maintain();
        self.history.prune(self.server.durable());
        Ok(())
    }

    /// Steps of compaction; after a trim the fold of what is left is the state.
    fn compaction(&mut self, steps: u32) -> Judged {
        for _ in 0..steps {
            let full = self.server.is_full();
            let more = self.server.engine().compaction_step().unwrap_or(false);
            self.let_timers_go_on()?;
            self.take_deliveries()?;
            if steps > 1 && self.rng.random_ratio(1, 2) {
                self.commit()?;
            }
            if self.server.is_dead() {
                return Ok(());
            }
            self.change(|_, _| {})?;
            let trims = self.server.engine().trims();
            if trims > self.seen_trims {
                self.counts.trims += trims - self.seen_trims;
                self.counts.full_trims += if full { trims - self.seen_trims } else { 0 };
                self.seen_trims = trims;
                self.history.trimmed(self.server.tail());
                if self.rng.random_ratio(1, 4) {
                    return self.crash();
                }
                self.check_fold()?;
                self.read_large(false)?;
            }
            if !more {
                break;
            }
        }
        Ok(())
    }

    fn check_fold(&mut self) -> Judged {
        self.commit_all()?;
        self.history.prune(self.server.durable());
        // On a full disk some of it may wait for room.
        if self.server.is_dead() || self.server.durable() < self.server.tail() {
            return Ok(());
        }
        let folded = self.server.fold()?;
        let now_ms = self.server.now_ms();
        let difference =
            |state: &spindle_core::State| crate::model::fold_difference(state, &folded, now_ms);
        self.server.engine().inspect(difference).map_err(|why| format!("after a trim, {why}"))
    }

    fn compare(&self) -> Judged {
        self.server.engine().inspect(|state| self.model.compare(state, self.server.now_ms()))
    }
}
