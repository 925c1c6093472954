//! What only PostgreSQL has.

use spindle_jobd::table::{
    Finish, Pick, RowId, SqlServer, TableError, TableKind, TableSettings, Tls, open_table,
    schema_sql,
};

use crate::conformance::{WAITING, accept, claim_all, finish, ids, names, us};
use crate::database::{Database, Pgsql};
use crate::servers::{Kind, Server};

/// What a `stdout` of this type keeps, as the database writes it.
async fn kept(database: &Pgsql, column_type: &str, said: &str) -> String {
    database.run("DELETE FROM jobs; ALTER TABLE jobs DROP COLUMN stdout").await;
    database.run(&format!("ALTER TABLE jobs ADD COLUMN stdout {column_type}")).await;
    database.add(&[(1, "low", WAITING)]).await;
    let table = database.table();
    claim_all(&*table, "low").await;
    let end = Finish { stdout: said.to_owned(), ..finish(1) };
    assert_eq!(table.write(&us(), &[], 0, &[end]).await.unwrap().finished, [RowId(1)]);
    database.rows().await[&1].stdout.clone().unwrap()
}

#[tokio::test]
async fn output_is_cut_where_the_column_ends() {
    let database = Pgsql::new().await;
    assert_eq!(kept(&database, "varchar(5)", "äö😀€a").await, "äö😀€a");
    assert_eq!(kept(&database, "varchar(5)", "äö😀€ab").await, "äö😀€a");
    assert_eq!(kept(&database, "varchar(5)", "\0\0\0\0\0\0").await, "\u{fffd}".repeat(5));
    assert_eq!(kept(&database, "bytea", "a😀\0").await, "\\x61f09f988000");
    database.run("CREATE DOMAIN short AS varchar(3)").await;
    assert_eq!(kept(&database, "short", "abcd").await, "abc");
    // A column of this kind takes no output at all; the result is still written.
    database.run("CREATE DOMAIN seldom AS text CHECK (VALUE = 'seldom')").await;
    database.run("DELETE FROM jobs; ALTER TABLE jobs DROP COLUMN stdout").await;
    database.run("ALTER TABLE jobs ADD COLUMN stdout seldom").await;
    database.add(&[(1, "low", WAITING)]).await;
    let table = database.table();
    claim_all(&*table, "low").await;
    table
        .write(&us(), &[], 0, &[Finish { stdout: "often".to_owned(), ..finish(1) }])
        .await
        .unwrap();
    let row = database.rows().await[&1].clone();
    assert_eq!((&*row.status, row.stdout, row.code), ("done", None, Some(0)));
}

#[tokio::test]
async fn words_may_be_an_enum_and_targets_padded() {
    let database = Pgsql::new().await;
    let change = "ALTER TABLE jobs DROP CONSTRAINT jobs_status_check; \
                  ALTER TABLE jobs DROP CONSTRAINT jobs_result_check; \
                  CREATE TYPE job_status AS ENUM \
                    ('waiting', 'manual', 'accepted', 'running', 'done', 'ignored'); \
                  CREATE TYPE job_result AS ENUM ('ok', 'fail'); \
                  ALTER TABLE jobs ALTER status DROP DEFAULT, ALTER result DROP DEFAULT; \
                  ALTER TABLE jobs ALTER status TYPE job_status USING status::job_status, \
                    ALTER result TYPE job_result USING result::job_result, \
                    ALTER target TYPE char(16), ALTER sig TYPE char(12), \
                    ALTER id TYPE integer, ALTER time_started TYPE integer";
    database.run(change).await;
    database.add(&[(1, "low", WAITING), (2, "high", WAITING)]).await;
    let table = database.table();
    table.check().await.unwrap();
    let claimed = claim_all(&*table, "low").await;
    assert_eq!((ids(&claimed), &*claimed[0].row.target), (vec![1], "low"));
    assert_eq!(table.owned(&us()).await.unwrap().len(), 1);
    assert_eq!(table.write(&us(), &[RowId(1)], 11, &[]).await.unwrap().started, [RowId(1)]);
    table.write(&us(), &[], 0, &[finish(1)]).await.unwrap();
    let row = database.rows().await[&1].clone();
    assert_eq!((&*row.status, row.result.as_deref(), row.times), ("done", Some("ok"), [7, 11, 22]));
    database.run("ALTER TYPE job_result RENAME VALUE 'fail' TO 'failed'").await;
    let problem = database.table().check().await.unwrap_err().to_string();
    let words = "job_result, one of the words ok, fail is expected";
    assert!(problem.contains(words), "{problem}");
}

