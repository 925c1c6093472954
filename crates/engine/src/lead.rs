//! Whether this process leads a log that others share, and may answer.
//!
//! Only the log decides who leads: the process that appended the newest epoch record. A deposed leader learns of it
//! when its next append meets a conflict, and until then its answers could be wrong: it would say "there is none" of a
//! job that its successor has acknowledged. So a leader answers nothing, reads included, unless it holds the **lease**.
//! It holds the lease under two conditions, both by the clock that counts from the boot of the machine
//! ([`Clock::since_boot`]):
//!
//! 1. [`SILENCE`] has passed since its epoch record was committed. By then the lease of the
//!    previous leader has run out, whatever that leader has seen.
//! 2. Less than [`LEASE`] has passed since an append of its epoch *began* that was committed. While that append was on
//!    its way, no later epoch record was in the log; so the next leader is still silent.
//!
//! ```text
//!   A   append begins ──── committed            lease ends
//!       |<────────────── LEASE ──────────────────>|            A answers nothing from here on
//!   B              epoch record committed at the earliest
//!                  |<───────────── SILENCE ────────────────>|  B answers from here on
//! ```
//!
//! **Why a process that was stopped cannot lie.** The lease is checked after an answer was made, where it is handed to
//! its socket ([`Committer::released`](crate::Committer::released)). If the process was stopped for long before that
//! check, with SIGSTOP or because its machine was asleep, the clock has gone on and the check fails. A stop between the
//! check and the socket only delays an answer that was true when it was checked, as a slow network does: the client
//! asked before that, and its answer was the truth at one moment in between.
//!
//! Only lengths of time are compared, never two machines' clocks. Two things are assumed. Clocks of different machines
//! run at nearly the same speed: [`SILENCE`] is longer than [`LEASE`] to allow for the difference. And a clock goes on
//! while its process is stopped: this fails only where a whole virtual machine is paused together with its clock.
//!
//! A leader that has nothing to write appends a **beat** now and then, a record without entries, while clients ask. On
//! a log that only one process can write to, none of this exists.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Clock;
use crate::commit::TimerBell;
use crate::engine::Engine;
use crate::gate::Gate;
use crate::options::Faults;

/// How long after its beginning a committed append lets answers go.
pub(crate) const LEASE: Duration = Duration::from_millis(500);
/// How long a new leader answers nothing: a lease, and a fiftieth of it, by which two machines' clocks
/// may differ over that time.
pub(crate) const SILENCE: Duration = Duration::from_millis(510);
/// Beats go on for this long after a client has asked.
const ASKED_LATELY: Duration = Duration::from_secs(1);
/// The thread looks at least this often.
const LOOK: Duration = Duration::from_millis(125);

/// When an append began, by the boot clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Began(u64);

/// What a process knows of its lead.
pub(crate) struct Lead {
    clock: Arc<dyn Clock>,
    /// From when on it may answer; the end of time until its epoch record is committed.
    silent_until_ns: AtomicU64,
    /// When the newest append began that was committed.
    proven_ns: AtomicU64,
    /// When somebody last asked.
    asked_ns: AtomicU64,
    /// An answer was held back, and nothing has been appended for it yet.
    held_back: AtomicBool,
    /// The silence is over, and the mailboxes that wait for it have been called.
    spoken: AtomicBool,
    /// This process leads no more.
    ended: AtomicBool,
    pub bell: TimerBell,
    faults: Faults,
}

impl Lead {
    pub fn new(clock: Arc<dyn Clock>, faults: Faults) -> Lead {
        Lead {
            clock,
            silent_until_ns: AtomicU64::new(u64::MAX),
            proven_ns: AtomicU64::new(0),
            asked_ns: AtomicU64::new(0),
            held_back: AtomicBool::new(false),
            spoken: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            bell: TimerBell::default(),
            faults,
        }
    }

    /// An append begins now.
    pub fn begins(&self) -> Began {
        Began(self.now_ns())
    }

    /// That append is committed.
    pub fn committed(&self, began: Began) {
        self.proven_ns.fetch_max(began.0, Ordering::AcqRel);
    }

