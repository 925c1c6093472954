//! Errors of the disk while a log is opened, repaired and begun: the start fails, and nothing else. The next one
//! finds all that was there.

use rand::Rng;
use spindle_engine::StartError;
use spindle_log::OpenError;
use spindle_testkit::disk::{Fault, Operation};

use super::{Judged, Run};

/// What may fail, and of how many operations of that kind one does.
const FAILS: [(Operation, u64); 6] = [
    (Operation::Write, 8),
    (Operation::Sync, 8),
    (Operation::SyncFolder, 3),
    (Operation::Create, 2),
    (Operation::Rename, 2),
    (Operation::Remove, 2),
];

impl Run {
    /// Plans trouble for the start to come: the power goes, an operation fails, or bytes cannot be read.
    pub(super) fn plan_trouble(&mut self) {
        if self.server.is_in_flight() {
            return self.server.cut_power_after(self.rng.random_range(0..6));
        }
        let disk = &self.server.disk;
        match self.losses.random_range(0..4) {
            0 | 1 => disk.cut_power_after(self.rng.random_range(0..10)),
            2 => {
                let (kind, among) = FAILS[self.losses.random_range(0..FAILS.len())];
                disk.fail(kind, self.losses.random_range(0..among), Fault::InputOutput);
                self.errors_planned.push(kind);
            }
            _ => self.spoil(),
        }
    }

    /// Plans trouble for the fold of a log that is open: bytes cannot be read.
    pub(super) fn plan_trouble_of_fold(&mut self) {
        if self.losses.random_ratio(1, 30) && !self.server.is_in_flight() {
            self.spoil();
        }
    }

    fn spoil(&mut self) {
        let disk = &self.server.disk;
        // A crash may leave a file of a name without its bytes.
        let is_read = |name: &String| {
            let is_log = name.ends_with(".segment") || name == "bounds";
            is_log && disk.contents(name).is_some_and(|bytes| !bytes.is_empty())
        };
        let names: Vec<String> = disk.names().into_iter().filter(is_read).collect();
        if names.is_empty() {
            return;
        }
        let name = &names[self.losses.random_range(0..names.len())];
        let len = disk.contents(name).map_or(0, |bytes| bytes.len());
        // Only the beginnings of the two halves of `bounds` are read.
        let places = if name == "bounds" { 2 } else { len };
        disk.spoil(name, self.losses.random_range(0..places) * (len / places));
        self.unreadable = true;
    }

    /// A log does not open though there is power. Only the planned error may cause that, and the
    /// error has to say so.
    pub(super) fn judge_unopened(&mut self, error: &OpenError) -> Judged {
        match error {
            OpenError::Failed { .. } if self.has_trouble() => {
                self.count_trouble();
                Ok(())
            }
            _ => Err(format!("the log does not open: {error}")),
        }
    }

    pub(super) fn count_trouble(&mut self) {
        self.counts.start_reads += u64::from(self.unreadable);
        self.counts.start_errors += u64::from(!self.errors_planned.is_empty());
    }

    /// Whether an engine may refuse to begin on a log that is open.
    pub(super) fn may_fail_to_start(&self, error: &StartError) -> bool {
        // In bad weather all answers may be lost that a start has the patience for.
        let is_lost = self.server.is_in_flight() && matches!(error, StartError::Unanswered);
        is_lost || !self.server.is_powered() || self.server.is_limited() || self.has_trouble()
    }

    /// Whether an operation of the start under way fails, or bytes cannot be read.
    pub(super) fn has_trouble(&self) -> bool {
        self.unreadable || !self.errors_planned.is_empty()
    }

    /// Unreadable bytes become readable again.
    pub(super) fn heal(&mut self) {
        self.server.disk.heal();
        self.unreadable = false;
    }

    /// The start succeeded. An error that was planned for it and did not come is cancelled.
    pub(super) fn forget_trouble(&mut self) {
        self.heal();
        if self.server.disk.forget_faults() {
            self.errors_planned.clear();
        }
    }

    /// The start failed. The machine goes down, or only the process did.
    pub(super) fn end_start(&mut self) {
        self.server.crash_writer();
        let disk = self.server.disk.clone();
        self.server.stop();
        self.heal();
        self.errors_planned.clear();
        if disk.is_powered() && self.losses.random_ratio(1, 2) {
            disk.forget_faults();
            disk.kill();
        } else {
            disk.crash();
        }
    }
}
