//! What a person sees: progress on standard error, the table on standard output.

use std::io::{self, IsTerminal, Write};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::{account::Sums, crew::Shared, route::ROUTES, route::Route};
use crate::output::{Rows, grouped};

/// Bars on a terminal, one for each route; elsewhere a line for what happens.
pub struct Screen {
    all: MultiProgress,
    bars: Vec<ProgressBar>,
}

impl Screen {
    /// For so many jobs of each route.
    pub fn new(jobs: u32) -> Self {
        let all = MultiProgress::new();
        if !io::stderr().is_terminal() {
            return Self { all, bars: Vec::new() };
        }
        let style = ProgressStyle::with_template("{prefix} {bar:20} {pos:>4} worked, {msg}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = |route: &Route| {
            let bar = all.add(ProgressBar::new(jobs.into()).with_style(style.clone()));
            bar.with_prefix(format!("{:>10} > {:<10}", route.submits, route.works))
        };
        let bars = ROUTES.iter().map(bar).collect();
        Self { all, bars }
    }

    /// Without bars.
    pub fn of_lines() -> Self {
        Self { all: MultiProgress::new(), bars: Vec::new() }
    }

    /// A line for people, above the bars.
    pub fn line(&self, text: String) {
        // If this fails, nobody is left to read it.
        self.all.suspend(|| writeln!(io::stderr(), "{text}").ok());
    }

    /// Shows how far all routes are.
    pub fn show(&self, shared: &Shared) {
        for (bar, (accepted, worked)) in self.bars.iter().zip(shared.progress()) {
            bar.set_message(format!("{accepted} accepted"));
            bar.set_position(worked as u64);
        }
    }

    /// Takes the bars away.
    pub fn end(&self) {
        self.bars.iter().for_each(ProgressBar::finish_and_clear);
    }
}

/// Prints what became of all jobs. Returns how many are lost.
pub fn print_table(rows: &[(Route, Sums)], out: &mut impl Write) -> io::Result<usize> {
    let mut table = Rows::new(&["door in", "door out", "queue", "jobs", "again", "lost"]);
    let mut all = Sums::default();
    let count = |count: usize| grouped(count as u64);
    for (route, sums) in rows {
        let Sums { jobs, again, lost } = sums;
        let doors = [route.submits.to_string(), route.works.to_string(), route.queue.to_owned()];
        table.add(doors.into_iter().chain([count(*jobs), count(*again), count(*lost)]));
        all = all.plus(*sums);
    }
    let all_doors = ["all", "", ""].map(str::to_owned);
    table.add(all_doors.into_iter().chain([count(all.jobs), count(all.again), count(all.lost)]));
    table.print(out)?;
    Ok(all.lost)
}
