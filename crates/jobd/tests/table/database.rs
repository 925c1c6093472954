//! A database of its own for each test, and the view of the table's owner on it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use mysql_async::prelude::Queryable;
use parking_lot::Mutex;
use spindle_jobd::table::{
    JobTable, SqlServer, TableKind, TableSettings, Tls, open_table, schema_sql,
};
use tempfile::TempDir;

use crate::servers::{Kind, Server};

/// One row of an answer, as text.
pub type TextRow = Vec<Option<String>>;

/// A database with an empty table named `jobs`.
#[async_trait]
pub trait Database: Send + Sync {
    fn kind(&self) -> TableKind;

    /// The settings for another table in the same database.
    fn settings_of(&self, table: &str) -> TableSettings;

    /// Runs statements as the table's owner.
    async fn run(&self, sql: &str);

    /// Runs a query as the table's owner.
    async fn query(&self, sql: &str) -> Vec<TextRow>;

    /// A worker's view of the table; each has connections of its own.
    fn table(&self) -> Arc<dyn JobTable> {
        open_table(&self.settings_of("jobs"))
    }

    /// Adds rows: id, target, status.
    async fn add(&self, rows: &[(i64, &str, &str)]) {
        for rows in rows.chunks(1000) {
            let values: Vec<String> = rows
                .iter()
                .map(|(id, target, status)| format!("({id}, '{target}', 7, '{status}')"))
                .collect();
            let values = values.join(", ");
            self.run(&format!(
                "INSERT INTO jobs (id, target, time_created, status) VALUES {values}"
            ))
            .await;
        }
    }

    /// All rows by id.
    async fn rows(&self) -> BTreeMap<i64, Row> {
        let query = "SELECT id, target, status, time_created, time_started, time_finished, result, \
                     return_code, sig, stdout, stderr FROM jobs";
        self.query(query).await.into_iter().map(Row::read).collect()
    }
}

/// A row as its owner sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    pub target: String,
    pub status: String,
    pub times: [i64; 3],
    pub result: Option<String>,
    pub code: Option<i64>,
    pub sig: Option<String>,
    pub stdout: Option<String>,
    pub stderr: Option<String>,
}

impl Row {
    /// A row nobody has touched yet.
    pub fn new(target: &str, status: &str) -> Self {
        let (target, status) = (target.to_owned(), status.to_owned());
        Self { target, status, times: [7, 0, 0], ..Self::default() }
    }

    fn read(row: TextRow) -> (i64, Self) {
        let mut fields = row.into_iter();
        let mut text = || fields.next().expect("eleven columns");
        let id = text().unwrap().parse().unwrap();
        let (target, status) = (text().unwrap(), text().unwrap());
        let times = [text(), text(), text()].map(|time| time.unwrap().parse().unwrap());
        let (result, code) = (text(), text().map(|code| code.parse().unwrap()));
        let (sig, stdout, stderr) = (text(), text(), text());
        (id, Self { target, status, times, result, code, sig, stdout, stderr })
    }
}

static NUMBER: AtomicU32 = AtomicU32::new(0);

