//! One connection to a PostgreSQL server.

use async_trait::async_trait;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::table::abort::AbortOnDrop;
use crate::table::fit::Ending;
use crate::table::names::id_list;
use crate::table::row::RowId;
use crate::table::session::{Dialect, Fault, Page, Session, TextRow, answered};

/// A connection, set up for a job table.
pub(in crate::table) struct PgsqlSession {
    pub(super) client: Client,
    /// Owns the socket, which closes with it, whatever is still under way, so that the server rolls
    /// an open transaction back.
    pub(super) _connection: AbortOnDrop,
    /// Whether `stdout` and `stderr` are `bytea`.
    pub(super) bytes: [bool; 2],
}

type Param<'a> = (&'a (dyn ToSql + Sync), Type);

#[async_trait]
impl Session for PgsqlSession {
    async fn execute(&mut self, sql: &str) -> Result<(), Fault> {
        answered(self.client.batch_execute(sql)).await
    }

    async fn rows(&mut self, first: &str, query: &str) -> Result<Vec<TextRow>, Fault> {
        let statements = format!("{first}; {query}");
        let messages = answered(self.client.simple_query(&statements)).await?;
        let rows = messages.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        Ok(rows
            .map(|row| (0..row.len()).map(|at| row.get(at).map(str::to_owned)).collect())
            .collect())
    }

    /// One walk along the index for each target: with a list of targets the server would sort all
    /// that wait. Its statistics are often older than the rows; compared and ordered as a whole,
    /// the index's columns leave it no other way worth taking.
    async fn waiting(&mut self, dialect: &Dialect, page: Page<'_>) -> Result<Vec<RowId>, Fault> {
        let Page { targets, after, limit } = page;
        let table = &dialect.table;
        let query = format!(
            "SELECT w.id::bigint FROM unnest($1) AS n(target), LATERAL (\
             SELECT j.id FROM {table} j \
             WHERE (j.status, j.target, j.id) > ('waiting', n.target, $2) \
             AND (j.status, j.target) <= ('waiting', n.target) \
             ORDER BY j.status, j.target, j.id LIMIT $3) AS w ORDER BY w.id LIMIT $3"
        );
        let limit = i64::from(limit);
        let params: [Param<'_>; 3] =
            [(&targets, Type::TEXT_ARRAY), (&after, Type::INT8), (&limit, Type::INT8)];
        let rows = answered(self.client.query_typed(&query, &params)).await?;
        rows.iter().map(|row| Ok(RowId(row.try_get(0)?))).collect()
    }

    async fn finish(
        &mut self,
        dialect: &Dialect,
        ids: &[RowId],
        ending: &Ending<'_>,
    ) -> Result<(), Fault> {
        let places = ["$1", "$2", "$3", "$4", "$5"];
        let statement = dialect.done(ending.result, places, &id_list(ids));
        let code = ending.code.map(i32::from);
        let sig = ending.sig.as_deref();
        let texts = [ending.stdout.as_deref(), ending.stderr.as_deref()];
        let bytes = texts.map(|text| text.map(str::as_bytes));
        let output = |at: usize| -> Param<'_> {
            if self.bytes[at] { (&bytes[at], Type::BYTEA) } else { (&texts[at], Type::TEXT) }
        };
        let params: [Param<'_>; 5] = [
            (&ending.finished_s, Type::INT8),
            (&code, Type::INT4),
            (&sig, Type::TEXT),
            output(0),
            output(1),
        ];
        answered(self.client.execute_typed(&statement, &params)).await.map(drop)
    }
}
