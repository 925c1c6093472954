//! What is behind the engine's one lock: the core's state, the batch, and the parts that follow the
//! events.
//!
//! Every event goes through [`Inner::happen`], which logs it, folds it and shows it to the parts:
//! after the fold, and also before it where a part needs what the event is about to remove.
//! Commands reach it through [`Inner::apply`], leases through [`Inner::lease`]. `wait/hand_off.rs`
//! decides who is served then.

use spindle_core::command::Claim;
use spindle_core::job::JOB_ID_SEQUENCE_END;
use spindle_core::{Command, Decision, Event, Found, JobId, Place, Rejection, State, decide};

use crate::clock::ClockTrust;
use crate::commit::{Batch, Payload};
use crate::constraints::Pass;
use crate::gate::{Gate, Gated};
use crate::observe::{Footprint, Numbers};
use crate::options::Options;
use crate::replica::ChangeSet;
use crate::wait::Waiting;

/// Ids are reserved in blocks of this many.
const ID_BLOCK: u64 = 1 << 16;

pub(crate) struct Inner {
    pub state: State,
    pub batch: Batch,
    pub waiting: Waiting,
    pub numbers: Numbers,
    pub footprint: Footprint,
    /// Which jobs have changed since the keeper of their copy last asked.
    pub changes: ChangeSet,
    /// How far jobs that were there before the newest constraints have been matched.
    pub pass: Pass,
    /// The newest decision, for [`Inner::cut_off_at`] and to use its memory again. After waiting
    /// clients were served, it may be one that was made for them.
    pub decision: Decision,
    next_id: u64,
    /// What a foreground handle must wait for: the record that reserved its id.
    ids_gate: Gate,
    /// The newest undo of a deletion. A finished job that is brought back has an image older than
    /// its deletion, so nothing in the job says which record brought it back.
    undone_gate: Gate,
    /// Nothing is deleted for its TTL: the clock and the log disagree.
    pub hold_expiry: bool,
    /// What is due waits: the disk is full, and nearly nothing is left of the reserve.
    pub holds_timers: bool,
    /// Schedules wait: there is no room for new jobs.
    pub holds_schedules: bool,
    /// Which difference between clock and log is believed.
    pub clock_trust: ClockTrust,
    /// By how much time was set forward since the start, in all.
    pub set_forward_ms: u64,
    /// No new leases: the server stops.
    pub stopping: bool,
    pub now_ms: u64,
    pub options: Options,
    /// Leases decided, including those that were only looked up and not given.
    #[cfg(test)]
    pub decided: u64,
}

impl Inner {
    pub fn new(state: State, options: Options) -> Inner {
        let changes = ChangeSet::of(options.copied);
        Inner {
            state,
            batch: Batch::new(options.payload_memory_bytes),
            waiting: Waiting::default(),
            numbers: Numbers::default(),
            footprint: Footprint::default(),
            changes,
            pass: Pass::default(),
            decision: Decision::default(),
            next_id: 1,
            ids_gate: Gate::OPEN,
            undone_gate: Gate::OPEN,
            hold_expiry: false,
            holds_timers: false,
            holds_schedules: false,
            clock_trust: ClockTrust::default(),
            set_forward_ms: 0,
            stopping: false,
            now_ms: 0,
            options,
            #[cfg(test)]
            decided: 0,
        }
    }

    // ---- gates ----

    /// What a negative answer must wait for: everything decided so far.
    pub fn tail(&self) -> Gate {
        self.batch.tail()
    }

    /// What an answer must wait for that depends on the command just decided.
    pub fn own_gate(&self) -> Gate {
        if self.options.faults.answer_before_sync { Gate::OPEN } else { self.tail() }
    }

    /// As [`Inner::own_gate`], if what was decided is in the log.
    pub fn own_gate_if(&self, logged: bool) -> Gate {
        if logged { self.own_gate() } else { Gate::OPEN }
    }

    /// What an answer about a job must wait for.
    pub fn gate_of(&self, found: &Found<'_>) -> Gate {
        match found {
            // In no record: what it reveals is that its id was reserved.
            Found::Live(job) if job.is_foreground() => self.ids_gate,
            // Its deletion is in a younger record than its image.
            Found::Finished(job) if job.deletion().is_some() => self.tail(),
            _ => {
                let own = found.last().map_or(self.tail(), |last| Gate(last + 1).min(self.tail()));
                if matches!(found, Found::Finished(_)) { own.max(self.undone_gate) } else { own }
            }
        }
    }

    /// An answer that depends on everything decided so far.
    pub fn gated<T>(&self, value: T) -> Gated<T> {
        Gated::new(value, self.tail())
    }

    /// What a foreground job's handle must wait for.
    pub fn ids_gate(&self) -> Gate {
        self.ids_gate
    }

    // ---- commands ----

    /// The time of everything decided from now on. It never goes back.
    pub fn set_now(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
        self.batch.set_header(self.state.server().epoch, self.now_ms);
    }

    /// Decides, logs, folds. The bytes of `payload` stand in the log before the event that names
    /// them.
    pub fn apply(&mut self, command: &Command, payload: Option<&Payload>) -> Result<(), Rejection> {
        self.apply_decided(payload, |state, now_ms, out| decide(state, command, now_ms, out))
    }

