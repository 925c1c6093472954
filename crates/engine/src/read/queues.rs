//! Queues: looking at them, listing them, and changing their settings.

use bytes::Bytes;
use spindle_core::audit::Action;
use spindle_core::job::{Backoff, Status};
use spindle_core::queue::QueueSettings;
use spindle_core::state::{JobView, Queue, QueueListing};
use spindle_core::{Command, JobId, JobImage, Rejection, State};

use crate::answer::Refused;
use crate::audit::{Deed, People};
use crate::gate::Gated;
use crate::inner::Inner;
use crate::views::Queues;

/// Jobs deleted in one hold of the lock.
const DELETES_PER_STEP: usize = 256;

/// A queue, as it is shown.
#[derive(Clone, PartialEq, Debug)]
pub struct QueueView {
    /// Its name, its jobs by status, and whether it is paused.
    pub listing: QueueListing,
    /// Its settings.
    pub settings: QueueSettings,
    /// Jobs that are deleted while that can be undone: they are among the parked, done and dead.
    pub deleted: usize,
    /// Bytes of the payloads of its unfinished jobs.
    pub payload_bytes: u64,
    /// When the job that is leased next was submitted; none if no job is ready.
    pub next_ready_ms: Option<u64>,
}

/// A queue's numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueLine {
    /// Its name.
    pub name: Bytes,
    /// Jobs scheduled, ready and leased.
    pub total: usize,
    /// Jobs leased.
    pub leased: usize,
    /// Jobs scheduled and ready with a priority above 0, of 0, and below 0.
    pub waiting: [usize; 3],
}

impl Queues<'_> {
    /// A queue's counts. A queue that only has waiting clients counts as empty.
    pub fn get(&self, name: &[u8]) -> Gated<Option<QueueListing>> {
        self.0.read(|inner| inner.listing(name))
    }

    /// A queue with its settings. A queue that only has waiting clients counts as empty.
    pub fn view(&self, name: &[u8]) -> Gated<Option<QueueView>> {
        self.0.read(|inner| Some(view_of(&inner.state, inner.listing(name)?)))
    }

    /// Those of some queues that have jobs or settings. For lists of bounded length.
    pub fn existing<'a>(&self, names: impl IntoIterator<Item = &'a Bytes>) -> Vec<Bytes> {
        let inner = self.0.enter();
        let names = names.into_iter().filter(|name| inner.state.queue(name).is_some());
        names.cloned().collect()
    }

    /// Queues in order of their names, those behind `after`: with jobs or settings, and those
    /// somebody waits for.
    pub fn list(&self, after: Option<&[u8]>, limit: usize) -> Gated<Vec<QueueListing>> {
        self.0.read(|inner| inner.queues_after(after).take(limit).collect())
    }

    /// Queues with jobs or settings in order of their names, those behind `after`. A list for
    /// people: it may be a moment ahead of the disk.
    pub fn page(&self, after: Option<&[u8]>, limit: usize) -> Vec<QueueListing> {
        self.each(after, limit, |_, listing| listing)
    }

    /// As [`Queues::page`], with settings and the next job of each.
    pub fn views(&self, after: Option<&[u8]>, limit: usize) -> Vec<QueueView> {
        self.each(after, limit, view_of)
    }

    /// As [`Queues::page`], with what waits by priority.
    pub fn lines(&self, after: Option<&[u8]>, limit: usize) -> Vec<QueueLine> {
        self.each(after, limit, line_of)
    }

    /// One queue's numbers; none if there is no such queue.
    pub fn line(&self, name: &[u8]) -> Option<QueueLine> {
        let inner = self.0.enter();
        let queue = inner.state.queues_from(name, false).next()?;
        (queue.name == name).then(|| line_of(&inner.state, queue))
    }

    fn each<T>(
        &self,
        after: Option<&[u8]>,
        limit: usize,
        show: impl Fn(&State, QueueListing) -> T,
    ) -> Vec<T> {
        let inner = self.0.enter();
        let listed = inner.state.queues_from(after.unwrap_or_default(), after.is_some());
        listed.take(limit).map(|queue| show(&inner.state, queue)).collect()
    }

    /// Ready jobs of a queue in the order they would be leased; none if there is no such queue.
    pub fn ready_jobs(
        &self,
        queue: &[u8],
        skip: usize,
        limit: usize,
    ) -> Gated<Option<Vec<JobImage>>> {
        self.0.read(|inner| inner.images(queue, inner.state.ready_jobs(queue, skip), limit))
    }

    /// Scheduled jobs of a queue, next one first; none if there is no such queue.
    pub fn scheduled_jobs(
        &self,
        queue: &[u8],
        skip: usize,
        limit: usize,
    ) -> Gated<Option<Vec<JobImage>>> {
        self.0
            .read(|inner| inner.images(queue, inner.state.scheduled_jobs(queue).skip(skip), limit))
    }

    /// When the job of a queue that is leased next was submitted; none if no job is ready.
    pub fn next_ready_ms(&self, queue: &[u8]) -> Option<u64> {
        next_ready_ms(&self.0.enter().state, queue)
    }

    /// Bytes of the payloads of a queue's unfinished jobs.
    pub fn payload_bytes(&self, queue: &[u8]) -> u64 {
        self.0.enter().state.queue(queue).map_or(0, Queue::payload_bytes)
    }
}

