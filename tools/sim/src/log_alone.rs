//! The file log alone against a list: batches of records of few sizes, power cuts in the middle of
//! their writes, and what every next opening finds.
//!
//! Records of equal sizes make an old frame behind a cut tail dangerous: the next record of that
//! size ends just where the old frame begins.

use std::sync::Arc;

use bytes::Bytes;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spindle_log::{Ack, FileLog, FileLogOptions, Log, Position, Record, SyncPolicy};
use spindle_testkit::disk::SimDisk;

use crate::counts::Counts;
use crate::faults::Planted;

/// Batches of one seed.
const BATCHES: u32 = 60;
const SIZES: [usize; 3] = [40, 700, 1_500];

struct LogRun {
    rng: ChaCha8Rng,
    disk: SimDisk,
    planted: Planted,
    /// Every record of this life of the log, and how many of them were acknowledged.
    records: Vec<Bytes>,
    acknowledged: usize,
    written: u64,
    counts: Counts,
}

/// Runs a seed. Returns the fault that was found, or how often the power was cut.
pub fn run(seed: u64, planted: Planted) -> Result<Counts, String> {
    let mut run = LogRun {
        rng: ChaCha8Rng::seed_from_u64(seed ^ 0x106),
        disk: SimDisk::new(seed),
        planted,
        records: Vec::new(),
        acknowledged: 0,
        written: 0,
        counts: Counts::default(),
    };
    let mut log = run.open()?;
    for _ in 0..BATCHES {
        if run.rng.random_ratio(1, 3) {
            run.disk.cut_power_after(run.rng.random_range(0..3));
        }
        run.append_batch(&log);
        if !run.disk.is_powered() || run.rng.random_ratio(1, 6) {
            run.disk.crash();
            drop(log);
            run.counts.crashes += 1;
            log = run.open()?;
        }
    }
    Ok(run.counts)
}

impl LogRun {
    /// Opens the log and compares its records with the list.
    fn open(&mut self) -> Result<FileLog, String> {
        let options = FileLogOptions {
            sync: SyncPolicy::Always,
            segment_bytes: 64 * 1024,
            record_bytes_max: 4 * 1024,
            background: false,
            parts_of: spindle_log::no_parts,
            faults: self.planted.log,
        };
        let log = FileLog::open(Arc::new(self.disk.clone()), options)
            .map_err(|error| format!("the log does not open: {error}"))?;
        let found: Vec<Bytes> = log
            .read(Position(0))
            .map_err(|error| format!("the log does not read: {error}"))?
            .map(|stored| stored.map(|stored| Bytes::copy_from_slice(&stored.bytes)))
            .collect::<Result<_, _>>()
            .map_err(|error| format!("the log does not read: {error}"))?;
        if found.len() < self.acknowledged {
            let (left, acked) = (found.len(), self.acknowledged);
            return Err(format!("{left} records are left of {acked} acknowledged ones"));
        }
        if found.len() > self.records.len() || found[..] != self.records[..found.len()] {
            let at = found.iter().zip(&self.records).take_while(|(a, b)| a == b).count();
            return Err(format!("record {at} is not what was written there last"));
        }
        self.records.truncate(found.len());
        self.acknowledged = found.len();
        Ok(log)
    }

    fn append_batch(&mut self, log: &FileLog) {
        let size = SIZES[self.rng.random_range(0..SIZES.len())];
        let mut submitted = 0;
        for _ in 0..self.rng.random_range(1..5) {
            self.written += 1;
            let mut bytes = vec![0; size];
            bytes[..8].copy_from_slice(&self.written.to_le_bytes());
            let record = Record { epoch: 1, bytes: bytes.into() };
            if log.submit(log.next(), &record).is_ok() {
                self.records.push(record.bytes);
                submitted += 1;
                self.counts.commands += 1;
            }
        }
        for _ in 0..submitted {
            match log.next_ack() {
                Ack::Committed(_) => self.acknowledged += 1,
                _ => return,
            }
        }
    }
}
