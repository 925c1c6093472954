//! Which constraints a job falls under. The simulator's matchers are for one queue or for all;
//! other tests match payloads.

use spindle_core::JobImage;
use spindle_core::job::{LABELS_MAX, Label};
use spindle_matching::{QueuePattern, decode_matcher};

use super::Model;

impl Model {
    /// The labels the engine gives a job of this queue. A constraint whose matcher cannot be read
    /// changes nothing: a job that has its label keeps it.
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

    /// Whether a job is older than a constraint that lets no job start, has not been labelled
    /// since, and is in a queue that the constraint covers.
    pub fn is_unmatched(&self, job: &JobImage) -> bool {
        self.stops.iter().any(|(number, (below, put))| {
            let (revision, labelled) = self.relabelled;
            let is_labelled = revision >= *put && job.id < labelled;
            let takes = match decode_matcher(&self.rules[number].matcher) {
                Err(_) => false,
                Ok(matcher) => match matcher.queue {
                    QueuePattern::Exact(name) => name == job.queue,
                    QueuePattern::Any | QueuePattern::Glob(_) => true,
                },
            };
            job.id < *below && !is_labelled && takes
        })
    }

    /// Whether a job may have the shared bucket's label instead of this one.
    pub fn may_share(&self, label: Label) -> bool {
        let (must, may) = self.has_too_many_values(label);
        must || may
    }
}
