//! The core alone against the model: no engine, no disk, every step compared.

use std::collections::BTreeMap;

use spindle_core::command::Compact;
use spindle_core::seat::Seat;
use spindle_core::state::Place;
use spindle_core::{
    BytesRef, Command, Decision, Defaults, EVENTS_MAX, Event, Found, JobId, JobImage, Rejection,
    State, decide,
};

use crate::defaults::defaults;
use crate::model::{Model, fold_difference};
use crate::workload::{Profile, Step, View, Workload};

/// Moved deadlines after a restart lie at least this far ahead.
const GRACE_MS: u64 = 30_000;

/// A run of one seed against the core alone.
#[derive(Debug)]
pub struct Direct {
    state: State,
    model: Model,
    defaults: Defaults,
    seat: Seat,
    now_ms: u64,
    log: Vec<(Place, Event)>,
    position: u64,
    finished: BTreeMap<u64, JobImage>,
    decision: Decision,
    /// Counts of events, by name.
    pub events: BTreeMap<&'static str, u64>,
    /// Prints every step.
    pub trace: bool,
}

/// The rule that was broken, and at which step.
#[derive(Debug, thiserror::Error)]
#[error("step {step}: {why}\n  after {what}")]
pub struct Difference {
    step: u64,
    what: String,
    why: String,
}

type Judged<T> = Result<T, String>;

impl Direct {
    /// A server that never ran, at some time.
    pub fn new() -> Direct {
        let defaults = defaults();
        Direct {
            state: State::new(0x5eed, defaults.clone()),
            model: Model::new(defaults.clone()),
            defaults,
            seat: Seat::default(),
            now_ms: 1_000_000,
            log: Vec::new(),
            position: 1,
            finished: BTreeMap::new(),
            decision: Decision::default(),
            events: BTreeMap::new(),
            trace: false,
        }
    }

    /// Runs a seed for so many steps, comparing after each.
    pub fn run(&mut self, seed: u64, steps: u64) -> Result<(), Difference> {
        let mut workload = Workload::new(seed, Profile::Mixed);
        if seed % 4 == 3 {
            self.share().map_err(|why| Difference { step: 0, what: "its start".into(), why })?;
        }
        for step in 0..steps {
            let view =
                View { model: &self.model, finished: Some(&self.finished), now_ms: self.now_ms };
            let next = workload.step(view);
            if self.trace {
                println!("{step} at {}: {next:?}", self.now_ms);
            }
            self.take(&next).map_err(|why| self.difference(step, &next, why))?;
            let view =
                View { model: &self.model, finished: Some(&self.finished), now_ms: self.now_ms };
            for command in [workload.schedules(view), workload.batches(view)].into_iter().flatten()
            {
                let next = Step::Ask(command);
                self.take(&next).map_err(|why| self.difference(step, &next, why))?;
            }
        }
        Ok(())
    }

    /// Begins as the first of two shards.
    fn share(&mut self) -> Judged<()> {
        self.seat = Seat { shard: 0, shards: 2 };
        self.model.moved.seat = self.seat;
        self.ask(&Command::Start { epoch: self.model.epoch + 1, seat: self.seat })
    }

    fn difference(&self, step: u64, next: &Step, why: String) -> Difference {
        Difference { step, what: format!("{next:?} at {}", self.now_ms), why }
    }

    fn take(&mut self, step: &Step) -> Judged<()> {
        match step {
            Step::Advance(ms) => {
                self.now_ms += ms;
                self.tick()?;
            }
            Step::Ask(command) => self.ask(command)?,
            Step::Restart => self.restart()?,
            Step::Trim => self.trim()?,
        }
        self.tick()?;
        self.model.compare(&self.state, self.now_ms)
    }

    fn ask(&mut self, command: &Command) -> Judged<()> {
        let bulk = matches!(command, Command::HolderGone { .. });
        let refusals = self.model.refusals(command, self.now_ms);
        loop {
            match self.decide(command) {
                Ok(events) if self.ends_spent(command, &events) => {
                    self.fold(events);
                    return self.ask(command);
                }
                Ok(events) if refusals.is_empty() => {
                    let before = self.position;
                    let leased = self.judge_lease(command, &events)?;
                    self.fold(events);
                    if leased.is_some() || !bulk || before == self.position {
                        self.model.apply(command, self.now_ms, leased);
                        return self.judge_finished();
                    }
                }
                Ok(_) => return Err(format!("accepted, and should be {refusals:?}")),
                Err(rejection) if refusals.allow(&rejection) => return Ok(()),
                Err(rejection) => {
                    return Err(format!("refused as {rejection:?}, and should be {refusals:?}"));
                }
            }
        }
    }

    /// Whether a lease met a job without tries left: that one is dead, and the lease asks again.
    fn ends_spent(&mut self, command: &Command, events: &[(Event, bool)]) -> bool {
        let Command::Lease(lease) = command else { return false };
        let (choices, _) = self.model.lease_choices(lease, self.now_ms);
        let Some((Event::Finished(image), _)) = events.first() else { return false };
        let id = JobId(image.id);
        let spent = choices.contains(&id) && self.model.is_spent(id);
        if spent {
            self.model.end_spent(id, self.now_ms);
        }
        spent
    }

