//! What only MySQL and MariaDB have.

use mysql_async::prelude::Queryable;
use spindle_jobd::table::{
    Finish, Found, Pick, RowId, SqlServer, TableError, TableSettings, Verdict, open_table,
};

use crate::conformance::{WAITING, accept, claim_all, finish, ids, names, us};
use crate::crowd::many_workers_run_each_row_once;
use crate::database::{Database, Mariadb};
use crate::servers::{Kind, Server};

/// What a `stdout` of this type keeps.
async fn kept(database: &Mariadb, column_type: &str, said: &str) -> String {
    database.run("DELETE FROM jobs").await;
    database.run(&format!("ALTER TABLE jobs MODIFY stdout {column_type}")).await;
    database.add(&[(1, "low", WAITING)]).await;
    let table = database.table();
    claim_all(&*table, "low").await;
    let end = Finish { stdout: said.to_owned(), ..finish(1) };
    assert_eq!(table.write(&us(), &[], 0, &[end]).await.unwrap().finished, [RowId(1)]);
    database.rows().await[&1].stdout.clone().unwrap()
}

#[tokio::test]
async fn output_is_cut_where_the_column_ends() {
    let database = Mariadb::new().await;
    let x = |count| "x".repeat(count);
    let tiny = "tinytext CHARACTER SET utf8mb4";
    assert_eq!(kept(&database, tiny, &x(255)).await, x(255));
    assert_eq!(kept(&database, tiny, &x(256)).await, x(255));
    assert_eq!(kept(&database, tiny, &format!("{}😀", x(251))).await, format!("{}😀", x(251)));
    assert_eq!(kept(&database, tiny, &format!("{}😀", x(252))).await, x(252));
    let short = "varchar(5) CHARACTER SET utf8mb4";
    assert_eq!(kept(&database, short, "äö😀€a").await, "äö😀€a");
    assert_eq!(kept(&database, short, "äö😀€ab").await, "äö😀€a");
    let euros = |count| "€".repeat(count);
    let text = "text CHARACTER SET utf8";
    assert_eq!(kept(&database, text, &euros(21_845)).await, euros(21_845));
    assert_eq!(kept(&database, text, &euros(21_846)).await, euros(21_845));
    assert_eq!(kept(&database, text, &"😀".repeat(21_846)).await, "\u{fffd}".repeat(21_845));
}

#[tokio::test]
async fn every_character_set_takes_what_it_can() {
    let database = Mariadb::new().await;
    let said = "a€é😀Яb";
    assert_eq!(kept(&database, "varchar(9) CHARACTER SET latin1", said).await, "a€é??b");
    assert_eq!(kept(&database, "varchar(3) CHARACTER SET latin1", said).await, "a€é");
    assert_eq!(kept(&database, "varchar(9) CHARACTER SET utf16", said).await, said);
    assert_eq!(kept(&database, "varchar(9) CHARACTER SET ascii", said).await, "a????b");
    assert_eq!(kept(&database, "text CHARACTER SET gbk", "ab\0c").await, "ab\0c");
    assert_eq!(kept(&database, "blob", "a😀\0").await, "a😀\0");
    assert_eq!(kept(&database, "tinyblob", &"x".repeat(256)).await, "x".repeat(255));
}

#[tokio::test]
async fn output_larger_than_a_packet_is_cut() {
    let server = Server::start(Kind::Mariadb);
    let database = Mariadb::on(server.port, None).await;
    database.run("SET GLOBAL max_allowed_packet = 1048576").await;
    database.add(&[(1, "low", WAITING), (2, "low", WAITING)]).await;
    let table = database.table();
    claim_all(&*table, "low").await;
    let said = "y".repeat(1 << 20);
    let end = Finish { stdout: said.clone(), stderr: said.clone(), ..finish(1) };
    let written = table.write(&us(), &[], 0, &[end, finish(2)]).await.unwrap();
    assert_eq!(written.finished, [1, 2].map(RowId));
    let row = database.rows().await[&1].clone();
    let half = "y".repeat((1 << 19) - (1 << 15));
    assert!(row.stdout == Some(half.clone()) && row.stderr == Some(half));
}

/// The server compares by the column's collation: the worker is shown what the row really says,
/// and ignores it.
#[tokio::test]
async fn a_target_in_another_case_is_told_as_it_is() {
    let database = Mariadb::new().await;
    database.add(&[(1, "LOW", WAITING), (2, "low", WAITING)]).await;
    let claimed = claim_all(&*database.table(), "low").await;
    let targets: Vec<&str> = claimed.iter().map(|claimed| &*claimed.row.target).collect();
    assert_eq!(targets, ["LOW", "low"]);
}

#[tokio::test]
async fn rows_locked_by_others_are_passed_over() {
    let database = Mariadb::new().await;
    let rows: Vec<(i64, &str, &str)> = (1..=10).map(|id| (id, "low", WAITING)).collect();
    database.add(&rows).await;
    let mut other = database.connect().await;
    other.query_drop("START TRANSACTION").await.unwrap();
    // With a list the server would walk, and lock, all of so small a table.
    for id in [1, 2, 3, 5] {
        let lock = format!("SELECT id FROM jobs WHERE id = {id} FOR UPDATE");
        other.query_drop(lock).await.unwrap();
    }
    let targets = names(&["low"]);
    let pick = Pick::Waiting { targets: &targets, limit: 3 };
    let table = database.table();
    assert_eq!(ids(&table.claim(pick, &us(), &accept).await.unwrap()), [4, 6, 7]);
    other.query_drop("ROLLBACK").await.unwrap();
    assert_eq!(ids(&table.claim(pick, &us(), &accept).await.unwrap()), [1, 2, 3]);
}

