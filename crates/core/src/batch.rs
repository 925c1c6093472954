//! Batches: jobs that belong together. A batch is opened, jobs are added, it is sealed; when all of
//! its jobs have ended, it has ended.
//!
//! A batch has a number from the same sequence as jobs, so a job that waits for jobs (`after`) can
//! wait for batches too: that is how a job runs once all jobs of a batch are done, or once all have
//! ended. A batch may belong to another one, and counts there as one job.
//!
//! A batch keeps counts of its jobs, not their statuses, because jobs go when their retention ends.
//! The counts are logged as numbers, in the record that changed them: a fold that begins in the
//! middle of the log may not know a job's earlier status.

use bytes::Bytes;

/// A batch has at most this many jobs, batches in it included.
pub const BATCH_JOBS_MAX: u32 = 10_000;
/// The server keeps at most this many batches.
pub const BATCHES_MAX: usize = 100_000;
/// How deep batches may nest: a batch that belongs to none is at depth 1.
pub const BATCH_DEPTH_MAX: usize = 10;
/// The longest name, and the longest key.
pub const BATCH_NAME_BYTES_MAX: usize = 256;

/// A batch.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Batch {
    /// Its number, from the same sequence as jobs'.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// The queue by which access to it is decided. Its jobs may be of any queue.
    #[prost(bytes = "bytes", tag = "2")]
    pub queue: Bytes,
    /// For people; may be empty.
    #[prost(string, tag = "3")]
    pub name: String,
    /// A name from outside, unique among batches; empty if it has none.
    #[prost(bytes = "bytes", tag = "4")]
    pub key: Bytes,
    /// The batch that it belongs to; 0 if there is none.
    #[prost(uint64, tag = "5")]
    pub parent: u64,
    /// When it was opened.
    #[prost(fixed64, tag = "6")]
    pub opened_ms: u64,
    /// When it was sealed: no job is added from then on.
    #[prost(fixed64, optional, tag = "7")]
    pub sealed_ms: Option<u64>,
    /// Somebody cancelled it: those of its jobs that had not finished are to be cancelled.
    #[prost(bool, tag = "8")]
    pub is_cancelled: bool,
    /// How long it is kept once it has ended.
    #[prost(uint64, tag = "9")]
    pub keep_ms: u64,
    /// How many jobs it has.
    #[prost(message, required, tag = "10")]
    pub counts: BatchCounts,
    /// When the last of its jobs ended. Absent while the batch is open or one of its jobs is
    /// unfinished; a retried job is unfinished again.
    #[prost(fixed64, optional, tag = "11")]
    pub ended_ms: Option<u64>,
}

/// How many jobs of a batch are in which state. A batch within it counts as one job.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct BatchCounts {
    /// Neither done nor dead.
    #[prost(uint32, tag = "1")]
    pub unfinished: u32,
    /// Done, whether they are kept or not.
    #[prost(uint32, tag = "2")]
    pub done: u32,
    /// Dead, and kept: they can be retried.
    #[prost(uint32, tag = "3")]
    pub dead: u32,
    /// Gone without having been done.
    #[prost(uint32, tag = "4")]
    pub gone: u32,
}

/// How a job of a batch counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Counted {
    Unfinished,
    Done,
    Dead,
    Gone,
}

impl BatchCounts {
    /// All that were ever added.
    pub fn total(&self) -> u32 {
        self.unfinished + self.done + self.dead + self.gone
    }

    /// Moves a job from the count `was` to the count `is`. A job that is added was in none.
    pub(crate) fn count(&mut self, was: Option<Counted>, is: Counted) {
        if let Some(was) = was {
            *self.of(was) = self.of(was).saturating_sub(1);
        }
        *self.of(is) += 1;
    }

    fn of(&mut self, counted: Counted) -> &mut u32 {
        match counted {
            Counted::Unfinished => &mut self.unfinished,
            Counted::Done => &mut self.done,
            Counted::Dead => &mut self.dead,
            Counted::Gone => &mut self.gone,
        }
    }
}

impl Batch {
    /// Whether it takes no more jobs.
    pub fn is_sealed(&self) -> bool {
        self.sealed_ms.is_some()
    }

    /// When it goes; none while it has not ended.
    pub fn gone_ms(&self) -> Option<u64> {
        self.ended_ms.map(|ended_ms| ended_ms.saturating_add(self.keep_ms))
    }

    /// How it counts in the batch that it belongs to. A batch with a job that is gone without having
    /// been done can never be done. One with a dead job still can, because the job may be retried.
    pub(crate) fn counted(&self) -> Counted {
        let BatchCounts { unfinished, dead, gone, .. } = self.counts;
        if !self.is_sealed() || unfinished > 0 {
            Counted::Unfinished
        } else if gone > 0 {
            Counted::Gone
        } else if dead > 0 {
            Counted::Dead
        } else {
            Counted::Done
        }
    }

    /// Notes when it ended, if it has by now.
    pub(crate) fn note_end(&mut self, now_ms: u64) {
        self.ended_ms = match self.counted() {
            Counted::Unfinished => None,
            _ => self.ended_ms.or(Some(now_ms)),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_ends_when_it_is_sealed_and_none_of_its_jobs_is_unfinished() {
        let counts = |unfinished, done, dead, gone| BatchCounts { unfinished, done, dead, gone };
        let counted = |sealed_ms, counts| Batch { sealed_ms, counts, ..Batch::default() }.counted();
        assert_eq!(counted(None, counts(0, 1, 0, 0)), Counted::Unfinished);
        assert_eq!(counted(Some(1), counts(1, 1, 1, 1)), Counted::Unfinished);
        assert_eq!(counted(Some(1), counts(0, 0, 0, 0)), Counted::Done);
        assert_eq!(counted(Some(1), counts(0, 2, 0, 0)), Counted::Done);
        assert_eq!(counted(Some(1), counts(0, 2, 1, 0)), Counted::Dead);
        assert_eq!(counted(Some(1), counts(0, 2, 1, 1)), Counted::Gone);
    }
}
