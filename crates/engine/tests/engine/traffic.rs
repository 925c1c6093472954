//! What goes through queues, who works, and how long things take.

use spindle_core::JobId;
use spindle_core::command::{Claim, Command, Extend, Lease};
use spindle_core::job::{Cause, Origin};
use spindle_engine::{ConnectionId, LeaseReply, Readings, Tally};

use crate::harness::{Bench, START_MS, TakeApart, plain, wish};

#[test]
fn each_queue_counts_what_goes_through_it() {
    let bench = Bench::new();
    let ids: Vec<JobId> = (0..4).map(|_| bench.add("a", b"x")).collect();
    bench.add("b", b"x");
    bench.lease("a").unwrap();
    bench.lease("a").unwrap();
    bench.finish(ids[0], true, b"").unwrap();
    bench.finish(ids[1], false, b"").unwrap();
    bench.execute(Command::Cancel { id: ids[2] });
    let a = bench.engine.observe().traffic(b"a");
    let expected = Tally { submitted: 4, leased: 2, completed: 1, requeued: 0, died: 2, failed: 1 };
    assert_eq!((a.total, a.last_minute), (expected, expected));
    assert_eq!(a.asked_ms, Some(START_MS));
    let b = bench.engine.observe().traffic(b"b");
    assert_eq!((b.total.submitted, b.asked_ms), (1, None));
    bench.pass(120_000);
    let later = bench.engine.observe().traffic(b"a");
    assert_eq!((later.total, later.last_minute), (expected, Tally::default()));
    assert_eq!(bench.engine.observe().traffic(b"nowhere").total, Tally::default());
}

#[test]
fn who_asks_for_jobs_is_known_until_its_connection_goes() {
    let bench = Bench::new();
    let asks = |holder: u64, worker: &'static str, queue: &str| {
        let wish = Lease { holder, worker: worker.into(), ..wish(queue) };
        bench.engine.leases().take(&bench.caller(holder), wish, 0).value().unwrap();
    };
    asks(7, "", "a");
    bench.pass(10);
    asks(0, "ann", "b");
    asks(7, "", "c");
    let (workers, next) = bench.engine.observe().workers(0);
    assert_eq!(next, None);
    let listed: Vec<_> = workers
        .iter()
        .map(|worker| (worker.holder, &worker.name[..], &worker.queues[..]))
        .collect();
    assert_eq!(listed, [(7, &b""[..], &["c".into()][..]), (0, b"ann", &["b".into()])]);
    let seven = &workers[0];
    assert_eq!((seven.first_asked_ms, seven.last_seen_ms), (START_MS, START_MS + 10));
    assert_eq!(seven.door, Origin::Workq);
    bench.engine.waits().connection_gone(ConnectionId(7), None);
    let (workers, _) = bench.engine.observe().workers(0);
    assert_eq!(workers.len(), 1);
    bench.pass(2 * 3_600_000);
    assert_eq!(bench.engine.observe().workers(0).0, [], "not seen for an hour");
}

#[test]
fn a_worker_is_seen_whichever_call_it_keeps_its_lease_by() {
    let bench = Bench::new();
    let worker_seen = |call: &str| {
        let id = bench.add("q", b"x");
        let ann = Lease { holder: 0, worker: "ann".into(), ..wish("q") };
        let reply = bench.engine.leases().take(&bench.caller(1), ann, 0).value().unwrap();
        let LeaseReply::Leased(job) = reply else { panic!("{reply:?}") };
        bench.pass(1_000);
        let claim = Claim::Token { id, epoch: job.epoch, attempt: job.attempt };
        let extend = Extend { claim, ttr_ms: 60_000 };
        match call {
            "extend" => bench.engine.leases().extend(extend).value().unwrap(),
            "release" => bench.engine.leases().release(claim, Cause::Released).value().unwrap(),
            "execute extend" => bench.execute(Command::Extend(extend)),
            _ => bench.execute(Command::Release { claim, cause: Cause::Released }),
        }
        let (workers, _) = bench.engine.observe().workers(0);
        let seen_ms = workers[0].last_seen_ms;
        bench.delete(id);
        seen_ms
    };
    for call in ["extend", "release", "execute extend", "execute release"] {
        let seen_ms = worker_seen(call);
        assert_eq!(seen_ms, bench.engine.now_ms(), "{call}");
    }
}

