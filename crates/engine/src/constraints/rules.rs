//! Putting, looking at and removing constraints, by the names people give them.

use std::cmp::Reverse;

use bytes::Bytes;
use parking_lot::MutexGuard;
use spindle_core::audit::Action;
use spindle_core::job::{JobId, Label};
use spindle_core::queue::{Constraint, LimitScope, Rate};
use spindle_core::{Command, JobImage, Rejection, State, Tries, Type};

use super::labelling::bytes_type;
use crate::answer::Refused;
use crate::audit::{Audit, Deed, People};
use crate::gate::Gated;
use crate::inner::Inner;
use crate::views::{Constraints, Jobs};
use crate::wait::Progress;
use spindle_matching::{
    ConstraintSpec, Matcher, QueuePattern, UnreadableMatcher, check_name, decode_matcher,
    encode_matcher,
};

/// How many slices are looked at for jobs that wait for a constraint.
const HELD_SLICES_MAX: usize = 32;

/// What must exist for a put or a removal to happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expected {
    /// No condition.
    Any,
    /// A constraint with this revision.
    Revision(u64),
    /// None of that name.
    Nothing,
}

/// A constraint that was put.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PutConstraint {
    /// It is new.
    pub created: bool,
    /// Its revision now.
    pub revision: u64,
}

/// A constraint, as it is shown.
#[derive(Clone, PartialEq, Debug)]
pub struct ConstraintView {
    /// Its number, which labels name.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// Changes with every put.
    pub revision: u64,
    /// Whether each shard limits its own jobs.
    pub scope: LimitScope,
    /// What was put; or why that cannot be read.
    pub spec: Result<ConstraintSpec, UnreadableMatcher>,
    /// How many values have a bucket, because they have unfinished jobs or tokens that are not back
    /// yet.
    pub buckets: usize,
    /// How often since the start a job matched it that already had as many labels as a job may
    /// have.
    pub left_out: u64,
    /// It asks for fields of payloads, and these payloads have no fields that can be read.
    pub opaque: Option<Opaque>,
}

/// Payloads that are mere bytes of an undeclared type.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Opaque {
    /// Those of this queue.
    Queue(Bytes),
    /// Those of all queues that the constraint applies to, except queues that declare a type
    /// themselves.
    Queues,
}

/// A bucket, as it is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BucketLine {
    /// The hash of its value; 0 for a constraint without `per`.
    pub value: u64,
    /// Jobs leased.
    pub running: u64,
    /// Unfinished jobs.
    pub jobs: u64,
    /// Whole tokens, if the constraint has a rate.
    pub tokens: Option<u64>,
    /// Whether one more job may start now.
    pub admits: bool,
    /// When time alone lets one start; none if one may now, or if a job has to end first.
    pub frees_ms: Option<u64>,
}

/// The queues that wait for a constraint.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HeldQueues {
    /// Queues, and how many of their ready jobs it holds back.
    pub queues: Vec<(Bytes, usize)>,
    /// There may be more queues, or more jobs.
    pub is_partial: bool,
}

/// A constraint that keeps a job from starting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeldBack {
    /// Its name.
    pub constraint: String,
    /// The limit of running jobs, which is reached.
    pub running_max: Option<u64>,
    /// When a token comes, if tokens are missing.
    pub frees_ms: Option<u64>,
    /// The constraint lets none of its jobs start, and this job is not matched against it yet.
    pub unmatched: bool,
}

/// What the state says of a job besides its image.
#[derive(Clone, PartialEq, Debug)]
pub struct JobNow {
    /// How often it is tried, and when again.
    pub tries: Tries,
    /// Its queue is paused.
    pub is_queue_paused: bool,
    /// Constraints that would keep it from starting now.
    pub held_back: Vec<HeldBack>,
    /// How far its holder says it is.
    pub progress: Option<Progress>,
}

impl Jobs<'_> {
    /// What the state says of a job besides its image: its limits, what would keep it from starting
    /// now, and how far its holder says it is.
    pub fn now(&self, image: &JobImage) -> JobNow {
        let has_constraints = self.0.constraints().exist();
        self.0.shared.inner.lock().job_now(image, has_constraints, self.0.now_ms())
    }
}

