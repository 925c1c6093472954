//! Connecting, and learning what server and table are like.

use async_trait::async_trait;
use mysql_async::prelude::Queryable;
use mysql_async::{ClientIdentity, Conn, Opts, OptsBuilder, SslOpts};
use tracing::warn;

use super::session::{MysqlSession, text_rows};
use crate::table::columns::{self, Column, Kind};
use crate::table::fit::{Capacity, Letters, OutputColumns};
use crate::table::names::quoted_table;
use crate::table::session::{Dialect, Driver, Fault, Opened, answered};
use crate::table::settings::{SqlServer, Tls, TlsMode};
use crate::table::tls;

/// What a statement needs beside the output it carries.
const STATEMENT_BYTES_MAX: usize = 64 * 1024;

/// A table on a MySQL or MariaDB server.
#[derive(Debug)]
pub(in crate::table) struct Mysql {
    server: SqlServer,
}

impl Mysql {
    pub fn new(server: SqlServer) -> Self {
        Self { server }
    }

    fn opts(&self) -> Opts {
        let SqlServer { host, port, user, password, database, tls, .. } = &self.server;
        let opts = OptsBuilder::default()
            .user(Some(user))
            .pass(Some(password).filter(|password| !password.is_empty()))
            .db_name(Some(database))
            // Otherwise the driver asks the server for its socket and connects a second time.
            .prefer_socket(false)
            .ssl_opts(ssl_opts(tls));
        if host.starts_with('/') {
            return opts.socket(Some(host)).into();
        }
        opts.ip_or_hostname(host).tcp_port(*port).into()
    }
}

/// The options of TLS. Without a file, the driver itself takes the authorities that browsers trust.
fn ssl_opts(tls: &Tls) -> Option<SslOpts> {
    if tls.mode == TlsMode::Disable {
        return None;
    }
    tls::set_up();
    let mut opts =
        SslOpts::default().with_danger_accept_invalid_certs(tls.mode == TlsMode::Require);
    if let Some(roots) = &tls.roots {
        opts = opts.with_root_certs(vec![roots.clone().into()]).with_disable_built_in_roots(true);
    }
    if let Some((certificate, key)) = tls.identity.clone() {
        let identity = ClientIdentity::new(certificate.into(), key.into());
        opts = opts.with_client_identity(Some(identity));
    }
    Some(opts)
}

#[async_trait]
impl Driver for Mysql {
    type Session = MysqlSession;
    /// Claims, writes and a client's `run-manual` at the same time.
    const SESSIONS_MAX: usize = 4;

    fn describe(&self) -> String {
        let SqlServer { host, port, database, table, .. } = &self.server;
        if host.starts_with('/') {
            return format!("mysql {database}.{table} at {host}");
        }
        format!("mysql {database}.{table} at {host}:{port}")
    }

    async fn open(&self) -> Result<Opened<MysqlSession>, Fault> {
        let table = quoted_table(&self.server.table, '`')?;
        let mut conn = answered(Conn::new(self.opts())).await?;
        let server = Server::ask(&mut conn).await?;
        set_up(&mut conn, &server).await?;
        // Fails with the reason when there is no such table, or no right to read it.
        answered(conn.query_drop(format!("SELECT 1 FROM {table} WHERE 1 = 0"))).await?;
        let shape = Shape::read(&mut conn, &self.server).await?;
        columns::check(&shape.columns, "mysql")?;
        let dialect = Dialect {
            table,
            by_id: if shape.id_is_primary { " FORCE INDEX (PRIMARY)" } else { "" },
            target: "target",
            is_waiting: "status = 'waiting'",
            begin: "START TRANSACTION",
            lock: " FOR UPDATE",
            lock_free_ones: server.lock_free_ones(),
        };
        let packet_bytes_max = server.packet_bytes_max;
        let outputs = shape.outputs(packet_bytes_max.saturating_sub(STATEMENT_BYTES_MAX) / 2);
        Ok(Opened { session: MysqlSession(conn), dialect, outputs })
    }
}

