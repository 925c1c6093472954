//! Compaction: the log's size follows its live data, and no live data is forgotten.

use bytes::Bytes;
use spindle_core::command::{Claim, Command};
use spindle_core::job::{Backoff, Label};
use spindle_core::queue::{Constraint, LimitScope, QueueSettings};
use spindle_core::{JobId, State, Status, Type};
use spindle_engine::{Payload, WorkResult};
use spindle_testkit::disk::SimDisk;

use crate::harness::{Bench, SEGMENT_BYTES, TakeApart, noise, plain};

#[test]
fn the_log_stays_small_under_churn_and_all_that_lives_is_carried() {
    let disk = SimDisk::new(1);
    let bench = Bench::on_disk(&disk);
    let mut kept: Vec<(u64, JobId)> = Vec::new();
    let mut live_bytes = 0;
    for round in 0..30u64 {
        for n in 0..60 {
            let seed = round * 60 + n;
            let id = bench.add("churn", &noise(seed, 1000));
            if n == 7 {
                kept.push((seed, id));
                live_bytes += 1000 + 128;
            } else if n % 2 == 0 {
                bench.finish(id, true, b"done").expect("unfinished");
                bench.delete(id);
            } else {
                bench.delete(id);
            }
        }
        bench.compaction();
        // The audit entries of the deletions live on as well.
        let audited = bench.engine.inspect(State::audit_bytes);
        let most = 3 * (live_bytes + audited) + 4 * SEGMENT_BYTES;
        let kept_bytes = bench.log.bytes_on_disk();
        assert!(kept_bytes <= most, "{kept_bytes} bytes in round {round}, {live_bytes} live");
    }
    assert!(bench.engine.trims() > 5);
    for (seed, id) in &kept {
        assert_eq!(bench.payload(*id), noise(*seed, 1000));
    }
    let bench = bench.restart(&disk);
    for (seed, id) in &kept {
        let leased = bench.lease("churn").expect("all are ready, the oldest first");
        assert_eq!(leased.id, *id);
        assert_eq!(bench.leased_payload(&leased), noise(*seed, 1000));
    }
    assert!(bench.lease("churn").is_none());
}

#[test]
fn disk_and_memory_come_back_after_a_drain() {
    let disk = SimDisk::new(2);
    let bench = Bench::on_disk(&disk);
    let jobs: Vec<JobId> = (0..2000).map(|n| bench.add("q", &noise(n, 1000))).collect();
    bench.commit();
    let full = bench.log.bytes_on_disk();
    assert!(full > 2_000_000, "{full}");
    for id in jobs {
        bench.finish(id, true, b"").expect("unfinished");
        bench.delete(id);
    }
    bench.compaction();
    // Checked when idle too: a little more, now that all of it is closed segments.
    bench.add("q", b"");
    bench.compaction();
    let left = bench.log.bytes_on_disk();
    assert!(left <= 4 * SEGMENT_BYTES, "{left} of {full} bytes are left");
    assert_eq!(bench.engine.inspect(|state| (state.jobs_count(), state.queues_count())), (1, 1));
}

