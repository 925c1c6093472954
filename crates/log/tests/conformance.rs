//! Every log of this crate keeps the contract.

mod common;

use std::{sync::Arc, time::Duration};

use spindle_log::{FileLog, FileLogOptions, Log, MemoryLog, SyncPolicy, disk::RealDisk};
use spindle_testkit::{FlightStore, Weather, disk::SimDisk, log_conformance};

use common::{small, with_sync};

fn check_simulated(options: &FileLogOptions) {
    let mut seed = 0;
    log_conformance::run(&mut || {
        seed += 1;
        let disk = Arc::new(SimDisk::new(seed));
        Arc::new(FileLog::open(disk, options.clone()).expect("an empty folder")) as Arc<dyn Log>
    });
}

#[test]
fn the_memory_log_conforms() {
    log_conformance::run(&mut || Arc::new(MemoryLog::with_run_records(64)));
    log_conformance::run(&mut || Arc::new(MemoryLog::new()));
}

#[test]
fn the_file_log_conforms_with_each_sync_policy() {
    check_simulated(&small());
    check_simulated(&with_sync(SyncPolicy::Os));
    check_simulated(&with_sync(SyncPolicy::Interval(Duration::from_millis(1))));
}

#[test]
fn the_file_log_conforms_with_its_threads() {
    check_simulated(&FileLogOptions { background: true, ..small() });
    let interval = SyncPolicy::Interval(Duration::from_millis(1));
    check_simulated(&FileLogOptions { background: true, ..with_sync(interval) });
}

#[test]
fn the_file_log_conforms_in_a_directory() {
    let parent = tempfile::tempdir().expect("a directory");
    let mut nth = 0;
    for direct in [false, true] {
        log_conformance::run(&mut || {
            nth += 1;
            let path = parent.path().join(nth.to_string());
            let disk = RealDisk::create_or_open(path).expect("a new directory");
            let disk = disk.with_direct_access(direct);
            let options = FileLogOptions { segment_bytes: 64 * 1024, ..FileLogOptions::default() };
            Arc::new(FileLog::open(Arc::new(disk), options).expect("an empty folder"))
        });
    }
}

/// The test double of a log behind a network keeps the contract, too, so tests on it are valid for others.
#[test]
fn a_log_behind_a_network_conforms() {
    let weather = Weather::CALM;
    for places in [2, 16] {
        log_conformance::run(&mut || {
            Arc::new(FlightStore::new(64, 20 * 1024).open(1, places, weather))
        });
    }
    let mut seed = 0;
    for _ in 0..20 {
        log_conformance::run_shared(&mut || {
            seed += 1;
            let store = FlightStore::new(64, 20 * 1024);
            [seed, seed + 1].map(|seed| Arc::new(store.open(seed, 4, weather)) as Arc<dyn Log>)
        });
    }
}
