//! A progress bar on standard error, if that is a terminal.

use std::fmt::Display;

use indicatif::{ProgressBar, ProgressStyle};

/// How far a long run is. Shows nothing when standard error is not a terminal.
pub struct Progress(ProgressBar);

impl Progress {
    /// A bar that ends at `total`.
    pub fn of(total: u64) -> Self {
        let bar = ProgressBar::new(total);
        let style = ProgressStyle::with_template("{bar:40} {pos}/{len}, {eta} left");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self(bar)
    }

    /// A count without an end.
    pub fn open_end() -> Self {
        let bar = ProgressBar::no_length();
        let style = ProgressStyle::with_template("{spinner} {pos} jobs in {elapsed}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        Self(bar)
    }

    /// Nothing.
    pub fn hidden() -> Self {
        Self(ProgressBar::hidden())
    }

    /// So many are done now.
    pub fn at(&self, count: u64) {
        self.0.set_position(count);
    }

    /// So many more are done.
    pub fn advance(&self, count: u64) {
        self.0.inc(count);
    }

    /// Prints a line on standard error, above the bar.
    pub fn print(&self, line: impl Display) {
        self.0.suspend(|| eprintln!("{line}"));
    }

    /// Does something that may write to the terminal.
    pub fn aside<T>(&self, does: impl FnOnce() -> T) -> T {
        self.0.suspend(does)
    }

    /// Takes the bar away.
    pub fn end(&self) {
        self.0.finish_and_clear();
    }
}
