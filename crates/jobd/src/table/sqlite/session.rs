//! One connection to a SQLite file. Every call runs on a thread that may block.

use async_trait::async_trait;
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use crate::table::fit::Ending;
use crate::table::names::id_list;
use crate::table::row::RowId;
use crate::table::session::{Dialect, Fault, Page, Session, TextRow};

/// Runs a function that may block on a thread that may.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(e) => Err(Fault::Away(e.to_string())),
    }
}

/// A connection, set up for a job table. It is `None` while a thread has it. When nothing waits for
/// that thread any more, the connection is dropped there, and its transaction with it.
pub(in crate::table) struct SqliteSession(pub(super) Option<Connection>);

impl SqliteSession {
    async fn with<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Fault> {
        let Some(connection) = self.0.take() else {
            return Err(Fault::Away("the connection is gone".to_owned()));
        };
        let (connection, outcome) = blocking(move || {
            let outcome = work(&connection);
            Ok((connection, outcome))
        })
        .await?;
        self.0 = Some(connection);
        Ok(outcome?)
    }
}

#[async_trait]
impl Session for SqliteSession {
    async fn execute(&mut self, sql: &str) -> Result<(), Fault> {
        let sql = sql.to_owned();
        self.with(move |connection| connection.execute_batch(&sql)).await
    }

    async fn rows(&mut self, first: &str, query: &str) -> Result<Vec<TextRow>, Fault> {
        let (first, query) = (first.to_owned(), query.to_owned());
        self.with(move |connection| {
            connection.execute_batch(&first)?;
            let mut statement = connection.prepare(&query)?;
            let columns = statement.column_count();
            let rows = statement.query_map([], |row| {
                (0..columns).map(|at| row.get(at).map(text)).collect::<rusqlite::Result<TextRow>>()
            })?;
            rows.collect()
        })
        .await
    }

    /// One walk along the index for each target: with a list of targets SQLite would sort all
    /// that wait.
    async fn waiting(&mut self, dialect: &Dialect, page: Page<'_>) -> Result<Vec<RowId>, Fault> {
        let Page { targets, after, limit } = page;
        let table = &dialect.table;
        let walk = format!(
            "SELECT id FROM {table} WHERE status = 'waiting' AND target = ?1 AND id > ?2 \
             ORDER BY id LIMIT ?3"
        );
        let targets = targets.to_vec();
        self.with(move |connection| {
            let mut statement = connection.prepare(&walk)?;
            let mut ids = Vec::new();
            for target in &targets {
                let found = statement.query_map((target, after, limit), |row| row.get(0))?;
                for id in found {
                    ids.push(RowId(id?));
                }
            }
            ids.sort_unstable();
            ids.truncate(limit as usize);
            Ok(ids)
        })
        .await
    }

    async fn finish(
        &mut self,
        dialect: &Dialect,
        ids: &[RowId],
        ending: &Ending<'_>,
    ) -> Result<(), Fault> {
        let statement = dialect.done(ending.result, ["?"; 5], &id_list(ids));
        let text = |text: Option<&str>| Value::from(text.map(str::to_owned));
        let params = [
            Value::from(ending.finished_s),
            Value::from(ending.code.map(i64::from)),
            text(ending.sig.as_deref()),
            text(ending.stdout.as_deref()),
            text(ending.stderr.as_deref()),
        ];
        self.with(move |connection| {
            connection.execute(&statement, params_from_iter(params)).map(drop)
        })
        .await
    }
}

fn text(value: Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::Integer(number) => Some(number.to_string()),
        Value::Real(number) => Some(number.to_string()),
        Value::Text(text) => Some(text),
        Value::Blob(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
    }
}
