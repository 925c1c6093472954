//! Bytes of payloads and results: in memory, in the log, in chunks, damaged.

use spindle_core::{Event, JobId, JobImage, Status};
use spindle_engine::{FetchError, Gate, Options, Refused};
use spindle_testkit::disk::SimDisk;

use crate::harness::{
    Bench, RECORD_BYTES_MAX, START_MS, TakeApart, file_log, new_job, noise, plain,
};

#[test]
fn payloads_over_the_memory_budget_are_read_back_from_the_log() {
    let disk = SimDisk::new(1);
    let options = Options { payload_memory_bytes: 4096, ..Options::default() };
    let bench = Bench::on(file_log(&disk), START_MS, options);
    let jobs: Vec<JobId> = (0..60).map(|n| bench.add("q", &noise(n, 2000))).collect();
    // Before, between and after commits alike.
    for (n, id) in (0..).zip(&jobs) {
        assert_eq!(bench.payload(*id), noise(n, 2000), "before the commit");
    }
    bench.commit();
    for (n, id) in (0..).zip(&jobs) {
        let leased = bench.lease("q").expect("there are more");
        assert_eq!(leased.id, *id);
        assert_eq!(bench.leased_payload(&leased), noise(n, 2000));
        bench.finish(*id, true, &noise(1000 + n, 500)).expect("leased");
        assert_eq!(bench.result(*id), noise(1000 + n, 500));
    }
    bench.commit();
    for (n, id) in (0..).zip(&jobs) {
        assert_eq!(bench.payload(*id), noise(n, 2000));
        assert_eq!(bench.result(*id), noise(1000 + n, 500));
    }
    bench.check_fold();
}

#[test]
fn a_foreground_payload_is_in_no_log() {
    let disk = SimDisk::new(1);
    let bench = Bench::on_disk(&disk);
    let before = bench.log.bytes_on_disk();
    let mut submit = plain("q");
    submit.foreground = true;
    let id = bench.submit(submit, &noise(1, 5000));
    bench.commit();
    assert_eq!(bench.payload(id), noise(1, 5000));
    bench.lease("q").expect("ready");
    bench.finish(id, true, &noise(2, 5000)).expect("leased");
    bench.commit();
    assert_eq!((bench.status(id), bench.log.bytes_on_disk()), (None, before));
}

/// Turns a bit over in the middle of these bytes, wherever they are on the disk.
fn damage(disk: &SimDisk, bytes: &[u8]) {
    let needle = &bytes[bytes.len() / 2..bytes.len() / 2 + 32];
    let mut found = 0;
    for name in disk.names() {
        let contents = disk.contents(&name).expect("it was listed");
        if let Some(at) = contents.windows(needle.len()).position(|window| window == needle) {
            disk.flip_bit(&name, at, 3);
            found += 1;
        }
    }
    assert_eq!(found, 1, "the bytes are on the disk once");
}

#[test]
fn a_damaged_payload_kills_its_job_and_no_other() {
    let disk = SimDisk::new(2);
    let bench = Bench::on_disk(&disk);
    let first = bench.add("q", &noise(1, 3000));
    let second = bench.add("q", &noise(2, 3000));
    bench.commit();
    damage(&disk, &noise(1, 3000));
    let leased = bench.lease("q").expect("both are ready");
    assert_eq!(leased.id, first);
    assert!(matches!(bench.engine.leases().payload(&leased), Ok(None)));
    assert_eq!(bench.status(first), Some(Status::Dead));
    assert_eq!(bench.image(first).outcome.expect("dead").code, "payload damaged");
    assert_eq!(bench.engine.observe().stats().payloads_damaged, 1);
    let leased = bench.lease("q").expect("the other one");
    assert_eq!(leased.id, second);
    assert_eq!(bench.leased_payload(&leased), noise(2, 3000));
}

#[test]
fn a_damaged_payload_does_not_stop_the_log_from_getting_smaller() {
    let disk = SimDisk::new(2);
    let bench = Bench::on_disk(&disk);
    let damaged = bench.add("q", &noise(1, 3000));
    let sound = bench.add("q", &noise(2, 3000));
    let done = bench.add("q", &noise(3, 3000));
    bench.finish(done, true, &noise(4, 3000)).expect("unfinished");
    bench.commit();
    damage(&disk, &noise(1, 3000));
    damage(&disk, &noise(4, 3000));
    churn(&bench, 300);
    // The log as a whole can be read again when the damaged records have gone.
    while bench.engine.trims() == 0 {
        assert!(bench.engine.compaction_step().expect("the disk works"), "carrying gave up");
        bench.commit();
    }
    bench.compaction();
    assert_eq!(bench.status(damaged), Some(Status::Dead));
    // A finished job whose result is damaged cannot be compacted: it goes.
    assert_eq!(bench.status(done), None);
    assert_eq!(bench.payload(sound), noise(2, 3000));
    assert_eq!(bench.engine.observe().stats().payloads_damaged, 2);
}

