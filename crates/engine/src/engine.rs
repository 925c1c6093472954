//! The engine: one core behind one lock, and the calls doors make.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, RwLock};
use spindle_core::command::{Claim, Extend, Finish, Lease, Submit};
use spindle_core::job::Cause;
use spindle_core::{BytesRef, Command, JobId, Rejection, Type};
use spindle_log::{Log, LogError, Space};

use crate::answer::LeasedJob;
use crate::clock::Clock;
use crate::commit::Committed;
use crate::door::{ConnectionId, Gate, LeaseRef, Mailbox, Ticket};
use crate::inner::{Inner, Stats};
use crate::options::Options;
use crate::read::{FetchError, JobRef};
use crate::start::{StartError, start};
use crate::wait::Spare;
use crate::wait::{Caller, Wait, WaitFor};

/// Why the engine can go on no more.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Failure {
    /// The log is poisoned.
    #[error("{0}")]
    Log(LogError),
    /// Another server wrote to the log.
    #[error("another server has written to this log")]
    Conflict,
    /// The log refused a record.
    #[error("the log refused a record: {0}")]
    Refused(String),
}

/// A refused call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The core says no; the answer must wait for the gate.
    #[error("{0}")]
    Rejected(Rejection, Gate),
    /// Too much is not durable yet: ask again after [`Engine::wait_for_room`].
    #[error("too much is waiting for the disk")]
    Busy,
    /// The disk is full: what frees space goes on, new jobs do not.
    #[error("disk full")]
    DiskFull,
    /// A payload or result above the limit.
    #[error("{bytes} bytes are over the limit of {max}")]
    TooLarge {
        /// What came.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// Foreground payloads fill their share of memory, or too many wait.
    #[error("too many {0}")]
    TooMany(&'static str),
    /// The server stops: a job that lives in memory only would be lost. Others are still taken.
    #[error("the server is stopping")]
    Stopping,
}

/// Why a job is not run again.
#[derive(Debug, thiserror::Error)]
pub enum RetryError {
    /// The call was refused.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The job's image could not be read.
    #[error(transparent)]
    Fetch(#[from] FetchError),
}

/// A job to submit. As [`Submit`], with its payload still in hand.
#[derive(Clone, Debug)]
pub struct NewJob {
    /// Everything but the id and the payload's place.
    pub submit: Submit,
    /// The payload.
    pub payload: Bytes,
    /// What it is.
    pub kind: Type,
}

/// What a lease call returns.
#[derive(Debug)]
pub enum LeaseReply {
    /// A job, at once.
    Leased(Box<LeasedJob>, Gate),
    /// Nothing there, and no wait was asked for.
    Nothing(Gate),
    /// The answer comes later, as this ticket's.
    Waiting(Ticket),
}

/// The result a worker reports.
#[derive(Clone, Debug, Default)]
pub struct WorkResult {
    /// Completed, or failed.
    pub success: bool,
    /// On failure: false kills the job whatever tries it has left.
    pub retry: bool,
    /// The result.
    pub bytes: Bytes,
    /// For people.
    pub message: Bytes,
    /// As it came.
    pub error: Bytes,
    /// As it came.
    pub code: Bytes,
    /// As it came.
    pub worker_finished_at: Bytes,
}

impl WorkResult {
    /// What it takes in a record besides the result itself.
    fn words_bytes(&self) -> usize {
        let words = [&self.message, &self.error, &self.code, &self.worker_finished_at];
        words.into_iter().map(Bytes::len).sum()
    }
}

pub(crate) type FailureReport = Box<dyn Fn(Failure) + Send + Sync>;

pub(crate) struct Shared {
    pub inner: Mutex<Inner>,
    pub log: Arc<dyn Log>,
    pub clock: Arc<dyn Clock>,
    /// All records below this are durable.
    pub durable: AtomicU64,
    pub mailboxes: RwLock<Vec<Arc<dyn Mailbox>>>,
    /// Wakes the log thread, which sleeps only when nothing is to be written.
    pub work: Condvar,
    pub timer: crate::commit::TimerBell,
    pub failure: Mutex<Option<Failure>>,
    pub on_failure: OnceLock<FailureReport>,
    pub threads: Mutex<crate::commit::Threads>,
    pub compaction: Mutex<crate::compaction::Compactor>,
    /// Held by whoever commits: records go to the log in their order.
    pub committing: Mutex<()>,
    /// How long things take.
    pub meters: Arc<crate::observe::Meters>,
    /// The matchers of the constraints.
    pub rules: crate::constraints::Rules,
    /// How far jobs that were there before the newest constraints have been matched.
    pub relabelling: crate::constraints::Relabeller,
}

/// A running queue. Clones are the same engine.
#[derive(Clone)]
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
}

impl Engine {
    /// Folds the log, begins a new epoch and commits that. No thread runs yet: see
    /// [`Engine::spawn`].
    pub fn open(
        log: Arc<dyn Log>,
        clock: Arc<dyn Clock>,
        options: Options,
    ) -> Result<Engine, StartError> {
        let inner = start(&log, clock.as_ref(), options)?;
        let durable = AtomicU64::new(log.next().0);
        let rules = crate::constraints::Rules::new(&inner.state);
        let meters = inner.meters.clone();
        let engine = Engine {
            shared: Arc::new(Shared {
                inner: Mutex::new(inner),
                log,
                clock,
                durable,
                mailboxes: RwLock::default(),
                work: Condvar::new(),
                timer: crate::commit::TimerBell::default(),
                failure: Mutex::default(),
                on_failure: OnceLock::new(),
                threads: Mutex::default(),
                compaction: Mutex::default(),
                committing: Mutex::default(),
                meters,
                rules,
                relabelling: crate::constraints::Relabeller::default(),
            }),
        };
        engine.flush()?;
        if engine.shared.failure.lock().is_some() {
            return Err(StartError::Conflict);
        }
        // On a full disk it may wait for room. An epoch that a crash forgets would begin again, and
        // tokens of its leases would be given twice.
        if engine.durable() < engine.shared.inner.lock().tail() {
            return Err(StartError::Full);
        }
        Ok(engine)
    }

    /// How far the log is durable.
    pub fn durable(&self) -> Gate {
        Gate(self.shared.durable.load(Ordering::Acquire))
    }

    /// A reactor's mailbox hears from now on when the durable position moves.
    pub fn attach(&self, mailbox: &Arc<dyn Mailbox>) {
        let mut mailboxes = self.shared.mailboxes.write();
        // A reactor introduces itself to every door, and doors share the engine.
        if !mailboxes.iter().any(|known| Arc::ptr_eq(known, mailbox)) {
            mailboxes.push(mailbox.clone());
        }
    }

    /// Locks the core with everything due already done.
    pub(crate) fn enter(&self) -> parking_lot::MutexGuard<'_, Inner> {
        loop {
            let mut inner = self.shared.inner.lock();
            let now_ms = self.shared.clock.now_ms();
            if !inner.tick(now_ms) {
                return inner;
            }
            // More is due than one step may do: let others in between.
            parking_lot::MutexGuard::unlock_fair(inner);
        }
    }

    /// Leaves the core: wakes the log thread for what was decided, and the timer if something is
    /// due earlier than it knows.
    pub(crate) fn leave(&self, inner: parking_lot::MutexGuard<'_, Inner>) {
        let has_work = !inner.batch.is_empty() || !inner.sealed.is_empty();
        let deadline_ms = inner.next_deadline();
        drop(inner);
        if has_work {
            self.shared.work.notify_one();
        }
        self.shared.timer.ring_if_before(deadline_ms);
    }

    // ---- submit ----

    /// Submits a job. The answer must wait for the gate.
    pub fn submit(&self, mut job: NewJob) -> Result<(JobId, Gate), Refused> {
        let crc = if job.submit.foreground { 0 } else { crc32c::crc32c(&job.payload) };
        let inner = &mut self.enter_matched(&mut job);
        self.submit_locked(inner, job, crc)
    }

    /// Submits a foreground job and waits for its end: first `wait_ms` for somebody to lease it,
    /// then as long as the lease lasts.
    pub fn submit_and_wait(
        &self,
        caller: &Caller,
        mut job: NewJob,
        wait_ms: u64,
    ) -> Result<Ticket, Refused> {
        let crc = if job.submit.foreground { 0 } else { crc32c::crc32c(&job.payload) };
        let mut inner = self.enter_matched(&mut job);
        if inner.waits.len() >= inner.options.waits_max {
            return Err(Refused::TooMany("waiting clients"));
        }
        let (id, _) = self.submit_locked(&mut inner, job, crc)?;
        let leased = inner.state.status(id) == Some(spindle_core::Status::Leased);
        let deadline_ms = Some(inner.now_ms.saturating_add(wait_ms));
        let request = WaitFor::Result { job: id, until_leased: true };
        let ticket = inner.waits.add(Wait { caller: caller.clone(), request, deadline_ms });
        inner.waits.set_leased(id, leased);
        Ok(ticket)
    }

    pub(crate) fn submit_locked(
        &self,
        inner: &mut parking_lot::MutexGuard<'_, Inner>,
        mut job: NewJob,
        crc: u32,
    ) -> Result<(JobId, Gate), Refused> {
        let len = job.payload.len();
        let max = inner.options.payload_bytes_max;
        if len > max {
            return Err(Refused::TooLarge { bytes: len, max });
        }
        self.check_room(inner)?;
        let foreground = job.submit.foreground;
        if foreground {
            if inner.stopping {
                return Err(Refused::Stopping);
            }
            if inner.foreground_bytes + len > inner.options.foreground_bytes_max {
                return Err(Refused::TooMany("foreground jobs in memory"));
            }
        } else if self.shared.log.space() == Space::ReserveOnly {
            return Err(Refused::DiskFull);
        }
        job.submit.id = inner.take_id();
        let id = job.submit.id;
        job.submit.payload = if foreground {
            BytesRef::in_memory(Bytes::copy_from_slice(&job.payload), job.kind)
        } else {
            inner.place_for(len, job.kind)
        };
        let payload = job.payload;
        let command = Command::Submit(Box::new(job.submit));
        let decided = inner.run_with(&command, |inner| {
            if !foreground {
                inner.put_bytes(&payload, crc);
            }
        });
        match decided {
            Ok(()) if foreground => Ok((id, inner.ids_gate)),
            Ok(()) => Ok((id, inner.own_gate())),
            Err(rejection) => {
                inner.return_id(id);
                Err(self.refuse(inner, rejection))
            }
        }
    }

    /// A refusal with what it must wait for.
    pub(crate) fn refuse(&self, inner: &Inner, rejection: Rejection) -> Refused {
        let gate = match &rejection {
            Rejection::KeyTaken(_) if inner.options.faults.duplicate_answered_early => Gate::OPEN,
            Rejection::KeyTaken(id) => {
                inner.state.job(*id).map_or_else(|| inner.tail(), |found| inner.gate_of(&found))
            }
            Rejection::OutOfRange(_) => Gate::OPEN,
            _ => inner.tail(),
        };
        Refused::Rejected(rejection, gate)
    }

    // ---- lease ----

    /// Leases a job, or waits for one up to `wait_ms`.
    pub fn lease(
        &self,
        caller: &Caller,
        request: Lease,
        wait_ms: u64,
    ) -> Result<LeaseReply, Refused> {
        let mut inner = self.enter();
        self.check_room(&inner)?;
        if inner.stopping {
            return Ok(LeaseReply::Nothing(inner.tail()));
        }
        inner.note_worker(&request);
        inner.note_came(caller.connection);
        let leave = if wait_ms == 0 { Spare::Nothing } else { Spare::Reserved };
        let leased = inner.lease_decided(&request, leave);
        // What it was called for and did not take is for others.
        inner.dispatch();
        match leased {
            Ok((job, gate)) => Ok(LeaseReply::Leased(Box::new(job), gate)),
            Err(Rejection::NothingReady) if wait_ms == 0 => Ok(LeaseReply::Nothing(inner.tail())),
            Err(Rejection::NothingReady) => {
                if inner.waits.len() >= inner.options.waits_max {
                    return Err(Refused::TooMany("waiting clients"));
                }
                let deadline_ms = Some(inner.now_ms.saturating_add(wait_ms));
                inner.workers.begins_to_wait(&request);
                let request = WaitFor::Lease(Arc::new(request));
                let wait = Wait { caller: caller.clone(), request, deadline_ms };
                Ok(LeaseReply::Waiting(inner.waits.add(wait)))
            }
            Err(rejection) => Err(self.refuse(&inner, rejection)),
        }
    }

    /// A lease whose bytes never left: its attempt is given back.
    pub fn undo_lease(&self, lease: LeaseRef) {
        let mut inner = self.enter();
        inner.undo_lease(lease);
    }

    // ---- finish ----

    /// Reports the end of an attempt.
    pub fn finish(&self, claim: Claim, result: WorkResult, kind: Type) -> Result<Gate, Refused> {
        let crc = crc32c::crc32c(&result.bytes);
        let inner = self.enter();
        self.finish_locked(inner, claim, result, crc, kind)
    }

    /// Reports the end of any unfinished job, leased or not.
    pub fn finish_unfinished(
        &self,
        which: JobRef,
        result: WorkResult,
        kind: Type,
    ) -> Result<Gate, Refused> {
        let crc = crc32c::crc32c(&result.bytes);
        let inner = self.enter();
        let Some(id) = inner.resolve(which) else {
            return Err(Refused::Rejected(Rejection::NotFound, inner.tail()));
        };
        self.finish_locked(inner, Claim::Unfinished { id }, result, crc, kind)
    }

    fn finish_locked(
        &self,
        mut inner: parking_lot::MutexGuard<'_, Inner>,
        claim: Claim,
        result: WorkResult,
        crc: u32,
        kind: Type,
    ) -> Result<Gate, Refused> {
        let len = result.bytes.len();
        let max = inner.options.payload_bytes_max;
        if len > max {
            return Err(Refused::TooLarge { bytes: len, max });
        }
        self.check_room(&inner)?;
        let foreground = inner.state.is_foreground(claim.id());
        if !foreground {
            self.check_reserve(&inner, len + result.words_bytes())?;
        }
        inner.note_claim(claim);
        let place = if foreground {
            BytesRef::in_memory(result.bytes.clone(), kind)
        } else {
            inner.place_for(len, kind)
        };
        let command = Command::Finish(Box::new(Finish {
            claim,
            success: result.success,
            retry: result.retry,
            result: Some(place),
            message: result.message,
            error: result.error,
            code: result.code,
            worker_finished_at: result.worker_finished_at,
        }));
        let decided = inner.run_with(&command, |inner| {
            if !foreground {
                inner.put_bytes(&result.bytes, crc);
            }
        });
        match decided {
            Ok(()) if foreground => Ok(Gate::OPEN),
            Ok(()) => Ok(inner.own_gate()),
            Err(rejection) => Err(self.refuse(&inner, rejection)),
        }
    }

    /// Deletes a job.
    pub fn delete(&self, which: JobRef) -> Result<Gate, Refused> {
        let mut inner = self.enter();
        self.check_room(&inner)?;
        let Some(id) = inner.resolve(which) else {
            return Err(Refused::Rejected(Rejection::NotFound, inner.tail()));
        };
        match inner.run(&Command::Delete { id, cause: Cause::Deleted }) {
            Ok(()) => Ok(inner.own_gate()),
            Err(rejection) => Err(self.refuse(&inner, rejection)),
        }
    }

    /// Any other command, one that carries no bytes. A job that it moves to another queue is matched
    /// against the constraints there.
    pub fn execute(&self, command: &Command) -> Result<Gate, Refused> {
        match command {
            Command::Edit(edit) if edit.matched.is_none() => match &edit.queue {
                Some(queue) => self.move_job(edit, queue),
                None => self.execute_as_is(command),
            },
            _ => self.execute_as_is(command),
        }
    }

    pub(crate) fn execute_as_is(&self, command: &Command) -> Result<Gate, Refused> {
        let mut inner = self.enter();
        self.check_room(&inner)?;
        if let Command::Extend(Extend { claim, .. }) | Command::Release { claim, .. } = command {
            inner.note_claim(*claim);
        }
        match inner.run(command) {
            Ok(()) => {
                self.wake_relabelling(&inner);
                Ok(inner.own_gate())
            }
            Err(rejection) => Err(self.refuse(&inner, rejection)),
        }
    }

    /// Ends a turn of calls: what they decided is handed to the log thread, and the timer learns of
    /// new deadlines. No call does that by itself, so that all requests a reactor has read in one
    /// turn go to the log together; whoever makes calls MUST end them with this.
    ///
    /// A large turn is committed here and now, if the options say so: see
    /// [`Options::turn_entries_max`](crate::Options::turn_entries_max).
    pub fn end_turn(&self) {
        let inner = self.shared.inner.lock();
        if inner.batch.entries() <= inner.options.turn_entries_max {
            return self.leave(inner);
        }
        // If the log thread is writing, it takes this up as soon as it is done.
        let Some(_committing) = self.shared.committing.try_lock() else {
            return self.leave(inner);
        };
        let deadline_ms = inner.next_deadline();
        drop(inner);
        self.shared.timer.ring_if_before(deadline_ms);
        if self.commit() == Committed::Full {
            // The log thread tries again when there may be room.
            self.shared.work.notify_one();
        }
    }

    // ---- waiting ----

    /// Waits for a refused call's room in the log.
    pub fn wait_for_room(&self, caller: &Caller) -> Ticket {
        let mut inner = self.shared.inner.lock();
        let wait = Wait { caller: caller.clone(), request: WaitFor::Room, deadline_ms: None };
        let ticket = inner.waits.add(wait);
        // The room may have come before the wait.
        if inner.undurable_bytes * 2 < inner.options.undurable_bytes_max {
            inner.deliver(ticket, crate::answer::Answer::Room, Gate::OPEN);
        }
        ticket
    }

    /// Waits for a job's end; `until_leased`: the time counts only until somebody leases it. None
    /// if the job has ended already, or is not there: look it up again.
    pub fn wait_for_result(
        &self,
        caller: &Caller,
        job: JobId,
        wait_ms: u64,
        until_leased: bool,
    ) -> Result<Option<Ticket>, Refused> {
        let mut inner = self.enter();
        if inner.waits.len() >= inner.options.waits_max {
            return Err(Refused::TooMany("waiting clients"));
        }
        let status = match inner.state.status(job) {
            Some(status) if !status.is_finished() => status,
            _ => return Ok(None),
        };
        // Somebody waits again.
        inner.abandoned.remove(&job);
        let leased = status == spindle_core::Status::Leased;
        let deadline_ms = Some(inner.now_ms.saturating_add(wait_ms));
        let request = WaitFor::Result { job, until_leased };
        let ticket = inner.waits.add(Wait { caller: caller.clone(), request, deadline_ms });
        inner.waits.set_leased(job, leased);
        Ok(Some(ticket))
    }

    /// The caller no longer waits. A lease that is on its way to it already is undone.
    pub fn cancel_wait(&self, caller: &Caller, ticket: Ticket) {
        let mut inner = self.enter();
        inner.give_up_wait(caller.connection, ticket);
    }

    /// A connection is gone: its waits end, and the leases bound to it. `waiting` is the ticket it
    /// had no answer to yet.
    pub fn connection_gone(&self, connection: ConnectionId, waiting: Option<Ticket>) {
        let mut inner = self.enter();
        if let Some(ticket) = waiting {
            inner.give_up_wait(connection, ticket);
        }
        inner.delivered.remove(&connection);
        inner.workers.gone(connection.0);
        for ticket in inner.waits.of_connection(connection) {
            inner.end_wait(ticket, None);
        }
        inner.note_came(connection);
        inner.dispatch();
        let command = Command::HolderGone { holder: connection.0 };
        while inner.run(&command).is_ok() && inner.state.holds_any(connection.0) {}
    }

    // ---- stopping ----

    /// No leases are given from now on, and no foreground jobs taken; those who wait for a lease,
    /// or for a result, are told that their time is up. Jobs that are logged are still taken: what
    /// clients had sent before they heard of it is served, and kept.
    pub fn stop_leasing(&self) {
        let mut inner = self.enter();
        inner.stopping = true;
        for ticket in inner.waits.leases_and_results() {
            inner.end_wait(ticket, Some(crate::answer::Answer::TimedOut));
        }
        self.leave(inner);
    }

    /// Numbers for people.
    pub fn stats(&self) -> Stats {
        self.shared.inner.lock().stats
    }

    /// Now, as the engine sees it.
    pub fn now_ms(&self) -> u64 {
        self.shared.clock.now_ms()
    }

    /// Why the engine has stopped, if it has.
    pub fn failure(&self) -> Option<Failure> {
        self.shared.failure.lock().clone()
    }
}
