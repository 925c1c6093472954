//! Figures over several runs, and latencies within one.

use hdrhistogram::Histogram;
use serde::Serialize;
use std::time::Duration;

/// A median and how far the runs lay apart.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    /// The middle run; the mean of the two middle ones when there is an even number.
    pub(crate) median: f64,
    /// The smallest.
    pub(crate) min: f64,
    /// The largest.
    pub(crate) max: f64,
}

impl Spread {
    /// The spread of `figures`, or `None` when there are none.
    pub(crate) fn of(figures: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        };
        Some(Self { median, min, max })
    }

    /// For people, with a unit if there is one; the ends only if there are any.
    pub(crate) fn text(&self, decimals: usize, unit: &str) -> String {
        let Self { median, min, max } = self;
        let median = format!("{median:.decimals$} {unit}");
        if min == max {
            return median.trim_end().to_owned();
        }
        format!("{} ({min:.decimals$}..{max:.decimals$})", median.trim_end())
    }
}

/// Latencies of one kind of request in one run.
pub(crate) struct Latencies(Histogram<u64>);

impl Latencies {
    /// None yet.
    pub(crate) fn new() -> Self {
        Self(Histogram::new_with_bounds(1, 600_000_000_000, 3).expect("bounds are in order"))
    }

    /// Counts one request that took `latency`.
    pub(crate) fn record(&mut self, latency: Duration) {
        self.0.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Counts what another has counted.
    pub(crate) fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("all have the same bounds");
    }

    /// The percentiles, or `None` when nothing was recorded.
    pub(crate) fn percentiles(&self) -> Option<Percentiles> {
        let at = |quantile| self.0.value_at_quantile(quantile) as f64 / 1000.0;
        (!self.0.is_empty()).then(|| Percentiles {
            p50_us: at(0.5),
            p95_us: at(0.95),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: self.0.max() as f64 / 1000.0,
        })
    }
}

/// Percentiles of one kind of request in one run, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Percentiles {
    /// Half were faster.
    pub(crate) p50_us: f64,
    /// 95 of 100 were faster.
    pub(crate) p95_us: f64,
    /// 99 of 100 were faster.
    pub(crate) p99_us: f64,
    /// 999 of 1,000 were faster.
    pub(crate) p999_us: f64,
    /// The slowest.
    pub(crate) max_us: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_run() {
        let spread = Spread::of([5.0, 1.0, 100.0]).unwrap();
        assert_eq!(spread, Spread { median: 5.0, min: 1.0, max: 100.0 });
    }

    #[test]
    fn an_even_number_of_runs_has_the_mean_of_the_middle_two() {
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 100.0]).unwrap().median, 3.0);
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn a_spread_is_written_with_its_ends_if_it_has_any() {
        let text = |figures: &[f64]| Spread::of(figures.iter().copied()).unwrap().text(1, "us");
        assert_eq!(text(&[5.0, 1.0, 100.0]), "5.0 us (1.0..100.0)");
        assert_eq!(text(&[5.0]), "5.0 us");
        assert_eq!(Spread::of([1.0, 2.0, 3.0]).unwrap().text(0, ""), "2 (1..3)");
    }

    #[test]
    fn percentiles_are_those_of_the_recorded_latencies() {
        let mut latencies = Latencies::new();
        assert_eq!(latencies.percentiles(), None);
        for us in 1..=1000 {
            latencies.record(Duration::from_micros(us));
        }
        let found = latencies.percentiles().unwrap();
        let (low, high) = ((found.p50_us, found.p95_us), (found.p99_us, found.p999_us));
        for (is, should) in [(low.0, 500.0), (low.1, 950.0), (high.0, 990.0), (high.1, 999.0)] {
            assert!((is - should).abs() <= should * 0.002, "{is} is not {should}");
        }
        assert!((found.max_us - 1000.0).abs() < 2.0);
    }
}
