//! Fills a log that keeps no files with the records of a backup.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use spindle_log::{
    Ack, PartsOf, Position, Record, SharedLog, Stored, SubmitError,
    copy::{CopyError, read_copy},
    disk::Disk,
};

use crate::{error::BackupError, manifest::Manifest};

/// How long a log may leave the outcome of a record open: a stream elects a leader in 10 s.
const PATIENCE: Duration = Duration::from_secs(60);

/// Appends all records of a backup, which was checked, to a log that was opened with
/// [`Opening::Restore`](spindle_log::Opening::Restore) at its first position, and lets nodes open it then. Goes on where
/// an earlier run on the same log has ended. `progress` learns of each record: its bytes.
///
/// # Errors
///
/// A log that is left unfinished is refused by every node. Run it again, unless the error says otherwise.
pub fn fill(
    from: &dyn Disk,
    manifest: &Manifest,
    log: &dyn SharedLog,
    parts_of: PartsOf,
    progress: &mut dyn FnMut(usize),
) -> Result<(), BackupError> {
    let other = |reason: String| BackupError::OtherRecords { reason };
    let (first, next) = (log.first(), log.next());
    if first != manifest.first {
        return Err(other(format!("it begins at {first}, the backup at {}", manifest.first)));
    }
    if next > manifest.end {
        return Err(other(format!("it ends at {next}, the backup at {}", manifest.end)));
    }
    let mut there = log.read(first).map_err(|error| BackupError::unread(first, error))?;
    let mut appender =
        Appender { log, pending: VecDeque::new(), submitted: 0, moved: Instant::now() };
    let mut each = |stored: Stored| {
        let at = stored.position;
        let bytes = stored.bytes.len();
        if at < next {
            let found = there.next().transpose();
            let found = found.map_err(|error| BackupError::unread(at, error))?;
            let is_same =
                |it: Stored| (it.position, it.epoch, it.bytes) == (at, stored.epoch, stored.bytes);
            if !found.is_some_and(is_same) {
                return Err(Stop(other(format!("record {at} is another one"))));
            }
        } else {
            appender.push(stored)?;
        }
        progress(bytes);
        Ok(())
    };
    for kept in &manifest.segments {
        let file = from.open(&kept.file, false);
        let file = file.map_err(BackupError::failed(from, "open", &kept.file))?;
        let read = read_copy(&file, kept.facts.bytes, parts_of, &mut each);
        let checked = read.map_err(|Stop(error)| match error {
            BackupError::Source(copy) => BackupError::damaged(from, &kept.file, copy.to_string()),
            error => error,
        })?;
        if checked.facts != kept.facts {
            let reason = "it changed while it was read";
            return Err(BackupError::damaged(from, &kept.file, reason));
        }
    }
    appender.finish()?;
    log.end_restore()
        .map_err(|error| BackupError::NotTaken { at: manifest.end, reason: error.to_string() })
}

/// What ends the reading of a copy.
struct Stop(BackupError);

impl From<BackupError> for Stop {
    fn from(error: BackupError) -> Self {
        Self(error)
    }
}

impl From<CopyError> for Stop {
    fn from(error: CopyError) -> Self {
        Self(BackupError::Source(error.into()))
    }
}

/// Appends records in order, as many at a time as the log takes, and submits those again whose outcome is unknown.
struct Appender<'a> {
    log: &'a dyn SharedLog,
    /// Those that are not known to be committed, oldest first.
    pending: VecDeque<(Position, Record)>,
    /// How many of them are submitted.
    submitted: usize,
    /// When one was last committed.
    moved: Instant,
}

impl Appender<'_> {
    fn push(&mut self, stored: Stored) -> Result<(), BackupError> {
        while self.pending.len() >= self.log.in_flight_max() {
            self.take_ack()?;
        }
        let record = Record { epoch: stored.epoch, bytes: stored.bytes };
        self.pending.push_back((stored.position, record));
        self.submit()
    }

    fn finish(mut self) -> Result<(), BackupError> {
        while !self.pending.is_empty() {
            self.take_ack()?;
        }
        Ok(())
    }

    /// Submits what is pending, unless the log takes nothing before the answers of the others were taken.
    fn submit(&mut self) -> Result<(), BackupError> {
        while let Some((at, record)) = self.pending.get(self.submitted) {
            let at = *at;
            match self.log.submit(at, record) {
                Ok(()) => self.submitted += 1,
                Err(SubmitError::Conflict { next, .. }) if next < at && self.submitted > 0 => break,
                Err(SubmitError::Conflict { .. }) => return Err(BackupError::NotAlone { at }),
                Err(SubmitError::TooLarge { bytes, max }) => {
                    let reason = format!(
                        "it has {bytes} bytes, and the log takes {max} at most (servers of NATS: raise max_payload)"
                    );
                    return Err(BackupError::NotTaken { at, reason });
                }
                Err(error) => return Err(BackupError::NotTaken { at, reason: error.to_string() }),
            }
        }
        Ok(())
    }

    /// Takes the answer of the oldest record.
    fn take_ack(&mut self) -> Result<(), BackupError> {
        self.submit()?;
        let Some((at, own)) = self.pending.front() else { return Ok(()) };
        let (at, is_own) = (*at, |it: &Record| it.epoch == own.epoch && it.bytes == own.bytes);
        match self.log.next_ack() {
            Ack::Committed(_) => {}
            Ack::Conflict { stored, .. } if stored.as_ref().is_some_and(is_own) => {}
            Ack::Conflict { .. } => return Err(BackupError::NotAlone { at }),
            Ack::Unknown(_) => {
                // Those behind it are answered in the same way.
                (1..self.submitted).for_each(|_| drop(self.log.next_ack()));
                self.submitted = 0;
                if self.moved.elapsed() > PATIENCE {
                    let reason = format!("it has not answered for {} s", PATIENCE.as_secs());
                    return Err(BackupError::NotTaken { at, reason });
                }
                return Ok(());
            }
            Ack::Fatal(error) => {
                return Err(BackupError::NotTaken { at, reason: error.to_string() });
            }
        }
        self.moved = Instant::now();
        self.submitted -= 1;
        self.pending.pop_front();
        Ok(())
    }
}
