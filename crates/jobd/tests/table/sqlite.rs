//! What only SQLite has.

use std::time::{Duration, Instant};

use spindle_jobd::table::{TableError, TableSettings, open_table};
use tokio::task::JoinSet;

use crate::conformance::{WAITING, claim_all};
use crate::database::{Database, Sqlite};

fn settings(folder: &std::path::Path, file: &str, table: &str) -> TableSettings {
    TableSettings::Sqlite { file: folder.join(file), table: table.to_owned() }
}

#[tokio::test]
async fn a_file_that_is_not_there_is_made_with_the_named_table() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path(), "new.db", "my \"jobs\"");
    let mut workers = JoinSet::new();
    for _ in 0..4 {
        let table = open_table(&settings);
        workers.spawn(async move { table.check().await });
    }
    while let Some(outcome) = workers.join_next().await {
        outcome.unwrap().unwrap();
    }
    let connection = rusqlite::Connection::open(folder.path().join("new.db")).unwrap();
    let insert = "INSERT INTO \"my \"\"jobs\"\"\" (target) VALUES ('low')";
    connection.execute(insert, []).unwrap();
    let claimed = claim_all(&*open_table(&settings), "low").await;
    assert_eq!(claimed.len(), 1);
    let mode: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
}

#[tokio::test]
async fn a_new_file_somebody_writes_to_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let other = rusqlite::Connection::open(folder.path().join("new.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let table = open_table(&settings(folder.path(), "new.db", "jobs"));
    let check = tokio::spawn(async move { table.check().await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!check.is_finished());
    other.execute_batch("COMMIT").unwrap();
    check.await.unwrap().unwrap();
    let mode: String = other.query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
}

#[tokio::test]
async fn a_file_that_is_something_else_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let letter = folder.path().join("letter.txt");
    std::fs::write(&letter, "Dear reader, ".repeat(200)).unwrap();
    let outcome = open_table(&settings(folder.path(), "letter.txt", "jobs")).check().await;
    assert!(matches!(outcome, Err(TableError::Schema { .. })), "{outcome:?}");
    assert_eq!(std::fs::read_to_string(&letter).unwrap(), "Dear reader, ".repeat(200));
    let outcome = open_table(&settings(folder.path(), "no folder/jobs.db", "jobs")).check().await;
    let problem = outcome.unwrap_err().to_string();
    assert!(problem.ends_with("there is no such folder; create it"), "{problem}");
    // A database that has tables, but not this one, gets none.
    let other = rusqlite::Connection::open(folder.path().join("other.db")).unwrap();
    other.execute_batch("CREATE TABLE other (id integer)").unwrap();
    let outcome = open_table(&settings(folder.path(), "other.db", "jobs")).check().await;
    assert!(matches!(outcome, Err(TableError::Schema { .. })), "{outcome:?}");
}

#[tokio::test]
async fn a_claim_waits_for_the_owners_transaction() {
    let database = Sqlite::new().await;
    database.add(&[(1, "low", WAITING)]).await;
    let table = database.table();
    table.check().await.unwrap();
    let owner = database.connect();
    owner.execute_batch("BEGIN IMMEDIATE").unwrap();
    let claim = tokio::spawn(async move { claim_all(&*table, "low").await.len() });
    let begin = Instant::now();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!claim.is_finished());
    owner.execute_batch("COMMIT").unwrap();
    assert_eq!(claim.await.unwrap(), 1);
    assert!(begin.elapsed() >= Duration::from_millis(300));
}

#[tokio::test]
async fn a_table_that_stays_locked_is_away_and_comes_back() {
    let database = Sqlite::new().await;
    database.add(&[(1, "low", WAITING)]).await;
    let table = database.table();
    let owner = database.connect();
    owner.execute_batch("BEGIN IMMEDIATE").unwrap();
    let ids = [spindle_jobd::table::RowId(1)];
    let outcome = table.give_back(&crate::conformance::us(), &ids, &[]).await;
    assert!(matches!(outcome, Err(TableError::Away { .. })), "{outcome:?}");
    owner.execute_batch("COMMIT").unwrap();
    assert_eq!(claim_all(&*table, "low").await.len(), 1);
}
