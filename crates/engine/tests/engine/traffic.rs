//! What goes through queues, who works, and how long things take.

use spindle_core::job::Origin;
use spindle_core::{JobId, command::Lease};
use spindle_engine::{ConnectionId, Readings, Tally};

use crate::harness::{Bench, START_MS, plain, wish};

#[test]
fn each_queue_counts_what_goes_through_it() {
    let bench = Bench::new();
    let ids: Vec<JobId> = (0..4).map(|_| bench.add("a", b"x")).collect();
    bench.add("b", b"x");
    bench.lease("a").unwrap();
    bench.lease("a").unwrap();
    bench.finish(ids[0], true, b"").unwrap();
    bench.finish(ids[1], false, b"").unwrap();
    bench.execute(spindle_core::Command::Cancel { id: ids[2] });
    let a = bench.engine.traffic(b"a");
    let expected = Tally { submitted: 4, leased: 2, completed: 1, requeued: 0, died: 2 };
    assert_eq!((a.total, a.last_minute), (expected, expected));
    assert_eq!(a.asked_ms, Some(START_MS));
    let b = bench.engine.traffic(b"b");
    assert_eq!((b.total.submitted, b.asked_ms), (1, None));
    bench.pass(120_000);
    let later = bench.engine.traffic(b"a");
    assert_eq!((later.total, later.last_minute), (expected, Tally::default()));
    assert_eq!(bench.engine.traffic(b"nowhere").total, Tally::default());
}

#[test]
fn who_asks_for_jobs_is_known_until_its_connection_goes() {
    let bench = Bench::new();
    let asks = |holder: u64, worker: &'static str, queue: &str| {
        let wish = Lease { holder, worker: worker.into(), ..wish(queue) };
        bench.engine.lease(&bench.caller(holder), wish, 0).unwrap();
    };
    asks(7, "", "a");
    bench.pass(10);
    asks(0, "ann", "b");
    asks(7, "", "c");
    let (workers, next) = bench.engine.workers(0);
    assert_eq!(next, None);
    let told: Vec<_> = workers
        .iter()
        .map(|worker| (worker.holder, &worker.name[..], &worker.queues[..]))
        .collect();
    assert_eq!(told, [(7, &b""[..], &["c".into()][..]), (0, b"ann", &["b".into()])]);
    let seven = &workers[0];
    assert_eq!((seven.first_asked_ms, seven.last_seen_ms), (START_MS, START_MS + 10));
    assert_eq!(seven.door, Origin::Workq);
    bench.engine.connection_gone(ConnectionId(7), None);
    let (workers, _) = bench.engine.workers(0);
    assert_eq!(workers.len(), 1);
    bench.pass(2 * 3_600_000);
    assert_eq!(bench.engine.workers(0).0, [], "not seen for an hour");
}

fn count(readings: &Readings) -> u64 {
    readings.counts.iter().map(|(_, count)| count).sum()
}

#[test]
fn commits_and_late_jobs_are_measured() {
    let bench = Bench::new();
    let before = bench.engine.meters();
    bench.add("a", &[7; 1000]);
    bench.commit();
    let after = bench.engine.meters();
    assert_eq!(count(&after.commit_us), count(&before.commit_us) + 1);
    assert!(after.commit_bytes.sum > before.commit_bytes.sum + 1000);
    assert_eq!(count(&after.lag_ms), 0);
    let mut later = plain("a");
    later.run_at_ms = Some(START_MS + 100);
    bench.submit(later, b"");
    bench.pass(130);
    let lag = bench.engine.meters().lag_ms;
    assert_eq!((count(&lag), lag.sum), (1, 30));
    assert!(lag.counts.contains(&(Some(32), 1)), "{lag:?}");
}
