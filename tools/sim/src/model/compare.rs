//! Comparing the model with a state of the core.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use spindle_core::job::{Attempt, Deletion};
use spindle_core::{Found, JobId, JobImage, State, Status};

use super::tick::goes_ms;
use super::{Model, uuid_key};

/// Compares fields of two values, and what their methods say.
macro_rules! same_fields {
    ($id:expr => $model:ident, $core:ident; $($field:ident $(.$more:ident)? $(($($none:tt)?))?),*) => {
        $(same(
            $id,
            stringify!($field),
            &$model.$field $(.$more)? $(($($none)?))?,
            &$core.$field $(.$more)? $(($($none)?))?,
        )?;)*
    };
}

impl Model {
    /// Names the first difference between this and a state of the core.
    pub fn compare(&self, state: &State, now_ms: u64) -> Result<(), String> {
        for found in state.jobs_from(JobId(0)) {
            self.compare_job(found.id(), state)?;
        }
        if let Some(id) = self.jobs.keys().find(|id| state.job(JobId(**id)).is_none()) {
            self.compare_job(JobId(*id), state)?;
        }
        self.compare_keys(state)?;
        self.compare_queues(state)?;
        self.compare_audit(state, now_ms)?;
        self.compare_schedules(state)?;
        self.compare_batches(state)?;
        self.compare_server(state)
    }

    /// One of these, with each job in the version that a state has, if it has one of them.
    pub fn in_part(&self, versions: &[Model], state: &State) -> Model {
        let (Some(first), Some(last)) = (versions.first(), versions.last()) else {
            return Model::default();
        };
        let mut part = self.clone();
        part.jobs.clear();
        let ids: BTreeSet<u64> = first.jobs.keys().chain(last.jobs.keys()).copied().collect();
        for id in ids {
            let is_same = |one: &&Model| one.compare_job(JobId(id), state).is_ok();
            let same = versions.iter().find(is_same).unwrap_or(last);
            part.jobs.extend(same.jobs.get(&id).map(|job| (id, job.clone())));
        }
        for (id, batch) in &first.batches {
            if state.batch(JobId(*id)).is_some() {
                part.batches.entry(*id).or_insert_with(|| batch.clone());
            }
        }
        part.count_batches(part.latest_ms);
        part
    }

    /// Names the first difference between a job here and in a state, or that one of them has none.
    pub fn compare_job(&self, id: JobId, state: &State) -> Result<(), String> {
        match (self.job(id), state.job(id)) {
            (None, None) => Ok(()),
            (None, Some(found)) => {
                Err(format!("job {id} is {:?}, and should be gone", found.status()))
            }
            (lost @ Some(_), None) => Err(format!("{lost:?} should be there, and is not")),
            (Some(job), Some(Found::Live(_))) => {
                compare_live(job, &state.image(id).ok_or("a live job has no image")?)
            }
            (Some(job), Some(Found::Finished(finished))) => {
                same(id.0, "status", &job.status(), &finished.status())?;
                same(id.0, "kept_until_ms", &job.kept_until_ms, &finished.retained_until_ms())?;
                same(id.0, "goes_ms", &goes_ms(job), &finished.kept_until_ms())?;
                let request = |deletion: &Deletion| deletion.request;
                let deleted_by = job.options().deletion.as_deref().map(request);
                same(id.0, "deletion", &deleted_by, &finished.deletion().as_ref().map(request))
            }
        }
    }

    /// Names the first difference between a job here and its image.
    pub fn compare_image(&self, id: JobId, image: &JobImage) -> Result<(), String> {
        let Some(job) = self.job(id) else { return Err(format!("job {id} should be gone")) };
        if !job.status().is_finished() {
            return compare_live(job, image);
        }
        same_fields!(id.0 => job, image; status(), queue, attempts, fails, kept_until_ms);
        compare_ends(job, image)
    }

    fn compare_keys(&self, state: &State) -> Result<(), String> {
        let keys: BTreeSet<_> =
            self.jobs().flat_map(|job| job.options().keys.iter().cloned()).collect();
        for key in keys {
            let found = state.job_by_key(&key).map(|found| found.id());
            let holder = self.key_holder(&key);
            if found != holder {
                return Err(format!("key {key:?} should name {holder:?} and names {found:?}"));
            }
        }
        Ok(())
    }

