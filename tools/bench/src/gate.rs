//! Gates: what has to be reached, and whether it was.

use crate::stats::Spread;
use clap::ValueEnum;
use serde::Serialize;

/// The gates of the suite, by the name that selects them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Gate {
    /// Life cycles at 8 producers and 8 workers, rate and server CPU.
    #[value(name = "lifecycle-8")]
    Lifecycle8,
    /// Life cycles at 64 producers and 64 workers, rate and server CPU.
    #[value(name = "lifecycle-64")]
    Lifecycle64,
    /// Submits over 64 connections against the echo server.
    #[value(name = "submit-64")]
    Submit64,
    /// Latency of submits over 8 connections against the echo server.
    #[value(name = "submit-8")]
    Submit8,
    /// The same while the log carries its oldest jobs forward.
    #[value(name = "carry-8")]
    Carry8,
    /// Submits 32 deep over 8 connections against the echo server.
    #[value(name = "submit-8x32")]
    Submit8x32,
    /// Memory with a million waiting jobs.
    Memory,
    /// Rates with a million waiting jobs against those with a thousand.
    Waiting,
    /// Time to serve again after a restart on a million jobs.
    Restart,
    /// Gearman: background submits over 8 connections against gearmand.
    #[value(name = "gearman-submit-8")]
    GearmanSubmit8,
    /// Gearman: the same 32 deep.
    #[value(name = "gearman-submit-8x32")]
    GearmanSubmit8x32,
    /// Gearman: working off a backlog with 8 workers.
    #[value(name = "gearman-drain-8")]
    GearmanDrain8,
    /// Gearman: life cycles at 8 clients and 8 workers.
    #[value(name = "gearman-lifecycle-8")]
    GearmanLifecycle8,
    /// Gearman: memory with a million waiting background jobs.
    GearmanMemory,
    /// Gearman: latency of foreground round trips, 8 clients and 8 workers.
    #[value(name = "gearman-roundtrip-8")]
    GearmanRoundtrip8,
    /// API: submits, 8 connections.
    #[value(name = "api-submit-8")]
    ApiSubmit8,
    /// API: a hundred submits a request, 8 connections.
    #[value(name = "api-batch-8")]
    ApiBatch8,
    /// LightJQ: submits, 8 connections.
    #[value(name = "lightjq-submit-8")]
    LightjqSubmit8,
    /// Jobq: creates over 8 connections against Python's sqlite3.
    #[value(name = "jobq-create-8")]
    JobqCreate8,
    /// Jobq: changes of state over 8 connections against Python's sqlite3.
    #[value(name = "jobq-state-8")]
    JobqState8,
    /// Jobq: polls over 100,000 jobs against a scan of SQLite's, and other doors meanwhile.
    JobqPoll,
    /// API: lists out of a million jobs against a get, under load.
    ListMillion,
}

/// What a figure must be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bound {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
}

/// Whether a gate is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// The median reaches it.
    Met,
    /// The median is within 5 % of it, and some runs reach it.
    MetWithinSpread,
    /// Neither.
    NotMet,
}

/// How far the median may be from a gate that lies inside the spread.
const TOLERANCE: f64 = 0.05;

impl Bound {
    /// Judges the figure of several runs.
    pub(crate) fn judge(self, figure: Spread) -> Verdict {
        let (reached, near, inside) = match self {
            Self::AtLeast(bound) => (
                figure.median >= bound,
                figure.median >= bound * (1.0 - TOLERANCE),
                figure.max >= bound,
            ),
            Self::AtMost(bound) => (
                figure.median <= bound,
                figure.median <= bound * (1.0 + TOLERANCE),
                figure.min <= bound,
            ),
        };
        match (reached, near && inside) {
            (true, _) => Verdict::Met,
            (false, true) => Verdict::MetWithinSpread,
            (false, false) => Verdict::NotMet,
        }
    }
}

