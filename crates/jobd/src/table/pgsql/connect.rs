//! Connecting, and learning what the table is like.

use std::time::Duration;

use async_trait::async_trait;
use tokio_postgres::config::SslMode;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Config, NoTls, Row};
use tokio_postgres_rustls::MakeRustlsConnect;
use tracing::debug;

use super::session::PgsqlSession;
use crate::table::abort::AbortOnDrop;
use crate::table::columns::{self, Column, Kind};
use crate::table::fit::{Capacity, Letters, OutputColumns};
use crate::table::names::quoted_table;
use crate::table::session::{Dialect, Driver, Fault, Opened, answered};
use crate::table::settings::{SqlServer, TlsMode};
use crate::table::tls;

/// A field may have one gigabyte, and so may a whole message to the server.
const FIELD_BYTES_MAX: usize = 256 << 20;

/// A table on a PostgreSQL server.
#[derive(Debug)]
pub(in crate::table) struct Pgsql {
    server: SqlServer,
}

impl Pgsql {
    pub fn new(server: SqlServer) -> Self {
        Self { server }
    }

    fn config(&self) -> Config {
        let SqlServer { host, port, user, password, database, .. } = &self.server;
        let mut config = Config::new();
        config.host(host).port(*port).user(user).dbname(database).application_name("jobd");
        config.connect_timeout(Duration::from_secs(10));
        if !password.is_empty() {
            config.password(password);
        }
        config
    }
}

impl Pgsql {
    async fn connect(&self) -> Result<(Client, AbortOnDrop), Fault> {
        let mut config = self.config();
        let tls = &self.server.tls;
        if tls.mode == TlsMode::Disable {
            config.ssl_mode(SslMode::Disable);
            let (client, connection) = answered(config.connect(NoTls)).await?;
            return Ok((client, served(connection)));
        }
        config.ssl_mode(SslMode::Require);
        let connector = MakeRustlsConnect::new(tls::client_config(tls).map_err(Fault::Schema)?);
        let (client, connection) = answered(config.connect(connector)).await?;
        Ok((client, served(connection)))
    }
}

/// Runs a connection in a task of its own.
fn served(
    connection: impl Future<Output = Result<(), tokio_postgres::Error>> + Send + 'static,
) -> AbortOnDrop {
    AbortOnDrop::spawn(async move {
        if let Err(e) = connection.await {
            // Pending requests fail with it.
            debug!(error = %e, "a connection to PostgreSQL ended");
        }
    })
}

#[async_trait]
impl Driver for Pgsql {
    type Session = PgsqlSession;
    /// Claims, writes and a client's `run-manual` at the same time.
    const SESSIONS_MAX: usize = 4;

    fn describe(&self) -> String {
        let SqlServer { host, port, database, table, .. } = &self.server;
        format!("pgsql {database}.{table} at {host}:{port}")
    }

    async fn open(&self) -> Result<Opened<PgsqlSession>, Fault> {
        let table = quoted_table(&self.server.table, '"')?;
        let (client, connection) = self.connect().await?;
        // Ten seconds are a long wait for a locked row.
        answered(client.batch_execute("SET lock_timeout = '10s'; SET client_min_messages = error"))
            .await?;
        // Fails with the reason when there is no such table, or no right to read it.
        answered(client.batch_execute(&format!("SELECT 1 FROM {table} WHERE false"))).await?;
        let shape = Shape::read(&client, &table).await?;
        columns::check(&shape.columns, "pgsql")?;
        let dialect = Dialect {
            table,
            by_id: "",
            target: "target::text",
            is_waiting: "status::text || '' = 'waiting'",
            begin: "BEGIN ISOLATION LEVEL READ COMMITTED",
            lock: " FOR UPDATE",
            lock_free_ones: " FOR UPDATE SKIP LOCKED",
        };
        let bytes = [shape.is_bytes("stdout"), shape.is_bytes("stderr")];
        let session = PgsqlSession { client, _connection: connection, bytes };
        Ok(Opened { session, dialect, outputs: shape.outputs() })
    }
}

/// What matters of the table.
struct Shape {
    columns: Vec<Column>,
    /// What the database's encoding can store.
    letters: Letters,
}

/// Domains count as the type under them.
const DESCRIBE: &str = "
    SELECT a.attname::text, format_type(a.atttypid, a.atttypmod), t.typname::text,
           t.typtype = 'e',
           CASE WHEN d.typtype = 'd' THEN d.typtypmod ELSE a.atttypmod END,
           NOT a.attnotnull,
           ARRAY(SELECT e.enumlabel::text FROM pg_enum e WHERE e.enumtypid = t.oid)
    FROM pg_attribute a
    JOIN pg_type d ON d.oid = a.atttypid
    JOIN pg_type t ON t.oid = CASE WHEN d.typtype = 'd' THEN d.typbasetype ELSE d.oid END
    WHERE a.attrelid = to_regclass($1)::oid AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attnum";

impl Shape {
    async fn read(client: &Client, table: &str) -> Result<Self, Fault> {
        let rows = answered(client.query_typed(DESCRIBE, &[(&table, Type::TEXT)])).await?;
        let columns = rows.iter().map(column).collect::<Result<Vec<Column>, _>>()?;
        let encoding = "SELECT pg_encoding_to_char(encoding)::text FROM pg_database \
                        WHERE datname = current_database()";
        let rows = answered(client.query_typed(encoding, &[])).await?;
        let encoding: &str = match rows.first() {
            Some(row) => row.try_get(0)?,
            None => "",
        };
        // SQL_ASCII takes any bytes. What the others have not is refused, and sent again with
        // less.
        let utf8 = encoding == "UTF8" || encoding == "SQL_ASCII";
        let letters = if utf8 { Letters::NoNul } else { Letters::Ascii };
        Ok(Self { columns, letters })
    }

    fn kind(&self, name: &str) -> &Kind {
        let column = self.columns.iter().find(|column| column.name == name);
        &column.expect("the check of the columns has found it").kind
    }

    fn is_bytes(&self, name: &str) -> bool {
        *self.kind(name) == Kind::Bytes
    }

    fn outputs(&self) -> OutputColumns {
        let capacity = |name: &str| {
            let (chars_max, letters) = match self.kind(name) {
                Kind::Text(chars_max) => (*chars_max, self.letters),
                _ => (usize::MAX, Letters::All),
            };
            Capacity { bytes_max: FIELD_BYTES_MAX, chars_max, letters }
        };
        OutputColumns {
            sig: capacity("sig"),
            stdout: capacity("stdout"),
            stderr: capacity("stderr"),
        }
    }
}

fn column(row: &Row) -> Result<Column, tokio_postgres::Error> {
    let (name, type_name) = (row.try_get(0)?, row.try_get(1)?);
    let (base, is_enum): (&str, bool) = (row.try_get(2)?, row.try_get(3)?);
    let modifier: i32 = row.try_get(4)?;
    let nullable = row.try_get(5)?;
    let words: Vec<String> = row.try_get(6)?;
    // A length includes the four bytes of its header; -1 is none.
    let chars_max = usize::try_from(modifier - 4).unwrap_or(usize::MAX);
    let kind = match base {
        _ if is_enum => Kind::Words(words),
        "int2" | "int4" | "int8" => Kind::Integer,
        "text" => Kind::Text(usize::MAX),
        "varchar" | "bpchar" => Kind::Text(chars_max),
        "bytea" => Kind::Bytes,
        _ => Kind::Other,
    };
    Ok(Column { name, type_name, kind, nullable })
}