impl Inner {
    /// As [`Jobs::now`], within a look at more.
    pub(crate) fn job_now(&self, image: &JobImage, has_constraints: bool, now_ms: u64) -> JobNow {
        let state = &self.state;
        let held_back = if has_constraints { held_back(state, image, now_ms) } else { Vec::new() };
        JobNow {
            tries: state.tries_of(image),
            is_queue_paused: state.queue(&image.queue).is_some_and(|it| it.settings().paused),
            held_back,
            progress: self.waiting.reports.progress(JobId(image.id)),
        }
    }
}

impl People<'_> {
    /// Puts a constraint, new or changed. Jobs that come from now on fall under it; those that are
    /// there are matched one after the other, see [`Constraints::relabelling`]. Putting what is
    /// there already changes nothing. One limit of several shards is refused.
    pub fn put_constraint(
        self,
        name: &str,
        spec: &ConstraintSpec,
        scope: LimitScope,
        expected: Expected,
    ) -> Gated<Result<PutConstraint, Refused>> {
        if check_name(name).and_then(|()| spec.check()).is_err() {
            return Gated::open(Err(Rejection::OutOfRange("the constraint").into()));
        }
        let matcher = encode_matcher(&spec.matcher);
        let put = loop {
            let mut inner = self.engine.enter();
            if inner.constraint_named(name).is_none()
                && let Err(full) = self.engine.check_length()
            {
                break inner.changed(Err(full));
            }
            match inner.put_constraint(self.audit, name, &matcher, (spec, scope), expected) {
                // Every entry rebases some of it, so that other calls come in between.
                Err(Rejection::Rebasing) => MutexGuard::unlock_fair(inner),
                put => break inner.changed(put.map_err(Refused::from)),
            }
        };
        self.engine.constraints().changed();
        put
    }

    /// Removes a constraint. Jobs it held back start; their labels go one after the other.
    pub fn remove_constraint(self, name: &str, expected: Expected) -> Gated<Result<(), Refused>> {
        let removed = self.engine.change(|inner| {
            let before = inner.constraint_named(name).cloned();
            inner.check_expected(before.as_ref(), expected)?;
            let number = before.ok_or(Rejection::NoConstraint)?.number;
            let deed = Deed::to_constraint(Action::RemoveConstraint, name, String::new());
            let remove = Command::RemoveConstraint { number };
            Ok(inner.run_for(self.audit, deed, Some(remove), None)?)
        });
        self.engine.constraints().changed();
        removed
    }
}

