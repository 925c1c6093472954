//! Seeded crashes: whatever the power cut leaves, the log has all acknowledged records and a prefix
//! of those submitted after them.

mod common;

use std::{collections::BTreeMap, time::Duration};

use spindle_log::{
    Ack, Faults, FileLog, FileLogOptions, Log, OpenError, Position, Record, SubmitError, SyncPolicy,
};
use spindle_testkit::disk::SimDisk;

use common::{open_shown, small, with_sync};

/// What a checker outside the log knows of it.
#[derive(Default)]
struct Model {
    /// Submitted, and not lost in an earlier crash.
    submitted: BTreeMap<Position, Record>,
    /// Below this, everything must be there.
    durable: Position,
    /// A finished trim.
    trimmed: Position,
    nonce: u64,
}

/// A small generator apart from the disk's own.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % limit
    }
}

impl Model {
    fn record(&mut self, random: &mut Random) -> Record {
        self.nonce += 1;
        // Few sizes, so that frames of different times often have the same places.
        let sizes = [24, 24, 24, 24, 120, 600, 1500];
        let mut bytes = self.nonce.to_string().into_bytes();
        bytes.resize(sizes[random.below(7) as usize], 7);
        Record { epoch: self.nonce, bytes: bytes.into() }
    }

    /// Judges what a reopened log says, and takes over what it says where it was free to.
    fn check(&mut self, log: &FileLog) -> Result<(), String> {
        let (first, next) = (log.first(), log.next());
        if next < self.durable {
            return Err(format!("ends at {next}, but all below {} was durable", self.durable));
        }
        if first < self.trimmed {
            return Err(format!("begins at {first}, but was trimmed to {}", self.trimmed));
        }
        let mut position = first;
        for stored in log.read(first).map_err(|error| error.to_string())? {
            let stored = stored.map_err(|error| error.to_string())?;
            if stored.position != position {
                return Err(format!("{} follows {position}", stored.position));
            }
            match self.submitted.get(&position) {
                Some(record) if record.bytes == stored.bytes && record.epoch == stored.epoch => {}
                Some(_) => return Err(format!("record {position} is another one: a ghost")),
                None => return Err(format!("record {position} was never submitted: a ghost")),
            }
            position = position.next();
        }
        if position != next {
            return Err(format!("reads up to {position}, but says {next}"));
        }
        self.submitted.split_off(&next);
        self.durable = next;
        self.trimmed = first;
        Ok(())
    }

    /// Uses the log until it fails or there is no more to do.
    fn work(&mut self, log: &FileLog, random: &mut Random, always: bool) {
        let mut unanswered = 0;
        for _ in 0..random.below(80) {
            match random.below(11) {
                0..=5 => {
                    let (at, record) = (log.next(), self.record(random));
                    match log.submit(at, &record) {
                        Ok(()) => {
                            self.submitted.insert(at, record);
                            unanswered += 1;
                        }
                        Err(SubmitError::Full | SubmitError::Poisoned(_)) => break,
                        Err(error) => panic!("{error}"),
                    }
                }
                6..=7 => {
                    while unanswered > 0 {
                        let Ack::Committed(position) = log.next_ack() else { return };
                        unanswered -= 1;
                        if always {
                            assert!(position < log.synced_upto(), "answered before the sync");
                            self.durable = self.durable.max(position.next());
                        }
                    }
                }
                8 => log.maintain(),
                9 if unanswered == 0 => {
                    if log.end().is_err() {
                        return;
                    }
                    self.durable = log.next();
                }
                _ => {
                    let span = log.next().0 - log.first().0;
                    let to = Position(log.first().0 + random.below(span + 1));
                    if log.trim_before(to).is_err() {
                        return;
                    }
                    self.trimmed = self.trimmed.max(log.first());
                }
            }
            self.durable = self.durable.max(log.synced_upto());
        }
    }
}

/// One life of a log through many crashes. `Err` tells what it did wrong.
fn live(seed: u64, options: &FileLogOptions) -> Result<(), String> {
    let disk = SimDisk::new(seed);
    let mut random = Random(seed);
    let mut model = Model::default();
    for _ in 0..12 {
        // Often the power goes during the start itself, or in the middle of the work.
        if random.below(4) > 0 {
            disk.cut_power_after(random.below(90));
        }
        match open_shown(&disk, options.clone()) {
            // The power went while the first spare was made, which is no reason not to start.
            Ok(_) if !disk.is_powered() => disk.crash(),
            Ok(log) => {
                model.check(&log).map_err(|error| format!("seed {seed}: {error}"))?;
                model.work(&log, &mut random, options.sync == SyncPolicy::Always);
                let killed = random.below(5) == 0;
                if killed && disk.is_powered() { disk.kill() } else { disk.crash() }
            }
            Err(OpenError::Failed { .. }) if !disk.is_powered() => disk.crash(),
            Err(error) => return Err(format!("seed {seed}: {error}")),
        }
    }
    Ok(())
}

const SEEDS: u64 = 400;

#[test]
fn what_was_acknowledged_survives_power_cuts() {
    for seed in 0..SEEDS {
        live(seed, &small()).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn without_a_sync_what_survives_is_a_prefix_that_holds_what_was_synced() {
    for seed in 0..SEEDS / 2 {
        live(seed, &with_sync(SyncPolicy::Os)).unwrap_or_else(|error| panic!("{error}"));
        let interval = with_sync(SyncPolicy::Interval(Duration::ZERO));
        live(seed, &interval).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn an_end_that_is_believed_after_a_crash_is_found() {
    let faulty =
        FileLogOptions { faults: Faults { end_kept: true, ..Faults::default() }, ..small() };
    let refused = |seed| live(seed, &faulty).is_err_and(|error| error.contains("last stopped"));
    let found = (0..SEEDS).filter(|seed| refused(*seed)).count();
    assert!(
        found > 0,
        "no crash of {SEEDS} seeds was behind an end: the tests above prove nothing"
    );
}

#[test]
fn ghosts_are_found_when_a_cut_tail_is_left_standing() {
    let faulty =
        FileLogOptions { faults: Faults { tail_left: true, ..Faults::default() }, ..small() };
    let ghost = |seed| live(seed, &faulty).is_err_and(|error| error.ends_with("a ghost"));
    // Ghosts are rare: two records of one size have to meet at one place.
    let seeds = 10 * SEEDS;
    assert!((0..seeds).any(ghost), "the crashes of {seeds} seeds left no ghost");
}
