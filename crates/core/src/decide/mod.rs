//! What a command causes. Pure: reads the state, changes nothing, knows no clock.

mod audit;
mod batches;
mod compaction;
mod consumers;
mod finish;
mod flows;
mod hold;
mod lease;
mod limits;
mod places;
mod room;
mod schedules;
mod submit;
mod tick;
mod undo;
mod update;

pub use limits::{CONSTRAINTS_MAX, RATE_MAX};

use bytes::Bytes;

use crate::audit::AuditEntry;
use crate::command::{Claim, Command, Finish, Lease, Submit};
use crate::event::Event;
use crate::job::{self, JobId, Label};
use crate::queue::QUEUE_NAME_BYTES_MAX;
use crate::rejection::Rejection;
use crate::reservations::Reservations;
use crate::state::State;

/// No command causes more events than this, not counting those with new counts of batches, of which
/// at most one follows each event.
pub const EVENTS_MAX: usize = 256;

/// A group of ready jobs found blocked: [`State::apply_hints`] takes it out of the contest.
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
    Bucket(Label),
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
    /// The entry of the audit log that it ends with, if it has one.
    pub fn audited(&self) -> Option<&AuditEntry> {
        match self.events.last() {
            Some((Event::Audited(entry), _)) => Some(entry),
            _ => None,
        }
    }

    /// Forgets the last command's.
    pub fn clear(&mut self) {
        self.events.clear();
        self.blocked.clear();
        self.left.clear();
        self.waits_for_own_record = false;
    }
}

/// What a decision is made from, and where its events go.
struct Context<'a> {
    state: &'a State,
    now_ms: u64,
    out: &'a mut Decision,
}

type Decided = Result<(), Rejection>;

fn refuse_if(applies: bool, reason: Rejection) -> Decided {
    if applies { Err(reason) } else { Ok(()) }
}

/// Whether a queue of this name exists here or may be created here.
fn check_queue(state: &State, name: &[u8]) -> Decided {
    check_queue_of_any_shard(state, name)?;
    check_place_of(state, name, false)
}

/// Whether the queue of this name takes something on this shard. Anything bound to jobs that are here is
/// taken until the queue has left.
fn check_place_of(state: &State, name: &[u8], is_bound: bool) -> Decided {
    use places::Stands;
    match places::stands(state, name) {
        Stands::Here | Stands::Offered => Ok(()),
        Stands::Sealed(_) if is_bound || state.faults().sealed_takes_jobs => Ok(()),
        Stands::Sealed(shard) | Stands::There(shard) => Err(Rejection::OtherShard(shard)),
    }
}

/// The same for jobs whose protocol knows one shard only: the queue's place does not count.
fn check_queue_of_any_shard(state: &State, name: &[u8]) -> Decided {
    let fits = (1..=QUEUE_NAME_BYTES_MAX).contains(&name.len());
    refuse_if(!fits, Rejection::OutOfRange("queue name"))?;
    refuse_if(state.has_no_room_for_queue(name), Rejection::OutOfRange("number of queues"))
}

