//! What a log comes to, for people: its records folded without a server.

use spindle_core::{Place, State, Status};
use spindle_log::Stored;

use crate::commit::record::{RecordError, RecordReader};
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
        Survey { state, damage: DamageFinder::default(), oldest_ms: None, newest_ms: None }
    }

    /// Folds the next record. After an error the survey is of no more use: a part of the record may
    /// be folded.
    pub fn record(&mut self, stored: Stored) -> Result<(), RecordError> {
        self.damage.record(&stored);
        let position = stored.position.0;
        let reader = RecordReader::new(stored.bytes)?;
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
