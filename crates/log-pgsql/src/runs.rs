//! The runs, and their weights.

use std::collections::VecDeque;

use spindle_log::Position;

/// What a row takes beside the bytes of its record: its header, position, epoch, index entry.
const ROW_BYTES: u64 = 64;

/// What a record of this many bytes counts for.
pub(crate) fn weight(bytes: usize) -> u64 {
    bytes as u64 + ROW_BYTES
}

/// One row of the table `runs`, as far as it says something new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunRow {
    pub number: i64,
    pub first: Position,
    /// Where it ends and what it weighs, when it is closed.
    pub closed: Option<(Position, u64)>,
}

/// A part of a run that is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub number: i64,
    pub from: Position,
    pub until: Position,
}

/// The kept runs, from the oldest on, as this process knows them.
#[derive(Debug)]
pub(crate) struct Runs {
    /// Never empty; the last one is open.
    runs: VecDeque<Run>,
    end: Position,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    number: i64,
    first: Position,
    bytes: u64,
}

impl Runs {
    /// An open run without records.
    pub fn begin(number: i64, first: Position) -> Runs {
        Runs { runs: VecDeque::from([Run { number, first, bytes: 0 }]), end: first }
    }

    #[cfg(test)]
    pub fn first(&self) -> Position {
        self.runs.front().map_or(self.end, |run| run.first)
    }

    /// The position behind the last record that is known.
    pub fn end(&self) -> Position {
        self.end
    }

    /// The number of the open run, and the position behind the last record that is known.
    pub fn known(&self) -> (i64, Position) {
        (self.open().0, self.end)
    }

    /// The number of the open run, where it begins, and what it weighs.
    pub fn open(&self) -> (i64, Position, u64) {
        self.runs.back().map_or((0, self.end, 0), |run| (run.number, run.first, run.bytes))
    }

    /// The record at [`end`](Self::end) is in the open run.
    pub fn push(&mut self, weight: u64) {
        self.extend(Position(self.end.0 + 1), weight);
    }

    /// The open run has records up to `end`, which weigh this much more.
    pub fn extend(&mut self, end: Position, weight: u64) {
        if let Some(run) = self.runs.back_mut() {
            run.bytes += weight;
        }
        self.end = end.max(self.end);
    }

    /// Takes over what the table says of the open run and those behind it.
    pub fn learn(&mut self, rows: &[RunRow]) {
        for row in rows {
            let open = self.open().0;
            if row.number > open {
                self.runs.push_back(Run { number: row.number, first: row.first, bytes: 0 });
                self.end = row.first.max(self.end);
            }
            if let (Some((until, bytes)), Some(run)) = (row.closed, self.runs.back_mut())
                && run.number == row.number
            {
                run.bytes = bytes;
                self.end = until.max(self.end);
            }
        }
    }

    /// The records below were trimmed.
    pub fn drop_before(&mut self, first: Position) {
        while self.runs.get(1).is_some_and(|second| second.first <= first) {
            self.runs.pop_front();
        }
    }

    /// Where the log begins after a trim at `position`.
    pub fn boundary(&self, position: Position) -> Position {
        let below = self.runs.partition_point(|run| run.first <= position);
        self.runs.get(below.saturating_sub(1)).map_or(self.end, |run| run.first)
    }

    /// As [`Log::segment_end_before`](spindle_log::Log::segment_end_before).
    pub fn end_before(&self, from: Position) -> Option<Position> {
        let run = self.runs.partition_point(|run| run.first <= from).saturating_sub(1);
        self.runs.get(run + 1).map(|next| next.first)
    }

    pub fn bytes(&self) -> u64 {
        self.runs.iter().map(|run| run.bytes).sum()
    }

    /// About how many bytes the records in `from..to` take: each run's, by how much of it is meant.
    pub fn bytes_between(&self, from: Position, to: Position) -> u64 {
        let share = |(run, span): (&Run, Span)| {
            let end = self.end_before(run.first).unwrap_or(self.end);
            let (meant, all) = (span.until.0 - span.from.0, end.0 - run.first.0);
            (u128::from(run.bytes) * u128::from(meant) / u128::from(all.max(1))) as u64
        };
        self.parts(from, to).map(share).sum()
    }

    /// Where the records in `from..to` are.
    pub fn spans(&self, from: Position, to: Position) -> VecDeque<Span> {
        self.parts(from, to).map(|(_, span)| span).collect()
    }

    fn parts(&self, from: Position, to: Position) -> impl Iterator<Item = (&Run, Span)> {
        let ends = self.runs.iter().skip(1).map(|run| run.first).chain([self.end]);
        self.runs.iter().zip(ends).filter_map(move |(run, end)| {
            let (from, until) = (from.max(run.first), to.min(end));
            (from < until).then_some((run, Span { number: run.number, from, until }))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(number: i64, first: u64, closed: Option<(u64, u64)>) -> RunRow {
        let closed = closed.map(|(until, bytes)| (Position(until), bytes));
        RunRow { number, first: Position(first), closed }
    }

    fn three() -> Runs {
        let mut runs = Runs::begin(4, Position(10));
        (0..3).for_each(|_| runs.push(100));
        runs.learn(&[row(4, 10, Some((13, 300))), row(5, 13, Some((17, 800))), row(6, 17, None)]);
        runs.extend(Position(19), 150);
        runs
    }

    #[test]
    fn runs_are_learnt_from_the_table_and_weigh_what_it_says() {
        let runs = three();
        assert_eq!((runs.first(), runs.end(), runs.bytes()), (Position(10), Position(19), 1250));
        assert_eq!(runs.open(), (6, Position(17), 150));
        assert_eq!(runs.bytes_between(Position(10), Position(17)), 1100);
        assert_eq!(runs.bytes_between(Position(13), Position(15)), 400);
        assert_eq!(runs.bytes_between(Position(19), Position(u64::MAX)), 0);
        assert_eq!(Runs::begin(0, Position(5)).bytes_between(Position(0), Position(9)), 0);
    }

    #[test]
    fn a_trim_ends_at_a_run_and_keeps_the_open_one() {
        let mut runs = three();
        assert_eq!(runs.end_before(Position(0)), Some(Position(13)));
        assert_eq!(runs.end_before(Position(18)), None);
        assert_eq!(runs.boundary(Position(16)), Position(13));
        assert_eq!(runs.boundary(Position(99)), Position(17));
        runs.drop_before(Position(13));
        assert_eq!((runs.first(), runs.bytes()), (Position(13), 950));
        runs.drop_before(Position(99));
        assert_eq!((runs.first(), runs.open().0), (Position(17), 6));
    }

    #[test]
    fn spans_say_which_table_holds_what() {
        let spans = three().spans(Position(12), Position(18));
        let span =
            |number, from, until| Span { number, from: Position(from), until: Position(until) };
        assert_eq!(spans, [span(4, 12, 13), span(5, 13, 17), span(6, 17, 18)]);
        assert!(three().spans(Position(19), Position(30)).is_empty());
    }
}
