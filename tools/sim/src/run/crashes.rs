//! Crashes and starts: what a crash may take, and what has to be there afterwards.

use rand::Rng;
use spindle_core::seat::Seat;
use spindle_core::{Command, JobId};
use spindle_engine::Clock;
use spindle_testkit::disk::{Fault, Operation};

use super::waits::Waits;
use super::{Judged, Run};
use crate::model::Model;

/// Starts that crash themselves, at most, before one is let through.
const BROKEN_STARTS_MAX: u32 = 3;

/// A start writes fewer records than this.
const START_RECORDS_MAX: u64 = 1_000;

impl Run {
    /// The first start, or one after a crash, is in the model too.
    pub(super) fn started(&mut self) -> Judged {
        let grace_ms = self.server.grace_ms();
        begin_epoch(&mut self.model, &self.rot.dying, grace_ms, self.server.now_ms());
        self.history.restart(&self.model, self.server.durable());
        self.seen_trims = 0;
        self.connect()?;
        if self.model.epoch <= self.known_epoch {
            return Err(format!("epoch {} begins again", self.model.epoch));
        }
        self.compare()
    }

    /// Ends the server one way or another: at once, or at some write still to come.
    pub(super) fn plan_crash(&mut self) -> Judged {
        match self.rng.random_range(0..11) {
            8..11 => self.stop(),
            0..3 => self.crash(),
            3..6 => {
                self.server.cut_power_after(self.rng.random_range(0..12));
                Ok(())
            }
            6 if !self.server.is_in_flight() => {
                let kinds = [Operation::Write, Operation::Sync];
                let kind = kinds[self.rng.random_range(0..2)];
                self.errors_planned.push(kind);
                self.server.disk.fail(kind, self.rng.random_range(0..3), Fault::InputOutput);
                Ok(())
            }
            _ => {
                self.commit()?;
                self.crash()
            }
        }
    }

    /// An orderly stop, which the power may cut off anywhere. Sometimes it goes on serving the
    /// requests of clients that asked before.
    fn stop(&mut self) -> Judged {
        let cut = self.rng.random_ratio(1, 3);
        if cut {
            self.server.cut_power_after(self.rng.random_range(0..4));
        }
        self.server.engine().stop();
        self.happen_what_is_due()?;
        let whole = !self.server.is_dead() && self.server.durable() == self.server.tail();
        let ids_until = self.server.engine().inspect(|state| state.server().ids_until);
        if let Some(next) = self.next_id.filter(|next| whole && next.0 != ids_until) {
            return Err(format!("ids from {ids_until} on are given back, and {next} comes next"));
        }
        self.next_id = whole.then_some(JobId(ids_until));
        self.counts.stops += u64::from(whole);
        if whole && self.rng.random_ratio(1, 3) {
            return Ok(());
        }
        let (next, epoch) = (self.next_id, self.model.epoch);
        self.ended = whole && self.server.is_log_sound();
        self.crash()?;
        // All of it was on disk: the next server goes on at that id, unless an earlier start got as
        // far as reserving ids. A schedule may have fired since.
        let next = next.filter(|_| self.model.epoch == epoch + 1);
        self.next_id = self.next_id.or(next);
        Ok(())
    }

    /// The server is gone: the state that comes back has to be one that no answer contradicts.
    pub(super) fn crash(&mut self) -> Judged {
        let durable = self.server.durable();
        self.waits = Waits::default();
        self.request = None;
        self.next_id = None;
        self.counts.full_crashes += u64::from(self.server.is_full());
        self.full_changes_undurable = 0;
        if self.server.is_in_flight() {
            self.lose_writer()?;
        } else {
            self.lose_power_or_process();
        }
        self.server.stop();
        self.set_clock_for_start();
        if self.server.is_limited() && self.rng.random_ratio(1, 3) {
            self.free_disk();
        }
        for broken in 0.. {
            self.counts.crashes += 1;
            if broken < BROKEN_STARTS_MAX && self.rng.random_ratio(1, 3) {
                self.plan_trouble();
            }
            if self.begin_again(durable)? {
                break;
            }
            self.end_start();
        }
        self.forget_trouble();
        self.waits = Waits::default();
        self.request = None;
        self.check_fold()?;
        self.read_large(true)
    }

