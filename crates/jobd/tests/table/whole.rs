//! Whole workers on real databases: rows run as processes, and workers that are killed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use spindle_jobd::table::{SqlServer, TableSettings};
use tempfile::TempDir;

use crate::database::{Database, Mariadb, Pgsql};

/// Far longer than anything here takes.
const WITHIN: Duration = Duration::from_secs(300);

/// A worker program, killed when it is dropped.
struct Jobd {
    child: Child,
    address: SocketAddr,
}

impl Jobd {
    fn start(folder: &Path, name: &str, settings: &TableSettings, more: &[&str]) -> Self {
        let (family, server) = match settings {
            TableSettings::Mysql(server) => ("mysql", server),
            TableSettings::Pgsql(server) => ("pgsql", server),
            other => panic!("{other:?}"),
        };
        let SqlServer { host, port, user, password, database, table, .. } = server;
        let shown = folder.display();
        let mut options = vec![
            "port=0".to_owned(),
            "log_level_console=info".to_owned(),
            format!("state_file={shown}/{name}.state"),
            format!("launcher=sh {shown}/job.sh {shown} {{id}}"),
            format!("{family}_host={host}"),
            format!("{family}_port={port}"),
            format!("{family}_user={user}"),
            format!("{family}_password={password}"),
            format!("{family}_database={database}"),
            format!("{family}_table={table}"),
        ];
        options.extend(more.iter().map(|&option| option.to_owned()));
        let mut child = Command::new(env!("CARGO_BIN_EXE_jobd"))
            .args(options.iter().flat_map(|option| ["-o", option]))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines.find_map(|line| {
            Some(line.unwrap().split_once("listening address=")?.1.parse().unwrap())
        });
        // The rest must be read, so that the program does not block.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        Self { child, address: address.expect("it listens") }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn ask(&self, kind: &str, data: &Value) -> Value {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(WITHIN)).unwrap();
        let message = json!([0, {"no": 1, "type": kind, "data": data}]);
        stream.write_all(format!("{message}\u{4}").as_bytes()).unwrap();
        let mut answer = Vec::new();
        BufReader::new(stream).read_until(4, &mut answer).unwrap();
        answer.pop();
        let mut answer: Value = serde_json::from_slice(&answer).unwrap();
        assert!(answer[1].get("error").is_none(), "{kind}: {answer}");
        answer[1]["data"].take()
    }

    /// The rows it lists as running when it was killed.
    fn unfinished(&self) -> BTreeSet<i64> {
        let status = self.ask("status", &json!({}));
        let rows = status.get("unfinished").and_then(Value::as_object);
        rows.into_iter().flatten().map(|(id, _)| id.parse().unwrap()).collect()
    }
}

impl Drop for Jobd {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn folder(launcher: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("job.sh"), launcher).unwrap();
    folder
}

