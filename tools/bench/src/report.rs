//! Figures for people (tables on standard output) and for programs (one JSON file).

use crate::figures::{Figure, Figures};
use crate::machine::Machine;
use crate::stats::{Percentiles, Spread};
use crate::suite::Bound;
use anyhow::{Context, Result};
use comfy_table::{Table, presets};
use serde::Serialize;
use std::fs;
use std::path::Path;

/// All runs against one server.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Series {
    /// Its name, and when its acknowledgements are on disk.
    pub(crate) server: String,
    /// The runs, in order.
    pub(crate) runs: Vec<Figures>,
}

impl Series {
    /// The median of a figure over the runs that have it.
    pub(crate) fn median(&self, figure: Figure) -> Option<f64> {
        Some(Spread::of(self.each(|run| figure.of(run)))?.median)
    }

    fn each(&self, figure: impl Fn(&Figures) -> Option<f64>) -> Vec<f64> {
        self.runs.iter().filter_map(figure).collect()
    }
}

/// One load as measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Scenario {
    /// The suite, and which part of it.
    pub(crate) name: String,
    /// What was done, in words with all its numbers.
    pub(crate) title: String,
    /// One for each server; Spindle first.
    pub(crate) series: Vec<Series>,
}

/// One gate, judged.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Judgement {
    /// What was measured.
    pub(crate) gate: String,
    unit: &'static str,
    #[serde(skip)]
    decimals: usize,
    ours: Spread,
    /// The server it is compared with, its figures, and the ratio of every round.
    beside: Option<(String, Spread, Spread)>,
    bound: Option<Bound>,
    /// Whether the median of the ratios, or of the figures, reaches the bound.
    pub(crate) met: Option<bool>,
}

impl Judgement {
    /// Judges a figure of ours, by itself or beside theirs; none if the runs do not have it.
    pub(crate) fn of(
        scenario: &str,
        figure: Figure,
        ours: &Series,
        theirs: Option<&Series>,
        bound: Option<Bound>,
    ) -> Option<Self> {
        let (words, unit, decimals) = figure.words();
        let our = ours.each(|run| figure.of(run));
        let beside = match theirs {
            None => None,
            Some(series) => {
                let their = series.each(|run| figure.of(run));
                let ratios = Spread::of(our.iter().zip(&their).map(|(our, their)| our / their))?;
                Some((series.server.clone(), Spread::of(their)?, ratios))
            }
        };
        let ours = Spread::of(our)?;
        let judged = beside.as_ref().map_or(ours, |(_, _, ratios)| *ratios).median;
        Some(Self {
            gate: format!("{scenario}: {words}"),
            unit,
            decimals,
            ours,
            beside,
            bound,
            met: bound.map(|bound| bound.is_met(judged)),
        })
    }

    fn row(&self) -> [String; 6] {
        let figure = |spread: &Spread| spread.text(self.decimals, self.unit);
        let (beside, ratio) = match &self.beside {
            None => ("-".to_owned(), "-".to_owned()),
            Some((server, theirs, ratios)) => {
                (format!("{server} {}", figure(theirs)), ratios.text(2, "x"))
            }
        };
        let unit = if self.beside.is_some() { "x" } else { self.unit };
        let wanted = match self.bound {
            None => "-".to_owned(),
            Some(Bound::AtLeast(bound)) => format!(">= {bound} {unit}"),
            Some(Bound::AtMost(bound)) => format!("<= {bound} {unit}"),
        };
        let verdict = match self.met {
            None => "-",
            Some(true) => "met",
            Some(false) => "NOT MET",
        };
        [self.gate.clone(), figure(&self.ours), beside, ratio, wanted, verdict.to_owned()]
    }
}

/// Everything a session found.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// The machine on which the figures were taken.
    pub(crate) machine: Machine,
    /// The loads measured.
    pub(crate) scenarios: Vec<Scenario>,
    /// The gates, judged by these.
    pub(crate) gates: Vec<Judgement>,
}