    fn judge_lease(&self, command: &Command, events: &[(Event, bool)]) -> Judged<Option<JobId>> {
        let Command::Lease(lease) = command else { return Ok(None) };
        let (choices, _) = self.model.lease_choices(lease, self.now_ms);
        let leased = events.iter().find_map(|(event, _)| match event {
            Event::Leased(leased) => Some(JobId(leased.id)),
            _ => None,
        });
        match leased {
            Some(id) if choices.contains(&id) && !self.model.is_spent(id) => Ok(leased),
            _ => Err(format!("leased {leased:?}, and should be one of {choices:?}")),
        }
    }

    /// Checks the images of finished jobs against the model.
    fn judge_finished(&mut self) -> Judged<()> {
        self.finished.retain(|id, _| self.state.job(JobId(*id)).is_some());
        for (id, image) in &self.finished {
            let Some(job) = self.model.job(JobId(*id)) else { continue };
            if job.status().is_finished() && job.status() != image.status() {
                return Err(format!("image {image:?} should be {job:?}"));
            }
        }
        Ok(())
    }

    fn decide(&mut self, command: &Command) -> Result<Vec<(Event, bool)>, Rejection> {
        self.state.wake_buckets(self.now_ms);
        let mut outcome = decide(&self.state, command, self.now_ms, &mut self.decision);
        // A hint may reveal better jobs, so with hints the decision is not final.
        while !self.decision.blocked.is_empty() {
            self.state.apply_hints(&self.decision, self.now_ms);
            outcome = decide(&self.state, command, self.now_ms, &mut self.decision);
        }
        outcome.map(|()| {
            assert!(self.decision.events.len() <= 2 * EVENTS_MAX, "too many events");
            std::mem::take(&mut self.decision.events)
        })
    }

    fn fold(&mut self, events: Vec<(Event, bool)>) {
        let position = self.position;
        self.position += u64::from(!events.is_empty());
        for (offset, (event, logged)) in (0u32..).zip(events) {
            *self.events.entry(event.name()).or_default() += 1;
            let place = Place { position, offset };
            if let Event::Finished(image) | Event::Compacted(image) = &event
                && image.status().is_finished()
            {
                self.finished.insert(image.id, image.clone());
            }
            if let Event::Retried(image) = &event {
                self.finished.remove(&image.id);
            }
            self.state.evolve(&event, place);
            if logged {
                self.log.push((place, event));
            }
        }
    }

    /// Runs what is due, in the core and in the model.
    fn tick(&mut self) -> Judged<()> {
        let mut rounds = 0;
        while self.state.has_surplus()
            || self.state.next_deadline(false).is_some_and(|due| due <= self.now_ms)
        {
            let events = self
                .decide(&Command::Tick { hold_expiry: false })
                .map_err(|rejection| format!("a tick was refused: {rejection}"))?;
            let idle = events.is_empty();
            self.fold(events);
            rounds += 1;
            if idle {
                break;
            }
            if rounds > 10_000 {
                return Err("ticks do not come to an end".into());
            }
        }
        self.model.tick(self.now_ms, false);
        self.judge_finished()
    }

    /// The fold of the log is the state, and the next server starts on it.
    fn restart(&mut self) -> Judged<()> {
        self.state = self.refold()?;
        self.model.lose_memory();
        let epoch = self.model.epoch + 1;
        self.ask(&Command::Start { epoch, seat: self.seat })?;
        let mut from = JobId(0);
        loop {
            let next = self.state.jobs_from(from).nth(256).map(|job| job.id());
            let command = Command::Recover { from, grace_ms: GRACE_MS };
            let events =
                self.decide(&command).map_err(|rejection| format!("recover: {rejection}"))?;
            self.fold(events);
            self.model.apply(&command, self.now_ms, None);
            let Some(next) = next else { break };
            from = next;
        }
        Ok(())
    }

    /// The fold of the log, which must be the same as the state.
    fn refold(&self) -> Judged<State> {
        let mut folded = State::new(self.position, self.defaults.clone());
        for (place, event) in &self.log {
            folded.evolve(event, *place);
        }
        fold_difference(&self.state, &folded, self.now_ms)?;
        Ok(folded)
    }

    /// Compacts everything that still needs an old record, then drops those records.
    fn trim(&mut self) -> Judged<()> {
        let below = self.position;
        let moved = |bytes: &BytesRef| BytesRef { position: below, ..bytes.clone() };
        let mut items = self.state.items_needing(below);
        let needs_old = |job: &Found<'_>| job.oldest_record().is_some_and(|oldest| oldest < below);
        for found in self.state.jobs_from(JobId(0)).filter(needs_old) {
            let id = found.id();
            let Found::Live(job) = found else {
                let mut image = self.finished[&id.0].clone();
                image.payload = image.payload.as_ref().map(moved);
                let pages = image.options.iter_mut().flat_map(|options| options.pages.iter_mut());
                pages.for_each(|page| *page = moved(page));
                items.push(Compact::Finished(Box::new(image)));
                continue;
            };
            items.extend(job.options().pages.iter().map(|page| {
                let (old, new) = (page.clone(), moved(page));
                Compact::Page { id, old, new }
            }));
            let result = job.outcome().and_then(|outcome| outcome.bytes.as_ref()).map(moved);
            let payload = Some(moved(&job.payload()));
            items.push(Compact::Job { id, revision: job.revision(), payload, result });
        }
        for item in items {
            self.ask(&Command::Compact(item))?;
        }
        self.log.retain(|(place, _)| place.position >= below);
        self.refold().map_err(|why| format!("after a trim below {below}, {why}"))?;
        Ok(())
    }
}

impl Default for Direct {
    fn default() -> Self {
        Direct::new()
    }
}
