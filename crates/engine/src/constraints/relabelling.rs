//! Jobs that were there before a constraint came, changed or went are matched one after the other.
//!
//! A pass walks over the jobs by number, in slices: what a slice needs is taken in one hold of the
//! lock, payloads are read outside it, and what is new of a job's labels is told in further holds,
//! if the job is as it was. Jobs that come while it walks are matched by the newest constraints
//! already. How far it has come is in the log, so a restart goes on from there; a further change
//! of the constraints begins a new pass. While there is room on disk for nothing but what frees
//! room, it waits, unless jobs may not start before they are matched: see the core's
//! `unmatched.rs`.

use std::time::Duration;

use parking_lot::Mutex;
use spindle_core::command::Matched;
use spindle_core::job::Label;
use spindle_core::{Command, Found, JobId, Rejection, State, Status};

use super::labelling::Unmatched;
use crate::commit::TimerBell;
use crate::engine::Engine;
use crate::inner::Inner;
use crate::read::FetchError;
use spindle_matching::RuleSet;

/// Jobs looked at in one hold of the lock.
const LOOKED_AT_MAX: usize = 512;
/// Jobs labelled in one hold of the lock.
const LABELLED_MAX: usize = 64;
/// A job that changes all the time is left to a later look after so many.
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

/// How far the jobs that were there have been matched against the newest constraints.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Relabelling {
    /// The revision of the constraints.
    pub revision: u64,
    /// Jobs whose labels changed so far, since the start.
    pub relabelled: u64,
    /// Unfinished jobs still to be looked at; at least 1 while the pass goes on.
    pub remaining: u64,
}

/// The pass that is under way, if one is.
#[derive(Debug, Default)]
pub(crate) struct Relabeller {
    pass: Mutex<Pass>,
    bell: TimerBell,
}

#[derive(Debug, Default)]
struct Pass {
    revision: u64,
    relabelled: u64,
    looked_at: u64,
    /// Unfinished jobs when it began.
    total: u64,
}

impl Relabeller {
    /// The constraints have changed.
    pub fn wake(&self) {
        self.bell.ring();
    }

    /// Sleeps until it is woken, or a time has passed.
    pub fn sleep(&self, time: Duration) {
        self.bell.sleep(time);
    }
}

/// What one hold of the lock takes out.
struct Slice {
    jobs: Vec<Unmatched>,
    /// Where the next one begins; the highest number at the end.
    next: JobId,
}

impl Engine {
    /// How far the jobs that were there have been matched against the newest constraints.
    pub fn relabelling(&self) -> Relabelling {
        let (revision, done, unfinished) = self.look(|state| {
            let revision = state.server().constraints_revision;
            (revision, state.is_relabelled(), unfinished(state))
        });
        let pass = self.shared.relabelling.pass.lock();
        let remaining = match (done, pass.revision == revision) {
            (true, _) => 0,
            (false, true) => pass.total.saturating_sub(pass.looked_at).max(1),
            (false, false) => unfinished.max(1),
        };
        let relabelled = if pass.revision == revision { pass.relabelled } else { 0 };
        Relabelling { revision, relabelled, remaining }
    }

    /// Matches some of the jobs that were there before the newest constraints.
    pub fn relabel_step(&self) -> Step {
        let rules = self.rules();
        let slice = {
            let inner = self.enter();
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
            self.begin_pass(&inner.state, known);
            slice(&inner.state, from)
        };
        let looked_at = slice.jobs.len() as u64;
        let mut jobs = slice.jobs;
        for _ in 0..TRIES {
            jobs = self.relabel(&rules, jobs);
            if jobs.is_empty() {
                break;
            }
        }
        self.shared.relabelling.pass.lock().looked_at += looked_at;
        // What could not be labelled is where the next step begins.
        let below = jobs.first().map_or(slice.next, |job| job.id);
        let note = Command::NoteRelabelled { revision: rules.revision(), below };
        // Stale: a newer pass begins.
        self.enter().run(&note).ok();
        Step::More
    }

    /// What jobs are labelled by may have changed with the command just run.
    pub(crate) fn wake_relabelling(&self, inner: &Inner) {
        if !inner.state.is_relabelled() {
            self.shared.relabelling.wake();
        }
    }

    fn begin_pass(&self, state: &State, goes_on: bool) {
        let revision = state.server().constraints_revision;
        let mut pass = self.shared.relabelling.pass.lock();
        if pass.revision != revision || (!goes_on && pass.looked_at > 0) {
            *pass = Pass { revision, total: unfinished(state), ..Pass::default() };
        }
    }

    /// Labels jobs anew. Returns those that changed meanwhile, as they are now.
    fn relabel(&self, rules: &RuleSet, jobs: Vec<Unmatched>) -> Vec<Unmatched> {
        let mut changed = Vec::new();
        for job in jobs {
            match self.labels_of(rules, &job) {
                Ok(labels) if labels == job.labels => {}
                Ok(labels) => changed.push((job, labels)),
                // It has ended, or dies of this.
                Err(FetchError::Moved | FetchError::Damaged(_)) => {}
                Err(error) => tracing::error!("job {} keeps its labels: {error}", job.id),
            }
        }
        let mut again = Vec::new();
        for part in changed.chunks(LABELLED_MAX) {
            let mut inner = self.enter();
            let mut relabelled = 0;
            for (job, labels) in part {
                match inner.relabel(job, labels, rules.revision()) {
                    Ok(()) => relabelled += 1,
                    Err(Rejection::Stale) => again.extend(inner.unmatched(job.id)),
                    // Gone, finished, or a newer pass begins.
                    Err(_) => {}
                }
            }
            self.leave(inner);
            self.shared.relabelling.pass.lock().relabelled += relabelled;
        }
        again
    }
}

fn slice(state: &State, from: JobId) -> Slice {
    let mut jobs = Vec::new();
    for (looked_at, found) in state.jobs_from(from).enumerate() {
        if looked_at == LOOKED_AT_MAX {
            return Slice { jobs, next: found.id() };
        }
        if let Found::Live(job) = found {
            jobs.push(Unmatched::new(state, &job));
        }
    }
    Slice { jobs, next: JobId(u64::MAX) }
}

fn unfinished(state: &State) -> u64 {
    (state.jobs_count() - state.finished_count()) as u64
}

impl Inner {
    fn unmatched(&self, id: JobId) -> Option<Unmatched> {
        match self.state.job(id)? {
            Found::Live(job) => Some(Unmatched::new(&self.state, &job)),
            Found::Finished(_) => None,
        }
    }

    fn relabel(
        &mut self,
        job: &Unmatched,
        labels: &[Label],
        constraints_revision: u64,
    ) -> Result<(), Rejection> {
        if self.state.status(job.id).is_none_or(Status::is_finished) {
            return Err(Rejection::Finished);
        }
        let labels = labels.iter().map(|label| {
            let crowded = self.state.has_no_room_for(&[*label]);
            Label { value: if crowded { Label::OVERFLOW } else { label.value }, ..*label }
        });
        let matched = Matched { labels: labels.collect(), constraints_revision };
        self.run(&Command::Relabel { id: job.id, revision: Some(job.revision), matched })
    }
}