#[test]
fn at_the_next_start_a_damaged_payload_still_costs_its_job_and_nothing_else() {
    let disk = SimDisk::new(2);
    let bench = Bench::on_disk(&disk);
    let jobs: Vec<JobId> = (0..40).map(|n| bench.add("q", &noise(n, 3000))).collect();
    let big = bench.add("q", &noise(100, 60_000));
    let big_too = bench.add("q", &noise(101, 60_000));
    for (n, id) in (0..).zip(&jobs).skip(20) {
        bench.finish(*id, true, &noise(1000 + n, 3000)).expect("unfinished");
    }
    bench.commit();
    bench.add("q", b"what came before this was synced");
    bench.commit();
    // One that waits, one that is finished, the result of another, a chunk in the middle.
    for bytes in [noise(3, 3000), noise(24, 3000), noise(1030, 3000), noise(100, 60_000)] {
        damage(&disk, &bytes);
    }
    let bench = bench.restart(&disk);
    assert_eq!(bench.engine.observe().stats().payloads_damaged, 4);
    for (n, id) in (0..).zip(&jobs).take(20) {
        let hit = n == 3;
        assert_eq!(bench.status(*id), Some(if hit { Status::Dead } else { Status::Ready }));
        if !hit {
            assert_eq!(bench.payload(*id), noise(n, 3000));
        }
    }
    assert_eq!(bench.image(jobs[3]).outcome.expect("dead").code, "payload damaged");
    assert_eq!(bench.status(big), Some(Status::Dead));
    assert_eq!(bench.payload(big_too), noise(101, 60_000));
    for (n, id) in (0..).zip(&jobs).skip(20).filter(|(n, _)| *n != 30) {
        assert_eq!(bench.status(*id), Some(Status::Done));
        assert_eq!(bench.result(*id), noise(1000 + n, 3000));
    }
    assert_eq!(bench.status(jobs[30]), Some(Status::Done));
    let place = bench.image(jobs[30]).outcome.expect("done").bytes.expect("it had a result");
    assert!(matches!(bench.engine.jobs().bytes(&place), Err(FetchError::Damaged(_))));
    bench.check_fold();
    // The dead stay dead; what finished can still be found.
    let bench = bench.restart(&disk);
    assert_eq!(bench.engine.observe().stats().payloads_damaged, 2);
    bench.check_fold();
}

#[test]
fn the_feed_passes_over_damaged_payloads() {
    let disk = SimDisk::new(2);
    let bench = Bench::on_disk(&disk);
    let jobs: Vec<JobId> = (0..4).map(|n| bench.add("q", &noise(n, 3000))).collect();
    bench.commit();
    bench.add("q", b"what came before this was synced");
    bench.commit();
    damage(&disk, &noise(1, 3000));
    let bench = bench.restart(&disk);
    let page = bench.engine.feed().page(None, 100).expect("readable");
    let shown: Vec<JobId> = page
        .events
        .iter()
        .filter_map(|(_, shown)| match &shown.event {
            Event::Submitted(image) => Some(JobId(image.id)),
            _ => None,
        })
        .collect();
    assert!(jobs.iter().all(|id| shown.contains(id)), "{shown:?}");
}

/// Jobs that come and go, so that the log has something to forget.
fn churn(bench: &Bench, jobs: u64) {
    for n in 0..jobs {
        let id = bench.add("churn", &noise(n + 50_000, 1000));
        bench.commit();
        bench.delete(id);
    }
    bench.commit();
}

#[test]
fn a_result_is_found_wherever_it_is_now_and_an_answer_of_it_waits_for_that() {
    let disk = SimDisk::new(6);
    let bench = Bench::on_disk(&disk);
    let (id, bare) = (bench.add("q", b"x"), bench.add("q", b"x"));
    bench.finish(id, true, &noise(1, 3000)).expect("unfinished");
    bench.finish(bare, true, b"").expect("unfinished");
    bench.commit();
    let result = |image: &JobImage| bench.engine.jobs().result(image);
    let (before, without) = (bench.image(id), bench.image(bare));
    assert_eq!(result(&before).expect("readable").both(), (noise(1, 3000).into(), Gate::OPEN));
    assert_eq!(result(&without).expect("there is nothing to read").value(), "");
    churn(&bench, 300);
    bench.compaction();
    let place = before.outcome.as_ref().and_then(|outcome| outcome.bytes.as_ref());
    let moved = bench.engine.jobs().bytes(place.expect("it has a result"));
    assert!(matches!(moved, Err(FetchError::Moved)), "{moved:?}");
    let (bytes, gate) = result(&before).expect("it lies elsewhere").both();
    assert!(bytes == noise(1, 3000) && gate > Gate::OPEN && bench.is_durable(gate));
    bench.delete(id);
    assert!(matches!(result(&before), Err(FetchError::Moved)), "it is gone");
}