async fn until<F: Future<Output = bool>>(what: &str, is_so: impl Fn() -> F) {
    let give_up = Instant::now() + WITHIN;
    while !is_so().await {
        assert!(Instant::now() < give_up, "never came true: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn counted(database: &impl Database, condition: &str) -> i64 {
    let rows = database.query(&format!("SELECT count(*) FROM jobs WHERE {condition}")).await;
    rows[0][0].as_ref().unwrap().parse().unwrap()
}

/// Background and manual rows, good and bad ends, as their owner sees them in the table.
async fn rows_are_run_and_their_ends_written(database: &impl Database) {
    let script = "case $2 in 2) echo no >&2; exit 3 ;; 3) kill -9 $$ ;; *) echo \"é $2\" ;; esac";
    let folder = folder(script);
    let settings = database.settings_of("jobs");
    let jobd = Jobd::start(folder.path(), "a", &settings, &["targets.low=2"]);
    let rows = [(1, "low", "waiting"), (2, "low", "waiting"), (3, "low", "waiting")];
    database.add(&rows).await;
    database.add(&[(4, "low", "manual"), (5, "elsewhere", "manual"), (6, "low", "done")]).await;
    assert_eq!(jobd.ask("poll", &json!({})), "ok");
    let ids: Vec<i64> = vec![4, 5, 6, 7];
    let results = jobd.ask("run-manual", &json!({ "ids": ids }));
    assert_eq!(results["jobs"]["4"]["stdout"], "é 4\n");
    let expected = json!({
        "5": "target 'elsewhere' not found (job id=5)",
        "6": "status = done != manual",
        "7": "job 7 not found",
    });
    assert_eq!(results["errors"], expected);
    until("all are done", || async { counted(database, "status = 'done'").await == 5 }).await;
    let rows = database.rows().await;
    let answer = |id: i64| {
        let row = &rows[&id];
        let (result, sig) = (row.result.as_deref().unwrap(), row.sig.as_deref());
        (result, row.code, sig, row.stdout.as_deref().unwrap(), row.stderr.as_deref().unwrap())
    };
    assert_eq!(answer(1), ("ok", Some(0), None, "é 1\n", ""));
    assert_eq!(answer(2), ("fail", Some(3), None, "", "no\n"));
    assert_eq!(answer(3), ("fail", None, Some("SIGKILL"), "", ""));
    assert_eq!(answer(4), ("ok", Some(0), None, "é 4\n", ""));
    assert!(rows[&1].times[1] > 1_000_000_000 && rows[&1].times[2] >= rows[&1].times[1]);
    assert_eq!(rows[&5].status, "ignored");
    assert_eq!((rows[&6].times, rows[&6].result.as_deref()), ([7, 0, 0], None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_runs_the_rows_of_mariadb() {
    rows_are_run_and_their_ends_written(&Mariadb::new().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_runs_the_rows_of_postgresql() {
    rows_are_run_and_their_ends_written(&Pgsql::new().await).await;
}

/// Three workers drain a table and are killed at random moments. Every row is run; none is left
/// waiting or accepted; none is run twice; what was running at a kill is listed by the worker that
/// came back, and nothing else stays `running`.
async fn killed_workers_lose_no_row_and_run_none_twice(database: &impl Database, rows: i64) {
    const KILLS: usize = 12;
    let names = ["a", "b", "c"];
    let folder = folder("echo $2 >> $1/runs");
    let settings = database.settings_of("jobs");
    let added: Vec<(i64, &str, &str)> = (1..=rows).map(|id| (id, "t", "waiting")).collect();
    database.add(&added).await;
    let start = |name: &str| Jobd::start(folder.path(), name, &settings, &["targets.t=8"]);
    let mut workers = names.map(start);
    let mut killed = 0;
    while killed < KILLS {
        let left = counted(database, "status IN ('waiting', 'accepted')").await;
        let goal = rows - rows * i64::try_from(killed + 1).unwrap() / 14;
        if left > goal {
            tokio::time::sleep(Duration::from_millis(rand::random_range(1..20))).await;
            continue;
        }
        let at = rand::random_range(0..names.len());
        workers[at].kill();
        killed += 1;
        workers[at] = start(names[at]);
    }
    let open = "status IN ('waiting', 'accepted')";
    until("none is left", || async { counted(database, open).await == 0 }).await;
    until("only what was running at a kill is", || async {
        let listed: BTreeSet<i64> = workers.iter().flat_map(Jobd::unfinished).collect();
        let running = database.query("SELECT id FROM jobs WHERE status = 'running'").await;
        let running: BTreeSet<i64> =
            running.iter().map(|row| row[0].as_ref().unwrap().parse().unwrap()).collect();
        running == listed
    })
    .await;
    let text = fs::read_to_string(folder.path().join("runs")).unwrap();
    let mut runs: BTreeMap<i64, u32> = BTreeMap::new();
    text.lines().for_each(|id| *runs.entry(id.parse().unwrap()).or_default() += 1);
    let twice: Vec<_> = runs.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "run more than once: {twice:?}");
    let listed: BTreeSet<i64> = workers.iter().flat_map(Jobd::unfinished).collect();
    let mut ends = database.rows().await;
    ends.retain(|id, _| !runs.contains_key(id) && !listed.contains(id));
    assert!(ends.is_empty(), "neither run nor listed: {ends:?}");
    let done = counted(database, "status = 'done'").await;
    assert_eq!(done + i64::try_from(listed.len()).unwrap(), rows);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_workers_lose_no_row_of_mariadb_and_run_none_twice() {
    killed_workers_lose_no_row_and_run_none_twice(&Mariadb::new().await, 10_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_workers_lose_no_row_of_postgresql_and_run_none_twice() {
    killed_workers_lose_no_row_and_run_none_twice(&Pgsql::new().await, 2_000).await;
}
