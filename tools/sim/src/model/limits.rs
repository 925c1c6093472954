//! Constraints: token buckets and how many run at once.

use std::collections::BTreeSet;

use spindle_core::job::Label;
use spindle_core::queue::{Constraint, Rate};
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
        let runs = |job: &&JobImage| {
            job.status() == Status::Leased && job.options().labels.contains(&label)
        };
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
        job.options().labels.iter().all(|label| {
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

    /// Whether there is no room for one more value of a constraint's field: certainly, and
    /// possibly. A value takes room while an unfinished job has it, and may do so until its bucket
    /// is full again.
    pub(crate) fn has_too_many_values(&self, label: Label) -> (bool, bool) {
        if !self.rules.contains_key(&label.constraint) {
            return (false, false);
        }
        let labels = self.jobs().filter(|job| !job.status().is_finished());
        let labels = labels.flat_map(|job| job.options().labels.iter().copied());
        let of_this = |other: &Label| other.constraint == label.constraint;
        let sure: BTreeSet<Label> = labels.filter(of_this).collect();
        let taken = self.tokens.keys().chain(&self.filled).copied().filter(of_this);
        let all: BTreeSet<Label> = sure.iter().copied().chain(taken).collect();
        let max = self.defaults.values_max;
        let must = sure.len() >= max && !all.contains(&label);
        (must, !must && all.len() >= max && !sure.contains(&label))
    }

    /// A changed rule begins with the tokens that are left, unless the old rule had none left to
    /// give. Half a token stays half a token.
    pub(crate) fn keep_what_is_left(
        &mut self,
        before: &Constraint,
        after: &Constraint,
        now_ms: u64,
    ) {
        let full = |tokens: &Tokens| {
            before.rate.is_none_or(|rate| {
                tokens.now(&rate, now_ms) >= u128::from(rate.burst) * u128::from(rate.per_ms)
            })
        };
        let number = before.number;
        let filled =
            self.tokens.extract_if(.., |label, tokens| label.constraint == number && full(tokens));
        self.filled.extend(filled.map(|(label, _)| label));
        let (Some(old), Some(new)) = (before.rate, after.rate) else { return };
        for (_, tokens) in self.tokens.iter_mut().filter(|(label, _)| label.constraint == number) {
            let part = tokens.now(&old, now_ms) * u128::from(new.per_ms) / u128::from(old.per_ms);
            *tokens = Tokens { fractions: part, at_ms: now_ms };
        }
    }

    pub(crate) fn forget_tokens(&mut self, constraint: u32) {
        self.tokens.retain(|label, _| label.constraint != constraint);
    }
}