impl<'a> Context<'a> {
    fn new(state: &'a State, now_ms: u64, out: &'a mut Decision) -> Context<'a> {
        out.clear();
        out.order = state.server().next_order;
        Context { state, now_ms, out }
    }

    #[inline]
    fn emit(&mut self, event: Event, logged: bool) {
        self.out.events.push((event, logged));
    }

    /// The next order number; every job that becomes ready in this decision gets its own.
    fn next_order(&mut self) -> u64 {
        let order = self.out.order;
        self.out.order += 1;
        order
    }

    /// Whether a job or a batch may have this number: it is reserved, and nothing has it.
    fn check_new_id(&self, id: JobId) -> Decided {
        let is_reserved = id.0 > 0 && id.0 < self.state.server().ids_until;
        let is_taken = self.state.handle(id).is_some() || self.state.batch(id).is_some();
        refuse_if(!is_reserved || is_taken, Rejection::IdNotReserved)
    }

    /// The number of an unfinished job.
    fn live(&self, id: JobId) -> Result<u32, Rejection> {
        match self.state.find_live(id) {
            Some(number) => Ok(number),
            None if self.state.find_finished(id).is_some() => Err(Rejection::Finished),
            None => Err(Rejection::NotFound),
        }
    }

    /// The number of an unfinished job that has this revision, if one is asked for.
    fn unchanged(&self, id: JobId, revision: Option<u32>) -> Result<u32, Rejection> {
        let number = self.live(id)?;
        match revision {
            Some(revision) if revision != self.state.live_job(number).revision => {
                Err(Rejection::Stale)
            }
            _ => Ok(number),
        }
    }

    /// The number of the job that a claim names, if the claim holds.
    fn claimed(&self, claim: Claim) -> Result<u32, Rejection> {
        let number = self.live(claim.id())?;
        let job = self.state.live_job(number);
        // To workers it is gone.
        refuse_if(job.deletion().is_some(), Rejection::NotFound)?;
        let Claim::Token { epoch, attempt, .. } = claim else { return Ok(number) };
        let faults = self.state.faults();
        let is_epoch = |lease: &job::HeldLease| lease.epoch == epoch || faults.stale_epoch_token;
        let holds = job.attempts() == attempt && job.live_lease().is_some_and(is_epoch);
        let holds = holds || (faults.token_unchecked && job.live_lease().is_some());
        if holds { Ok(number) } else { Err(Rejection::NotHeld) }
    }

    /// A deleted job is left alone until its deletion is undone.
    fn check_not_deleted(&self, id: JobId) -> Decided {
        refuse_if(self.state.deletion(id).is_some(), Rejection::Deleted)
    }

    /// Why a command that needs a finished job is refused: the job is unfinished, or not there.
    fn not_finished(&self, id: JobId) -> Rejection {
        match self.state.find_live(id) {
            Some(_) => Rejection::NotFinished,
            None => Rejection::NotFound,
        }
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
    decide_in(&mut Context::new(state, now_ms, out), command)
}

fn decide_in(cx: &mut Context<'_>, command: &Command) -> Decided {
    if let Command::Audited(audited) = command {
        // What it does is decided by itself, and its entry comes last.
        return audit::audited(cx, audited);
    }
    counted(cx, |cx| decide_plainly(cx, command))
}

/// A decision, and the new counts of batches after its events.
#[inline]
fn counted<'a>(cx: &mut Context<'a>, decide: impl FnOnce(&mut Context<'a>) -> Decided) -> Decided {
    decide(cx)?;
    batches::count(cx);
    Ok(())
}

