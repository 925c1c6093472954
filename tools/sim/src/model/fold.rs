//! Whether two states of the core are the same, as far as the log goes.

use std::collections::BTreeSet;

use spindle_core::job::Label;
use spindle_core::state::Server;
use spindle_core::{Found, JobId, State};

/// Names the first difference in what is logged: jobs, buckets, queues, the server.
pub fn fold_difference(was: &State, is: &State, now_ms: u64) -> Result<(), String> {
    let logged = |found: &Found<'_>| found.oldest_record().is_some();
    let ids = |state: &State| {
        state.jobs_from(JobId(0)).filter(logged).map(|job| job.id()).collect::<Vec<_>>()
    };
    if ids(was) != ids(is) {
        return Err(format!("the fold has jobs {:?} for {:?}", ids(is), ids(was)));
    }
    let mut labels = BTreeSet::new();
    for id in ids(was) {
        let (before, after) = (was.job(id), is.job(id));
        let records = |found: Option<Found<'_>>| found.map(|job| (job.oldest_record(), job.last()));
        let (old, new) = (was.image(id), is.image(id));
        if old != new || records(before) != records(after) {
            return Err(format!("the fold gives {after:?}, {new:?} for {before:?}, {old:?}"));
        }
        labels.extend(old.iter().flat_map(|image| image.options().labels.iter().copied()));
    }
    compare_buckets(was, is, &labels, now_ms)?;
    let rules = |state: &State| state.constraints().cloned().collect::<Vec<_>>();
    if rules(was) != rules(is) {
        return Err(format!("the fold has constraints {:?} for {:?}", rules(is), rules(was)));
    }
    let unmatched = |state: &State| {
        let numbers = state.constraints().map(|rule| rule.number);
        numbers.map(|number| state.unmatched_below(number)).collect::<Vec<_>>()
    };
    if unmatched(was) != unmatched(is) {
        return Err(format!("the fold has {:?} unmatched for {:?}", unmatched(is), unmatched(was)));
    }
    let audit = |state: &State| state.audit_entries(u64::MAX, now_ms).cloned().collect::<Vec<_>>();
    if audit(was) != audit(is) {
        return Err(format!("the fold has audited {:?} for {:?}", audit(is), audit(was)));
    }
    let schedules = |state: &State| {
        let all = state.schedules(None);
        let all = all.map(|view| (view.schedule.clone(), view.progress.clone()));
        (all.collect::<Vec<_>>(), state.next_firing(), state.schedules_bytes())
    };
    if schedules(was) != schedules(is) {
        return Err(format!("the fold has {:?} for {:?}", schedules(is), schedules(was)));
    }
    let batches = |state: &State| {
        let members = |id| state.members(JobId(id), JobId(0)).collect::<Vec<_>>();
        let all = state.batches_from(JobId(0)).map(|batch| (batch.clone(), members(batch.id)));
        all.collect::<Vec<_>>()
    };
    if batches(was) != batches(is) {
        return Err(format!("the fold has {:?} for {:?}", batches(is), batches(was)));
    }
    // Foreground jobs take order numbers too, and leave no trace.
    let server = |state: &State| Server { next_order: 0, ..state.server().clone() };
    if server(was) != server(is) {
        return Err(format!("the fold gives {:?} for {:?}", is.server(), was.server()));
    }
    Ok(())
}

/// Levels of buckets; who runs and waits is counted from the jobs.
fn compare_buckets(
    was: &State,
    is: &State,
    labels: &BTreeSet<Label>,
    now_ms: u64,
) -> Result<(), String> {
    for label in labels {
        let level = |state: &State| {
            let rule = state.constraints().find(|rule| rule.number == label.constraint)?;
            Some(state.bucket(*label)?.level_at(rule, now_ms))
        };
        let (before, after) = (level(was), level(is));
        if before.zip(after).is_some_and(|(before, after)| before != after) {
            return Err(format!("the fold gives {label:?} {after:?} for {before:?}"));
        }
    }
    Ok(())
}