    /// As [`Inner::apply`], with a deciding function in the place of a command.
    pub fn apply_decided(
        &mut self,
        payload: Option<&Payload>,
        decide: impl FnOnce(&State, u64, &mut Decision) -> Result<(), Rejection>,
    ) -> Result<(), Rejection> {
        self.apply_after(payload, decide, |_, _| {})
    }

    /// As [`Inner::apply`], with all that is decided in one record.
    pub fn apply_together(
        &mut self,
        command: &Command,
        payload: Option<&Payload>,
    ) -> Result<(), Rejection> {
        self.apply_after(
            payload,
            |state, now_ms, out| decide(state, command, now_ms, out),
            |batch, decision| batch.make_room_for(decision.events.iter().map(|(event, _)| event)),
        )
    }

    fn apply_after(
        &mut self,
        payload: Option<&Payload>,
        decide: impl FnOnce(&State, u64, &mut Decision) -> Result<(), Rejection>,
        before_events: impl FnOnce(&mut Batch, &Decision),
    ) -> Result<(), Rejection> {
        let mut decision = std::mem::take(&mut self.decision);
        let decided = decide(&self.state, self.now_ms, &mut decision);
        if !decision.blocked.is_empty() {
            self.state.apply_hints(&decision, self.now_ms);
        }
        if decided.is_ok() {
            if let Some(payload) = payload {
                self.batch.put_payload(payload);
            }
            before_events(&mut self.batch, &decision);
            let mut events = decision.events.iter().peekable();
            while let Some((event, logged)) = events.next() {
                // A crash leaves both, or none.
                if let Some((counted @ Event::BatchesCounted(_), _)) = events.peek() {
                    self.batch.make_room_for([event, counted].into_iter());
                }
                self.happen(event, *logged);
            }
        }
        self.decision = decision;
        decided
    }

    /// What the last decision ended with, if it has as many events as one decision may have: then there is more to
    /// decide.
    pub fn cut_off_at<T>(&self, of: impl Fn(&Event) -> Option<T>) -> Option<T> {
        let is_counting = |event: &Event| matches!(event, Event::BatchesCounted(_));
        let events = self.decision.events.iter().map(|(event, _)| event);
        let events = events.rev().filter(|event| !is_counting(event));
        let is_cut_off = events.clone().count() >= spindle_core::EVENTS_MAX;
        events.filter(|_| is_cut_off).find_map(of)
    }

    /// Logs and folds one event.
    pub fn happen(&mut self, event: &Event, logged: bool) {
        let place = if logged {
            self.batch.put_event(event)
        } else {
            Place { position: self.batch.position(), offset: 0 }
        };
        self.note_attempt_end(event);
        if let Event::Undeleted(_) = event {
            self.undone_gate = self.tail();
        }
        if let Event::Ready(ready) = event {
            self.numbers.becomes_ready(JobId(ready.id), &self.state, self.now_ms);
        }
        self.fold_one(event, place);
        self.numbers.after_fold(event, &self.state, self.now_ms);
        self.waiting.after_fold(event, place, &self.state, self.batch.tail());
        if let Event::Started(_) = event {
            self.set_now(self.now_ms);
        }
    }

    /// Folds an event, as when it is read from the log.
    pub fn fold_one(&mut self, event: &Event, place: Place) {
        self.changes.note(event);
        self.numbers.before_fold(event, &self.state);
        self.footprint.before_fold(event, &self.state);
        self.state.evolve(event, place);
        self.footprint.after_fold(event, &self.state);
    }

    /// A worker extends or ends its lease.
    pub fn claimed(&mut self, claim: Claim) {
        self.numbers.workers.claimed(claim, &self.state, self.now_ms);
    }

    // ---- ids ----

    /// New ids follow all that were ever reserved; the first is the first of the shard.
    pub fn begin_ids(&mut self) {
        let first_id = u64::from(self.options.seat.shard) * JOB_ID_SEQUENCE_END + 1;
        self.next_id = self.state.server().ids_until.max(first_id);
        self.reserve_ids();
    }

    /// All jobs there are have numbers below this.
    pub fn next_id(&self) -> JobId {
        JobId(self.next_id)
    }

    /// The next id.
    pub fn take_id(&mut self) -> JobId {
        self.reserve_ids();
        let id = self.next_id;
        self.next_id += 1;
        JobId(id)
    }

    /// Blocks are reserved well ahead, so that no answer waits for one.
    fn reserve_ids(&mut self) {
        if self.next_id + ID_BLOCK / 2 >= self.state.server().ids_until {
            let until = self.state.server().ids_until.max(self.next_id) + ID_BLOCK;
            if self.apply(&Command::ReserveIds { until }, None).is_ok() {
                self.ids_gate = self.own_gate();
            }
        }
    }

    /// Gives back all ids that are reserved and were never taken. A later submit reserves a new
    /// block before it takes its id.
    pub fn return_ids(&mut self) {
        self.apply(&Command::ReturnIds { from: self.next_id }, None).ok();
    }

    /// Gives back the id taken last: the submit was refused.
    pub fn return_id(&mut self, id: JobId) {
        if self.next_id == id.0 + 1 {
            self.next_id = id.0;
        }
    }
}