fn fresh_name() -> String {
    format!("t{}", NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// The server that tests running at the same time share; it goes with the last of them.
fn shared(kind: Kind) -> Arc<Server> {
    static SERVERS: [Mutex<Weak<Server>>; 2] = [Mutex::new(Weak::new()), Mutex::new(Weak::new())];
    let mut shared = SERVERS[kind as usize].lock();
    shared.upgrade().unwrap_or_else(|| {
        let server = Arc::new(Server::start(kind));
        *shared = Arc::downgrade(&server);
        server
    })
}

/// Repeats something that fails until a server has come up.
pub async fn until_up<T, E, F>(what: impl Fn() -> F) -> T
where
    F: Future<Output = Result<T, E>>,
    E: std::fmt::Debug,
{
    let give_up = Instant::now() + Duration::from_secs(60);
    loop {
        match what().await {
            Ok(done) => return done,
            Err(e) => assert!(Instant::now() < give_up, "{e:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A database on a MariaDB server.
pub struct Mariadb {
    _server: Option<Arc<Server>>,
    port: u16,
    name: String,
}

impl Mariadb {
    pub async fn new() -> Self {
        let server = shared(Kind::Mariadb);
        Self::on(server.port, Some(server)).await
    }

    pub async fn on(port: u16, server: Option<Arc<Server>>) -> Self {
        let name = fresh_name();
        let mut root = until_up(|| mysql_async::Conn::new(opts(port, None))).await;
        root.query_drop(format!("CREATE DATABASE {name}")).await.unwrap();
        let database = Self { _server: server, port, name };
        database.run(schema_sql(TableKind::Mysql)).await;
        database
    }

    pub async fn connect(&self) -> mysql_async::Conn {
        mysql_async::Conn::new(opts(self.port, Some(&self.name))).await.unwrap()
    }
}

fn opts(port: u16, database: Option<&str>) -> mysql_async::OptsBuilder {
    let opts = mysql_async::OptsBuilder::default().ip_or_hostname("127.0.0.1").tcp_port(port);
    opts.user(Some("root")).prefer_socket(false).db_name(database)
}

#[async_trait]
impl Database for Mariadb {
    fn kind(&self) -> TableKind {
        TableKind::Mysql
    }

    fn settings_of(&self, table: &str) -> TableSettings {
        TableSettings::Mysql(SqlServer {
            host: "127.0.0.1".to_owned(),
            port: self.port,
            user: "root".to_owned(),
            password: String::new(),
            database: self.name.clone(),
            table: table.to_owned(),
            tls: Tls::default(),
        })
    }

    async fn run(&self, sql: &str) {
        self.connect().await.query_drop(sql).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
    }

    async fn query(&self, sql: &str) -> Vec<TextRow> {
        let rows: Vec<mysql_async::Row> = self.connect().await.query(sql).await.unwrap();
        let text = |row: mysql_async::Row| {
            row.unwrap().into_iter().map(mysql_async::from_value::<Option<String>>).collect()
        };
        rows.into_iter().map(text).collect()
    }
}

/// A schema (in PostgreSQL's sense) on a PostgreSQL server.
pub struct Pgsql {
    _server: Option<Arc<Server>>,
    port: u16,
    name: String,
}

impl Pgsql {
    pub async fn new() -> Self {
        let server = shared(Kind::Pgsql);
        Self::on(server.port, Some(server)).await
    }

    pub async fn on(port: u16, server: Option<Arc<Server>>) -> Self {
        let database = Self { _server: server, port, name: fresh_name() };
        let name = &database.name;
        database.run(&format!("CREATE SCHEMA {name}")).await;
        database.run(schema_sql(TableKind::Pgsql)).await;
        database
    }

    pub async fn connect(&self) -> tokio_postgres::Client {
        let mut config = tokio_postgres::Config::new();
        config.host("127.0.0.1").port(self.port).user("jobd").dbname("postgres");
        config.options(format!("-c search_path={}", self.name));
        let (client, connection) = until_up(|| config.connect(tokio_postgres::NoTls)).await;
        tokio::spawn(connection);
        client
    }
}

#[async_trait]
impl Database for Pgsql {
    fn kind(&self) -> TableKind {
        TableKind::Pgsql
    }

    fn settings_of(&self, table: &str) -> TableSettings {
        TableSettings::Pgsql(SqlServer {
            host: "127.0.0.1".to_owned(),
            port: self.port,
            user: "jobd".to_owned(),
            password: String::new(),
            database: "postgres".to_owned(),
            table: format!("{}.{table}", self.name),
            tls: Tls::default(),
        })
    }

    async fn run(&self, sql: &str) {
        let client = self.connect().await;
        client.batch_execute(sql).await.unwrap_or_else(|e| panic!("{sql}: {e:?}"));
    }

    async fn query(&self, sql: &str) -> Vec<TextRow> {
        let messages = self.connect().await.simple_query(sql).await.unwrap();
        let rows = messages.iter().filter_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        rows.map(|row| (0..row.len()).map(|at| row.get(at).map(str::to_owned)).collect()).collect()
    }
}

/// A SQLite file.
pub struct Sqlite {
    pub folder: TempDir,
}

impl Sqlite {
    pub async fn new() -> Self {
        let sqlite = Self { folder: tempfile::tempdir().unwrap() };
        // The first worker makes file and table.
        sqlite.table().check().await.unwrap();
        sqlite
    }

    pub fn connect(&self) -> rusqlite::Connection {
        let connection = rusqlite::Connection::open(self.folder.path().join("jobs.db")).unwrap();
        connection.busy_timeout(Duration::from_secs(30)).unwrap();
        connection
    }
}

#[async_trait]
impl Database for Sqlite {
    fn kind(&self) -> TableKind {
        TableKind::Sqlite
    }

    fn settings_of(&self, table: &str) -> TableSettings {
        let file = self.folder.path().join("jobs.db");
        TableSettings::Sqlite { file, table: table.to_owned() }
    }

    async fn run(&self, sql: &str) {
        self.connect().execute_batch(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
    }

    async fn query(&self, sql: &str) -> Vec<TextRow> {
        let connection = self.connect();
        let mut statement = connection.prepare(sql).unwrap();
        let columns = statement.column_count();
        let text = |value: rusqlite::types::Value| match value {
            rusqlite::types::Value::Null => None,
            rusqlite::types::Value::Integer(number) => Some(number.to_string()),
            rusqlite::types::Value::Text(text) => Some(text),
            other => panic!("{other:?}"),
        };
        let rows = statement
            .query_map([], |row| Ok((0..columns).map(|at| text(row.get(at).unwrap())).collect()));
        rows.unwrap().map(Result::unwrap).collect()
    }
}