#[test]
fn what_is_larger_than_a_record_goes_in_chunks_and_comes_back_whole() {
    let disk = SimDisk::new(3);
    let mut bench = Bench::on_disk(&disk);
    let sizes = [7_000, 8_000, 20_000, 24_576, 100_000, 333_333];
    assert!(sizes[5] > 10 * RECORD_BYTES_MAX as usize);
    let mut jobs = Vec::new();
    for (n, size) in (0..).zip(sizes) {
        let small = bench.add("q", b"between");
        let waiting = bench.add("q", &noise(n, size));
        assert_eq!(bench.payload(waiting), noise(n, size), "before the commit");
        let done = bench.add("q", &noise(100 + n, size));
        bench.finish(done, true, &noise(200 + n, size)).expect("unfinished");
        let failed = bench.submit(
            {
                let mut s = plain("q");
                s.fails_max = Some(3);
                s
            },
            b"f",
        );
        bench.finish(failed, false, &noise(300 + n, size)).expect("unfinished");
        jobs.push((n, size, waiting, done, failed, small));
    }
    let check = |bench: &Bench| {
        for (n, size, waiting, done, failed, small) in &jobs {
            assert_eq!(bench.payload(*waiting), noise(*n, *size));
            assert_eq!(bench.payload(*done), noise(100 + n, *size));
            assert_eq!(bench.result(*done), noise(200 + n, *size));
            assert_eq!(bench.result(*failed), noise(300 + n, *size));
            assert_eq!(bench.payload(*small), &b"between"[..]);
        }
    };
    check(&bench);
    bench.commit();
    check(&bench);
    bench.check_fold();
    bench = bench.restart(&disk);
    check(&bench);
    let first = bench.log.first();
    while bench.log.first() == first {
        churn(&bench, 200);
        bench.compaction();
    }
    churn(&bench, 2000);
    bench.compaction();
    check(&bench);
    let bench = bench.restart(&disk);
    check(&bench);
    bench.check_fold();
}

#[test]
fn a_damaged_chunk_is_noticed() {
    let disk = SimDisk::new(4);
    let bench = Bench::on_disk(&disk);
    let id = bench.add("q", &noise(1, 50_000));
    bench.commit();
    damage(&disk, &noise(1, 50_000));
    let place = bench.image(id).payload.expect("it has one");
    assert!(matches!(bench.engine.jobs().payload(id, &place), Err(FetchError::Damaged(_))));
    assert_eq!(bench.status(id), Some(Status::Dead));
}

#[test]
fn payloads_and_results_above_the_limit_are_refused() {
    let disk = SimDisk::new(5);
    let options = Options { payload_bytes_max: 1000, ..Options::default() };
    let bench = Bench::on(file_log(&disk), START_MS, options);
    let refused =
        bench.engine.jobs().submit(new_job(plain("q"), &noise(1, 1001))).value().map(|_| ());
    assert_eq!(refused, Err(Refused::TooLarge { bytes: 1001, max: 1000 }));
    let id = bench.add("q", &noise(1, 1000));
    let refused = bench.finish(id, true, &noise(2, 1001)).map(|_| ());
    assert_eq!(refused, Err(Refused::TooLarge { bytes: 1001, max: 1000 }));
    assert_eq!(bench.status(id), Some(Status::Ready));
    bench.finish(id, true, &noise(2, 1000)).expect("unfinished");
    bench.check_fold();
}

#[test]
fn the_beginning_of_a_payload_is_read_wherever_it_is() {
    let disk = SimDisk::new(3);
    let options = Options { payload_memory_bytes: 4096, ..Options::default() };
    let bench = Bench::on(file_log(&disk), START_MS, options);
    let lengths = [0, 1, 40, 41, 3000, 2 * RECORD_BYTES_MAX as usize + 7];
    let jobs: Vec<(JobId, Vec<u8>)> = (0..)
        .zip(lengths)
        .map(|(n, length)| (bench.add("q", &noise(n, length)), noise(n, length)))
        .collect();
    let check = |when: &str| {
        for (id, whole) in &jobs {
            let place = bench.image(*id).payload.expect("it has one");
            for max in [0, 1, 40] {
                let begins = bench.engine.jobs().payload_beginning(*id, &place, max).expect(when);
                assert_eq!(begins, whole[..whole.len().min(max as usize)], "{when}");
            }
        }
    };
    check("before the commit");
    bench.commit();
    check("in the newest records");
    for n in 0..20 {
        bench.add("other", &noise(100 + n, 2000));
    }
    bench.commit();
    check("on the disk");
}

#[test]
fn a_first_chunk_shorter_than_what_is_wanted_is_a_beginning_too() {
    let disk = SimDisk::new(4);
    let options = Options { payload_memory_bytes: 4096, ..Options::default() };
    let bench = Bench::on(file_log(&disk), START_MS, options);
    let length = 2 * RECORD_BYTES_MAX as usize;
    let (id, whole) = (bench.add("q", &noise(1, length)), noise(1, length));
    bench.commit();
    for n in 0..20 {
        bench.add("other", &noise(100 + n, 2000));
    }
    bench.commit();
    let place = bench.image(id).payload.expect("it has one");
    let begins =
        bench.engine.jobs().payload_beginning(id, &place, length as u32 - 1).expect("readable");
    assert!(!begins.is_empty() && begins.len() < length - 1, "{}", begins.len());
    assert_eq!(begins, whole[..begins.len()]);
}
