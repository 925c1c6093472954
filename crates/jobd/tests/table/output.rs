//! Output that a process may print, and how the columns store it.

use spindle_jobd::table::{Finish, RowId, TableKind};

use crate::conformance::{WAITING, claim_all, finish, us};
use crate::database::Database;

/// What comes back of an output.
async fn kept(database: &impl Database, stdout: &str) -> String {
    database.run("DELETE FROM jobs").await;
    database.add(&[(1, "low", WAITING)]).await;
    let table = database.table();
    claim_all(&*table, "low").await;
    let end = Finish { stdout: stdout.to_owned(), ..finish(1) };
    let written = table.write(&us(), &[], 0, &[end]).await.unwrap();
    assert_eq!(written.finished, [RowId(1)]);
    database.rows().await[&1].stdout.clone().unwrap()
}

pub async fn output_comes_back_as_it_was_or_replaced(database: &impl Database) {
    let said = "quotes ' \" ` \\ \\n, größer €\t\r\n\u{fffd} $1 {id} % _";
    assert_eq!(kept(database, said).await, said);
    let (letter, nul) = match database.kind() {
        TableKind::Mysql => ("a\u{fffd}b", "a\0b"),
        TableKind::Pgsql => ("a😀b", "a\u{fffd}b"),
        TableKind::Sqlite => ("a😀b", "a\0b"),
    };
    assert_eq!(kept(database, "a😀b").await, letter);
    assert_eq!(kept(database, "a\0b").await, nul);
}

pub async fn a_mebibyte_of_output_is_kept_whole(database: &impl Database) {
    let said = "ä23456789\\'\n".repeat(1 << 17)[..1 << 20].to_owned();
    assert_eq!(kept(database, &said).await, said);
    // Both columns, and a neighbour in the same write.
    database.run("DELETE FROM jobs").await;
    database.add(&[(1, "low", WAITING), (2, "low", WAITING)]).await;
    let table = database.table();
    claim_all(&*table, "low").await;
    let end = |id| Finish { stdout: said.clone(), stderr: said.clone(), ..finish(id) };
    table.write(&us(), &[], 0, &[end(1), end(2)]).await.unwrap();
    for row in database.rows().await.values() {
        assert!(row.stdout.as_deref() == Some(&said) && row.stderr.as_deref() == Some(&said));
    }
}

/// The table may have rules that its columns' types do not show.
pub async fn a_row_that_is_refused_harms_no_other(database: &impl Database) {
    database.run("DROP TABLE jobs").await;
    let check = "CHECK (coalesce(stdout, '') NOT LIKE '%€%'), \
                 CHECK (id <> 4 OR status <> 'done'), CHECK (id <> 6 OR status <> 'running')";
    database
        .run(&format!(
            "CREATE TABLE jobs (id integer PRIMARY KEY, target varchar(16), time_created integer, \
             time_started integer DEFAULT 0, time_finished integer DEFAULT 0, status varchar(8), \
             result varchar(4), return_code smallint, sig varchar(10), stdout text, stderr text, \
             {check})"
        ))
        .await;
    let rows: Vec<(i64, &str, &str)> = (1..=6).map(|id| (id, "low", WAITING)).collect();
    database.add(&rows).await;
    let table = database.table();
    claim_all(&*table, "low").await;
    let mut ends: Vec<Finish> = (1..=4).map(finish).collect();
    ends[1].stdout = "100 €".to_owned();
    let written = table.write(&us(), &[5, 6].map(RowId), 11, &ends).await.unwrap();
    assert_eq!(written.started, [RowId(5)]);
    assert_eq!(written.finished, [1, 2, 3].map(RowId));
    let rows = database.rows().await;
    let statuses: Vec<&str> = rows.values().map(|row| &*row.status).collect();
    assert_eq!(statuses, ["done", "done", "done", "accepted", "running", "accepted"]);
    assert_eq!(rows[&2].stdout.as_deref(), Some("100 ?"));
    assert_eq!(rows[&2].result.as_deref(), Some("ok"));
}
