//! The engine: one core behind one lock, and the one path of every call through it.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
use spindle_core::{Rejection, State};
use spindle_log::Log;

use crate::admission::Admission;
use crate::answer::{Failure, Refused};
use crate::clock::Clock;
use crate::commit::{Flight, Payload, SyncTime, Threads, TimerBell};
use crate::compaction::Compactor;
use crate::constraints::Rules;
use crate::door::{Mailbox, Ticket};
use crate::gate::{Gate, Gated};
use crate::inner::Inner;
use crate::lead::Lead;
use crate::observe::Meters;
use crate::schedules::Timings;
use crate::wait::{Caller, Wait, WaitFor};

type FailureReport = Box<dyn Fn(Failure) + Send + Sync>;

pub(crate) struct Shared {
    pub inner: Mutex<Inner>,
    pub log: Arc<dyn Log>,
    pub clock: Arc<dyn Clock>,
    /// All records below this are durable.
    pub durable: AtomicU64,
    pub mailboxes: RwLock<Vec<Arc<dyn Mailbox>>>,
    /// What is on its way to a log that takes several records at a time; none for other logs.
    pub flight: Option<Flight>,
    /// Wakes the log thread, which sleeps only when nothing is to be written.
    pub work: Condvar,
    pub timer: TimerBell,
    pub failure: Mutex<Option<Failure>>,
    pub on_failure: OnceLock<FailureReport>,
    pub threads: Mutex<Threads>,
    pub compactor: Mutex<Compactor>,
    /// Held by the thread that commits: records go to the log in their order.
    pub committing: Mutex<()>,
    /// How long a commit takes.
    pub sync_time: SyncTime,
    /// How long things take.
    pub meters: Arc<Meters>,
    /// The matchers of the constraints.
    pub rules: Rules,
    /// Wakes the thread that matches jobs that were there before the newest constraints.
    pub relabel_bell: TimerBell,
    /// When schedules fire.
    pub timings: Timings,
    /// How much may be decided.
    pub admission: Admission,
    /// New jobs are refused while the log is this long.
    pub log_bytes_max: u64,
    /// On a log that others share: whether this process leads.
    pub lead: Option<Lead>,
    /// Positions of records that do not count, oldest first: see `fence.rs`.
    pub fenced: Vec<u64>,
}

/// A running queue. Clones are the same engine.
///
/// Calls that change something are made within a [`Turn`]. Answers that a crash could take back
/// come as [`Gated`] values; see [`crate::gate`].
#[derive(Clone)]
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
}

/// A turn of calls. When it is dropped, what they decided is handed to the log thread, and the
/// timer learns of new deadlines. So calls that belong together go to the log together. Reactors
/// commit themselves, see [`Committer`](crate::Committer).
#[must_use = "calls are made within a turn: what they decide goes to the log when it ends"]
pub struct Turn<'a>(&'a Engine);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.hand_to_log_thread();
    }
}

impl Engine {
    pub(crate) fn new(
        inner: Inner,
        log: Arc<dyn Log>,
        fenced: Vec<u64>,
        clock: Arc<dyn Clock>,
    ) -> Engine {
        let shared = Shared {
            durable: AtomicU64::new(inner.batch.begun_at()),
            lead: (!log.is_exclusive()).then(|| Lead::new(clock.clone(), inner.options.faults)),
            fenced,
            rules: Rules::new(&inner.state),
            meters: inner.numbers.meters.clone(),
            admission: Admission::new(
                inner.batch.undurable_counter(),
                inner.options.undurable_bytes_max,
            ),
            log_bytes_max: inner.options.log_bytes_max,
            flight: Flight::of(log.in_flight_max(), &inner.options),
            inner: Mutex::new(inner),
            log,
            clock,
            mailboxes: RwLock::default(),
            work: Condvar::new(),
            timer: TimerBell::default(),
            failure: Mutex::default(),
            on_failure: OnceLock::new(),
            threads: Mutex::default(),
            compactor: Mutex::default(),
            committing: Mutex::default(),
            sync_time: SyncTime::default(),
            relabel_bell: TimerBell::default(),
            timings: Timings::default(),
        };
        Engine { shared: Arc::new(shared) }
    }

    /// How far the log is durable.
    pub fn durable(&self) -> Gate {
        Gate(self.shared.durable.load(Ordering::Acquire))
    }

    /// A mailbox is called from now on when the durable position moves.
    pub fn attach(&self, mailbox: &Arc<dyn Mailbox>) {
        self.shared.mailboxes.write().push(mailbox.clone());
    }

