//! Figures for people (tables on standard output) and for programs (one JSON file).

use crate::gate::{Bound, Judgement, Verdict};
use crate::machine::Machine;
use crate::stats::{Latencies, Percentiles, Spread};
use anyhow::{Context, Result};
use comfy_table::{Table, presets};
use serde::Serialize;
use std::fs;
use std::path::Path;

/// One run against one server.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figures {
    /// Jobs that count for the rate.
    pub(crate) jobs: u64,
    /// Seconds they took.
    pub(crate) elapsed_s: f64,
    /// Jobs per second.
    pub(crate) rate_per_s: f64,
    /// Latency of submits.
    pub(crate) add: Option<Percentiles>,
    /// Latency of leases, waiting for work included.
    pub(crate) lease: Option<Percentiles>,
    /// Latency of finishes.
    pub(crate) finish: Option<Percentiles>,
    /// User and system time of the server process per job, in microseconds.
    pub(crate) server_cpu_us_per_job: Option<f64>,
    /// Resident memory of the server after the run, in KiB.
    pub(crate) resident_kib: Option<u64>,
    /// The most it ever had, in KiB.
    pub(crate) resident_peak_kib: Option<u64>,
}

impl Figures {
    /// So many jobs took so long, and nothing else was looked at.
    pub(crate) fn of_rate(jobs: u64, elapsed_s: f64) -> Self {
        Self {
            jobs,
            elapsed_s,
            rate_per_s: jobs as f64 / elapsed_s,
            add: None,
            lease: None,
            finish: None,
            server_cpu_us_per_job: None,
            resident_kib: None,
            resident_peak_kib: None,
        }
    }

    /// Requests of one kind, asked for one after the other.
    pub(crate) fn of_latencies(latencies: &Latencies) -> Self {
        let figures = Self::of_rate(latencies.count(), latencies.total().as_secs_f64());
        Self { add: latencies.percentiles(), ..figures }
    }
}

/// All runs against one server.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Series {
    /// Its name.
    pub(crate) server: String,
    /// When its acknowledgements are on disk.
    pub(crate) sync: String,
    /// The runs, in order.
    pub(crate) runs: Vec<Figures>,
}

impl Series {
    /// One figure of every run that has it.
    pub(crate) fn each(&self, figure: impl Fn(&Figures) -> Option<f64>) -> Vec<f64> {
        self.runs.iter().filter_map(figure).collect()
    }

    /// The rate of every run.
    pub(crate) fn rates(&self) -> Vec<f64> {
        self.each(|run| Some(run.rate_per_s))
    }
}

/// One scenario as measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Scenario {
    /// What was done, in words with all its numbers.
    pub(crate) title: String,
    /// To whom, and how they did.
    pub(crate) series: Vec<Series>,
}

/// Everything a run of this tool found.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// Where.
    pub(crate) machine: Machine,
    /// What.
    pub(crate) scenarios: Vec<Scenario>,
    /// The gates, when they were asked for.
    pub(crate) gates: Vec<Judgement>,
}

impl Report {
    /// Prints the tables, and writes the file when one is named.
    pub(crate) fn publish(&self, json: Option<&Path>) -> Result<()> {
        println!("{}", self.machine.describe());
        for scenario in &self.scenarios {
            println!("\n{}\n{}", scenario.title, figures_table(scenario));
        }
        if !self.gates.is_empty() {
            println!("\nGates\n{}", gates_table(&self.gates));
        }
        if let Some(path) = json {
            fs::write(path, serde_json::to_vec_pretty(self)?)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header(header.iter().copied());
    table
}

fn figures_table(scenario: &Scenario) -> Table {
    let mut table = table(&[
        "server",
        "sync",
        "jobs/s (min..max)",
        "add p50/p99/p99.9 us",
        "lease p50/p99/p99.9 us",
        "finish p50/p99/p99.9 us",
        "server CPU us/job",
        "RSS / peak MiB",
    ]);
    for series in &scenario.series {
        let mib = |figure: fn(&Figures) -> Option<u64>| {
            let each = series.each(|run| figure(run).map(|kib| kib as f64 / 1024.0));
            Spread::of(each).map_or("-".to_owned(), |spread| format!("{:.1}", spread.median))
        };
        table.add_row([
            series.server.clone(),
            series.sync.clone(),
            spread_text(Spread::of(series.rates()), 0),
            percentiles_text(series, |run| run.add),
            percentiles_text(series, |run| run.lease),
            percentiles_text(series, |run| run.finish),
            spread_text(Spread::of(series.each(|run| run.server_cpu_us_per_job)), 1),
            format!("{} / {}", mib(|run| run.resident_kib), mib(|run| run.resident_peak_kib)),
        ]);
    }
    table
}

fn gates_table(gates: &[Judgement]) -> Table {
    let mut table = table(&[
        "gate",
        "sync",
        "measured",
        "compared with",
        "figure (min..max)",
        "of medians",
        "required",
        "verdict",
        "note",
    ]);
    for gate in gates {
        let required = match gate.bound {
            Bound::AtLeast(bound) => format!(">= {bound} {}", gate.unit),
            Bound::AtMost(bound) => format!("<= {} {}", trimmed(bound), gate.unit),
        };
        table.add_row([
            gate.gate.clone(),
            gate.sync.clone(),
            gate.ours.clone(),
            gate.against.clone(),
            format!("{} {}", spread_text(Some(gate.figure), 3), gate.unit),
            gate.ratio_of_medians.map_or("-".to_owned(), |ratio| format!("{ratio:.3} x")),
            required,
            verdict_text(gate.verdict).to_owned(),
            gate.note.clone(),
        ]);
    }
    table
}

fn trimmed(number: f64) -> String {
    let text = format!("{number:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn verdict_text(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Met => "met",
        Verdict::MetWithinSpread => "met (within 5 %, gate inside the spread)",
        Verdict::NotMet => "NOT MET",
    }
}

/// A median with its spread, for people.
pub(crate) fn spread_text(spread: Option<Spread>, digits: usize) -> String {
    spread.map_or("-".to_owned(), |Spread { median, min, max }| {
        format!("{median:.digits$} ({min:.digits$}..{max:.digits$})")
    })
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
