//! Fenced records: what a deposed leader has appended behind its successor's epoch record.
//!
//! A leader may have several appends on their way when another one takes the next position. The first
//! of them meets a conflict. One behind it names a position that the other's epoch record has just made the next one,
//! so the log takes it, although it was decided by an outdated state. It is recognized by its epoch, which is lower
//! than one that came before it. It is never acknowledged, and no node folds it.
//!
//! Where the head of the log was trimmed, the epoch record may be gone, and such a record may be the first one left. So
//! the first records of a trimmed log are held back until it is clear which epoch they stand in. Every epoch is one
//! higher than the one before, so the next epoch record tells; and if none comes soon, they are too far behind an epoch
//! record to be fenced.

use spindle_log::Stored;

use crate::commit::record::begins_epoch;

/// Fenced records stand at most this far behind an epoch record: more than any log has in flight.
const HEAD_RECORDS: usize = 64;

/// Decides which records of a log count.
#[derive(Debug, Default)]
pub struct Fence {
    highest: u64,
    /// The first records of a trimmed log, as long as they cannot be judged.
    head: Option<Vec<Stored>>,
    /// Where fenced records stand.
    fenced: Vec<u64>,
}

impl Fence {
    /// For a log that is not shared: nothing is held back.
    pub fn exclusive() -> Fence {
        Fence::default()
    }

    /// For a log that nodes share and whose oldest record has this position.
    pub fn shared(first: u64) -> Fence {
        Fence { head: (first > 0).then(Vec::new), ..Fence::default() }
    }

    /// For the rest of a log, behind a record of this epoch that counts.
    pub fn behind(epoch: u64) -> Fence {
        Fence { highest: epoch, ..Fence::default() }
    }

    /// The highest epoch so far.
    pub fn epoch(&self) -> u64 {
        self.highest
    }

    /// Takes the next record. Hands on those that can be judged and count, in order.
    pub fn take<E>(
        &mut self,
        stored: Stored,
        each: impl FnMut(Stored) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(head) = &mut self.head else { return self.judge(stored, each) };
        let before = begins_epoch(&stored.bytes).then(|| stored.epoch.saturating_sub(1));
        head.push(stored);
        if before.is_none() && head.len() < HEAD_RECORDS {
            return Ok(());
        }
        self.end_head(before, each)
    }

    /// There are no more records for now: those held back are judged by the ones that are there.
    pub fn end<E>(&mut self, each: impl FnMut(Stored) -> Result<(), E>) -> Result<(), E> {
        self.end_head(None, each)
    }

    /// Where fenced records stand, oldest first.
    pub fn into_fenced(self) -> Vec<u64> {
        self.fenced
    }

    fn end_head<E>(
        &mut self,
        before: Option<u64>,
        mut each: impl FnMut(Stored) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(head) = self.head.take() else { return Ok(()) };
        let begun = before.or_else(|| head.iter().map(|stored| stored.epoch).max());
        self.highest = self.highest.max(begun.unwrap_or_default());
        head.into_iter().try_for_each(|stored| self.judge(stored, &mut each))
    }

    fn judge<E>(
        &mut self,
        stored: Stored,
        mut each: impl FnMut(Stored) -> Result<(), E>,
    ) -> Result<(), E> {
        if stored.epoch < self.highest {
            let (position, epoch) = (stored.position, stored.epoch);
            tracing::warn!(
                "record {position} of the log is left out: a server of epoch {epoch} has written it behind the first \
                 record of epoch {}",
                self.highest
            );
            self.fenced.push(position.0);
            return Ok(());
        }
        self.highest = stored.epoch;
        each(stored)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use spindle_core::Event;
    use spindle_log::Position;

    use super::*;
    use crate::commit::record::RecordWriter;

    /// A log as text: `2!` is the record that begins epoch 2, `2` one behind it.
    fn log(from: u64, records: &str) -> Vec<Stored> {
        let stored = |(at, word): (usize, &str)| {
            let mut writer = RecordWriter::default();
            if word.ends_with('!') {
                writer.put_event(&Event::Started(Default::default()));
            }
            let epoch = word.trim_end_matches('!').parse().unwrap();
            let bytes: Bytes = writer.seal(epoch, 0);
            let position = Position(from + at as u64);
            Stored { position, epoch, bytes, damaged: false }
        };
        records.split(' ').enumerate().map(stored).collect()
    }

    fn fenced(mut fence: Fence, records: Vec<Stored>) -> (Vec<u64>, Vec<u64>) {
        let mut taken = Vec::new();
        let mut take = |stored: Stored| {
            taken.push(stored.position.0);
            Ok::<(), Infallible>(())
        };
        for stored in records {
            let Ok(()) = fence.take(stored, &mut take);
        }
        let Ok(()) = fence.end(&mut take);
        (taken, fence.into_fenced())
    }

    #[test]
    fn a_record_of_an_older_epoch_is_left_out() {
        let records = || log(0, "1! 1 2! 1 2 1 3! 3");
        for fence in [Fence::exclusive(), Fence::shared(0)] {
            assert_eq!(fenced(fence, records()), (vec![0, 1, 2, 4, 6, 7], vec![3, 5]));
        }
    }

    /// Wherever a log was trimmed, the same records count as in the whole of it.
    #[test]
    fn a_trimmed_log_has_the_same_fenced_records() {
        let many = "3 ".repeat(HEAD_RECORDS);
        for text in [
            "1! 1 2! 1 1 2 2 3! 2 3".to_owned(),
            "1! 2! 1 3! 1 2 3".to_owned(),
            format!("1! 2! 1 2 3! 2 {many}4! 3 4 5!"),
        ] {
            let whole = fenced(Fence::shared(0), log(0, &text)).1;
            let records = log(0, &text);
            for first in 1..records.len() as u64 {
                // A trim comes only after something was appended behind the trimmed part.
                let epoch = |at: u64| records[at as usize].epoch;
                let has_newest = (first..records.len() as u64)
                    .any(|at| epoch(at) == epoch(records.len() as u64 - 1));
                assert!(has_newest);
                let kept: Vec<_> = whole.iter().copied().filter(|at| *at >= first).collect();
                let found = fenced(Fence::shared(first), records[first as usize..].to_vec()).1;
                assert_eq!(found, kept, "{text} from {first}");
            }
        }
    }
}
