//! Constraints: token buckets and how many run at once.

use spindle_core::job::Label;
use spindle_core::queue::Rate;
use spindle_core::{JobImage, Status};

use super::Model;

/// A bucket's tokens, counted in fractions of `1 / per_ms`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tokens {
    fractions: u128,
    at_ms: u64,
}

impl Tokens {
    fn now(self, rate: &Rate, now_ms: u64) -> u128 {
        let came = u128::from(now_ms.saturating_sub(self.at_ms)) * u128::from(rate.count);
        (self.fractions + came).min(u128::from(rate.burst) * u128::from(rate.per_ms))
    }
}

impl Model {
    /// Leased jobs that fall under a constraint's value.
    pub fn running(&self, label: Label) -> u64 {
        let runs = |job: &&JobImage| job.status() == Status::Leased && job.labels.contains(&label);
        self.jobs().filter(runs).count() as u64
    }

    fn tokens_now(&self, label: Label, rate: &Rate, now_ms: u64) -> u128 {
        match self.tokens.get(&label) {
            Some(tokens) => tokens.now(rate, now_ms),
            None => u128::from(rate.burst) * u128::from(rate.per_ms),
        }
    }

    /// Whether constraints let a job start now.
    pub fn is_admitted(&self, job: &JobImage, now_ms: u64) -> bool {
        job.labels.iter().all(|label| {
            let Some(rule) = self.rules.get(&label.constraint) else { return true };
            let runs = rule.running_max.is_none_or(|max| self.running(*label) < max);
            let starts = rule.rate.as_ref().is_none_or(|rate| {
                self.tokens_now(*label, rate, now_ms) >= u128::from(rate.per_ms)
            });
            runs && starts
        })
    }

    /// A job starts: one token out of each of its buckets.
    pub(crate) fn take_tokens(&mut self, labels: &[Label], now_ms: u64) {
        for label in labels {
            let Some(rule) = self.rules.get(&label.constraint) else { continue };
            // A rate that is set later begins with what came since the last start.
            let left = rule
                .rate
                .map_or(0, |rate| self.tokens_now(*label, &rate, now_ms) - u128::from(rate.per_ms));
            self.tokens.insert(*label, Tokens { fractions: left, at_ms: now_ms });
        }
    }

    pub(crate) fn forget_tokens(&mut self, constraint: u32) {
        self.tokens.retain(|label, _| label.constraint != constraint);
    }
}
