//! Opening a file, and learning what its table is like.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rusqlite::{Connection, ErrorCode};

use super::session::{SqliteSession, blocking};
use crate::table::columns::{self, Column, Kind};
use crate::table::fit::{Capacity, Letters, OutputColumns};
use crate::table::names::quoted;
use crate::table::schema::schema_sql;
use crate::table::session::{Dialect, Driver, Fault, Opened};
use crate::table::settings::TableKind;

/// How long a transaction waits for another process's.
const BUSY_MAX: Duration = Duration::from_secs(10);
/// The pause between tries of a statement for which SQLite itself does not wait.
const BUSY_PAUSE: Duration = Duration::from_millis(10);
/// A row may have one gigabyte.
const FIELD_BYTES_MAX: usize = 256 << 20;

/// A table in a SQLite file.
#[derive(Debug, Clone)]
pub(in crate::table) struct Sqlite {
    file: PathBuf,
    table: String,
}

impl Sqlite {
    pub fn new(file: PathBuf, table: String) -> Self {
        Self { file, table }
    }

    fn connect(&self) -> Result<(Connection, Dialect), Fault> {
        let table = quoted(&self.table, '"')?;
        let folder = self.file.parent().filter(|folder| !folder.as_os_str().is_empty());
        if !folder.is_none_or(Path::is_dir) {
            return Err(Fault::Schema("there is no such folder; create it".to_owned()));
        }
        let connection = Connection::open(&self.file)?;
        connection.busy_timeout(BUSY_MAX)?;
        self.create_if_empty(&connection, &table)?;
        // Fails with the reason when there is no such table.
        connection.execute_batch(&format!("SELECT 1 FROM {table} WHERE 0"))?;
        columns::check(&self.columns(&connection)?, "sqlite")?;
        let dialect = Dialect {
            table,
            by_id: "",
            target: "target",
            is_waiting: "+status = 'waiting'",
            // One writer at a time: no other transaction changes what this one reads.
            begin: "BEGIN IMMEDIATE",
            lock: "",
            lock_free_ones: "",
        };
        Ok((connection, dialect))
    }

    /// Several workers may come to a new file at once. Changing the journal mode is the one
    /// statement that does not wait for the others' transactions, so the waiting is done here.
    fn create_if_empty(&self, connection: &Connection, table: &str) -> rusqlite::Result<()> {
        let deadline = Instant::now() + BUSY_MAX;
        loop {
            let outcome = is_empty(connection).and_then(|is_empty| {
                if is_empty { connection.execute_batch(&self.create(table)) } else { Ok(()) }
            });
            match outcome {
                Err(e)
                    if e.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                        && Instant::now() < deadline =>
                {
                    thread::sleep(BUSY_PAUSE);
                }
                outcome => return outcome,
            }
        }
    }

    /// The schema as it is printed, with the configured name.
    fn create(&self, table: &str) -> String {
        let index = self.table.replace('"', "\"\"");
        schema_sql(TableKind::Sqlite)
            .replace("EXISTS jobs (", &format!("EXISTS {table} ("))
            .replace("jobs_status_target_idx", &format!("\"{index}_status_target_idx\""))
            .replace("ON jobs (", &format!("ON {table} ("))
    }

    fn columns(&self, connection: &Connection) -> Result<Vec<Column>, Fault> {
        let query = "SELECT name, type, \"notnull\" FROM pragma_table_info(?1)";
        let mut statement = connection.prepare(query)?;
        let columns = statement.query_map([&self.table], |row| {
            Ok(Column {
                name: row.get(0)?,
                type_name: row.get(1)?,
                kind: Kind::Any,
                nullable: !row.get::<_, bool>(2)?,
            })
        });
        Ok(columns.and_then(Iterator::collect)?)
    }
}

fn is_empty(connection: &Connection) -> rusqlite::Result<bool> {
    let query = "SELECT NOT EXISTS (SELECT 1 FROM sqlite_master)";
    connection.query_row(query, [], |row| row.get(0))
}

#[async_trait]
impl Driver for Sqlite {
    type Session = SqliteSession;
    /// SQLite has one writer at a time in any case.
    const SESSIONS_MAX: usize = 1;

    fn describe(&self) -> String {
        format!("sqlite {} in {}", self.table, self.file.display())
    }

    async fn open(&self) -> Result<Opened<SqliteSession>, Fault> {
        let sqlite = self.clone();
        let (connection, dialect) = blocking(move || sqlite.connect()).await?;
        let capacity =
            Capacity { bytes_max: FIELD_BYTES_MAX, chars_max: usize::MAX, letters: Letters::All };
        let outputs = OutputColumns { sig: capacity, stdout: capacity, stderr: capacity };
        Ok(Opened { session: SqliteSession(Some(connection)), dialect, outputs })
    }
}