impl Constraints<'_> {
    /// They may have changed.
    fn changed(&self) {
        self.0.refresh_rules();
        self.0.shared.relabel_bell.ring();
    }

    /// Whether anything may hold jobs back. Costs one load; may be a moment behind a change.
    pub fn exist(&self) -> bool {
        self.0.shared.rules.unconstrained().is_none()
    }

    /// One constraint.
    pub fn get(&self, name: &str) -> Gated<Option<ConstraintView>> {
        self.0.read(|inner| Some(self.view(&inner.state, inner.constraint_named(name)?)))
    }

    /// Constraints in the order of their names, those behind `after`.
    pub fn list(&self, after: Option<&str>, limit: usize) -> Gated<Vec<ConstraintView>> {
        let after = after.map(str::as_bytes);
        self.0.read(|inner| {
            let all = inner.state.constraints();
            let mut rules: Vec<&Constraint> =
                all.filter(|rule| Some(rule.name.as_ref()) > after).collect();
            rules.sort_by_key(|rule| &rule.name);
            rules.into_iter().take(limit).map(|rule| self.view(&inner.state, rule)).collect()
        })
    }

    /// Buckets of a constraint by value, from this one on, and where to go on. A list for people:
    /// it may be a moment ahead of the disk.
    pub fn buckets(&self, name: &str, from: u64, limit: usize) -> (Vec<BucketLine>, Option<u64>) {
        let inner = self.0.enter();
        let Some(rule) = inner.constraint_named(name) else { return (Vec::new(), None) };
        let now_ms = inner.now_ms;
        let mut listed = inner.state.buckets_of(rule.number, from);
        let lines = listed.by_ref().take(limit).map(|(label, bucket)| BucketLine {
            value: label.value,
            running: bucket.running(),
            jobs: bucket.jobs(),
            tokens: rule.rate.map(|rate| whole_tokens(bucket.level_at(rule, now_ms), rate)),
            admits: bucket.admits(rule, now_ms),
            frees_ms: bucket.admits_at(rule, now_ms),
        });
        let lines = lines.collect();
        let next = listed.next().map(|(label, _)| label.value);
        (lines, next)
    }

    /// The queues whose ready jobs a constraint holds back, those with the most jobs first. A list for
    /// people: it may be a moment ahead of the disk, and other calls come between its slices.
    pub fn held_queues(&self, name: &str, limit: usize) -> HeldQueues {
        let mut held = HeldQueues::default();
        let mut after = None;
        for _ in 0..HELD_SLICES_MAX {
            let slice = {
                let inner = self.0.enter();
                let Some(rule) = inner.constraint_named(name) else { return HeldQueues::default() };
                inner.state.held_back(rule, after.as_deref(), inner.now_ms)
            };
            held.queues.extend(slice.queues);
            held.is_partial |= slice.is_partial;
            after = slice.next;
            if after.is_none() {
                break;
            }
        }
        held.is_partial |= after.is_some();
        held.queues.sort_by_key(|(_, jobs)| Reverse(*jobs));
        held.is_partial |= held.queues.len() > limit;
        held.queues.truncate(limit);
        held
    }

    fn view(&self, state: &State, rule: &Constraint) -> ConstraintView {
        let spec = decode_matcher(&rule.matcher).map(|matcher| ConstraintSpec {
            matcher,
            rate: rule.rate,
            running_max: rule.running_max,
        });
        let opaque = spec.as_ref().ok().and_then(|spec| opaque(state, &spec.matcher));
        ConstraintView {
            opaque,
            number: rule.number,
            name: String::from_utf8_lossy(&rule.name).into_owned(),
            revision: state.constraint_revision(rule.number).unwrap_or_default(),
            scope: state.scope_of(rule),
            spec,
            buckets: state.buckets_count_of(rule.number),
            left_out: self.0.shared.rules.newest().left_out(rule.number),
        }
    }
}

/// What a matcher cannot read. Queues are not looked through: there may be very many.
fn opaque(state: &State, matcher: &Matcher) -> Option<Opaque> {
    if !matcher.asks_for_fields() {
        return None;
    }
    match &matcher.queue {
        QueuePattern::Exact(name) => {
            let is_opaque = bytes_type(state, name) == Type::Bytes;
            is_opaque.then(|| Opaque::Queue(name.clone()))
        }
        QueuePattern::Any | QueuePattern::Glob(_) => Some(Opaque::Queues),
    }
}

fn whole_tokens(level: u128, rate: Rate) -> u64 {
    u64::try_from(level / u128::from(rate.per_ms.max(1))).unwrap_or(u64::MAX)
}

/// Which constraints would keep a job from starting now.
fn held_back(state: &State, image: &JobImage, now_ms: u64) -> Vec<HeldBack> {
    let name = |rule: &Constraint| String::from_utf8_lossy(&rule.name).into_owned();
    let labels = &image.options().labels;
    let held = |label: &Label| {
        let rule = state.constraint(label.constraint)?;
        let bucket = state.bucket(*label)?;
        if bucket.admits(rule, now_ms) {
            return None;
        }
        Some(HeldBack {
            constraint: name(rule),
            running_max: rule.running_max.filter(|max| bucket.running() >= *max),
            frees_ms: bucket.admits_at(rule, now_ms),
            unmatched: false,
        })
    };
    let labelled = |rule: &Constraint| labels.iter().any(|label| label.constraint == rule.number);
    let unmatched = state.unmatched_by(&image.queue, JobId(image.id));
    let unmatched = unmatched.filter(|rule| !labelled(rule)).map(|rule| HeldBack {
        constraint: name(rule),
        running_max: rule.running_max,
        frees_ms: None,
        unmatched: true,
    });
    labels.iter().filter_map(held).chain(unmatched).collect()
}