    /// Before the server is dropped, so that dropping it writes nothing.
    fn lose_power_or_process(&mut self) {
        let powered = self.server.disk.is_powered();
        let failed = powered && self.server.engine().failure().is_some();
        let planned = std::mem::take(&mut self.errors_planned);
        let syncs = planned.contains(&Operation::Sync);
        if failed {
            self.counts.failed_syncs += u64::from(syncs);
            self.counts.failed_writes += u64::from(!syncs);
        }
        // A planned error that has not come yet is cleared only by a power cut. After a failed sync
        // the next process reads bytes that may not be on disk, and must not trust them.
        let kills = powered && planned.len() == usize::from(failed);
        if kills && self.rng.random_ratio(1, if failed { 2 } else { 3 }) {
            self.counts.failed_kills += u64::from(failed);
            self.server.disk.kill();
        } else {
            self.server.disk.crash();
        }
    }

    /// One start. Says whether it got through; a start may be cut off by the next crash.
    fn begin_again(&mut self, durable: u64) -> Judged<bool> {
        let ended = std::mem::take(&mut self.ended);
        let copy = self.copy_before_start(ended);
        let log = match self.server.open_log() {
            Ok(log) => log,
            Err(_) if !self.server.is_powered() => return Ok(false),
            Err(error) => return self.judge_unopened(&error).map(|()| false),
        };
        self.heal();
        let next = log.as_log().next().0;
        if next < durable {
            return Err(format!("the log ends at {next}, and was durable up to {durable}"));
        }
        let survived = self.history.survived(durable, next)?;
        let state = match self.server.fold_of(log.as_log()) {
            Ok(state) => state,
            Err(_) if !self.server.is_powered() => return Ok(false),
            Err(why) => return Err(why),
        };
        let survived = survived
            .judge(&state, self.server.now_ms())
            .map_err(|why| format!("the log ends at {next} (durable {durable}), and {why}"))?;
        if let Some(file) = log.as_file() {
            if let Some(copy) = copy.filter(|_| self.server.is_powered()) {
                self.judge_loss(&copy, file, &survived)?;
            }
            self.let_rot(file, &state);
        }
        // Everything that is there now is durable: the start has synced it.
        self.history.restart(&survived, next);
        self.model = survived;
        self.count_persisted(durable);
        self.count_torn(next);
        if self.trace {
            println!("  the log goes on at {next}, was durable below {durable}");
        }
        self.plan_trouble_of_fold();
        let ahead_ms = self.server.clock.wall_ahead_ms();
        match self.server.start(log) {
            Ok(()) => {
                self.judge_clock_at_start(ahead_ms)?;
                self.counts.full_starts += u64::from(self.server.is_full());
                self.started()?;
                Ok(true)
            }
            Err(error) if self.may_fail_to_start(&error) => {
                // Without room for its first record no server starts.
                self.free_disk();
                self.count_trouble();
                // Its first records may be there: for all jobs that it ends or gives time, or for
                // some.
                let mut begun = self.model.clone();
                let (grace_ms, now_ms) = (self.server.grace_ms(), self.server.now_ms());
                begin_epoch(&mut begun, &self.rot.dying, grace_ms, now_ms);
                let tail = next + START_RECORDS_MAX;
                self.history.record(&self.model, &begun, vec![begun.clone()], tail);
                Ok(false)
            }
            Err(error) => Err(format!("the engine does not start: {error}")),
        }
    }
}

/// A new epoch, the jobs dead whose payloads are damaged, and the leases of older ones ended or
/// given time.
fn begin_epoch(model: &mut Model, dying: &[u64], grace_ms: u64, now_ms: u64) {
    let epoch = model.epoch + 1;
    model.apply(&Command::Start { epoch, seat: Seat::default() }, now_ms, None);
    for id in dying {
        model.apply(&Command::PayloadDamaged { id: JobId(*id) }, now_ms, None);
    }
    let ids: Vec<u64> = model.jobs().map(|job| job.id).collect();
    for window in ids.chunks(256) {
        let from = JobId(window[0]);
        model.apply(&Command::Recover { from, grace_ms }, now_ms, None);
    }
}