    fn compare_queues(&self, state: &State) -> Result<(), String> {
        let mut counts: BTreeMap<Bytes, [usize; 7]> = BTreeMap::new();
        for name in self.queues.keys() {
            counts.entry(name.clone()).or_default();
        }
        for job in self.jobs() {
            counts.entry(job.queue.clone()).or_default()[job.status as usize] += 1;
        }
        let listed: Vec<_> = state.queues_from(b"", false).collect();
        let names: Vec<_> = listed.iter().map(|queue| &queue.name).collect();
        if !names.iter().copied().eq(counts.keys()) {
            return Err(format!("queues should be {:?} and are {names:?}", counts.keys()));
        }
        for queue in &listed {
            let name = &queue.name;
            if queue.counts != counts[name] || queue.paused != self.settings(name).paused {
                return Err(format!("{queue:?} should count {:?}", counts[name]));
            }
            let ready: Vec<u64> = state.ready_jobs(name, 0).map(|job| job.id().0).collect();
            let expected: Vec<u64> = self.ready(name).iter().map(|job| job.id).collect();
            let rank = |id: &u64| self.job(JobId(*id)).map(|job| self.rank(job));
            let (mut ready, mut expected) = (ready, expected);
            if self.is_fair(name) {
                // The order of turns shows only in leases.
                ready.sort_unstable();
                expected.sort_unstable();
            }
            if !ready.iter().map(rank).eq(expected.iter().map(rank)) {
                return Err(format!("{name:?} should give {expected:?} and gives {ready:?}"));
            }
        }
        Ok(())
    }

    fn compare_server(&self, state: &State) -> Result<(), String> {
        let server = state.server();
        let relabelled = (server.relabelled_revision, server.relabelled_below);
        same(0, "relabelled", &self.relabelled, &relabelled)?;
        let ids_until = self.ids_until.unwrap_or(server.ids_until);
        same(0, "ids_until", &ids_until, &server.ids_until)?;
        same_fields!(0 => self, server; epoch, next_constraint, constraints_revision, format,
            last_audit);
        self.compare_places(state)?;
        self.compare_consumers(state)?;
        let below = |number: &u32| self.stops.get(number).map_or(0, |(below, _)| *below);
        for number in self.rules.keys() {
            let unmatched = state.unmatched_below(*number);
            same(0, "unmatched_below", &(number, below(number)), &(number, unmatched))?;
        }
        let rules: Vec<_> = state.constraints().cloned().collect();
        if !rules.iter().eq(self.rules.values()) {
            return Err(format!("constraints should be {:?} and are {rules:?}", self.rules));
        }
        let labels: BTreeSet<_> =
            self.jobs().flat_map(|job| job.options().labels.iter().copied()).collect();
        for label in labels.iter().filter(|label| self.rules.contains_key(&label.constraint)) {
            let running = state.bucket(*label).map_or(0, |bucket| bucket.running());
            same(0, "running", &(label, self.running(*label)), &(label, running))?;
        }
        Ok(())
    }
}

/// Compares the reports of attempts that ended.
fn compare_ends(job: &JobImage, image: &JobImage) -> Result<(), String> {
    same(job.id, "outcome", &outcome_of(job), &outcome_of(image))?;
    same(job.id, "history", &history_of(job), &image.history.iter().collect())
}

/// Compares all but what only the core can know: order numbers and places of bytes.
fn compare_live(job: &JobImage, image: &JobImage) -> Result<(), String> {
    let id = job.id;
    same_fields!(id => job, image; status(), queue, priority, attempts, fails, lease, expires_ms(),
        created_ms, ttr_ms, foreground, revision);
    let (options, theirs) = (job.options(), image.options());
    same_fields!(id => options, theirs; attempts_max, fails_max, backoff, labels, state, events,
        pages.len(), keep_ms, deletion, after, fair_key, batch, waits_since_ms);
    compare_ends(job, image)?;
    let keys = |image: &JobImage| {
        let uuid = image.uuid().map(uuid_key);
        uuid.into_iter().chain(image.options().keys.iter().cloned()).collect::<BTreeSet<_>>()
    };
    same(id, "keys", &keys(job), &keys(image))?;
    let bytes = |image: &JobImage| image.payload.as_ref().map_or(0, |payload| payload.len);
    same(id, "payload", &bytes(job), &bytes(image))?;
    if job.status() == Status::Scheduled {
        same_fields!(id => options, theirs; run_at_ms);
    }
    Ok(())
}

/// The first and the last 16 attempts of all that there were.
fn history_of(job: &JobImage) -> Vec<&Attempt> {
    let all = &job.history;
    let middle = 16..all.len().saturating_sub(16);
    all.iter().enumerate().filter(|(at, _)| !middle.contains(at)).map(|(_, past)| past).collect()
}

fn outcome_of(image: &JobImage) -> Option<(bool, Option<u32>, [&Bytes; 3])> {
    let outcome = image.outcome.as_ref()?;
    let bytes = outcome.bytes.as_ref().map(|bytes| bytes.len);
    Some((outcome.success, bytes, [&outcome.message, &outcome.error, &outcome.code]))
}

fn same<T: PartialEq + std::fmt::Debug>(
    id: u64,
    what: &str,
    model: &T,
    core: &T,
) -> Result<(), String> {
    if model == core {
        return Ok(());
    }
    Err(format!("{what} of job {id} should be {model:?} and is {core:?}"))
}