fn count(readings: &Readings) -> u64 {
    readings.counts.iter().map(|(_, count)| count).sum()
}

#[test]
fn commits_and_late_jobs_are_measured() {
    let bench = Bench::new();
    let before = bench.engine.observe().meters();
    bench.add("a", &[7; 1000]);
    bench.commit();
    let after = bench.engine.observe().meters();
    assert_eq!(count(&after.commit_us), count(&before.commit_us) + 1);
    assert!(after.commit_bytes.sum > before.commit_bytes.sum + 1000);
    assert_eq!(count(&after.lag_ms), 0);
    let mut later = plain("a");
    later.run_at_ms = Some(START_MS + 100);
    bench.submit(later, b"");
    bench.pass(130);
    let lag = bench.engine.observe().meters().lag_ms;
    assert_eq!((count(&lag), lag.sum), (1, 30));
    assert!(lag.counts.contains(&(Some(32), 1)), "{lag:?}");
}

#[test]
fn failed_attempts_are_counted_by_what_they_say_until_they_are_taken() {
    let bench = Bench::new();
    let fail = |queue: &str, error: &str| {
        let id = bench.add(queue, b"x");
        bench.lease(queue).unwrap();
        bench.fail(id, error).unwrap();
        id
    };
    fail("a", "no db-1");
    let last = fail("a", "no db-2");
    fail("b", "no db-3");
    let cancelled = bench.add("a", b"x");
    bench.execute(Command::Cancel { id: cancelled });
    let done = bench.add("a", b"x");
    bench.lease("a").unwrap();
    bench.finish(done, true, b"").unwrap();
    let observe = bench.engine.observe();
    assert_eq!((observe.stats().failed, observe.traffic(b"a").total.failed), (3, 2));
    let (mut rows, others) = observe.take_failures();
    rows.sort_by(|a, b| a.queue.cmp(&b.queue));
    let shown: Vec<_> =
        rows.iter().map(|row| (&row.fingerprint[..], &row.queue[..], row.count)).collect();
    assert_eq!(shown, [("no db-#", &b"a"[..], 2), ("no db-#", b"b", 1)]);
    assert_eq!((rows[0].last_job, rows[0].last_ms, others), (last, START_MS, 0));
    assert_eq!(observe.take_failures(), (vec![], 0));
}

#[test]
fn a_thousand_kinds_of_failures_are_kept_apart_and_the_rest_is_counted() {
    let bench = Bench::new();
    for n in 0..1_026 {
        // Another word each time: numbers are no difference.
        let error: String = format!("{n:010b}").replace('0', "x").replace('1', "y");
        let id = bench.add("a", b"x");
        bench.lease("a").unwrap();
        bench.fail(id, if n < 1_024 { &error } else { "yet another" }).unwrap();
    }
    let (rows, others) = bench.engine.observe().take_failures();
    assert_eq!((rows.len(), others), (1_024, 2));
}

#[test]
fn the_engine_says_which_queues_were_active_and_how_many_jobs_are_ready() {
    let bench = Bench::new();
    bench.add("a", b"x");
    bench.add("a", b"x");
    bench.add("b", b"x");
    bench.lease("b").unwrap();
    let observe = bench.engine.observe();
    let mut active = observe.take_active_queues();
    active.sort_by(|a, b| a.0.cmp(&b.0));
    let flows: Vec<_> =
        active.iter().map(|(name, it)| (&name[..], it.submitted, it.leased)).collect();
    assert_eq!(flows, [(&b"a"[..], 2, 0), (b"b", 1, 1)]);
    assert_eq!(observe.take_active_queues(), []);
    assert_eq!(observe.ready_counts(&["a".into(), "b".into(), "none".into()]), [2, 0, 0]);
}
