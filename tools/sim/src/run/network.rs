//! Servers whose log is at the other end of a network, with several records on their way: records
//! arrive late, overtake each other or are lost, and so do their answers.

use std::sync::Arc;

use rand::Rng;
use spindle_engine::{Committed, Submitted};
use spindle_log::{FileLog, Log};
use spindle_testkit::{FlightLog, FlightStore, Weather};

use super::server::RECORD_BYTES_MAX;
use super::{Judged, Run};
use crate::faults::Planted;

/// So many records end a run, which a trim drops whole.
const RUN_RECORDS: usize = 24;
/// Steps of the two threads between two commands, at most.
const STEPS_MAX: u32 = 5;

/// What a seed's network does.
const WEATHERS: [Weather; 3] = [
    Weather::CALM,
    Weather { overtaken: 60, lost_records: 15, lost_answers: 30, given_up: 15, ..Weather::CALM },
    Weather { overtaken: 250, lost_records: 60, lost_answers: 90, given_up: 60, ..Weather::CALM },
];

/// The other end, and what leads there.
pub struct Network {
    store: FlightStore,
    seed: u64,
    places: usize,
    weather: Weather,
    /// The writer of now, or the last one.
    writer: Option<Arc<FlightLog>>,
}

/// A log that a server runs on.
#[derive(Clone)]
pub enum OpenLog {
    File(Arc<FileLog>),
    Flight(Arc<FlightLog>),
}

impl OpenLog {
    pub fn shared(&self) -> Arc<dyn Log> {
        match self {
            OpenLog::File(log) => log.clone(),
            OpenLog::Flight(log) => log.clone(),
        }
    }

    pub fn as_log(&self) -> &dyn Log {
        match self {
            OpenLog::File(log) => &**log,
            OpenLog::Flight(log) => &**log,
        }
    }

    /// The file log, which alone has files that can be lost or rot.
    pub fn as_file(&self) -> Option<&FileLog> {
        match self {
            OpenLog::File(log) => Some(log),
            OpenLog::Flight(_) => None,
        }
    }
}

impl Network {
    pub fn new(seed: u64, planted: Planted) -> Network {
        let weather = WEATHERS[(seed % 3) as usize];
        let acks_out_of_order = planted.engine.acknowledged_out_of_order;
        Network {
            store: FlightStore::new(RUN_RECORDS, RECORD_BYTES_MAX),
            seed,
            places: [2, 4, 16][(seed / 3 % 3) as usize],
            // Answers out of order are not combined with answers given up, which could not be asked
            // for again.
            weather: if acks_out_of_order {
                Weather { acks_out_of_order, ..Weather::CALM }
            } else {
                weather
            },
            writer: None,
        }
    }

    pub fn open(&mut self) -> Arc<FlightLog> {
        self.seed = self.seed.wrapping_add(1);
        let writer = Arc::new(self.store.open(self.seed, self.places, self.weather));
        self.writer = Some(writer.clone());
        writer
    }

    pub fn store(&self) -> &FlightStore {
        &self.store
    }

    /// The writer is gone, and any subset of its records on their way arrives. Returns how many
    /// records it had submitted without an answer, and how many of them have arrived since.
    pub fn crash(&self) -> (usize, u64) {
        let Some(writer) = &self.writer else { return (0, 0) };
        let before = self.store.end();
        writer.crash();
        (writer.on_their_way(), self.store.end().0 - before.0)
    }
}

impl Run {
    /// Some steps of the threads that submit and take answers, so that records are on their way while
    /// others are decided.
    pub(super) fn fly(&mut self) -> Judged {
        for _ in 0..self.rng.random_range(1..=STEPS_MAX) {
            let engine = self.server.engine();
            if self.rng.random_ratio(3, 5) {
                if engine.submit_once() == Submitted::Failed {
                    break;
                }
            } else {
                let outcome = engine.take_ack_once();
                self.counts.lost_answers += u64::from(outcome == Committed::Unknown);
                if outcome == Committed::Failed {
                    break;
                }
            }
            self.let_timers_go_on()?;
        }
        self.history.prune(self.server.durable());
        Ok(())
    }

    /// A server whose log is at the other end of a network is gone.
    pub(super) fn lose_writer(&mut self) -> Judged {
        if let Some(failure) = self.server.engine().failure().filter(|_| self.server.is_powered()) {
            return Err(format!("the engine failed, and nothing was wrong: {failure}"));
        }
        let (on_their_way, arrived) = self.server.crash_writer();
        self.counts.flying_crashes += u64::from(on_their_way > 1);
        self.counts.flying_parts += u64::from(arrived > 0 && arrived < on_their_way as u64);
        Ok(())
    }
}