async fn set_up(conn: &mut Conn, server: &Server) -> Result<(), Fault> {
    // Without a strict mode the server cuts and replaces what we could not foresee, instead of
    // refusing it. Ten seconds are a long wait for a locked row.
    let session =
        "SET SESSION sql_mode = '', SESSION autocommit = 1, SESSION innodb_lock_wait_timeout = 10";
    for statement in ["SET NAMES utf8mb4", session] {
        answered(conn.query_drop(statement)).await?;
    }
    if server.logs_statements {
        // Such a server refuses changes under READ COMMITTED. Gaps are locked then, and inserts
        // may wait for a fetch.
        warn!("binlog_format is STATEMENT: workers and inserts may wait for each other");
        return Ok(());
    }
    answered(conn.query_drop("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")).await
}

/// What matters of the server's settings.
struct Server {
    version: String,
    logs_statements: bool,
    packet_bytes_max: usize,
}

impl Server {
    async fn ask(conn: &mut Conn) -> Result<Self, Fault> {
        let query = "SHOW VARIABLES WHERE Variable_name IN \
                     ('version', 'log_bin', 'binlog_format', 'max_allowed_packet')";
        let rows = text_rows(conn, query).await?;
        let variable = |name: &str| {
            let is_it = |row: &&Vec<Option<String>>| {
                row.first().is_some_and(|n| n.as_deref() == Some(name))
            };
            rows.iter().find(is_it).and_then(|row| row.get(1)?.as_deref()).unwrap_or_default()
        };
        Ok(Self {
            version: variable("version").to_owned(),
            logs_statements: variable("log_bin").eq_ignore_ascii_case("on")
                && variable("binlog_format").eq_ignore_ascii_case("statement"),
            // Every server takes 1 MiB.
            packet_bytes_max: variable("max_allowed_packet").parse().unwrap_or(1 << 20),
        })
    }

    /// MariaDB passes over locked rows since 10.6, MySQL since 8.0.
    fn lock_free_ones(&self) -> &'static str {
        let mut numbers = self.version.split(['.', '-']).map_while(|part| part.parse().ok());
        let version: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        let since = if self.version.contains("MariaDB") { (10, 6) } else { (8, 0) };
        if version >= since { " FOR UPDATE SKIP LOCKED" } else { " FOR UPDATE" }
    }
}

/// What matters of the table.
struct Shape {
    columns: Vec<Column>,
    capacities: Vec<(String, Capacity)>,
    id_is_primary: bool,
}

impl Shape {
    async fn read(conn: &mut Conn, server: &SqlServer) -> Result<Self, Fault> {
        let (database, table) =
            server.table.split_once('.').unwrap_or((&server.database, &server.table));
        let names = (database, table);
        let engine = "SELECT engine FROM information_schema.tables \
                      WHERE table_schema = ? AND table_name = ?";
        let engine: Option<Option<String>> = answered(conn.exec_first(engine, names)).await?;
        if let Some(Some(engine)) = engine
            && ["MyISAM", "Aria", "MEMORY", "CSV", "ARCHIVE"].contains(&&*engine)
        {
            let problem = format!("its engine {engine} has no transactions; make it InnoDB");
            return Err(Fault::Schema(problem));
        }
        let query = "SELECT column_name, data_type, column_type, is_nullable, column_key, \
                     character_maximum_length, character_octet_length, character_set_name, \
                     (SELECT maxlen FROM information_schema.character_sets s \
                      WHERE s.character_set_name = c.character_set_name) \
                     FROM information_schema.columns c \
                     WHERE table_schema = ? AND table_name = ? ORDER BY ordinal_position";
        let described: Vec<Described> = answered(conn.exec(query, names)).await?;
        let mut shape = Self { columns: Vec::new(), capacities: Vec::new(), id_is_primary: false };
        for column in described {
            shape.add(column);
        }
        Ok(shape)
    }

