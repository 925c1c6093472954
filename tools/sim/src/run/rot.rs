//! Payloads that are damaged on the disk while no server runs: at the next start their jobs are
//! dead, and nothing else differs.

use std::collections::BTreeSet;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spindle_core::{BytesRef, Found, JobId, State};
use spindle_log::{FileLog, Log, Position};

use super::Run;

/// Shorter payloads may look like each other.
const BYTES_MIN: u32 = 64;

/// What has rotted.
#[derive(Debug)]
pub(super) struct Rot {
    /// Separate from the run's generator, so that rot changes as little else as possible.
    rng: ChaCha8Rng,
    /// Position and offset of payloads.
    places: BTreeSet<(u64, u32)>,
    /// Jobs that the start under way finds with such a payload, by number.
    pub dying: Vec<u64>,
}

impl Rot {
    pub fn new(seed: u64) -> Rot {
        let rng = ChaCha8Rng::seed_from_u64(seed ^ 0x20_77e2);
        Rot { rng, places: BTreeSet::new(), dying: Vec::new() }
    }
}

/// Unfinished jobs and where their payloads are.
fn payloads(state: &State) -> impl Iterator<Item = (u64, BytesRef)> {
    state.jobs_from(JobId(0)).filter_map(|found| match found {
        Found::Live(job) if !job.is_foreground() => Some((job.id().0, job.payload())),
        _ => None,
    })
}

impl Run {
    /// Called before a start on this log, whose fold is `state`: perhaps damages one more payload,
    /// and notes which jobs the start will find with a damaged one.
    pub(super) fn let_rot(&mut self, log: &FileLog, state: &State) {
        // On a full disk there may be no room for the events of dead jobs.
        if !self.server.is_limited() && self.rot.rng.random_ratio(1, 2) {
            self.rot_one(log, state);
        }
        let is_rotten =
            |place: &BytesRef| self.rot.places.contains(&(place.position, place.offset));
        self.rot.dying =
            payloads(state).filter(|(_, place)| is_rotten(place)).map(|(id, _)| id).collect();
    }

    /// Whether a payload in this record has rotted.
    pub(super) fn has_rotten(&self, position: u64) -> bool {
        self.rot.places.iter().any(|(at, _)| *at == position)
    }

    fn rot_one(&mut self, log: &FileLog, state: &State) {
        // A record that nothing proves to have been synced would be cut: one in a segment that was
        // ended has been.
        let is_closed = |position| log.segment_end_before(Position(position)).is_some();
        // Flipping the same bit again would repair a payload that a failed start has left rotten.
        let is_sound =
            |place: &BytesRef| !self.rot.places.contains(&(place.position, place.offset));
        let long: Vec<BytesRef> = payloads(state)
            .map(|(_, place)| place)
            .filter(|place| place.len >= BYTES_MIN && is_closed(place.position))
            .filter(is_sound)
            .collect();
        if long.is_empty() {
            return;
        }
        let BytesRef { position, offset, .. } = long[self.rot.rng.random_range(0..long.len())];
        let Ok(bytes) = log.read_at(Position(position), offset, BYTES_MIN) else { return };
        let disk = &self.server.disk;
        let segments = disk.names().into_iter().filter(|name| name.ends_with(".segment"));
        let Some(name) = segments.filter(|name| **name <= *format!("{position:020}.t")).max()
        else {
            return;
        };
        let Some(contents) = disk.contents(&name) else { return };
        let mut found = contents.windows(bytes.len()).enumerate().filter(|(_, at)| *at == bytes);
        if let (Some((at, _)), None) = (found.next(), found.next()) {
            let byte = self.rot.rng.random_range(0..bytes.len());
            disk.flip_bit(&name, at + byte, self.rot.rng.random_range(0..8));
            self.rot.places.insert((position, offset));
            self.counts.rotten += 1;
        }
    }
}