#[tokio::test]
async fn rows_locked_by_others_are_passed_over() {
    let database = Pgsql::new().await;
    let rows: Vec<(i64, &str, &str)> = (1..=10).map(|id| (id, "low", WAITING)).collect();
    database.add(&rows).await;
    let other = database.connect().await;
    let lock = "BEGIN; SELECT id FROM jobs WHERE id IN (1, 2, 3, 5) FOR UPDATE";
    other.batch_execute(lock).await.unwrap();
    let targets = names(&["low"]);
    let pick = Pick::Waiting { targets: &targets, limit: 3 };
    let table = database.table();
    assert_eq!(ids(&table.claim(pick, &us(), &accept).await.unwrap()), [4, 6, 7]);
    other.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(ids(&table.claim(pick, &us(), &accept).await.unwrap()), [1, 2, 3]);
}

/// A database in another encoding converts text, and refuses letters that it does not have.
#[tokio::test]
async fn a_latin_database_takes_what_it_can() {
    let server = Server::start(Kind::Pgsql);
    let setup = Pgsql::on(server.port, None).await;
    setup.run("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0").await;
    let settings = SqlServer {
        host: "127.0.0.1".to_owned(),
        port: server.port,
        user: "jobd".to_owned(),
        password: String::new(),
        database: "latin".to_owned(),
        table: "jobs".to_owned(),
        tls: Tls::default(),
    };
    let mut config = tokio_postgres::Config::new();
    config.host("127.0.0.1").port(server.port).user("jobd").dbname("latin");
    let (owner, connection) = config.connect(tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    owner.batch_execute(schema_sql(TableKind::Pgsql)).await.unwrap();
    owner.batch_execute("INSERT INTO jobs (id, target) VALUES (1, 'low')").await.unwrap();
    let table = open_table(&TableSettings::Pgsql(settings));
    claim_all(&*table, "low").await;
    let end = Finish { stdout: "né €\0!".to_owned(), ..finish(1) };
    assert_eq!(table.write(&us(), &[], 0, &[end]).await.unwrap().finished, [RowId(1)]);
    let stdout: String = owner.query_one("SELECT stdout FROM jobs", &[]).await.unwrap().get(0);
    assert_eq!(stdout, "n? ??!");
}

#[tokio::test]
async fn a_login_that_is_refused_is_for_a_person_and_an_absent_server_is_away() {
    let database = Pgsql::new().await;
    let TableSettings::Pgsql(server) = database.settings_of("jobs") else { unreachable!() };
    let outcome = async |server: SqlServer| {
        let table = open_table(&TableSettings::Pgsql(server));
        table.check().await.unwrap_err()
    };
    for wrong in [
        SqlServer { user: "nobody at all".to_owned(), ..server.clone() },
        SqlServer { database: "nowhere".to_owned(), ..server.clone() },
    ] {
        let error = outcome(wrong).await;
        assert!(matches!(error, TableError::Schema { .. }), "{error}");
    }
    let error = outcome(SqlServer { port: 1, ..server.clone() }).await;
    assert!(matches!(error, TableError::Away { .. }), "{error}");

    let TableSettings::Pgsql(SqlServer { table, .. }) = database.settings_of("jobs") else {
        unreachable!()
    };
    let (schema, _) = table.split_once('.').unwrap();
    let grants = format!(
        "CREATE ROLE reader_{schema} LOGIN; GRANT USAGE ON SCHEMA {schema} TO reader_{schema}; \
         GRANT SELECT ON jobs TO reader_{schema}; \
         GRANT UPDATE (status, sig) ON jobs TO reader_{schema}"
    );
    database.run(&grants).await;
    let error = outcome(SqlServer { user: format!("reader_{schema}"), ..server }).await;
    assert!(matches!(error, TableError::Schema { .. }), "{error}");
    assert!(error.to_string().contains("permission denied"), "{error}");
}
