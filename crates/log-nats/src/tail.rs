//! The newest committed records, in memory.

use std::collections::VecDeque;

use spindle_log::{Position, Stored};

const RECORDS_MAX: usize = 4096;
const BYTES_MAX: usize = 16 * 1024 * 1024;

/// The newest records of the log without a gap, as the leader of the stream repeated them. A read
/// near the end needs no server.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    records: VecDeque<Stored>,
    bytes: usize,
}

impl Tail {
    /// Takes a committed record. One that does not follow the last one begins the tail anew.
    pub(crate) fn push(&mut self, stored: Stored) {
        if let Some(last) = self.records.back() {
            if stored.position <= last.position {
                return;
            }
            if stored.position != last.position.next() {
                self.records.clear();
                self.bytes = 0;
            }
        }
        self.bytes += stored.bytes.len();
        self.records.push_back(stored);
        while self.records.len() > RECORDS_MAX || self.bytes > BYTES_MAX {
            let Some(oldest) = self.records.pop_front() else { break };
            self.bytes -= oldest.bytes.len();
        }
    }

    /// The record at a position, if it is here.
    pub(crate) fn at(&self, position: Position) -> Option<&Stored> {
        let first = self.records.front()?.position;
        self.records.get(usize::try_from(position.0.checked_sub(first.0)?).ok()?)
    }

    /// Those of `from..to` that are here, if the first one is.
    pub(crate) fn range(&self, from: Position, to: Position) -> Vec<Stored> {
        let positions = (from.0..to.0).map(Position);
        positions.map_while(|position| self.at(position)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(position: u64, len: usize) -> Stored {
        let bytes = vec![0; len].into();
        Stored { position: Position(position), epoch: 1, bytes, damaged: false }
    }

    fn positions(tail: &Tail, from: u64, to: u64) -> Vec<u64> {
        tail.range(Position(from), Position(to)).iter().map(|stored| stored.position.0).collect()
    }

    #[test]
    fn the_tail_has_no_gap_and_no_record_twice() {
        let mut tail = Tail::default();
        for position in [4, 5, 5, 4, 6] {
            tail.push(stored(position, 10));
        }
        assert_eq!(positions(&tail, 4, 9), [4, 5, 6]);
        assert_eq!(positions(&tail, 5, 6), [5]);
        assert!(positions(&tail, 3, 9).is_empty());
        tail.push(stored(9, 10));
        assert!(positions(&tail, 4, 10).is_empty());
        assert_eq!(positions(&tail, 9, 10), [9]);
    }

    #[test]
    fn the_tail_is_bounded() {
        let mut tail = Tail::default();
        (0..3).for_each(|position| tail.push(stored(position, BYTES_MAX / 2)));
        assert_eq!(positions(&tail, 1, 3), [1, 2]);
        (3..9000).for_each(|position| tail.push(stored(position, 0)));
        assert!(tail.at(Position(9000 - RECORDS_MAX as u64)).is_some());
        assert!(tail.at(Position(8999 - RECORDS_MAX as u64)).is_none());
    }
}
