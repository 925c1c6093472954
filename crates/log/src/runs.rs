//! The records that a log without files keeps: their positions and sizes, in runs.
//!
//! Such a log can trim anywhere, but compaction wants to know what it costs to free some of it. So the
//! positions are divided into runs of about equal bytes, which play the part of segments.

use std::collections::VecDeque;

use crate::contract::Position;

/// The kept records in runs, from the oldest on. Records are noted in order, when they are known to
/// be committed.
#[derive(Debug)]
pub struct Runs {
    /// Never empty; the last one is open.
    runs: VecDeque<Run>,
    next: Position,
    run_bytes: u64,
}

#[derive(Debug)]
struct Run {
    first: Position,
    bytes: u64,
}

impl Runs {
    /// No record yet: the next one that is noted has the position `first`. A run is closed once it
    /// has this many bytes.
    #[must_use]
    pub fn begin_at(first: Position, run_bytes: u64) -> Runs {
        let runs = VecDeque::from([Run { first, bytes: 0 }]);
        Runs { runs, next: first, run_bytes: run_bytes.max(1) }
    }

    /// The record at [`next`](Self::next) is in the log and takes this many bytes.
    pub fn push(&mut self, bytes: u64) {
        let position = self.next;
        if self.runs.back().is_none_or(|run| run.bytes >= self.run_bytes) {
            self.runs.push_back(Run { first: position, bytes: 0 });
        }
        if let Some(run) = self.runs.back_mut() {
            run.bytes += bytes;
        }
        self.next = position.next();
    }

    /// The oldest kept record.
    #[must_use]
    pub fn first(&self) -> Position {
        self.runs.front().map_or(self.next, |run| run.first)
    }

    /// The position behind the last noted record.
    #[must_use]
    pub fn next(&self) -> Position {
        self.next
    }

    /// What all of them take.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.runs.iter().map(|run| run.bytes).sum()
    }

    /// Forgets the closed runs that end at or below `position`, and returns what is the oldest
    /// record then.
    pub fn trim_before(&mut self, position: Position) -> Position {
        while self.runs.get(1).is_some_and(|second| second.first <= position) {
            self.runs.pop_front();
        }
        self.first()
    }

    /// As [`Log::segment_end_before`](crate::Log::segment_end_before).
    #[must_use]
    pub fn end_before(&self, from: Position) -> Option<Position> {
        let run = self.runs.partition_point(|run| run.first <= from).saturating_sub(1);
        self.runs.get(run + 1).map(|next| next.first)
    }

    /// About how many bytes the records in `from..to` take: each run's, by how much of it is meant.
    #[must_use]
    pub fn bytes_between(&self, from: Position, to: Position) -> u64 {
        let ends = self.runs.iter().skip(1).map(|run| run.first).chain([self.next]);
        let share = |run: &Run, end: Position| {
            let (begin, until) = (from.max(run.first), to.min(end));
            let (all, meant) = (end.0 - run.first.0, until.0.saturating_sub(begin.0));
            if all == 0 {
                0
            } else {
                (u128::from(run.bytes) * u128::from(meant) / u128::from(all)) as u64
            }
        };
        self.runs.iter().zip(ends).map(|(run, end)| share(run, end)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(records: u64) -> Runs {
        let mut runs = Runs::begin_at(Position(10), 300);
        (0..records).for_each(|_| runs.push(100));
        runs
    }

    #[test]
    fn a_run_is_closed_by_its_bytes_and_the_last_one_stays() {
        let mut runs = filled(7);
        assert_eq!((runs.first(), runs.next(), runs.bytes()), (Position(10), Position(17), 700));
        assert_eq!(runs.end_before(Position(0)), Some(Position(13)));
        assert_eq!(runs.end_before(Position(13)), Some(Position(16)));
        assert_eq!(runs.end_before(Position(16)), None);
        assert_eq!(runs.trim_before(Position(12)), Position(10));
        assert_eq!(runs.trim_before(Position(15)), Position(13));
        assert_eq!(runs.trim_before(Position(99)), Position(16));
        assert_eq!((runs.bytes(), runs.next()), (100, Position(17)));
    }

    #[test]
    fn bytes_between_are_those_of_whole_runs_and_parts() {
        let runs = filled(7);
        assert_eq!(runs.bytes_between(Position(10), Position(17)), 700);
        assert_eq!(runs.bytes_between(Position(0), Position(14)), 400);
        assert_eq!(runs.bytes_between(Position(12), Position(12)), 0);
        assert_eq!(runs.bytes_between(Position(16), Position(99)), 100);
        assert_eq!(Runs::begin_at(Position(3), 1).bytes_between(Position(0), Position(9)), 0);
    }
}
