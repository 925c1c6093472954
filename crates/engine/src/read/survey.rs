//! A summary of a log for people: its records folded without a server.

use std::collections::BTreeMap;

use bytes::Bytes;
use spindle_core::{Event, JobId, Place, State, Status};
use spindle_log::Stored;

use crate::commit::record::{RecordError, RecordReader, VERSION};
use crate::damage::{DamageFinder, DamagedJob};
use crate::options::Options;

/// Folds records handed to it, oldest first. Nothing is decided and nothing becomes due: the result
/// is what the last record left.
#[derive(Debug)]
pub struct Survey {
    state: State,
    damage: DamageFinder,
    oldest_ms: Option<u64>,
    newest_ms: Option<u64>,
    /// The queues of jobs in records that were not folded.
    queues_beside: BTreeMap<JobId, Bytes>,
}

/// What an event says, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventSummary {
    /// Its name.
    pub event: &'static str,
    /// The jobs it is about.
    pub jobs: Vec<JobId>,
    /// Their queue, as far as it is known, or the queue it is about.
    pub queue: Option<Bytes>,
}

/// What there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Queues that have a job, finished ones included, or settings.
    pub queues: usize,
    /// Jobs by the number of their status.
    pub jobs: [usize; Status::ALL.len()],
    /// Finished jobs that are kept: those done and those dead.
    pub finished: usize,
    /// The time of the oldest record, if there is one.
    pub oldest_ms: Option<u64>,
    /// The time of the newest record, if there is one.
    pub newest_ms: Option<u64>,
    /// The epoch of the server that wrote last: how often one has started on this log.
    pub epoch: u64,
}

impl Survey {
    /// Nothing yet.
    pub fn new(options: &Options) -> Survey {
        let state = State::new(options.seed, options.defaults.clone());
        Survey {
            state,
            damage: DamageFinder::default(),
            oldest_ms: None,
            newest_ms: None,
            queues_beside: BTreeMap::new(),
        }
    }

    /// Folds the next record. After an error the survey is of no more use: a part of the record may
    /// be folded.
    pub fn record(&mut self, stored: Stored) -> Result<(), RecordError> {
        self.damage.record(&stored);
        let position = stored.position.0;
        let reader = RecordReader::knowing(VERSION, stored.bytes)?;
        let now_ms = reader.now_ms;
        reader.for_each_event(|event, offset| {
            let place = Place { position, offset };
            self.damage.event(&event, place);
            self.state.evolve(&event, place);
            true
        })?;
        self.oldest_ms.get_or_insert(now_ms);
        self.newest_ms = Some(now_ms);
        Ok(())
    }

    /// What a record says that is not to be folded. Such records come in their order, behind those that are.
    pub fn summaries(&mut self, stored: Stored) -> Result<Vec<EventSummary>, RecordError> {
        let mut summaries = Vec::new();
        RecordReader::knowing(VERSION, stored.bytes)?.for_each_event(|event, _| {
            summaries.push(self.summary(&event));
            true
        })?;
        Ok(summaries)
    }

    fn summary(&mut self, event: &Event) -> EventSummary {
        let named = match event {
            Event::QueueSet(set) => Some(set.name.clone()),
            Event::Edited(edited) => edited.queue.clone(),
            _ => event.image().map(|image| image.queue.clone()),
        };
        let jobs = jobs_of(event);
        if let (&[id], Some(queue)) = (&jobs[..], &named) {
            self.queues_beside.insert(id, queue.clone());
        }
        let queue = named.or_else(|| self.queue_of(*jobs.first()?));
        EventSummary { event: event.name(), jobs, queue }
    }

    fn queue_of(&self, id: JobId) -> Option<Bytes> {
        let beside = self.queues_beside.get(&id).cloned();
        beside.or_else(|| {
            self.state.job(id).and_then(|job| Some(self.state.queue_of(&job)?.name().clone()))
        })
    }

    /// The jobs whose bytes are damaged, by their numbers.
    pub fn damaged(&self) -> Vec<DamagedJob> {
        self.damage.jobs(&self.state)
    }

    /// What the records so far come to.
    pub fn counts(&self) -> Counts {
        let mut jobs = [0; Status::ALL.len()];
        for queue in self.state.queues_from(b"", false) {
            for (sum, count) in jobs.iter_mut().zip(queue.counts) {
                *sum += count;
            }
        }
        Counts {
            queues: self.state.queues_count(),
            jobs,
            finished: self.state.finished_count(),
            oldest_ms: self.oldest_ms,
            newest_ms: self.newest_ms,
            epoch: self.state.server().epoch,
        }
    }
}

/// The jobs that an event is about.
pub(crate) fn jobs_of(event: &Event) -> Vec<JobId> {
    let id = match event {
        Event::Gone(gone) => return gone.ids.iter().copied().map(JobId).collect(),
        Event::Leased(leased) => leased.id,
        Event::Extended(extended) => extended.id,
        Event::Requeued(requeued) => requeued.id,
        Event::Edited(edited) => edited.id,
        Event::ResultRead(read) => read.id,
        Event::StateSet(set) => set.id,
        Event::Relabelled(relabelled) => relabelled.id,
        Event::Ready(ready) => ready.id,
        Event::PageMoved(moved) => moved.id,
        Event::Deleted(deleted) => deleted.id,
        Event::Undeleted(undeleted) => undeleted.id,
        Event::BlockerEnded(ended) => ended.id,
        _ => match event.image() {
            Some(image) => image.id,
            None => return Vec::new(),
        },
    };
    vec![JobId(id)]
}