    /// Begins a turn of calls.
    pub fn turn(&self) -> Turn<'_> {
        Turn(self)
    }

    /// Now, as the engine sees it: milliseconds since 1970.
    pub fn now_ms(&self) -> u64 {
        self.shared.clock.now_ms()
    }

    /// Milliseconds for durations: how long ago something was. Unlike [`Engine::now_ms`], it does not jump when time is
    /// set forward, since no client was silent during the jump.
    pub fn steady_ms(&self) -> u64 {
        let inner = self.shared.inner.lock();
        self.shared.clock.now_ms().saturating_sub(inner.set_forward_ms)
    }

    /// How many starts on this log there have been, this one included.
    pub fn epoch(&self) -> u64 {
        self.shared.inner.lock().state.server().epoch
    }

    /// Why the engine has stopped, if it has.
    pub fn failure(&self) -> Option<Failure> {
        self.shared.failure.lock().clone()
    }

    /// Looks at the state under the lock. For tests and the simulator: doors ask by name.
    #[doc(hidden)]
    pub fn inspect<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.shared.inner.lock().state)
    }

    /// What is decided so far. For the simulator: unlike a call, it lets nothing happen that is due.
    #[doc(hidden)]
    pub fn tail(&self) -> Gate {
        self.shared.inner.lock().tail()
    }

    // ---- the one path of a call ----

    /// Locks the core with everything due already done, except what has to wait for room on a full disk.
    pub(crate) fn enter(&self) -> MutexGuard<'_, Inner> {
        loop {
            let mut inner = self.shared.inner.lock();
            inner.holds_timers = !self.shared.admission.lets_timers();
            if !inner.tick(self.shared.clock.now_ms()) {
                return inner;
            }
            // More is due than one step may do: let others in between.
            MutexGuard::unlock_fair(inner);
        }
    }

    /// Enters and decides. The answer of a change waits for its own record.
    pub(crate) fn change<T>(
        &self,
        decide: impl FnOnce(&mut Inner) -> Result<T, Refused>,
    ) -> Gated<Result<T, Refused>> {
        let mut inner = self.enter();
        let decided = decide(&mut inner);
        inner.changed(decided)
    }

    /// Enters and reads. The answer waits for everything decided so far.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Inner) -> T) -> Gated<T> {
        let inner = self.enter();
        let value = read(&inner);
        inner.gated(value)
    }

    /// Leaves the core: wakes the log thread for what was decided, and the timer if something is
    /// due earlier than it knows.
    pub(crate) fn leave(&self, inner: MutexGuard<'_, Inner>) {
        let has_work = inner.batch.has_work();
        let deadline_ms = inner.next_deadline();
        drop(inner);
        if has_work {
            self.call_log_thread();
        }
        self.shared.timer.ring_if_before(deadline_ms);
    }
}

impl Inner {
    /// The answer of a change: a success waits for the change's own record.
    pub(crate) fn changed<T>(
        &self,
        decided: Result<T, impl Into<Refused>>,
    ) -> Gated<Result<T, Refused>> {
        self.closed(decided.map(|value| Gated::new(value, self.own_gate())))
    }

    /// The answer of a call whose success has its own gate.
    pub(crate) fn closed<T>(
        &self,
        decided: Result<Gated<T>, impl Into<Refused>>,
    ) -> Gated<Result<T, Refused>> {
        match decided {
            Ok(value) => value.map(Ok),
            Err(refused) => self.refused(refused),
        }
    }

    /// A refusal waits for the records that it reveals.
    pub(crate) fn refused<T>(&self, refused: impl Into<Refused>) -> Gated<Result<T, Refused>> {
        let refused = refused.into();
        let early = self.options.faults.duplicate_answered_early;
        let gate = match &refused {
            Refused::Rejected(Rejection::KeyTaken(id)) if !early => {
                self.state.job(*id).map_or_else(|| self.tail(), |found| self.gate_of(&found))
            }
            Refused::Rejected(Rejection::KeyTaken(_) | Rejection::OutOfRange(_)) => Gate::OPEN,
            Refused::Rejected(_) => self.tail(),
            _ => Gate::OPEN,
        };
        Gated::new(Err(refused), gate)
    }

    /// Adds a wait, if there are not too many.
    pub(crate) fn add_wait(
        &mut self,
        caller: &Caller,
        request: WaitFor,
        wait_ms: Option<u64>,
    ) -> Result<Ticket, Refused> {
        self.check_waits()?;
        let deadline_ms = wait_ms.map(|wait_ms| self.now_ms.saturating_add(wait_ms));
        Ok(self.waiting.list.add(Wait { caller: caller.clone(), request, deadline_ms }))
    }

    /// Refuses one more wait when there are too many.
    pub(crate) fn check_waits(&self) -> Result<(), Refused> {
        if self.waiting.list.len() >= self.options.waits_max {
            return Err(Refused::TooMany("waiting clients"));
        }
        Ok(())
    }

    /// Refuses a payload over the limit.
    pub(crate) fn check_len(&self, payload: &Payload) -> Result<(), Refused> {
        let (bytes, max) = (payload.len(), self.options.payload_bytes_max);
        if bytes > max {
            return Err(Refused::TooLarge { bytes, max });
        }
        Ok(())
    }
}
