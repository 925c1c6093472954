//! Finding jobs from outside.

use spindle_core::job::Origin;
use spindle_core::state::ScanFilter;
use spindle_core::{BytesRef, JobId, Status, Type};
use spindle_engine::ScannedJob;

use crate::harness::{Bench, START_MS, plain};

#[test]
fn stretches_tell_unfinished_jobs_whole_and_finished_ones_by_number() {
    let bench = Bench::new();
    let ids: Vec<JobId> = (0..5).map(|_| bench.add("q", b"x")).collect();
    bench.finish(ids[1], true, b"r").unwrap();
    let all = bench.engine.scan(JobId(0), &ScanFilter::default(), 100);
    assert_eq!(all.next, None);
    let found: Vec<JobId> = all.found.iter().map(ScannedJob::id).collect();
    assert_eq!(found, ids);
    assert_eq!(all.found[1], ScannedJob::Finished(ids[1]));
    assert!(matches!(&all.found[0], ScannedJob::Live(image) if image.queue == "q"));
    assert!(!bench.is_durable(all.gate), "what it tells is not on disk yet");
    bench.commit();
    assert!(bench.is_durable(all.gate));
    let page = bench.engine.scan(ids[2], &ScanFilter::default(), 2);
    assert_eq!((page.found.len(), page.next), (2, Some(ids[4])));
}

#[test]
fn a_job_in_memory_only_waits_for_no_record() {
    let bench = Bench::new();
    bench.commit();
    let mut foreground = plain("q");
    foreground.foreground = true;
    foreground.payload = BytesRef::empty(Type::Bytes);
    foreground.origin = Origin::Gearman;
    bench.submit(foreground, b"");
    bench.commit();
    let durable = bench.engine.durable();
    let filter = ScanFilter { door: Some(Origin::Gearman), ..ScanFilter::default() };
    let all = bench.engine.scan(JobId(0), &filter, 100);
    assert_eq!(all.found.len(), 1);
    assert!(all.gate <= durable);
}

#[test]
fn the_first_job_of_a_time_is_found_whether_jobs_are_finished_or_gone() {
    let bench = Bench::new();
    let ids: Vec<JobId> = (0..100)
        .map(|_| {
            bench.clock.advance(10);
            bench.add("q", b"x")
        })
        .collect();
    for id in ids.iter().step_by(3) {
        bench.finish(*id, true, b"").unwrap();
    }
    for id in ids.iter().skip(1).step_by(3) {
        bench.engine.delete(spindle_engine::JobRef::Id(*id)).unwrap();
    }
    bench.commit();
    let first = |at_ms| bench.engine.first_created(at_ms).unwrap();
    let next = |at_ms| bench.engine.scan(first(at_ms), &ScanFilter::default(), 1).found[0].id();
    // Of the jobs at +10, +20, +30 ... the second and every third after it are gone.
    assert_eq!(next(0), ids[0]);
    assert_eq!(next(START_MS + 10), ids[0]);
    assert_eq!(next(START_MS + 11), ids[2]);
    assert_eq!(next(START_MS + 30), ids[2]);
    assert_eq!(next(START_MS + 31), ids[3]);
    assert!(first(START_MS + 10_000) > ids[99]);
    let ready = ScanFilter { statuses: vec![Status::Ready], ..ScanFilter::default() };
    assert_eq!(bench.engine.scan(first(START_MS + 500), &ready, 1).found[0].id(), ids[50]);
}
