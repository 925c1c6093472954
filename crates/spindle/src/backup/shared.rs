//! The records of a log that servers share, as nodes fold them.
//!
//! Nodes ignore a record that a deposed leader has written behind its successor's first one. They recognize it by the
//! epochs of the records around it, which a copy that begins or ends elsewhere may not have. So the backup has an empty
//! record, a beat, in its place: positions stay, and every reader of the backup, a single server too, folds what the
//! nodes have folded.

use std::{collections::VecDeque, io, sync::Arc};

use spindle_backup::{BackupError, Found, RecordSource, Records};
use spindle_engine::{
    Fence,
    record::{beat, check, written_ms},
};
use spindle_log::{Opening, Position, ReadError, SharedLog, Stored, StoredRecords};

use crate::{cli::LogArgs, shared_log};

/// A shared log.
pub struct SharedSource<'a> {
    args: &'a LogArgs,
    log: Arc<dyn SharedLog>,
    /// The log is as it was when it was opened, and nobody has looked at it yet.
    is_new: bool,
}

impl<'a> SharedSource<'a> {
    /// The log that a command names.
    pub fn open(args: &'a LogArgs) -> anyhow::Result<Self> {
        let log = shared_log::open(args, Opening::Reader)?;
        Ok(Self { args, log, is_new: true })
    }
}

impl RecordSource for SharedSource<'_> {
    fn look(&mut self) -> Result<Found, BackupError> {
        if !std::mem::take(&mut self.is_new) {
            let log = shared_log::open(self.args, Opening::Reader);
            self.log = log.map_err(|error| BackupError::Source(error.into()))?;
        }
        let log = &self.log;
        Ok(Found { log_id: log.log_id(), first: log.first(), end: log.next() })
    }

    fn read(&mut self, from: Position, behind: Option<&Stored>) -> Result<Records<'_>, ReadError> {
        let fence = match behind {
            Some(behind) => Fence::behind(behind.epoch),
            None => Fence::shared(from.0),
        };
        let records = self.log.read(from)?;
        let last_epoch = behind.map(|behind| behind.epoch);
        let (taken, ready) = (VecDeque::new(), VecDeque::new());
        Ok(Box::new(Counting { records, fence, taken, ready, last_epoch, has_ended: false }))
    }

    fn is_same(&self, in_log: &Stored, in_copy: &Stored) -> bool {
        let is_same = (in_log.epoch, &in_log.bytes) == (in_copy.epoch, &in_copy.bytes);
        is_same || in_copy.bytes == left_out(in_log, Some(in_copy.epoch)).bytes
    }
}

/// Records, with those that do not count replaced.
struct Counting {
    records: StoredRecords,
    fence: Fence,
    /// Records that were given to the fence and that it has not handed on: they do not count, or it is not yet known
    /// whether they do.
    taken: VecDeque<Stored>,
    ready: VecDeque<Stored>,
    last_epoch: Option<u64>,
    has_ended: bool,
}

impl Counting {
    fn advance(&mut self) -> Result<(), ReadError> {
        let mut counted = Vec::new();
        let mut count = |stored| {
            counted.push(stored);
            Ok(())
        };
        let next = self.records.next().transpose()?;
        self.has_ended = next.is_none();
        match next {
            Some(stored) => {
                self.taken.push_back(stored.clone());
                self.fence.take(checked(stored)?, count)?;
            }
            None => self.fence.end(&mut count)?,
        }
        for stored in counted {
            self.leave_out_before(stored.position);
            self.taken.pop_front();
            self.last_epoch = Some(stored.epoch);
            self.ready.push_back(stored);
        }
        if self.has_ended {
            self.leave_out_before(Position(u64::MAX));
        }
        Ok(())
    }

    /// Replaces the records that the fence has passed over.
    fn leave_out_before(&mut self, position: Position) {
        while let Some(before) = self.taken.pop_front_if(|it| it.position < position) {
            self.ready.push_back(left_out(&before, self.last_epoch));
        }
    }
}

impl Iterator for Counting {
    type Item = Result<Stored, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.ready.is_empty() && !self.has_ended {
            if let Err(error) = self.advance() {
                self.has_ended = true;
                self.ready.clear();
                return Some(Err(error));
            }
        }
        self.ready.pop_front().map(Ok)
    }
}

/// The record that stands in the backup for one that does not count.
fn left_out(stored: &Stored, last_epoch: Option<u64>) -> Stored {
    let epoch = last_epoch.unwrap_or(stored.epoch);
    let bytes = beat(epoch, written_ms(&stored.bytes).unwrap_or_default());
    Stored { position: stored.position, epoch, bytes, damaged: false }
}

/// Checks a record's bytes, because a log that does not check them itself may return other bytes than were written.
fn checked(stored: Stored) -> Result<Stored, ReadError> {
    match check(&stored.bytes, stored.epoch) {
        Ok(is_sound) => Ok(Stored { damaged: !is_sound, ..stored }),
        Err(error) => {
            let (position, source) = (stored.position, Arc::new(io::Error::other(error)));
            Err(ReadError::Failed { file: format!("record {position}"), source })
        }
    }
}