/// One of everything that the log can hold.
fn furnish(bench: &Bench) -> Vec<(JobId, Status)> {
    let queue = |name: &'static [u8], settings| Command::SetQueue {
        name: Bytes::from_static(name),
        settings,
    };
    bench.execute(queue(b"paused", QueueSettings { paused: true, ..QueueSettings::default() }));
    bench
        .execute(queue(b"tuned", QueueSettings { fails_max: Some(4), ..QueueSettings::default() }));
    bench.execute(Command::SetConstraint(
        Constraint {
            name: Bytes::from_static(b"one at a time"),
            running_max: Some(1),
            ..Constraint::default()
        },
        LimitScope::Whole,
    ));
    let revision = bench.engine.inspect(|state| state.server().constraints_revision);
    let limited = || {
        let mut submit = plain("limited");
        submit.labels = vec![Label { constraint: 1, value: 9 }];
        submit.constraints_revision = revision;
        submit
    };
    let running = bench.submit(limited(), b"running");
    bench.lease("limited").expect("the first one may run");
    let held_back = bench.submit(limited(), b"held back");
    let mut submit = plain("later");
    submit.run_at_ms = Some(bench.engine.now_ms() + 50_000);
    submit.uuid = Some([5; 16]);
    submit.tags.push(Bytes::from_static(b"tag"));
    let scheduled = bench.submit(submit, b"scheduled");
    let mut submit = plain("parked");
    submit.parked = true;
    let parked = bench.submit(submit, b"parked");
    let leased = bench.add("leased", b"leased");
    bench.lease("leased").expect("ready");
    let tried = bench.add("tuned", b"tried");
    bench.lease("tuned").expect("ready");
    bench.finish(tried, false, b"not yet").expect("leased");
    let done = bench.add("ends", b"done");
    bench.finish(done, true, b"well").expect("unfinished");
    let dead = bench.add("ends", b"dead");
    bench.finish(dead, false, b"badly").expect("unfinished");
    let mut submit = plain("foreground");
    submit.foreground = true;
    bench.submit(submit, b"never in the log");
    vec![
        (running, Status::Leased),
        (held_back, Status::Ready),
        (scheduled, Status::Scheduled),
        (parked, Status::Parked),
        (leased, Status::Leased),
        (tried, Status::Ready),
        (done, Status::Done),
        (dead, Status::Dead),
    ]
}

#[test]
fn every_kind_of_item_survives_being_carried_many_times() {
    let disk = SimDisk::new(3);
    let mut bench = Bench::on_disk(&disk);
    let furniture = furnish(&bench);
    bench.commit();
    let before = bench.image(furniture[2].0);
    for round in 0..5 {
        let trims = bench.engine.trims();
        for n in 0..400 {
            let id = bench.add("churn", &noise(n, 1000));
            bench.delete(id);
        }
        bench.compaction();
        assert!(bench.engine.trims() > trims, "round {round}");
        for (id, status) in &furniture {
            assert_eq!(bench.status(*id), Some(*status), "job {id} in round {round}");
        }
        assert_eq!(bench.payload(furniture[2].0), &b"scheduled"[..]);
        assert_eq!(bench.result(furniture[5].0), &b"not yet"[..]);
        assert_eq!(bench.result(furniture[6].0), &b"well"[..]);
        assert_eq!(bench.result(furniture[7].0), &b"badly"[..]);
        if round % 2 == 1 {
            bench = bench.restart(&disk);
        }
    }
    // Only its places in the log differ.
    let mut carried = bench.image(furniture[2].0);
    carried.payload.clone_from(&before.payload);
    assert_eq!(carried, before);
    assert!(bench.lease("limited").is_none(), "one is running");
    assert!(bench.engine.queues().get(b"paused").value().expect("it has a setting").paused);
    bench.finish(furniture[0].0, true, b"").expect("running");
    assert_eq!(bench.lease("limited").expect("the bucket is free").id, furniture[1].0);
}

#[test]
fn a_crash_at_any_step_of_carrying_loses_nothing() {
    // The same run again and again, with the power cut after one more disk operation each time.
    let mut cut_after = 0;
    loop {
        let disk = SimDisk::new(77);
        let bench = Bench::on_disk(&disk);
        let furniture = furnish(&bench);
        for n in 0..300 {
            let id = bench.add("churn", &noise(n, 1000));
            bench.delete(id);
        }
        bench.check_fold();
        disk.cut_power_after(cut_after);
        let mut more = true;
        while more && disk.is_powered() {
            more = bench.engine.compaction_step().unwrap_or(false);
            bench.engine.commit_once();
        }
        let is_complete = disk.is_powered();
        drop(bench);
        disk.crash();
        let bench = Bench::on_disk(&disk);
        for (id, status) in &furniture {
            assert_eq!(bench.status(*id), Some(*status), "job {id}, cut after {cut_after}");
        }
        assert_eq!(bench.payload(furniture[2].0), &b"scheduled"[..]);
        assert_eq!(bench.result(furniture[6].0), &b"well"[..]);
        bench.check_fold();
        if is_complete {
            assert!(cut_after > 5, "carrying took {cut_after} operations");
            return;
        }
        cut_after += 1;
    }
}

