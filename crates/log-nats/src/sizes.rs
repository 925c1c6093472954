//! The sizes of the kept records.

use spindle_log::{Position, Runs};

/// Sizes of the kept records: exact for those that this process has read or appended in order, and
/// the average of the stream behind them.
#[derive(Debug)]
pub(crate) struct Sizes {
    known: Runs,
    run_bytes: u64,
    /// What a record behind the known ones takes.
    average: u64,
}

impl Sizes {
    /// Nothing is known of the records from `first` on but what they take on average.
    pub(crate) fn begin_at(first: Position, run_bytes: u64, average: u64) -> Self {
        Self { known: Runs::begin_at(first, run_bytes), run_bytes, average }
    }

    /// A record was seen. It counts if all before it were.
    pub(crate) fn note(&mut self, position: Position, bytes: u64) {
        if position == self.known.next() {
            self.known.push(bytes);
        }
    }

    /// What the records below `end` take.
    pub(crate) fn bytes(&self, end: Position) -> u64 {
        self.known.bytes() + end.0.saturating_sub(self.known.next().0) * self.average
    }

    /// What the records in `from..to` take, about.
    pub(crate) fn bytes_between(&self, from: Position, to: Position) -> u64 {
        let unknown = self.known.next();
        let known = self.known.bytes_between(from, to.min(unknown));
        known + to.0.saturating_sub(from.max(unknown).0) * self.average
    }

    /// The end of the run that holds `from`, if it is closed.
    pub(crate) fn end_before(&self, from: Position) -> Option<Position> {
        self.known.end_before(from)
    }

    /// What would be the oldest record after a trim of whole runs.
    pub(crate) fn first_after_trim(&self, first: Position, position: Position) -> Position {
        let mut kept = first;
        while let Some(end) = self.known.end_before(kept).filter(|end| *end <= position) {
            kept = end;
        }
        kept
    }

    /// The log begins at `first` now, after a trim by any process.
    pub(crate) fn trimmed(&mut self, first: Position) {
        if first > self.known.next() {
            self.known = Runs::begin_at(first, self.run_bytes);
        } else {
            self.known.trim_before(first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_read_counts_on_average() {
        let mut sizes = Sizes::begin_at(Position(10), 100, 7);
        assert_eq!(sizes.bytes(Position(20)), 70);
        sizes.note(Position(10), 50);
        sizes.note(Position(11), 50);
        sizes.note(Position(13), 999);
        sizes.note(Position(12), 30);
        assert_eq!(sizes.bytes(Position(20)), 130 + 7 * 7);
        assert_eq!(sizes.bytes_between(Position(12), Position(15)), 30 + 2 * 7);
        assert_eq!(sizes.bytes_between(Position(15), Position(16)), 7);
        assert_eq!(sizes.end_before(Position(0)), Some(Position(12)));
        assert_eq!(sizes.first_after_trim(Position(10), Position(11)), Position(10));
        assert_eq!(sizes.first_after_trim(Position(10), Position(15)), Position(12));
        sizes.trimmed(Position(12));
        assert_eq!(sizes.bytes(Position(13)), 30);
        sizes.trimmed(Position(50));
        assert_eq!((sizes.bytes(Position(50)), sizes.bytes(Position(51))), (0, 7));
    }
}