/// One judged gate.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Judgement {
    /// What was measured.
    pub(crate) gate: String,
    /// The sync mode of the server that has to reach it.
    pub(crate) sync: String,
    /// The measured figure, as text with its unit.
    pub(crate) ours: String,
    /// What it is compared with, as text with its unit.
    pub(crate) against: String,
    /// The figure that is judged: mostly the ratio, round by round.
    pub(crate) figure: Spread,
    /// Its unit; `x` for ratios.
    pub(crate) unit: &'static str,
    /// The ratio of the two medians, where the figure is a ratio.
    pub(crate) ratio_of_medians: Option<f64>,
    /// What the figure must be.
    pub(crate) bound: Bound,
    /// Whether it is.
    pub(crate) verdict: Verdict,
    /// What a reader must know besides.
    pub(crate) note: String,
}

impl Judgement {
    /// Judges the rounds of one gate: `ours` and `theirs` hold one figure per round.
    pub(crate) fn ratio(gate: &str, ours: &[f64], theirs: &[f64], bound: Bound) -> Option<Self> {
        let figure = Spread::of(ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs))?;
        let (our, their) = (Spread::of(ours.iter().copied())?, Spread::of(theirs.iter().copied())?);
        let mut judgement = Self::absolute(gate, figure, "x", bound);
        judgement.ratio_of_medians = Some(our.median / their.median);
        Some(judgement)
    }

    /// Judges a figure that stands for itself.
    pub(crate) fn absolute(gate: &str, figure: Spread, unit: &'static str, bound: Bound) -> Self {
        Self {
            gate: gate.to_owned(),
            sync: String::new(),
            ours: String::new(),
            against: String::new(),
            figure,
            unit,
            ratio_of_medians: None,
            bound,
            verdict: bound.judge(figure),
            note: String::new(),
        }
    }

    /// Says what the two sides of the comparison were.
    pub(crate) fn between(self, sync: &str, ours: String, against: String) -> Self {
        Self { sync: sync.to_owned(), ours, against, ..self }
    }

    /// Adds what a reader must know besides.
    pub(crate) fn noting(self, note: impl Into<String>) -> Self {
        Self { note: note.into(), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bound: Bound, [min, median, max]: [f64; 3], expected: Verdict) {
        assert_eq!(bound.judge(Spread { median, min, max }), expected, "{bound:?} {median}");
    }

    #[test]
    fn a_median_that_reaches_the_gate_meets_it() {
        check(Bound::AtLeast(0.65), [0.5, 0.65, 0.7], Verdict::Met);
        check(Bound::AtMost(1.6), [1.0, 1.6, 9.0], Verdict::Met);
    }

    #[test]
    fn five_percent_short_is_met_only_when_the_spread_reaches_the_gate() {
        check(Bound::AtLeast(1.0), [0.9, 0.96, 1.01], Verdict::MetWithinSpread);
        check(Bound::AtLeast(1.0), [0.9, 0.96, 0.99], Verdict::NotMet);
        check(Bound::AtLeast(1.0), [0.9, 0.94, 1.2], Verdict::NotMet);
        check(Bound::AtMost(1.0), [0.99, 1.04, 1.2], Verdict::MetWithinSpread);
        check(Bound::AtMost(1.0), [1.01, 1.04, 1.2], Verdict::NotMet);
        check(Bound::AtMost(1.0), [0.5, 1.06, 1.2], Verdict::NotMet);
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let rounds = Judgement::ratio("g", &[1.0, 9.0, 4.0], &[2.0, 3.0, 4.0], Bound::AtLeast(1.0));
        let judgement = rounds.unwrap();
        assert_eq!(judgement.figure, Spread { median: 1.0, min: 0.5, max: 3.0 });
        assert_eq!(judgement.ratio_of_medians, Some(4.0 / 3.0));
        assert_eq!(judgement.verdict, Verdict::Met);
    }
}