    fn add(&mut self, described: Described) {
        let (name, data_type, type_name, nullable, key, chars, octets, charset, maxlen) = described;
        let octets = octets.map_or(0, count);
        let chars = chars.map_or(octets, count);
        let kind = match &*data_type.to_ascii_lowercase() {
            "tinyint" | "smallint" | "mediumint" | "int" | "bigint" => Kind::Integer,
            "enum" => Kind::Words(words(&type_name)),
            "char" | "varchar" | "tinytext" | "text" | "mediumtext" | "longtext" => {
                Kind::Text(chars)
            }
            "binary" | "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" => Kind::Bytes,
            _ => Kind::Other,
        };
        let charset = charset.unwrap_or_default();
        let (letters, bytes_max, chars_max) = match &*charset {
            "" | "utf8mb4" => (Letters::All, octets, chars),
            "utf8" | "utf8mb3" => (Letters::BasicPlane, octets, chars),
            // The server converts; every character may become as long as they get.
            _ => {
                let longest = maxlen.map_or(4, count).max(1);
                (Letters::All, usize::MAX, chars.min(octets / longest))
            }
        };
        self.id_is_primary |= name.eq_ignore_ascii_case("id") && key == "PRI";
        self.capacities.push((name.clone(), Capacity { bytes_max, chars_max, letters }));
        let nullable = nullable == "YES";
        self.columns.push(Column { name, type_name, kind, nullable });
    }

    fn outputs(&self, bytes_max: usize) -> OutputColumns {
        let capacity = |name: &str| {
            let capacity =
                self.capacities.iter().find(|(column, _)| column.eq_ignore_ascii_case(name));
            let (_, capacity) = capacity.expect("the check of the columns has found it");
            Capacity { bytes_max: capacity.bytes_max.min(bytes_max), ..*capacity }
        };
        OutputColumns {
            sig: capacity("sig"),
            stdout: capacity("stdout"),
            stderr: capacity("stderr"),
        }
    }
}

/// A row of `information_schema.columns`.
type Described =
    (String, String, String, String, String, Option<u64>, Option<u64>, Option<String>, Option<u64>);

fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// The words of `enum('a','b')`. A word with a quote or comma in it is none of ours.
fn words(column_type: &str) -> Vec<String> {
    let inside = column_type.split_once('(').map_or("", |(_, rest)| rest.trim_end_matches(')'));
    inside.split(',').map(|word| word.trim_matches('\'').to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_an_enum_are_found() {
        assert_eq!(words("enum('ok','fail')"), ["ok", "fail"]);
        assert_eq!(words("int(10)"), ["10"]);
    }

    #[test]
    fn only_servers_that_can_are_asked_to_pass_over_locked_rows() {
        let asked = |version: &str| {
            let server =
                Server { version: version.to_owned(), logs_statements: false, packet_bytes_max: 1 };
            server.lock_free_ones().ends_with("SKIP LOCKED")
        };
        assert!(asked("10.11.19-MariaDB-0+deb12u1"));
        assert!(asked("10.6.0-MariaDB"));
        assert!(!asked("10.5.23-MariaDB"));
        assert!(asked("8.0.36"));
        assert!(asked("8.4.3-log"));
        assert!(!asked("5.7.44"));
        assert!(!asked("strange"));
    }

    #[test]
    fn the_password_is_never_told() {
        let server = SqlServer {
            host: "db".to_owned(),
            port: 3306,
            user: "jobd".to_owned(),
            password: "sesame".to_owned(),
            database: "app".to_owned(),
            table: "jobs".to_owned(),
            tls: Tls::default(),
        };
        let mysql = Mysql::new(server);
        assert_eq!(mysql.describe(), "mysql app.jobs at db:3306");
        assert!(!format!("{mysql:?}").contains("sesame"));
    }
}
