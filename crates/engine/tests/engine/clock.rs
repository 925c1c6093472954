//! While the wall clock cannot be right, nothing is deleted and all else goes on, and the status shows it.

use std::sync::Arc;

use spindle_core::command::Submit;
use spindle_core::{JobId, Status};
use spindle_engine::{Caller, ConnectionId, Engine, JobRef, LeaseReply, Options};
use spindle_log::{Log, MemoryLog};
use spindle_testkit::ManualClock;

use crate::harness::{Bench, Letters, START_MS, TakeApart, new_job, plain, somebody, wish};

const MINUTE: i64 = 60_000;
const DAY: i64 = 24 * 60 * MINUTE;
const TTR_MS: i64 = 1_000;

/// A server that follows another one, on a machine whose clock is this far ahead of the log.
struct Next {
    engine: Engine,
    clock: Arc<ManualClock>,
    /// Leased for ten minutes when the other server ended.
    held: JobId,
    /// To be deleted an hour after the log's last time.
    id: JobId,
    scheduled: JobId,
}

impl Next {
    fn accept_clock(&self) {
        self.engine.people(&mut somebody()).accept_clock().value().expect("is taken");
    }

    fn start(wall_ahead_ms: i64) -> Next {
        Next::start_with(wall_ahead_ms, Options::default())
    }

    fn start_with(wall_ahead_ms: i64, options: Options) -> Next {
        let log: Arc<dyn Log> = Arc::new(MemoryLog::new());
        let bench = Bench::on(log.clone(), START_MS, Options::default());
        let held = Submit { ttr_ms: Some(10 * MINUTE as u64), ..plain("held") };
        let held = bench.submit(held, b"x");
        assert_eq!(bench.lease("held").map(|job| job.id), Some(held));
        let (mut mortal, mut later) = (plain("q"), plain("q"));
        mortal.ttl_ms = Some(60 * MINUTE as u64);
        later.run_at_ms = Some(START_MS + 60 * MINUTE as u64);
        let (id, scheduled) = (bench.submit(mortal, b"x"), bench.submit(later, b"x"));
        bench.commit();
        let options = Options { defaults: bench.options.defaults.clone(), ..options };
        drop(bench);
        let clock = Arc::new(ManualClock::new(START_MS));
        clock.set_wall_ahead(wall_ahead_ms);
        let engine = Engine::open(log, clock.clone(), options).expect("starts");
        engine.watch_clock();
        engine.tick_once();
        Next { engine, clock, held, id, scheduled }
    }

    /// A worker has a job, for [`TTR_MS`].
    fn lease(&self) -> JobId {
        let submit = Submit { ttr_ms: Some(TTR_MS as u64), ..plain("leased") };
        let id = self.engine.jobs().submit(new_job(submit, b"x")).value().expect("is taken");
        let caller = Caller { connection: ConnectionId(1), mailbox: Arc::new(Letters::default()) };
        let reply = self.engine.leases().take(&caller, wish("leased"), 0).value();
        assert!(matches!(reply, Ok(LeaseReply::Leased(job)) if job.id == id));
        id
    }

    fn is_held(&self) -> bool {
        self.engine.observe().gauges().is_clock_held
    }

    fn status(&self, id: JobId) -> Option<Status> {
        self.engine.jobs().find(JobRef::Id(id)).value().map(|(_, status)| status)
    }

    fn pass(&self, ms: i64) {
        self.clock.advance(ms.unsigned_abs());
        self.engine.watch_clock();
        self.engine.tick_once();
    }
}

#[test]
fn a_clock_far_ahead_at_a_start_deletes_nothing_until_it_is_accepted() {
    let next = Next::start(400 * DAY);
    assert!(next.is_held() && !next.clock.may_catch_up());
    assert_eq!(next.engine.now_ms(), START_MS, "time goes on from the log's");
    next.pass(30 * MINUTE);
    assert_eq!(
        (next.status(next.id), next.status(next.scheduled)),
        (Some(Status::Ready), Some(Status::Scheduled))
    );
    // Even what is over by the log's time stays, and all else goes on.
    next.pass(31 * MINUTE);
    assert_eq!(
        (next.status(next.id), next.status(next.scheduled)),
        (Some(Status::Ready), Some(Status::Ready))
    );
    next.accept_clock();
    next.engine.tick_once();
    assert!(!next.is_held() && next.clock.may_catch_up());
    assert_eq!(next.engine.now_ms(), START_MS + (400 * DAY + 61 * MINUTE) as u64);
    assert_eq!(next.status(next.id), None);
    next.pass(MINUTE);
    assert!(!next.is_held());
}

