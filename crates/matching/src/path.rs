//! Matchers and payloads without constraints: for searches, the fuzzer, and tests that match very often.

use bytes::Bytes;
use spindle_core::Type;
use spindle_core::queue::Constraint;

use crate::encoding::encode_matcher;
use crate::rules::{Document, RuleSet};
use crate::spec::{ConstraintSpec, Matcher, SpecError};

/// Matchers, and the jobs they are for.
pub struct MatchPath {
    rules: RuleSet,
}

impl MatchPath {
    /// Checks matchers, encodes them and compiles them, as those of constraints are.
    pub fn new(matchers: &[Matcher]) -> Result<MatchPath, SpecError> {
        let mut constraints = Vec::with_capacity(matchers.len());
        for (number, matcher) in (1..).zip(matchers) {
            let spec =
                ConstraintSpec { matcher: matcher.clone(), rate: None, running_max: Some(1) };
            spec.check()?;
            let name = Bytes::from(format!("rule-{number}"));
            let matcher = encode_matcher(matcher);
            constraints.push(Constraint { number, name, matcher, ..Constraint::default() });
        }
        Ok(MatchPath { rules: RuleSet::new(1, &constraints, None) })
    }

    /// The matchers that a job falls under, counted from 1, each with the value of its `per`.
    pub fn labels(&self, queue: &[u8], payload: &[u8], kind: Type) -> Vec<(u32, u64)> {
        let labels = self.rules.labels(queue, b"", Document::new(payload, kind), &[]);
        labels.into_iter().map(|label| (label.constraint, label.value)).collect()
    }
}