#[test]
fn nothing_is_trimmed_before_what_replaces_it_is_durable() {
    let disk = SimDisk::new(6);
    let bench = Bench::on_disk(&disk);
    let furniture = furnish(&bench);
    for n in 0..300 {
        let id = bench.add("churn", &noise(n, 1000));
        bench.delete(id);
    }
    bench.commit();
    let first = bench.log.first();
    for _ in 0..1000 {
        assert!(bench.engine.compaction_step().expect("a sound disk"), "it waits for the commit");
    }
    assert_eq!((bench.engine.trims(), bench.log.first()), (0, first));
    bench.commit();
    while bench.engine.trims() == 0 {
        assert!(bench.engine.compaction_step().expect("a sound disk"));
    }
    assert!(bench.log.first() > first);
    disk.crash();
    let bench = bench.restart(&disk);
    for (id, status) in &furniture {
        assert_eq!(bench.status(*id), Some(*status), "job {id}");
    }
}

#[test]
fn jobs_that_change_while_they_are_carried_are_carried_as_they_are() {
    let disk = SimDisk::new(4);
    let bench = Bench::on_disk(&disk);
    let mut jobs: Vec<JobId> = (0..40).map(|n| bench.add("q", &noise(n, 1000))).collect();
    for n in 0..600 {
        let id = bench.add("churn", &noise(n, 1000));
        bench.delete(id);
    }
    bench.commit();
    // Between any two steps something happens to the jobs under way.
    let mut turn = 0;
    while bench.engine.compaction_step().expect("a sound disk") {
        turn += 1;
        match turn % 4 {
            0 => drop(bench.lease("q")),
            1 if jobs.len() > 5 => {
                let id = jobs.remove(turn % jobs.len());
                bench.delete(id);
            }
            2 => {
                let id = jobs[turn % jobs.len()];
                bench.finish(id, true, b"now").ok();
            }
            _ => jobs.push(bench.add("q", b"new")),
        }
        bench.commit();
        assert!(turn < 10_000, "carrying never ends");
    }
    assert!(bench.engine.trims() > 0);
    bench.check_fold();
    let bench = bench.restart(&disk);
    for id in &jobs {
        assert!(bench.status(*id).is_some());
        bench.payload(*id);
    }
}

/// Fails a job of the API this many times, with the longest messages that a worker may send.
fn fail_often(bench: &Bench, queue: &str, times: usize) -> JobId {
    let mut submit = plain(queue);
    (submit.attempts_max, submit.fails_max) = (Some(0), Some(0));
    submit.backoff = Some(Backoff::NONE);
    let id = bench.submit(submit, b"payload");
    for time in 0..times {
        let leased = bench.lease(queue).expect("it is ready again");
        let claim = Claim::Token { id, epoch: leased.epoch, attempt: leased.attempt };
        let words = |len: usize| Bytes::from(format!("{time:len$}"));
        let result = WorkResult {
            retry: true,
            result: Payload::new(words(500), Type::Bytes),
            message: words(1024),
            error: words(1024),
            code: words(64),
            ..WorkResult::default()
        };
        bench.engine.leases().finish(claim, result).value().expect("leased");
        bench.commit();
    }
    id
}

#[test]
fn what_workers_said_of_jobs_that_go_on_is_part_of_what_lives() {
    let disk = SimDisk::new(8);
    let bench = Bench::on_disk(&disk);
    // Jobs that take far more room for workers' messages than for their payloads.
    let jobs: Vec<JobId> = (0..40).map(|n| fail_often(&bench, &format!("q{n}"), 20)).collect();
    let mut steps = 0;
    while bench.engine.compaction_step().expect("no failure") {
        bench.commit();
        steps += 1;
        assert!(steps < 2_000, "all of it lives, and it is carried again and again");
    }
    for id in jobs {
        bench.delete(id);
    }
    // Closes the segment.
    for n in 0..100 {
        bench.add("q", &noise(n, 1000));
    }
    bench.compaction();
    let left = bench.log.bytes_on_disk();
    assert!(left <= 2 * 100 * 1200 + 3 * SEGMENT_BYTES, "{left} bytes are left");
    bench.check_fold();
}
