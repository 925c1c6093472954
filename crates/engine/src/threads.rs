//! The engine's threads: one commits, one keeps time, one compacts the log, and one matches
//! jobs that were there before the newest constraints. Over a log that takes several records at a
//! time the first submits them, and one more takes the answers; on a log that others share, one more
//! keeps the lease. Each is a loop around a step that the
//! simulator calls by itself.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::answer::Failure;
use crate::commit::{Committed, Flight, Submitted};
use crate::constraints::RelabelStep;
use crate::engine::Engine;
use crate::schedules::FIRED_AT_ONCE;

/// The body of a thread: returns when the flag says stop.
type Loop = fn(&Engine, &AtomicBool);

/// How often the timer looks at the clock even if nothing is due.
const IDLE: Duration = Duration::from_secs(60);
/// How often the log's size is looked at.
const COMPACTION_PAUSE: Duration = Duration::from_millis(100);
/// How long a full disk is left alone before the next try.
const FULL_PAUSE: Duration = Duration::from_millis(100);
/// How often threads that are to end are woken over a network.
const STOP_PAUSE: Duration = Duration::from_millis(1);
/// Waits ended in one hold of the lock.
const WAITS_PER_STEP: usize = 256;

impl Engine {
    /// Starts the threads. `on_failure` is called once, from any of them, when the log has failed, or
    /// another process has written to it; memory is ahead of the log then, and the engine must end. It is
    /// not called for [`Engine::abandon`].
    pub fn spawn(
        &self,
        on_failure: impl Fn(Failure) + Send + Sync + 'static,
    ) -> std::io::Result<()> {
        self.shared.on_failure.set(Box::new(on_failure)).ok();
        let mut threads = self.shared.threads.lock();
        let is_in_flight = self.shared.flight.is_some();
        let mut loops: Vec<(&str, Loop)> = vec![
            ("spindle-log", if is_in_flight { Engine::run_submits } else { Engine::run_log }),
            ("spindle-timer", Engine::run_timer),
            ("spindle-compact", Engine::run_compaction),
            ("spindle-relabel", Engine::run_relabel),
        ];
        if is_in_flight {
            loops.push(("spindle-acks", Engine::run_acks));
        }
        if self.shared.lead.is_some() {
            loops.push(("spindle-lead", Engine::run_lead));
        }
        for (name, body) in loops {
            let (engine, stop) = (self.clone(), threads.stop.clone());
            let thread = std::thread::Builder::new().name(name.to_owned());
            threads.handles.push(thread.spawn(move || body(&engine, &stop))?);
        }
        Ok(())
    }

    /// Ends the threads, gives back the ids that were reserved and not used, and commits what is
    /// left.
    pub fn stop(&self) {
        let threads = std::mem::take(&mut *self.shared.threads.lock());
        threads.stop.store(true, Ordering::Release);
        self.shared.timer.ring();
        while threads.handles.iter().any(|thread| !thread.is_finished()) {
            // The log thread may be just about to sleep: wake it until it has ended.
            self.shared.work.notify_all();
            self.shared.relabel_bell.ring();
            if let Some(lead) = &self.shared.lead {
                lead.bell.ring();
            }
            match &self.shared.flight {
                None => std::thread::yield_now(),
                // The answers of what is on its way may take long.
                Some(flight) => {
                    flight.submits.ring();
                    flight.acks.ring();
                    std::thread::park_timeout(STOP_PAUSE);
                }
            }
        }
        // Decisions made after the log has failed are void.
        if self.failure().is_none() {
            self.shared.inner.lock().return_ids();
        }
        let is_settled = || self.shared.flight.as_ref().is_none_or(Flight::is_empty);
        if self.failure().is_none()
            && self.flush().is_ok()
            && is_settled()
            && let Err(error) = self.shared.log.end()
        {
            tracing::error!(%error, "where the log ends could not be noted");
        }
    }