impl Report {
    /// Prints the tables, and writes the file when one is named.
    pub(crate) fn publish(&self, json: Option<&Path>) -> Result<()> {
        println!("{}", self.machine.describe());
        for scenario in &self.scenarios {
            if let Some(table) = figures_table(scenario) {
                println!("\n{}: {}\n{table}", scenario.name, scenario.title);
            }
        }
        let mut gates = table(&["gate", "Spindle", "beside", "ratio (min..max)", "wanted", ""]);
        gates.add_rows(self.gates.iter().map(Judgement::row));
        if !gates.is_empty() {
            println!("\nGates\n{gates}");
        }
        if let Some(path) = json {
            fs::write(path, serde_json::to_vec_pretty(self)?)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }
}

fn table(header: &[impl ToString]) -> Table {
    let mut table = Table::new();
    let header = header.iter().map(ToString::to_string);
    table.load_preset(presets::ASCII_MARKDOWN).set_header(header);
    table
}

/// A table of the columns with values; `None` if there are none.
fn figures_table(scenario: &Scenario) -> Option<Table> {
    let header = [
        "server",
        "jobs/s (min..max)",
        "submit p50/p99/p99.9 us",
        "lease p50/p99/p99.9 us",
        "finish p50/p99/p99.9 us",
        "request p50/p99/p99.9 us",
        "server CPU us/job",
        "peak MiB",
        "start s",
    ];
    let mut rows = vec![];
    for series in &scenario.series {
        let figure = |figure: Figure| {
            let decimals = figure.words().2;
            let spread = Spread::of(series.each(|run| figure.of(run)));
            spread.map_or("-".to_owned(), |spread| spread.text(decimals, ""))
        };
        rows.push([
            series.server.clone(),
            figure(Figure::Rate),
            percentiles_text(series, |run| run.submit),
            percentiles_text(series, |run| run.lease),
            percentiles_text(series, |run| run.finish),
            percentiles_text(series, |run| run.request),
            figure(Figure::ServerCpu),
            figure(Figure::PeakMemory),
            figure(Figure::StartTime),
        ]);
    }
    let is_empty = |column: usize| rows.iter().all(|row| row[column] == "-");
    let empty: Vec<usize> = (0..header.len()).filter(|column| is_empty(*column)).collect();
    let without = |row: &[String]| {
        let kept = row.iter().enumerate().filter(|(column, _)| !empty.contains(column));
        kept.map(|(_, text)| text.clone()).collect::<Vec<_>>()
    };
    let header = header.map(str::to_owned);
    let mut table = table(&without(&header));
    table.add_rows(rows.iter().map(|row| without(row)));
    (empty.len() + 1 < header.len()).then_some(table)
}

/// The median of every percentile over the runs.
fn percentiles_text(series: &Series, of: fn(&Figures) -> Option<Percentiles>) -> String {
    let median = |pick: fn(Percentiles) -> f64| Spread::of(series.each(|run| of(run).map(pick)));
    match [median(|p| p.p50_us), median(|p| p.p99_us), median(|p| p.p999_us)] {
        [Some(p50), Some(p99), Some(p999)] => {
            format!("{:.0} / {:.0} / {:.0}", p50.median, p99.median, p999.median)
        }
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(server: &str, rates: &[f64]) -> Series {
        let run = |rate: &f64| Figures { rate_per_s: Some(*rate), ..Figures::default() };
        Series { server: server.to_owned(), runs: rates.iter().map(run).collect() }
    }

    fn judged(theirs: Option<&Series>, bound: Option<Bound>) -> Judgement {
        let ours = series("spindle", &[1.0, 9.0, 4.0]);
        Judgement::of("title", Figure::Rate, &ours, theirs, bound).unwrap()
    }

    #[test]
    fn ratios_are_taken_round_by_round_and_their_median_is_judged() {
        let theirs = series("peer", &[2.0, 3.0, 4.0]);
        let judgement = judged(Some(&theirs), Some(Bound::AtLeast(1.0)));
        let (_, _, ratios) = judgement.beside.unwrap();
        assert_eq!(ratios, Spread { median: 1.0, min: 0.5, max: 3.0 });
        assert_eq!(judgement.met, Some(true));
        assert_eq!(judged(Some(&theirs), Some(Bound::AtLeast(1.1))).met, Some(false));
    }

    #[test]
    fn a_figure_that_stands_for_itself_is_judged_by_its_median() {
        assert_eq!(judged(None, Some(Bound::AtMost(4.0))).met, Some(true));
        assert_eq!(judged(None, Some(Bound::AtMost(3.9))).met, Some(false));
        assert_eq!(judged(None, None).met, None);
    }

    #[test]
    fn what_no_run_has_is_not_judged() {
        let ours = series("spindle", &[1.0]);
        assert!(Judgement::of("title", Figure::StartTime, &ours, None, None).is_none());
        let none = series("peer", &[]);
        assert!(Judgement::of("title", Figure::Rate, &ours, Some(&none), None).is_none());
    }
}
