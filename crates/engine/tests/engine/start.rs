//! Folding a log while it is opened.

use std::sync::Arc;

use spindle_engine::{Engine, Options, StartError};
use spindle_log::OpenError;
use spindle_testkit::ManualClock;
use spindle_testkit::disk::SimDisk;

use crate::harness::{Bench, START_MS, noise, open_log};

/// Jobs before the damage are folded by then: no server may come of them.
#[test]
fn a_log_that_is_damaged_in_its_middle_is_refused_whatever_was_folded_of_it() {
    let disk = SimDisk::new(9);
    let bench = Bench::on_disk(&disk);
    for n in 0..60 {
        bench.add("q", &noise(n, 3000));
        bench.commit();
    }
    drop(bench);
    let mut segments = disk.names();
    segments.retain(|name| name.ends_with(".segment"));
    segments.sort_unstable();
    assert!(segments.len() > 2, "{segments:?}");
    // In the header of its first frame.
    disk.flip_bit(&segments[1], 64 + 10, 3);
    let clock = Arc::new(ManualClock::new(START_MS));
    let mut shown = 0;
    let started = Engine::open_with(clock, Options::default(), |each| {
        let log = open_log(&disk, &mut |record| {
            shown += 1;
            each(record);
        });
        log.map(|log| log as _)
    });
    let Err(StartError::Open(OpenError::Corrupt { file, .. })) = started else {
        panic!("started, or refused for something else");
    };
    assert_eq!(file, segments[1]);
    assert!(shown > 5, "{shown}");
}
