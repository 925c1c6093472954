//! Which constraints a job falls under, as the simulator's people write their matchers: for one
//! queue, or for all. What payloads say is tested elsewhere.

use spindle_core::job::{LABELS_MAX, Label};
use spindle_engine::{QueuePattern, decode_matcher};

use super::Model;

impl Model {
    /// The labels the engine gives a job of this queue. A constraint nobody can read changes
    /// nothing: a job that has its label keeps it.
    pub fn labels_for(&self, queue: &[u8], current: &[Label]) -> Vec<Label> {
        let mut labels = Vec::new();
        for (number, rule) in &self.rules {
            let label = Label { constraint: *number, value: 0 };
            match decode_matcher(&rule.matcher).map(|matcher| matcher.queue) {
                Err(_) => labels.extend(current.iter().filter(|label| label.constraint == *number)),
                Ok(QueuePattern::Any) => labels.push(label),
                Ok(QueuePattern::Exact(name)) if name == queue => labels.push(label),
                Ok(_) => {}
            }
        }
        labels.truncate(LABELS_MAX);
        labels
    }

    /// Whether a job may have the shared bucket's label instead of this one.
    pub fn may_share(&self, label: Label) -> bool {
        let (must, may) = self.has_too_many_values(label);
        must || may
    }
}