    fn run_log(&self, stop: &AtomicBool) {
        loop {
            match self.commit_once() {
                Committed::Some | Committed::Unknown => {}
                Committed::Failed => return,
                // No thread makes room any more.
                Committed::Full if stop.load(Ordering::Acquire) => return,
                Committed::Full => std::thread::park_timeout(FULL_PAUSE),
                Committed::Nothing => {
                    if stop.load(Ordering::Acquire) {
                        return;
                    }
                    let mut inner = self.shared.inner.lock();
                    if !inner.batch.has_work() {
                        self.shared.work.wait_for(&mut inner, IDLE);
                    }
                }
            }
        }
    }

    /// Replaces [`Engine::run_log`] over a log that takes several records at a time.
    fn run_submits(&self, stop: &AtomicBool) {
        let Some(flight) = &self.shared.flight else { return };
        while !stop.load(Ordering::Acquire) {
            if let Some(rest) = flight.rest() {
                flight.submits.sleep(rest);
                continue;
            }
            let submitted =
                if flight.goes_alone() { self.commit_alone(flight) } else { self.submit_once() };
            match submitted {
                Submitted::Some => {}
                Submitted::Failed => return,
                Submitted::Full => std::thread::park_timeout(FULL_PAUSE),
                Submitted::Nothing => flight.submits.sleep(IDLE),
            }
        }
    }

    /// What is on its way when the server stops is waited for.
    fn run_acks(&self, stop: &AtomicBool) {
        let Some(flight) = &self.shared.flight else { return };
        loop {
            match self.take_ack_once() {
                Committed::Failed => return,
                Committed::Nothing if stop.load(Ordering::Acquire) => return,
                Committed::Nothing => flight.acks.sleep(IDLE),
                Committed::Some | Committed::Unknown | Committed::Full => {}
            }
        }
    }

    fn run_timer(&self, stop: &AtomicBool) {
        while !stop.load(Ordering::Acquire) {
            self.watch_clock();
            while self.fire_schedules(FIRED_AT_ONCE) {}
            let wait_ms = self.tick_once();
            let wait = wait_ms.map_or(IDLE, |ms| Duration::from_millis(ms.max(1)).min(IDLE));
            self.shared.timer.sleep(wait);
        }
    }

    /// Does what is due now. Returns in how many milliseconds something is due next.
    pub fn tick_once(&self) -> Option<u64> {
        let mut inner = self.enter();
        let now_ms = inner.now_ms;
        inner.expire_waits(now_ms, WAITS_PER_STEP);
        inner.end_due_calls(now_ms);
        inner.numbers.report_dropped(now_ms);
        let deadline_ms = inner.next_deadline();
        self.shared.timer.arm(deadline_ms);
        self.leave(inner);
        deadline_ms.map(|deadline| deadline.saturating_sub(now_ms))
    }

    fn run_compaction(&self, stop: &AtomicBool) {
        while !stop.load(Ordering::Acquire) {
            if let Err(error) = self.shared.log.check() {
                self.fail(Failure::Log(error));
                return;
            }
            match self.compaction_step() {
                Ok(true) => self.await_durable(stop),
                Ok(false) => std::thread::park_timeout(COMPACTION_PAUSE),
                Err(error) => {
                    self.fail(Failure::Log(error));
                    return;
                }
            }
        }
    }

    fn run_lead(&self, stop: &AtomicBool) {
        let Some(lead) = &self.shared.lead else { return };
        while !stop.load(Ordering::Acquire) && self.failure().is_none() {
            lead.bell.sleep(self.lead_step());
        }
    }

    fn run_relabel(&self, stop: &AtomicBool) {
        while !stop.load(Ordering::Acquire) && self.failure().is_none() {
            match self.relabel_step() {
                RelabelStep::More => self.hand_to_log_thread(),
                RelabelStep::Later => {
                    self.hand_to_log_thread();
                    self.shared.relabel_bell.sleep(FULL_PAUSE);
                }
                RelabelStep::Done => self.shared.relabel_bell.sleep(IDLE),
            }
        }
    }

    /// Waits for the last step of compaction: the next one begins when it is durable, or when the disk has no room for
    /// it.
    fn await_durable(&self, stop: &AtomicBool) {
        let inner = self.shared.inner.lock();
        let tail = inner.tail();
        self.leave(inner);
        let goes_on = || !stop.load(Ordering::Acquire) && self.failure().is_none();
        while self.durable() < tail && goes_on() && !self.shared.admission.is_blocked() {
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }
}
