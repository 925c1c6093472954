//! What a command causes. Pure: reads the state, changes nothing, knows no clock.

mod compaction;
mod finish;
mod hold;
mod lease;
mod limits;
mod submit;
mod tick;
pub(crate) mod update;

pub use limits::{CONSTRAINTS_MAX, RATE_MAX};

use bytes::Bytes;

use crate::command::{Claim, Command, Lease};
use crate::event::Event;
use crate::job::{JobId, Status};
use crate::rejection::Rejection;
use crate::reservations::Reservations;
use crate::state::{Slot, State};

/// No command causes more events than this.
pub const EVENTS_MAX: usize = 256;

/// A group of ready jobs found blocked: to be put aside by [`State::apply_hints`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blocked {
    pub(crate) queue: u32,
    pub(crate) group: u32,
    pub(crate) by: Hold,
}

/// What blocks a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hold {
    /// This bucket is exhausted.
    Bucket(crate::job::Label),
    /// Its first job is still to be matched against a constraint that lets none of its jobs start.
    Unmatched,
}

/// What a command causes: events, each to be logged or only kept in memory. Reused between
/// commands, so that deciding allocates little.
#[derive(Debug, Default)]
pub struct Decision {
    /// In order; the flag says whether the event is logged.
    pub events: Vec<(Event, bool)>,
    /// The answer must wait for this command's own record, though it reveals nothing else.
    pub waits_for_own_record: bool,
    /// Index upkeep found on the way; valid even when the command is refused.
    pub blocked: Vec<Blocked>,
    /// Queues in which a lease left a job because it is reserved; valid even when it is refused.
    pub left: Vec<Bytes>,
    order: u64,
}

impl Decision {
    /// Forgets the last command's.
    pub fn clear(&mut self) {
        self.events.clear();
        self.blocked.clear();
        self.left.clear();
        self.waits_for_own_record = false;
    }

    #[inline]
    fn emit(&mut self, event: Event, logged: bool) {
        self.events.push((event, logged));
    }

    /// The next order number; every job that becomes ready in this decision gets its own.
    fn next_order(&mut self) -> u64 {
        let order = self.order;
        self.order += 1;
        order
    }
}

/// Decides what a command causes now. Deadlines that are due already MUST have been ticked away
/// before (see [`Command::Tick`]): so no outcome depends on how late a tick runs.
pub fn decide(
    state: &State,
    command: &Command,
    now_ms: u64,
    out: &mut Decision,
) -> Result<(), Rejection> {
    begin(state, out);
    match command {
        Command::Submit(submit) => submit::submit(state, submit, now_ms, out),
        Command::Persist { id, payload, keep_ms } => {
            submit::persist(state, *id, payload, *keep_ms, out)
        }
        Command::Lease(request) => lease::lease(state, request, &Reservations::NONE, now_ms, out),
        Command::Extend(extend) => lease::extend(state, extend, now_ms, out),
        Command::DropTimeout { claim } => lease::drop_timeout(state, *claim, out),
        Command::Finish(finish) => finish::finish(state, finish, now_ms, out),
        Command::Release { claim, cause } => finish::release(state, *claim, *cause, now_ms, out),
        Command::HolderGone { holder } => finish::holder_gone(state, *holder, now_ms, out),
        Command::PayloadDamaged { id } => finish::damaged(state, *id, now_ms, out),
        Command::Cancel { id } => finish::cancel(state, *id, now_ms, out),
        Command::Retry { image, payload } => hold::retry(state, image, payload, now_ms, out),
        Command::Edit(edit) => hold::edit(state, edit, now_ms, out),
        Command::Delete { id, cause } => hold::delete(state, *id, *cause, out),
        Command::ResultRead { id, keep_read_ms } => {
            hold::result_read(state, *id, *keep_read_ms, now_ms, out)
        }
        Command::SetState { id, revision, state: value, event, page } => {
            let change = update::Change { state: Some(value), event, page: page.as_ref() };
            update::update(state, *id, *revision, change, now_ms, out)
        }
        Command::AddEvent { id, event, page } => {
            let change = update::Change { state: None, event, page: page.as_ref() };
            update::update(state, *id, None, change, now_ms, out)
        }
        Command::SetQueue { name, settings } => limits::set_queue(state, name, settings, out),
        Command::SetConstraint(rule) => limits::set_constraint(state, rule, now_ms, out),
        Command::RemoveConstraint { number } => limits::remove_constraint(state, *number, out),
        Command::Relabel { id, revision, matched } => {
            limits::relabel(state, *id, *revision, matched, out)
        }
        Command::NoteRelabelled { revision, below } => {
            limits::note_relabelled(state, *revision, *below, out)
        }
        Command::Start { epoch } => tick::start(state, *epoch, out),
        Command::Recover { from, grace_ms } => {
            tick::recover(state, *from, *grace_ms, now_ms, out);
            Ok(())
        }
        Command::ReserveIds { until } => tick::reserve_ids(state, *until, out),
        Command::ReturnIds { from } => tick::return_ids(state, *from, out),
        Command::Tick { hold_expiry } => {
            tick::tick(state, *hold_expiry, now_ms, out);
            Ok(())
        }
        Command::RaiseFormat { version } => tick::raise_format(state, *version, out),
        Command::Compact(item) => compaction::compact(state, item, now_ms, out),
    }
}

fn begin(state: &State, out: &mut Decision) {
    out.clear();
    out.order = state.server().next_order;
}

/// As [`decide`] for a [`Command::Lease`] that leaves what is reserved for others.
pub fn decide_lease(
    state: &State,
    request: &Lease,
    reserved: &Reservations,
    now_ms: u64,
    out: &mut Decision,
) -> Result<(), Rejection> {
    begin(state, out);
    lease::lease(state, request, reserved, now_ms, out)
}

impl State {
    /// Index upkeep that a decision found on the way: groups whose bucket is exhausted leave the
    /// contest until it is not, and so do groups whose first job is still to be matched.
    pub fn apply_hints(&mut self, decision: &Decision, now_ms: u64) {
        for Blocked { queue, group, by } in &decision.blocked {
            match by {
                Hold::Bucket(label) => self.hold_back(*queue, *group, *label, now_ms),
                Hold::Unmatched => self.put_aside(*queue, *group),
            }
        }
    }
}

/// The slot number of an unfinished job.
fn live(state: &State, id: JobId) -> Result<u32, Rejection> {
    match state.live(id) {
        Some(number) => Ok(number),
        None if state.stub(id).is_some() => Err(Rejection::Finished),
        None => Err(Rejection::NotFound),
    }
}

/// The slot a claim names, if it holds.
fn claimed(state: &State, claim: Claim) -> Result<u32, Rejection> {
    let number = live(state, claim.id())?;
    if let Claim::Token { epoch, attempt, .. } = claim {
        let slot = state.slot(number);
        let holds = slot.status() == Status::Leased
            && slot.attempts == attempt
            && slot
                .lease()
                .is_some_and(|lease| lease.epoch == epoch || state.faults().stale_epoch_token);
        if !holds {
            return Err(Rejection::NotHeld);
        }
    }
    Ok(number)
}

fn is_logged(slot: &Slot) -> bool {
    !slot.is_foreground()
}
