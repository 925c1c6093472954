//! Schedules fire when their time has come, once, and not while time is in doubt.

use std::sync::Arc;

use spindle_core::schedule::{Missed, Outcome, Schedule};
use spindle_core::{JobId, Status};
use spindle_engine::{Expected, Options, ScheduleNow, Timing};
use spindle_log::MemoryLog;

use crate::harness::{Bench, START_MS, TakeApart, TakeApartResult, somebody};

const MINUTE: u64 = 60_000;

fn every_minute(missed: Missed) -> Schedule {
    let mut schedule = Schedule {
        name: "tick".to_owned(),
        expression: "* * * * *".to_owned(),
        zone: "UTC".to_owned(),
        missed: missed as i32,
        ..Schedule::default()
    };
    schedule.job.queue = b"mail".to_vec();
    schedule.job.payload = b"hello".to_vec();
    schedule
}

fn put(bench: &Bench, schedule: &Schedule) {
    let timing = Timing::of(schedule).expect("it can be read");
    let mut audit = somebody();
    let people = bench.engine.people(&mut audit);
    people.put_schedule(schedule, &timing, Expected::Any).acked().expect("it is put");
}

fn fire(bench: &Bench) {
    while bench.engine.fire_schedules(1) {}
}

fn shown(bench: &Bench) -> ScheduleNow {
    bench.engine.schedules().get("tick").value().expect("it was put")
}

fn jobs(bench: &Bench) -> u64 {
    shown(bench).progress.submitted
}

/// The first whole minute behind the start of the clock.
const FIRST_MS: u64 = (START_MS / MINUTE + 1) * MINUTE;

#[test]
fn a_schedule_fires_at_its_time_and_not_again_after_a_restart() {
    let log = Arc::new(MemoryLog::new());
    let bench = Bench::on(log.clone(), START_MS, Options::default());
    put(&bench, &every_minute(Missed::Skip));
    assert_eq!(bench.engine.tick_once(), Some(FIRST_MS - START_MS), "the timer knows when");
    bench.clock.advance(FIRST_MS - START_MS - 1);
    fire(&bench);
    assert_eq!(jobs(&bench), 0);
    bench.clock.advance(1);
    fire(&bench);
    let now = shown(&bench);
    assert_eq!((now.progress.submitted, now.is_running), (1, true));
    let id = JobId(now.progress.last_job.expect("a job came"));
    assert_eq!(bench.status(id), Some(Status::Ready));
    assert_eq!(bench.payload(id), "hello");
    bench.commit();
    let next = Bench::on(log, FIRST_MS, Options::default());
    fire(&next);
    assert_eq!(jobs(&next), 1);
    next.clock.advance(MINUTE);
    fire(&next);
    assert_eq!(jobs(&next), 2);
}

#[test]
fn while_the_clock_is_not_believed_none_fires_and_then_it_is_missed() {
    for (missed, expected) in [(Missed::Skip, 1), (Missed::Once, 2), (Missed::All, 3)] {
        let bench = Bench::new();
        put(&bench, &Schedule { missed_max: 2, ..every_minute(missed) });
        bench.clock.set_wall_ahead(6 * MINUTE as i64);
        bench.engine.watch_clock();
        bench.clock.advance(FIRST_MS - START_MS + 4 * MINUTE);
        fire(&bench);
        assert_eq!(jobs(&bench), 0, "{missed:?}");
        bench.clock.set_wall_ahead(0);
        bench.engine.watch_clock();
        fire(&bench);
        // The last of the five is late by nothing, the one before by a minute.
        let on_time = 2;
        let made_up = expected - 1;
        assert_eq!(jobs(&bench), made_up + on_time, "{missed:?}");
        let last = shown(&bench).progress.last.expect("it came to a time");
        assert_eq!((last.outcome(), last.due_ms), (Outcome::Submitted, FIRST_MS + 4 * MINUTE));
    }
}

#[test]
fn a_put_that_changes_no_times_keeps_the_next_one_and_others_begin_anew() {
    let bench = Bench::new();
    put(&bench, &every_minute(Missed::Once));
    bench.clock.advance(10 * MINUTE);
    let mut changed = every_minute(Missed::Once);
    changed.job.priority = 3;
    put(&bench, &changed);
    let due = |bench: &Bench| shown(bench).progress.next.expect("it fires").due_ms;
    assert_eq!(due(&bench), FIRST_MS);
    changed.paused = true;
    put(&bench, &changed);
    fire(&bench);
    assert_eq!((due(&bench), jobs(&bench)), (FIRST_MS, 0));
    changed.paused = false;
    put(&bench, &changed);
    assert_eq!(due(&bench), FIRST_MS + 10 * MINUTE, "what came in the pause is passed over");
    let before = shown(&bench).progress.revision;
    put(&bench, &changed);
    assert_eq!(shown(&bench).progress.revision, before, "the same again changes nothing");
}
