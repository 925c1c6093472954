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
    let expected = Tally { submitted: 4, leased: 2, completed: 1, requeued: 0, died: 2 };
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