#[test]
fn a_server_may_have_been_away_as_long_as_the_setting_says() {
    for away_max in [DAY, 30 * DAY] {
        let options = || Options { away_max_ms: away_max as u64, ..Options::default() };
        let next = Next::start_with(away_max, options());
        assert!(!next.is_held() && next.clock.may_catch_up());
        assert_eq!(next.engine.now_ms(), START_MS + away_max as u64);
        assert_eq!(
            (next.status(next.id), next.status(next.scheduled)),
            (None, Some(Status::Ready))
        );
        let next = Next::start_with(away_max + 1, options());
        assert!(next.is_held());
        assert_eq!(next.status(next.id), Some(Status::Ready));
    }
    assert_eq!(Options::default().away_max_ms, 30 * DAY as u64);
}

#[test]
fn a_clock_that_is_set_right_after_the_start_needs_nobody() {
    for wrong in [400 * DAY, -400 * DAY] {
        let next = Next::start(wrong);
        assert!(next.is_held() && !next.clock.may_catch_up(), "{wrong}");
        // The server had been away for three hours.
        next.clock.set_wall_ahead(180 * MINUTE);
        next.pass(0);
        assert!(!next.is_held() && next.clock.may_catch_up(), "{wrong}");
        assert_eq!(next.engine.now_ms(), START_MS + 180 * MINUTE as u64);
        assert_eq!(
            (next.status(next.id), next.status(next.scheduled)),
            (None, Some(Status::Ready))
        );
    }
}

/// Setting the clock right uses up no worker's time.
#[test]
fn leases_keep_the_time_they_had_left_when_time_is_set_forward() {
    let set_right = |next: &Next| next.clock.set_wall_ahead(180 * MINUTE);
    let accept = |next: &Next| {
        next.clock.set_wall_ahead(400 * DAY);
        next.accept_clock();
    };
    for (set_forward, ahead) in [(set_right as fn(&Next), 180 * MINUTE), (accept, 400 * DAY)] {
        let next = Next::start(-400 * DAY);
        let id = next.lease();
        next.pass(TTR_MS - 10);
        set_forward(&next);
        next.pass(0);
        assert_eq!(next.engine.now_ms(), START_MS + (ahead + TTR_MS - 10) as u64);
        next.pass(9);
        assert_eq!(next.status(id), Some(Status::Leased), "{ahead}");
        next.pass(1);
        assert_eq!(next.status(id), Some(Status::Ready), "{ahead}");
    }
}

#[test]
fn leases_do_not_keep_the_time_in_which_the_server_was_away() {
    let next = Next::start(30 * MINUTE);
    let grace_ms = Options::default().grace_ms as i64;
    next.pass(grace_ms - 1);
    assert_eq!(next.status(next.held), Some(Status::Leased));
    next.pass(1);
    assert_eq!(next.status(next.held), Some(Status::Ready));
}

#[test]
fn a_clock_far_behind_stalls_nothing_but_deletions_and_can_be_accepted() {
    let next = Next::start(-400 * DAY);
    assert!(next.is_held());
    next.pass(61 * MINUTE);
    assert_eq!(
        (next.status(next.id), next.status(next.scheduled)),
        (Some(Status::Ready), Some(Status::Ready))
    );
    next.accept_clock();
    next.engine.tick_once();
    assert_eq!(next.engine.now_ms(), START_MS + 61 * MINUTE as u64, "time never goes back");
    assert_eq!(next.status(next.id), None);
    next.pass(MINUTE);
    assert!(!next.is_held(), "it was accepted");
    // Nothing is wrong with a clock that is set right later.
    next.clock.set_wall_ahead(0);
    next.pass(MINUTE);
    assert!(!next.is_held());
    next.clock.set_wall_ahead(6 * MINUTE);
    next.pass(MINUTE);
    assert!(next.is_held());
}

/// A job that is shown can be retried.
#[test]
fn a_finished_job_whose_time_is_over_is_retried_while_its_deletion_is_held() {
    let next = Next::start(400 * DAY);
    next.engine.people(&mut somebody()).cancel(next.id).value().expect("is cancelled");
    next.pass(61 * MINUTE);
    assert_eq!(next.status(next.id), Some(Status::Dead));
    let retried = next.engine.people(&mut somebody()).retry(JobRef::Id(next.id), None).value();
    retried.expect("it is there");
    assert_eq!(next.status(next.id), Some(Status::Ready));
    next.accept_clock();
    next.engine.tick_once();
    assert_eq!(next.status(next.id), None);
}

#[test]
fn a_running_server_holds_while_the_clock_is_stepped() {
    for step in [5 * MINUTE + 1, -5 * MINUTE - 1] {
        let next = Next::start(0);
        next.clock.set_wall_ahead(step.signum() * 5 * MINUTE);
        next.pass(MINUTE);
        assert!(!next.is_held(), "{step}");
        next.clock.set_wall_ahead(step);
        next.pass(70 * MINUTE);
        assert!(next.is_held(), "{step}");
        assert_eq!(next.status(next.id), Some(Status::Ready));
        next.clock.set_wall_ahead(0);
        next.pass(0);
        assert!(!next.is_held(), "{step}");
        assert_eq!(next.status(next.id), None, "what was due meanwhile goes now");
    }
}
