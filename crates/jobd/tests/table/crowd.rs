//! Many workers at one table.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use spindle_jobd::table::{Finish, JobTable, Pick, RowId, TableKind};
use tokio::task::JoinSet;

use crate::conformance::{WAITING, accept, finish, mark, names, us};
use crate::database::Database;

const ROWS: i64 = 1_500;
const WORKERS: u32 = 6;

/// Claims, starts and finishes until no row waits; answers the rows it ran.
async fn work(table: Arc<dyn JobTable>, number: u32, left: Arc<AtomicUsize>) -> Vec<i64> {
    let mark = mark(&format!("worker{number:03}"));
    let targets = names(&["low", "high"]);
    let mut ran = Vec::new();
    let give_up = Instant::now() + Duration::from_secs(120);
    while left.load(Ordering::Relaxed) > 0 {
        assert!(Instant::now() < give_up, "rows are left waiting");
        let pick = Pick::Waiting { targets: &targets, limit: 20 };
        let claimed = table.claim(pick, &mark, &accept).await.unwrap();
        left.fetch_sub(claimed.len(), Ordering::Relaxed);
        let ids: Vec<RowId> = claimed.iter().map(|claimed| claimed.row.id).collect();
        for ids in ids.chunks(7) {
            let started = table.write(&mark, ids, 11, &[]).await.unwrap().started;
            assert_eq!(started, ids);
            ran.extend(started.iter().map(|id| id.0));
            let said = |id: &RowId| Finish { stdout: format!("by {number}"), ..finish(id.0) };
            let ends: Vec<Finish> = ids.iter().map(said).collect();
            assert_eq!(table.write(&mark, &[], 0, &ends).await.unwrap().finished, ids);
        }
    }
    ran
}

pub async fn many_workers_run_each_row_once(database: &impl Database) {
    let rows: Vec<(i64, &str, &str)> =
        (1..=ROWS).map(|id| (id, if id % 3 == 0 { "high" } else { "low" }, WAITING)).collect();
    database.add(&rows).await;
    let left = Arc::new(AtomicUsize::new(rows.len()));
    let mut workers = JoinSet::new();
    for number in 0..WORKERS {
        let work = work(database.table(), number, Arc::clone(&left));
        workers.spawn(async move { (number, work.await) });
    }
    let mut runners = BTreeMap::new();
    while let Some(done) = workers.join_next().await {
        let (number, ran) = done.unwrap();
        // SQLite has no queue for connections that wait to write.
        let is_shared = database.kind() != TableKind::Sqlite;
        assert!(!(is_shared && ran.is_empty()), "worker {number} got nothing");
        for id in ran {
            assert_eq!(runners.insert(id, number), None, "row {id} ran twice");
        }
    }
    let rows = database.rows().await;
    assert_eq!(rows.len(), runners.len());
    for (id, row) in rows {
        assert_eq!((&*row.status, row.sig.as_deref()), ("done", None), "row {id}");
        assert_eq!(row.stdout, Some(format!("by {}", runners[&id])), "row {id}");
    }
}

/// The call's result, if it is ready within this many polls. Otherwise the call is dropped, after it was
/// kept for a while in which the database may go on.
async fn polled<T>(call: impl Future<Output = T>, polls: u64, held: Duration) -> Option<T> {
    let mut call = pin!(call);
    let mut left = polls;
    let came = poll_fn(|context| {
        left -= 1;
        match call.as_mut().poll(context) {
            Poll::Ready(came) => Poll::Ready(Some(came)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    });
    let came = came.await;
    if came.is_none() {
        tokio::time::sleep(held).await;
    }
    came
}

/// Calls that are given up at any moment either happened or did not, and hold nothing.
pub async fn an_abandoned_call_leaves_no_transaction_open(database: &impl Database) {
    let rows: Vec<(i64, &str, &str)> = (1..=200).map(|id| (id, "low", WAITING)).collect();
    database.add(&rows).await;
    let table = database.table();
    let targets = names(&["low"]);
    let pick = Pick::Waiting { targets: &targets, limit: 2 };
    let (mut done, mark_of_us) = (0, us());
    for round in 0..60 {
        let call = table.claim(pick, &mark_of_us, &accept);
        let held = Duration::from_micros(round % 10 * 150);
        done += usize::from(polled(call, 1 + round / 10, held).await.is_some());
    }
    assert!(done < 60, "no call was given up");
    // A transaction left open would keep its rows from the next claim, or make it wait.
    let rest = Pick::Waiting { targets: &targets, limit: 200 };
    let begin = Instant::now();
    loop {
        database.table().claim(rest, &mark("worker002"), &accept).await.unwrap();
        let rows = database.rows().await;
        if rows.values().all(|row| row.status == "accepted") {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "rows are locked");
    }
    let owned = table.owned(&us()).await.unwrap().len();
    let others = table.owned(&mark("worker002")).await.unwrap().len();
    assert_eq!(owned + others, 200);
    if database.kind() != TableKind::Sqlite {
        assert!(owned >= 2 * done);
    }
}
