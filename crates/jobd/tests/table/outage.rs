//! A server that is killed under a worker, and comes back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use spindle_jobd::table::{Finish, JobTable, Pick, RowId, TableError, open_table};

use crate::conformance::{WAITING, accept, finish, names, us};
use crate::database::{Database, Mariadb, Pgsql};
use crate::servers::{Kind, Server};

const ROWS: i64 = 400;
/// In each of three rounds at most so many rows are written, so that some are left for the last.
const ROWS_A_ROUND: usize = 120;

/// A worker that never gives up, and what it counted.
struct Stubborn {
    table: Arc<dyn JobTable>,
    runs: BTreeMap<i64, u32>,
    written: Arc<AtomicUsize>,
    /// How many rows it may write, so that it is never done before its server is killed.
    allowed: Arc<AtomicUsize>,
    failures: Arc<AtomicUsize>,
}

impl Stubborn {
    async fn retry<T, F: Future<Output = Result<T, TableError>>>(&self, what: impl Fn() -> F) -> T {
        let give_up = Instant::now() + Duration::from_secs(100);
        loop {
            match what().await {
                Ok(done) => return done,
                Err(TableError::Away { .. }) => self.failures.fetch_add(1, Ordering::SeqCst),
                Err(e) => panic!("{e}"),
            };
            assert!(Instant::now() < give_up, "the table stays away");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Claims; when the answer is lost, asks what is ours.
    async fn claim(&self) -> Vec<RowId> {
        let targets = names(&["low"]);
        let pick = Pick::Waiting { targets: &targets, limit: 5 };
        match self.table.claim(pick, &us(), &accept).await {
            Ok(claimed) => claimed.iter().map(|claimed| claimed.row.id).collect(),
            Err(TableError::Away { .. }) => {
                self.failures.fetch_add(1, Ordering::SeqCst);
                let mark = us();
                let owned = self.retry(|| self.table.owned(&mark)).await;
                owned.iter().map(|row| row.id).collect()
            }
            Err(e) => panic!("{e}"),
        }
    }

    /// Waits until it may write more, and uses the table meanwhile: the processes of a killed
    /// PostgreSQL answer for a moment.
    async fn wait_for_leave(&self) {
        let mark = us();
        while self.written.load(Ordering::SeqCst) >= self.allowed.load(Ordering::SeqCst) {
            self.retry(|| self.table.owned(&mark)).await;
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    async fn work(mut self) -> BTreeMap<i64, u32> {
        while self.runs.len() < usize::try_from(ROWS).unwrap() {
            self.wait_for_leave().await;
            let ids = self.claim().await;
            let mark = us();
            let started = self.retry(|| self.table.write(&mark, &ids, 11, &[])).await.started;
            assert_eq!(started, ids);
            for id in &ids {
                *self.runs.entry(id.0).or_default() += 1;
            }
            let ends: Vec<Finish> = ids.iter().map(|id| finish(id.0)).collect();
            self.retry(|| self.table.write(&mark, &[], 0, &ends)).await;
            self.written.fetch_add(ends.len(), Ordering::SeqCst);
        }
        self.runs
    }
}

async fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(60);
    while !is_true() {
        assert!(Instant::now() < give_up, "{what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn nothing_is_lost(mut server: Server, database: impl Database) {
    let rows: Vec<(i64, &str, &str)> = (1..=ROWS).map(|id| (id, "low", WAITING)).collect();
    database.add(&rows).await;
    let (written, failures) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let allowed = Arc::new(AtomicUsize::new(0));
    let worker = Stubborn {
        table: database.table(),
        runs: BTreeMap::new(),
        written: Arc::clone(&written),
        allowed: Arc::clone(&allowed),
        failures: Arc::clone(&failures),
    };
    let worker = tokio::spawn(worker.work());
    for round in 1..=3 {
        let (before, failed) = (written.load(Ordering::SeqCst), failures.load(Ordering::SeqCst));
        let goal = (before + 40).min(rows.len());
        allowed.fetch_add(ROWS_A_ROUND, Ordering::SeqCst);
        until("the worker works", || written.load(Ordering::SeqCst) >= goal).await;
        assert!(goal < rows.len(), "it was done before round {round}");
        tokio::task::block_in_place(|| server.kill());
        until("the worker notices", || failures.load(Ordering::SeqCst) > failed).await;
        tokio::task::block_in_place(|| server.restart());
    }
    allowed.store(rows.len(), Ordering::SeqCst);
    let runs = worker.await.unwrap();
    assert!(runs.values().all(|runs| *runs == 1), "{runs:?}");
    let rows = database.rows().await;
    assert!(rows.values().all(|row| row.status == "done" && row.sig.is_none()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_mariadb_loses_nothing() {
    let server = Server::start(Kind::Mariadb);
    let database = Mariadb::on(server.port, None).await;
    nothing_is_lost(server, database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_postgresql_loses_nothing() {
    let server = Server::start(Kind::Pgsql);
    let database = Pgsql::on(server.port, None).await;
    nothing_is_lost(server, database).await;
}

/// An idle connection whose server was exchanged is no error: the next call connects.
async fn an_idle_worker_does_not_notice(mut server: Server, database: impl Database) {
    database.add(&[(1, "low", WAITING)]).await;
    let table = database.table();
    table.check().await.unwrap();
    tokio::task::block_in_place(|| {
        server.kill();
        server.restart();
    });
    // As long as a connection is trusted without asking.
    tokio::time::sleep(Duration::from_millis(2_100)).await;
    crate::database::until_up(|| async { open_table(&database.settings_of("jobs")).check().await })
        .await;
    let targets = names(&["low"]);
    let pick = Pick::Waiting { targets: &targets, limit: 5 };
    assert_eq!(table.claim(pick, &us(), &accept).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_worker_does_not_notice_a_new_mariadb() {
    let server = Server::start(Kind::Mariadb);
    let database = Mariadb::on(server.port, None).await;
    an_idle_worker_does_not_notice(server, database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_worker_does_not_notice_a_new_postgresql() {
    let server = Server::start(Kind::Pgsql);
    let database = Pgsql::on(server.port, None).await;
    an_idle_worker_does_not_notice(server, database).await;
}