impl People<'_> {
    /// Changes a queue's settings, whatever else is set for it. One that is not there is made.
    pub fn change_queue(
        self,
        action: Action,
        name: &Bytes,
        change: impl Fn(&mut QueueSettings),
    ) -> Gated<Result<(), Refused>> {
        self.change_queue_seen(action, name, |_, settings| {
            change(settings);
            Ok(())
        })
    }

    /// As [`People::change_queue`], but `change` is also given whether the queue is there (has jobs,
    /// settings, or clients that wait for it), and may refuse. It runs without the lock, and again
    /// if the settings changed meanwhile.
    pub fn change_queue_seen(
        self,
        action: Action,
        name: &Bytes,
        change: impl Fn(bool, &mut QueueSettings) -> Result<(), Rejection>,
    ) -> Gated<Result<(), Refused>> {
        let People { engine, audit } = self;
        loop {
            let (is_there, before, gate) = {
                let inner = engine.enter();
                (inner.listing(name).is_some(), inner.settings(name), inner.tail())
            };
            let mut after = before.clone();
            match change(is_there, &mut after) {
                Ok(()) if after == before => return Gated::new(Ok(()), gate),
                Ok(()) => {}
                Err(rejection) => return Gated::new(Err(rejection.into()), gate),
            }
            let mut inner = engine.enter();
            if inner.settings(name) == before && inner.listing(name).is_some() == is_there {
                // A copy: the name may be a small part of a large read.
                let name = Bytes::copy_from_slice(name);
                let deed = Deed::to_queue(action, name.clone(), differences(&before, &after));
                let set = Command::SetQueue { name, settings: after };
                let set = inner.run_for(audit, deed, Some(set), None);
                engine.wake_relabelling(&inner);
                return inner.changed(set);
            }
        }
    }

    /// Deletes some of a queue's ready and scheduled jobs: at once, or so that it can be undone for
    /// some time. Returns how many: ask again until it is none.
    pub fn empty_queue(self, name: &[u8], undo_ms: u64) -> Gated<Result<usize, Refused>> {
        let People { engine, audit } = self;
        engine.change(|inner| {
            let ready = inner.state.ready_jobs(name, 0);
            let waiting = ready.chain(inner.state.scheduled_jobs(name));
            let ids: Vec<JobId> = waiting.take(DELETES_PER_STEP).map(|job| job.id()).collect();
            for id in &ids {
                inner.delete_job(audit, *id, Action::Purge, undo_ms).ok();
            }
            Ok(ids.len())
        })
    }
}

fn backoff_words(backoff: Backoff) -> String {
    let Backoff { base_ms, factor_thousandths, cap_ms, .. } = backoff;
    let factor = f64::from(factor_thousandths) / 1000.0;
    format!("backoff {base_ms} ms * {factor} up to {cap_ms} ms")
}

