//! The priorities of jobs that were taken: gearmand does not tell a job's priority, but it counts
//! the waiting jobs of each priority.

use std::collections::HashMap;

use crate::client::take_over::Waiting;

/// The priorities of the Gearman door, in the order in which `prioritystatus` counts them, which is
/// the order in which gearmand gives jobs.
const PRIORITIES: [(&str, i64); 3] = [("high", 1), ("normal", 0), ("low", -1)];

/// How many jobs of each function there are of each priority.
#[derive(Debug, PartialEq, Eq)]
pub struct Priorities(pub HashMap<String, [u64; 3]>);

impl Priorities {
    /// The counts that are not zero, by name.
    pub fn rows(&self) -> Vec<Waiting> {
        let mut rows = vec![];
        for (queue, counts) in &self.0 {
            for ((state, _), jobs) in PRIORITIES.iter().zip(*counts) {
                if jobs > 0 {
                    rows.push(Waiting { queue: queue.clone(), state, jobs });
                }
            }
        }
        rows.sort_by(|a, b| (&a.queue, a.state).cmp(&(&b.queue, b.state)));
        rows
    }

    /// How many jobs have gone since. Those that are not due yet are in both counts.
    pub fn gone_until(mut self, after: &Self) -> Self {
        for (function, counts) in &mut self.0 {
            let after = after.0.get(function).copied().unwrap_or_default();
            for (count, after) in counts.iter_mut().zip(after) {
                *count = count.saturating_sub(after);
            }
        }
        self
    }

    /// Takes the next job of a function out of the counts: its priority. The highest come first. A
    /// job that was not counted is taken for a normal one.
    pub fn next(&mut self, function: &str) -> i64 {
        for (count, (_, priority)) in self.0.get_mut(function).into_iter().flatten().zip(PRIORITIES)
        {
            if *count > 0 {
                *count -= 1;
                return priority;
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn priorities(counts: [u64; 3]) -> Priorities {
        Priorities([("mail".to_owned(), counts)].into())
    }

    #[test]
    fn jobs_that_have_gone_had_the_highest_priorities_first() {
        // One of low priority is not due; two of normal priority have come meanwhile.
        let mut gone = priorities([2, 1, 3]).gone_until(&priorities([0, 3, 1]));
        assert_eq!(gone, priorities([2, 0, 2]));
        let next: Vec<i64> = (0..5).map(|_| gone.next("mail")).collect();
        assert_eq!(next, [1, 1, -1, -1, 0]);
        assert_eq!(gone.next("sms"), 0);
        assert_eq!(priorities([1, 0, 0]).gone_until(&Priorities([].into())), priorities([1, 0, 0]));
    }
}