/// What is put, for people: the limits, and whether the matcher changed. The matcher itself is not
/// shown, as it may contain values of payloads.
fn put_deed(name: &str, before: Option<&Constraint>, rule: &Constraint) -> Deed {
    let is_new = before.is_none().then(|| "new".to_owned());
    let matches = before.is_some_and(|before| before.matcher != rule.matcher);
    let matcher = matches.then(|| "another matcher".to_owned());
    let rate = rule
        .rate
        .map(|Rate { count, per_ms, burst }| format!("{count} per {per_ms} ms, {burst} at once"));
    let running_max = rule.running_max.map(|max| format!("running_max {max}"));
    let said: Vec<String> = [is_new, matcher, rate, running_max].into_iter().flatten().collect();
    Deed::to_constraint(Action::PutConstraint, name, said.join(", "))
}

impl Inner {
    fn constraint_named(&self, name: &str) -> Option<&Constraint> {
        self.state.constraints().find(|rule| rule.name == name.as_bytes())
    }

    fn check_expected(
        &self,
        found: Option<&Constraint>,
        expected: Expected,
    ) -> Result<(), Rejection> {
        match (expected, found) {
            (Expected::Any, _) | (Expected::Nothing, None) => Ok(()),
            (Expected::Nothing, Some(_)) => Err(Rejection::Stale),
            (Expected::Revision(_), None) => Err(Rejection::NoConstraint),
            (Expected::Revision(wanted), Some(rule)) => {
                let is = self.state.constraint_revision(rule.number);
                if is == Some(wanted) { Ok(()) } else { Err(Rejection::Stale) }
            }
        }
    }

    fn put_constraint(
        &mut self,
        audit: &mut Audit,
        name: &str,
        matcher: &Bytes,
        (spec, scope): (&ConstraintSpec, LimitScope),
        expected: Expected,
    ) -> Result<PutConstraint, Rejection> {
        let before = self.constraint_named(name).cloned();
        self.check_expected(before.as_ref(), expected)?;
        let rule = Constraint {
            number: before.as_ref().map_or(0, |rule| rule.number),
            name: Bytes::copy_from_slice(name.as_bytes()),
            matcher: matcher.clone(),
            rate: spec.rate,
            running_max: spec.running_max,
        };
        // A constraint that the core refuses is refused even if the same one is there already.
        if before.as_ref() == Some(&rule) && !self.state.spans_shards(&rule, scope) {
            let revision = self.state.constraint_revision(rule.number).unwrap_or_default();
            return Ok(PutConstraint { created: false, revision });
        }
        let created = before.is_none();
        let deed = put_deed(name, before.as_ref(), &rule);
        let revision = self.set_constraint(audit, deed, (rule, scope), before.as_ref())?;
        Ok(PutConstraint { created, revision })
    }

    /// Returns the constraint's revision. No job has to be matched again if the constraint matches
    /// as before, or if no unfinished job was there before it.
    fn set_constraint(
        &mut self,
        audit: &mut Audit,
        deed: Deed,
        (rule, scope): (Constraint, LimitScope),
        before: Option<&Constraint>,
    ) -> Result<u64, Rejection> {
        let matches_as_before = before.is_some_and(|before| before.matcher == rule.matcher);
        let was_done = self.state.is_relabelled();
        self.run_for(audit, deed, Some(Command::SetConstraint(rule, scope)), None)?;
        let revision = self.state.server().constraints_revision;
        let nobody = self.state.jobs_count() == self.state.finished_count();
        if (matches_as_before && was_done) || nobody {
            self.run(&Command::NoteRelabelled { revision, below: JobId(u64::MAX) }).ok();
        }
        Ok(revision)
    }
}
