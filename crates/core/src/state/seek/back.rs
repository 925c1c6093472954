//! The same walk from the newest job to the oldest.

use super::{JobId, PASSED_PER_JOB, Sought, State, Stretch};

impl State {
    /// Looks for jobs below a number, the highest first, and ends as [`State::seek`] does. What is
    /// next is the number below which the next stretch looks.
    pub fn seek_back(
        &mut self,
        below: JobId,
        sought: &Sought,
        limit: usize,
        jobs_max: usize,
    ) -> Stretch {
        let mut stretch = Stretch::default();
        let Some(sieve) = self.sieve(sought) else { return stretch };
        let mut at = Some(self.by_id.walk_from(below.0.saturating_sub(1)));
        let (mut looked_at, mut passed) = (0, 0);
        while let Some((here, (marks, slots))) = at.and_then(|at| Some((at, self.by_id.chunk(at)?)))
        {
            if looked_at + passed / PASSED_PER_JOB >= jobs_max {
                stretch.next = slots.last().map(|handle| JobId(self.id_of(*handle) + 1));
                return stretch;
            }
            if sieve.is_idle(marks) {
                passed += 1;
            } else {
                let mut exact = 0;
                for handle in slots.iter().rev() {
                    let id = JobId(self.id_of(*handle));
                    let (own, fits) = self.sift(&sieve, *handle, marks);
                    exact |= own;
                    if !fits || id >= below {
                        continue;
                    }
                    if stretch.found.len() == limit {
                        stretch.next = Some(JobId(id.0 + 1));
                        return stretch;
                    }
                    stretch.found.push(id);
                }
                looked_at += slots.len();
                self.by_id.set_marks(here, exact);
            }
            at = self.by_id.before(here);
        }
        stretch
    }
}