/// What of a queue's settings is another now, for people. The pause is an action of its own.
fn differences(before: &QueueSettings, after: &QueueSettings) -> String {
    let mut said = Vec::new();
    macro_rules! compare {
        ($($field:ident)*) => {
            $(if before.$field != after.$field {
                let name = stringify!($field);
                said.push(match &after.$field {
                    Some(value) => format!("{name} {value:?}"),
                    None => format!("no {name}"),
                });
            })*
        };
    }
    compare!(attempts_max fails_max ttr_default_ms keep_ms keep_dead_ms jobs_max finished_max);
    if before.backoff != after.backoff {
        said.push(after.backoff.map_or_else(|| "no backoff".to_owned(), backoff_words));
    }
    if before.bytes_type != after.bytes_type {
        said.push(match after.bytes_type {
            Some(_) => format!("bytes_type {:?}", after.bytes_type()),
            None => "no bytes_type".to_owned(),
        });
    }
    if before.jobs_max_by_class != after.jobs_max_by_class {
        said.push(format!("jobs_max_by_class {:?}", after.jobs_max_by_class));
    }
    said.join(", ")
}

impl Inner {
    pub(crate) fn listing(&self, name: &[u8]) -> Option<QueueListing> {
        match self.state.queue(name) {
            Some(queue) => Some(QueueListing {
                name: queue.name().clone(),
                counts: Status::ALL.map(|status| queue.count(status)),
                paused: queue.settings().paused,
            }),
            None if self.waiting.list.has_queue(name) => Some(empty(Bytes::copy_from_slice(name))),
            None => None,
        }
    }

    /// Images of a queue's jobs; none if there is no such queue.
    fn images<'a>(
        &'a self,
        queue: &[u8],
        jobs: impl Iterator<Item = JobView<'a>>,
        limit: usize,
    ) -> Option<Vec<JobImage>> {
        self.listing(queue)?;
        Some(jobs.take(limit).filter_map(|job| self.state.image(job.id())).collect())
    }

    fn settings(&self, name: &[u8]) -> QueueSettings {
        self.state.queue(name).map(|queue| queue.settings().clone()).unwrap_or_default()
    }

    /// Queues with jobs, settings or clients that wait for them, in order of their names.
    fn queues_after(&self, after: Option<&[u8]>) -> impl Iterator<Item = QueueListing> {
        let mut waited = self.waiting.list.queues(after).cloned().peekable();
        let mut kept =
            self.state.queues_from(after.unwrap_or_default(), after.is_some()).peekable();
        std::iter::from_fn(move || match (kept.peek(), waited.peek()) {
            (Some(queue), Some(name)) if *name < queue.name => waited.next().map(empty),
            (Some(queue), Some(name)) if *name == queue.name => {
                waited.next();
                kept.next()
            }
            (Some(_), _) => kept.next(),
            (None, _) => waited.next().map(empty),
        })
    }
}

fn empty(name: Bytes) -> QueueListing {
    QueueListing { name, counts: [0; Status::ALL.len()], paused: false }
}

fn view_of(state: &State, listing: QueueListing) -> QueueView {
    let queue = state.queue(&listing.name);
    let payload_bytes = queue.map_or(0, Queue::payload_bytes);
    let deleted = queue.map_or(0, Queue::deleted);
    let settings = queue.map(|queue| queue.settings().clone());
    let ready = listing.counts[Status::Ready as usize] > 0;
    let next_ready_ms = ready.then(|| next_ready_ms(state, &listing.name)).flatten();
    let settings = settings.unwrap_or_default();
    QueueView { settings, deleted, payload_bytes, next_ready_ms, listing }
}

fn next_ready_ms(state: &State, queue: &[u8]) -> Option<u64> {
    state.ready_jobs(queue, 0).next().map(|job| job.created_ms())
}

fn line_of(state: &State, queue: QueueListing) -> QueueLine {
    let count = |status: Status| queue.counts[status as usize];
    let leased = count(Status::Leased);
    let total = count(Status::Scheduled) + count(Status::Ready) + leased;
    let waiting = state.queue(&queue.name).map_or([0; 3], Queue::waiting);
    QueueLine { name: queue.name, total, leased, waiting }
}
