//! Phases in which the disk has no room for another segment.

use bytes::Bytes;
use rand::Rng;
use spindle_core::command::{Claim, Finish};
use spindle_core::{BytesRef, Command, JobId, JobImage, Type};
use spindle_engine::{Committed, Room};

use super::people::unaudited;
use super::server::RECORD_BYTES_MAX;
use super::{COMMANDS_MIN, Judged, Run};

/// Submits until the log says that there is no room, at most.
const FILLERS_MAX: u32 = 24;

/// Steps of compaction that a request waits for, at most.
const ADMISSION_STEPS_MAX: u32 = 2_000;

/// Jobs that end at once: more than the reserve has room for.
const DRAINED_MAX: usize = 24;

/// When the disk is full, counted in commands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phases {
    begins: u64,
    ends: Option<u64>,
}

impl Phases {
    /// None: the disk is never full.
    pub fn none() -> Phases {
        Phases { begins: u64::MAX, ends: None }
    }

    pub fn new(rng: &mut impl Rng) -> Phases {
        Phases { begins: rng.random_range(COMMANDS_MIN / 10..COMMANDS_MIN / 2), ends: None }
    }
}

impl Run {
    /// Begins or ends a phase, if it is time. Says whether the server is to crash in it, and when.
    pub(super) fn turn_phase(&mut self) -> Judged<Option<u64>> {
        let now = self.counts.commands;
        if self.phases.ends.is_some_and(|ends| now >= ends) {
            self.end_full()?;
        }
        if self.phases.ends.is_some() || now < self.phases.begins {
            return Ok(None);
        }
        let lasts = self.rng.random_range(60..200);
        self.phases.ends = Some(now + lasts);
        self.phases.begins = now + self.rng.random_range(COMMANDS_MIN / 3..COMMANDS_MIN);
        self.server.limit_disk();
        for _ in 0..FILLERS_MAX {
            if self.server.is_full() || self.server.is_dead() {
                break;
            }
            let filler = self.filler();
            self.submit(&filler)?;
            self.take_deliveries()?;
            self.commit()?;
        }
        if self.rng.random_ratio(1, 4) {
            self.drain()?;
        }
        Ok(self.rng.random_ratio(1, 2).then(|| now + self.rng.random_range(5..lasts)))
    }

    /// Many jobs end at once, the youngest first, with results as long as a full disk always takes. They
    /// use up the reserve and free nothing in the oldest segment; compaction has no turn unless they wait
    /// for it.
    fn drain(&mut self) -> Judged {
        let unfinished = |job: &&JobImage| !job.status().is_finished() && !job.foreground;
        let mut ids: Vec<u64> = self.model.jobs().filter(unfinished).map(|job| job.id).collect();
        ids.sort_unstable_by(|one, other| other.cmp(one));
        for id in ids.into_iter().take(DRAINED_MAX) {
            if self.server.is_dead() {
                break;
            }
            let finish = Finish {
                claim: Claim::Unfinished { id: JobId(id) },
                success: true,
                retry: false,
                result: Some(BytesRef::logged(1, 64, 4_096, Type::Bytes)),
                message: Bytes::new(),
                error: Bytes::new(),
                code: Bytes::new(),
                worker_finished_at: Bytes::new(),
            };
            self.ask(&Command::Finish(Box::new(finish)))?;
            self.take_deliveries()?;
            self.happen_what_is_due()?;
            if !self.server.is_dead() {
                self.commit()?;
            }
        }
        Ok(())
    }

    /// A request reaches the engine when there is room for it, as in the doors. Returns whether it
    /// does: on a full disk where no more room can be made it is refused. No request waits for
    /// ever.
    pub(super) fn is_admitted(&mut self) -> Judged<bool> {
        for _ in 0..ADMISSION_STEPS_MAX {
            if self.server.is_dead() {
                return Ok(false);
            }
            let full = self.server.is_full();
            match self.server.engine().room(0) {
                Room::There => return Ok(true),
                Room::Exhausted if full => {
                    self.counts.full_exhausted += 1;
                    return Ok(false);
                }
                Room::Later if full => self.counts.full_waits += 1,
                Room::Exhausted | Room::Later => {}
            }
            self.compaction(1)?;
            if !self.server.is_dead() {
                self.commit()?;
            }
        }
        Err("a request waits for room for ever".into())
    }

    /// There is room again: all that waited for it goes on.
    pub(super) fn end_full(&mut self) -> Judged {
        self.free_disk();
        if self.server.is_dead() {
            return Ok(());
        }
        while self.commit_once()? == Committed::Some {}
        self.server.maintain();
        if self.server.is_dead() {
            return Ok(());
        }
        let (durable, tail) = (self.server.durable(), self.server.tail());
        // An error that is planned may keep the log from growing for a while.
        let stuck = durable < tail || self.server.is_full();
        if stuck && self.errors_planned.is_empty() {
            return Err(format!("with room again, {durable} of {tail} records are durable"));
        }
        self.history.prune(durable);
        Ok(())
    }

    pub(super) fn free_disk(&mut self) {
        self.phases.ends = None;
        self.server.free_disk();
    }

    /// A submit was refused for want of room: nothing of it is there.
    pub(super) fn judge_full(&mut self) -> Judged {
        self.counts.full_refusals += 1;
        self.compare()
    }

    /// A command was accepted; on a full disk that is worth a note.
    pub(super) fn note_full(&mut self, command: &Command) {
        let command = unaudited(command);
        let frees = matches!(command, Command::Finish(_) | Command::Delete { .. });
        if frees && self.server.is_full() {
            self.counts.full_changes += 1;
            self.full_changes_undurable += 1;
        }
    }

    /// The log accepts everything that fits into its reserve; only the rest may wait for room.
    pub(super) fn judge_commit(&mut self, outcome: Committed) -> Judged {
        match outcome {
            // A segment that could not be prepared for another reason is tried again.
            Committed::Full if !self.errors_planned.is_empty() => Ok(()),
            Committed::Full if !self.server.is_limited() => {
                Err("records wait for room on a disk that has it".into())
            }
            Committed::Full if self.server.room_bytes() > u64::from(RECORD_BYTES_MAX) + 1_024 => {
                Err(format!("records wait for room with {} bytes of it", self.server.room_bytes()))
            }
            Committed::Some if self.server.durable() == self.server.tail() => {
                let changes = std::mem::take(&mut self.full_changes_undurable);
                self.counts.full_commits += if self.server.is_full() { changes } else { 0 };
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