/// A fetch locks what it takes and nothing else: another's change of a row further on, or of one
/// that is done, does not wait for it.
#[tokio::test]
async fn a_claim_locks_only_what_it_takes() {
    let database = Mariadb::new().await;
    let rows: Vec<(i64, &str, &str)> = (1..=50).map(|id| (id, "low", WAITING)).collect();
    database.add(&rows).await;
    database.run("UPDATE jobs SET status = 'done' WHERE id = 1").await;
    let changed = std::sync::Mutex::new(None);
    // While the claim's transaction is open.
    let judge = |_: &Found| {
        let mut changed = changed.lock().unwrap();
        if changed.is_none() {
            *changed =
                Some(std::thread::scope(|scope| scope.spawn(|| change(&database)).join().unwrap()));
        }
        Verdict::Ignore
    };
    let targets = names(&["low"]);
    let pick = Pick::Waiting { targets: &targets, limit: 2 };
    let claimed = database.table().claim(pick, &us(), &judge).await.unwrap();
    assert_eq!(ids(&claimed), [2, 3]);
    changed.into_inner().unwrap().expect("it was judged").unwrap();
}

/// What another client does meanwhile, without patience.
fn change(database: &Mariadb) -> mysql_async::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut other = database.connect().await;
        other.query_drop("SET innodb_lock_wait_timeout = 1").await?;
        other.query_drop("UPDATE jobs SET time_created = 8 WHERE id IN (1, 4, 50)").await?;
        other.query_drop("INSERT INTO jobs (target, time_created) VALUES ('low', 9)").await
    })
}

#[tokio::test]
async fn columns_of_a_wrong_type_are_named() {
    let database = Mariadb::new().await;
    let change = "ALTER TABLE jobs MODIFY sig char(9), MODIFY time_started datetime, \
                  MODIFY status enum('waiting','done'), MODIFY return_code int NOT NULL";
    database.run(change).await;
    let problem = database.table().check().await.unwrap_err().to_string();
    for words in [
        "column 'sig' is char(9), text of at least 10 characters is expected",
        "column 'time_started' is datetime, a whole number is expected",
        "column 'status' is enum('waiting','done'), one of the words waiting, manual, accepted, \
         running, done, ignored is expected",
        "column 'return_code' is NOT NULL, it must take NULL",
    ] {
        assert!(problem.contains(words), "{problem}");
    }
    database.run("ALTER TABLE jobs ENGINE = MyISAM").await;
    let problem = database.table().check().await.unwrap_err().to_string();
    assert!(problem.contains("MyISAM has no transactions; make it InnoDB"), "{problem}");
}

#[tokio::test]
async fn a_login_that_is_refused_is_for_a_person_and_an_absent_server_is_away() {
    let database = Mariadb::new().await;
    let TableSettings::Mysql(server) = database.settings_of("jobs") else { unreachable!() };
    let outcome = async |server: SqlServer| {
        let table = open_table(&TableSettings::Mysql(server));
        table.check().await.unwrap_err()
    };
    let wrong = SqlServer { password: "sesame".to_owned(), ..server.clone() };
    let error = outcome(wrong).await;
    assert!(matches!(error, TableError::Schema { .. }), "{error}");
    assert!(!format!("{error:?}").contains("sesame"), "{error:?}");
    let nowhere = SqlServer { database: "nowhere".to_owned(), ..server.clone() };
    let error = outcome(nowhere).await;
    assert!(matches!(error, TableError::Schema { .. }), "{error}");
    // Port 1 is reserved and nobody listens there.
    let absent = SqlServer { port: 1, ..server.clone() };
    let error = outcome(absent).await;
    assert!(matches!(error, TableError::Away { .. }), "{error}");

    // No right to change a column the worker writes.
    let grants = "GRANT SELECT ON jobs TO reader@localhost IDENTIFIED BY 'r'; \
                  GRANT UPDATE (status, sig) ON jobs TO reader@localhost; \
                  GRANT SELECT ON jobs TO reader@'%' IDENTIFIED BY 'r'; \
                  GRANT UPDATE (status, sig) ON jobs TO reader@'%'";
    database.run(grants).await;
    let reader = SqlServer { user: "reader".to_owned(), password: "r".to_owned(), ..server };
    let error = outcome(reader).await;
    assert!(matches!(error, TableError::Schema { .. }), "{error}");
    assert!(error.to_string().contains("time_started"), "{error}");
}

/// A server that logs statements refuses READ COMMITTED; workers still share a table.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_workers_share_a_server_that_logs_statements() {
    let options = ["--log-bin=log", "--binlog-format=STATEMENT", "--server-id=1"];
    let server = Server::start_with(Kind::Mariadb, &options);
    let database = Mariadb::on(server.port, None).await;
    many_workers_run_each_row_once(&database).await;
}