    /// The epoch record is committed: the silence begins.
    pub fn epoch_committed(&self) {
        let Faults { silence_skipped, epoch_not_awaited, .. } = self.faults;
        let silence = if silence_skipped || epoch_not_awaited { Duration::ZERO } else { SILENCE };
        self.silent_until_ns.store(self.now_ns() + ns(silence), Ordering::Release);
    }

    /// Nothing is answered from here on.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// Whether answers may leave now.
    fn is_held(&self) -> bool {
        let proven_ns = self.proven_ns.load(Ordering::Acquire);
        // Read after that: the lease may only look shorter than it is.
        let now_ns = self.now_ns();
        self.asked_ns.store(now_ns, Ordering::Relaxed);
        !self.ended.load(Ordering::Acquire)
            && now_ns >= self.silent_until_ns.load(Ordering::Acquire)
            && now_ns < proven_ns + ns(LEASE)
    }

    fn now_ns(&self) -> u64 {
        // Zero stands for never.
        ns(self.clock.since_boot()).max(1)
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Engine {
    /// See [`Committer::released`](crate::Committer::released).
    pub fn released(&self) -> Option<Gate> {
        let Some(lead) = &self.shared.lead else { return Some(self.durable()) };
        if lead.is_held() || lead.faults.lease_unchecked {
            return Some(self.durable());
        }
        if !lead.held_back.swap(true, Ordering::AcqRel) {
            lead.bell.ring();
        }
        None
    }

    /// Appends a beat if the lease needs one, and calls the mailboxes when the silence is over.
    /// Returns when to look again. The thread calls this in a loop, and tests do; on a log that is
    /// not shared it does nothing.
    pub fn lead_step(&self) -> Duration {
        let Some(lead) = &self.shared.lead else { return Duration::MAX };
        let now_ns = lead.now_ns();
        let silent_until_ns = lead.silent_until_ns.load(Ordering::Acquire);
        let is_silent = now_ns < silent_until_ns;
        if !is_silent && !lead.spoken.swap(true, Ordering::AcqRel) {
            self.call_mailboxes();
        }
        let asked_ns = lead.asked_ns.load(Ordering::Relaxed);
        let is_asked = asked_ns != 0 && now_ns < asked_ns + ns(ASKED_LATELY);
        let left_ns = (lead.proven_ns.load(Ordering::Acquire) + ns(LEASE)).saturating_sub(now_ns);
        let held_back = lead.held_back.swap(false, Ordering::AcqRel);
        if held_back || (is_asked && left_ns < ns(LEASE) / 2) {
            self.beat();
        }
        let until_spoken = Duration::from_nanos(silent_until_ns.saturating_sub(now_ns));
        if is_silent { until_spoken.min(LOOK) } else { LOOK }
    }

    /// Has an empty record committed, unless something is on its way already.
    fn beat(&self) {
        let mut inner = self.shared.inner.lock();
        if self.durable() >= inner.tail() {
            inner.batch.put_beat();
        }
        self.leave(inner);
    }

    /// Appends something soon, if this process shares its log: for a caller that doubts whether it
    /// leads.
    pub fn prove_lead(&self) {
        if self.shared.lead.is_some() {
            self.beat();
        }
    }

    /// The format in force: the version of records that every reader of this log has to know.
    pub fn format(&self) -> u8 {
        self.shared.inner.lock().batch.format()
    }

    /// Brings a newer version of records into force, up to the newest that this process knows. To be called
    /// only once all readers of the log know it. A record says so, and from there on this process writes what that
    /// version adds.
    pub fn raise_format(&self, format: u8) {
        let mut inner = self.shared.inner.lock();
        let format = format.min(inner.options.format);
        if inner.batch.raise_format(format) {
            tracing::info!(
                "version {format} of the record format is in force: all nodes can read it"
            );
        }
        self.leave(inner);
    }

    /// Gives the log up at once: nothing more is committed, and nothing is answered. For a process
    /// that leads no more, or must not wait for a log that is out of reach. What waits for the log is
    /// never answered: the caller closes the doors.
    pub fn abandon(&self) {
        self.fail(crate::Failure::Abandoned);
    }
}