fn decide_plainly(cx: &mut Context<'_>, command: &Command) -> Decided {
    match command {
        Command::Submit(submit) => submit::submit(cx, submit),
        Command::Persist { id, payload, keep_ms } => submit::persist(cx, *id, payload, *keep_ms),
        Command::Lease(request) => lease::lease(cx, request, &Reservations::NONE),
        Command::Extend(extend) => lease::extend(cx, extend),
        Command::DropTimeout { claim } => lease::drop_timeout(cx, *claim),
        Command::Finish(finish) => finish::finish(cx, finish),
        Command::Release { claim, cause } => finish::release(cx, *claim, *cause),
        Command::HolderGone { holder } => finish::holder_gone(cx, *holder),
        Command::PayloadDamaged { id } => finish::damaged(cx, *id),
        Command::Cancel { id } => finish::cancel(cx, *id),
        Command::Retry { image, payload } => hold::retry(cx, image, payload),
        Command::Edit(edit) => hold::edit(cx, edit),
        Command::Delete { id, cause } => hold::delete(cx, *id, *cause),
        Command::DeleteLater { id, request, undo_ms } => {
            undo::delete_later(cx, *id, *request, *undo_ms)
        }
        Command::Undelete { id } => undo::undelete(cx, *id),
        Command::ResultRead { id, keep_read_ms } => hold::result_read(cx, *id, *keep_read_ms),
        Command::SetState { id, revision, state, event, page } => {
            let change = update::Change { state: Some(state), event, page: page.as_ref() };
            update::update(cx, *id, *revision, change)
        }
        Command::AddEvent { id, event, page } => {
            let change = update::Change { state: None, event, page: page.as_ref() };
            update::update(cx, *id, None, change)
        }
        Command::SetQueue { name, settings } => limits::set_queue(cx, name, settings),
        Command::SetConstraint(rule, scope) => limits::set_constraint(cx, rule, *scope),
        Command::RemoveConstraint { number } => limits::remove_constraint(cx, *number),
        Command::Relabel { id, revision, matched } => limits::relabel(cx, *id, *revision, matched),
        Command::NoteRelabelled { revision, below } => {
            limits::note_relabelled(cx, *revision, *below)
        }
        Command::Start { epoch, seat } => tick::start(cx, *epoch, *seat),
        Command::Recover { from, grace_ms } => tick::recover(cx, *from, *grace_ms),
        Command::ReserveIds { until } => tick::reserve_ids(cx, *until),
        Command::ReturnIds { from } => tick::return_ids(cx, *from),
        Command::Tick { hold_expiry } => tick::tick(cx, *hold_expiry),
        Command::RaiseFormat { version } => tick::raise_format(cx, *version),
        Command::Audited(audited) => audit::audited(cx, audited),
        Command::SetSchedule(set) => schedules::set(cx, set),
        Command::RemoveSchedule { name } => schedules::remove(cx, name),
        Command::FireSchedule(fire) => schedules::fire(cx, fire),
        Command::OpenBatch(open) => batches::open(cx, open),
        Command::SealBatch { id } => batches::seal(cx, *id),
        Command::CancelBatch { id } => batches::cancel(cx, *id),
        Command::PlaceQueue { queue, shard } => places::place_queue(cx, queue, *shard),
        Command::EndDrain { queue, version } => places::end_drain(cx, queue, *version),
        Command::KnowPlace { queue, version, shard, settings } => {
            places::know_place(cx, queue, (*version, *shard), settings.as_deref())
        }
        Command::SealQueue { queue, version } => places::seal_queue(cx, queue, *version),
        Command::LeaveQueue { queue, version } => places::leave_queue(cx, queue, *version),
        Command::MoveConsumer(consumer) => consumers::move_consumer(cx, consumer),
        Command::Compact(item) => compaction::compact(cx, item),
    }
}

/// As [`decide`] for a [`Command::Lease`] that leaves what is reserved for others.
pub fn decide_lease(
    state: &State,
    request: &Lease,
    reserved: &Reservations,
    now_ms: u64,
    out: &mut Decision,
) -> Result<(), Rejection> {
    counted(&mut Context::new(state, now_ms, out), |cx| lease::lease(cx, request, reserved))
}

/// As [`decide`] for a [`Command::Submit`], which need not be put into a command.
pub fn decide_submit(
    state: &State,
    job: &Submit,
    now_ms: u64,
    out: &mut Decision,
) -> Result<(), Rejection> {
    counted(&mut Context::new(state, now_ms, out), |cx| submit::submit(cx, job))
}

/// As [`decide`] for a [`Command::Finish`], which need not be put into a command.
pub fn decide_finish(
    state: &State,
    end: &Finish,
    now_ms: u64,
    out: &mut Decision,
) -> Result<(), Rejection> {
    counted(&mut Context::new(state, now_ms, out), |cx| finish::finish(cx, end))
}

impl State {
    /// Index upkeep that a decision found on the way: groups whose bucket is exhausted leave the
    /// contest until it is not, and so do groups whose first job is still to be matched.
    pub fn apply_hints(&mut self, decision: &Decision, now_ms: u64) {
        for Blocked { queue, group, by } in &decision.blocked {
            match by {
                Hold::Bucket(label) => self.hold_back(*queue, *group, *label, now_ms),
                Hold::Unmatched => self.hold_unmatched(*queue, *group),
            }
        }
    }
}
