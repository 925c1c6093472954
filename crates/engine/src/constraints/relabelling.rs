//! Jobs that were there before a constraint came, changed or went are matched one after the other.
//!
//! A pass walks over the jobs by number, in slices: the data for a slice is taken in one hold of
//! the lock, payloads are read outside it, and changed labels are logged in further holds, if the
//! job is as it was. Jobs submitted during the pass are matched by the newest constraints already.
//! How far it has come is in the log, so a restart goes on from there; a further change of the
//! constraints begins a new pass. While the disk has room only for changes that free room, the pass
//! waits, unless jobs may not start before they are matched: see the core's `unmatched.rs`.

use spindle_core::command::Matched;
use spindle_core::job::Label;
use spindle_core::{Command, JobId, Rejection, State};

use super::labelling::Unmatched;
use super::pass::Relabelling;
use crate::engine::Engine;
use crate::inner::Inner;
use crate::read::FetchError;
use crate::views::Constraints;
use spindle_matching::RuleSet;

/// Jobs looked at in one hold of the lock.
const LOOKED_AT_MAX: usize = 512;
/// Jobs labelled in one hold of the lock.
const LABELLED_MAX: usize = 64;
/// After this many tries, a job that changes all the time is left for later.
const TRIES: usize = 16;

/// What a step of matching came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// There is more to do at once.
    More,
    /// There is more to do when there is room for it in the log.
    Later,
    /// All jobs are matched.
    Done,
}

impl Constraints<'_> {
    /// How far the jobs that were there have been matched against the newest constraints.
    pub fn relabelling(&self) -> Relabelling {
        let inner = self.0.shared.inner.lock();
        let revision = inner.state.server().constraints_revision;
        let (is_done, unfinished) = (inner.state.is_relabelled(), unfinished(&inner.state));
        inner.pass.progress(revision, is_done, unfinished)
    }
}

impl Engine {
    /// Matches some of the jobs that were there before the newest constraints.
    pub fn relabel_step(&self) -> Step {
        let rules = self.shared.rules.newest();
        let (mut jobs, next) = {
            let mut inner = self.enter();
            let server = inner.state.server();
            if inner.state.is_relabelled() {
                return Step::Done;
            }
            if !self.has_room_for_matching(&inner) {
                return Step::Later;
            }
            if server.constraints_revision != rules.revision() {
                drop(inner);
                self.refresh_rules();
                return Step::More;
            }
            let known = server.relabelled_revision == server.constraints_revision;
            let from = JobId(if known { server.relabelled_below } else { 0 });
            let total = unfinished(&inner.state);
            let (jobs, next) = slice(&inner.state, from);
            inner.pass.begin(rules.revision(), known, total);
            (jobs, next)
        };
        let looked_at = jobs.len() as u64;
        for _ in 0..TRIES {
            jobs = self.relabel(&rules, jobs);
            if jobs.is_empty() {
                break;
            }
        }
        // The next step begins at the jobs that could not be labelled.
        let below = jobs.first().map_or(next, |job| job.id);
        let note = Command::NoteRelabelled { revision: rules.revision(), below };
        let mut inner = self.enter();
        inner.pass.looked_at += looked_at;
        // Stale: a newer pass begins.
        inner.run(&note).ok();
        Step::More
    }

    /// The command just run may have changed what jobs are labelled by.
    pub(crate) fn wake_relabelling(&self, inner: &Inner) {
        if !inner.state.is_relabelled() {
            self.shared.relabel_bell.ring();
        }
    }

    /// On a full disk jobs are matched only where that lets others start, and only while enough of
    /// the reserve is left for changes that make room.
    fn has_room_for_matching(&self, inner: &Inner) -> bool {
        const COMPACTION_STEPS_LEFT: usize = 16;
        let log = &self.shared.log;
        let needed =
            inner.batch.undurable_bytes() + COMPACTION_STEPS_LEFT * inner.options.compaction_bytes;
        self.has_room()
            && (!log.space().is_reserve()
                || (inner.state.has_unmatched() && needed as u64 <= log.room_bytes()))
    }

    /// Labels jobs anew. Returns those that changed meanwhile, as they are now.
    fn relabel(&self, rules: &RuleSet, jobs: Vec<Unmatched>) -> Vec<Unmatched> {
        let mut changed = Vec::new();
        for job in jobs {
            match self.labels_of(rules, &job) {
                Ok(labels) if labels == job.labels => {}
                Ok(labels) => changed.push((job, labels)),
                // The job has ended, or dies of the damage.
                Err(FetchError::Moved | FetchError::Damaged(_)) => {}
                Err(error) => tracing::error!("job {} keeps its labels: {error}", job.id),
            }
        }
        let mut again = Vec::new();
        for part in changed.chunks(LABELLED_MAX) {
            let mut inner = self.enter();
            for (job, labels) in part {
                match inner.relabel(job, labels, rules.revision()) {
                    Ok(()) => inner.pass.relabelled += 1,
                    Err(Rejection::Stale) => {
                        let now = inner.state.live(job.id);
                        again.extend(now.map(|job| Unmatched::new(&inner.state, job)));
                    }
                    // Gone, finished, or a newer pass begins.
                    Err(_) => {}
                }
            }
            self.leave(inner);
        }
        again
    }
}

/// The jobs taken in one hold of the lock, and where the next hold begins; at the end the highest number.
fn slice(state: &State, from: JobId) -> (Vec<Unmatched>, JobId) {
    let mut jobs = Vec::new();
    for (looked_at, found) in state.jobs_from(from).enumerate() {
        if looked_at == LOOKED_AT_MAX {
            return (jobs, found.id());
        }
        jobs.extend(found.live().map(|job| Unmatched::new(state, job)));
    }
    (jobs, JobId(u64::MAX))
}

fn unfinished(state: &State) -> u64 {
    (state.jobs_count() - state.finished_count()) as u64
}

impl Inner {
    fn relabel(
        &mut self,
        job: &Unmatched,
        labels: &[Label],
        constraints_revision: u64,
    ) -> Result<(), Rejection> {
        self.state.live(job.id).ok_or(Rejection::Finished)?;
        let labels = labels.iter().map(|label| {
            let crowded = self.state.has_no_room_for(&[*label]);
            Label { value: if crowded { Label::OVERFLOW } else { label.value }, ..*label }
        });
        let matched = Matched { labels: labels.collect(), constraints_revision };
        self.run(&Command::Relabel { id: job.id, revision: Some(job.revision), matched })
    }
}
