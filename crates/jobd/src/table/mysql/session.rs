//! One connection to a MySQL or MariaDB server.

use async_trait::async_trait;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Params, Row, Value};

use crate::table::fit::Ending;
use crate::table::row::RowId;
use crate::table::session::{Dialect, Fault, Page, Session, TextRow, answered};

/// The answer to the last of some statements, as text.
pub(super) async fn text_rows(conn: &mut Conn, sql: &str) -> Result<Vec<TextRow>, Fault> {
    let rows = async {
        let mut results = conn.query_iter(sql).await?;
        let mut rows: Vec<Row> = Vec::new();
        while !results.is_empty() {
            rows = results.collect().await?;
        }
        Ok::<_, mysql_async::Error>(rows)
    };
    let rows = answered(rows).await?;
    Ok(rows.into_iter().map(|row| row.unwrap().into_iter().map(text).collect()).collect())
}

fn text(value: Value) -> Option<String> {
    match value {
        Value::NULL => None,
        Value::Bytes(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        Value::Int(number) => Some(number.to_string()),
        Value::UInt(number) => Some(number.to_string()),
        other => Some(other.as_sql(true)),
    }
}

/// A connection, set up for a job table.
pub(in crate::table) struct MysqlSession(pub(super) Conn);

#[async_trait]
impl Session for MysqlSession {
    async fn execute(&mut self, sql: &str) -> Result<(), Fault> {
        answered(self.0.query_drop(sql)).await
    }

    async fn rows(&mut self, first: &str, query: &str) -> Result<Vec<TextRow>, Fault> {
        if first.is_empty() {
            return text_rows(&mut self.0, query).await;
        }
        text_rows(&mut self.0, &format!("{first}; {query}")).await
    }

    /// One walk along the index for each target: with a list of targets the server would sort, or
    /// walk the whole table in order of id.
    async fn waiting(&mut self, dialect: &Dialect, page: Page<'_>) -> Result<Vec<RowId>, Fault> {
        let Page { targets, after, limit } = page;
        let table = &dialect.table;
        let walk = format!(
            "(SELECT id FROM {table} WHERE status = 'waiting' AND target = ? AND id > ? \
             ORDER BY id LIMIT ?)"
        );
        let walks = vec![walk; targets.len()].join(" UNION ALL ");
        let query = format!("{walks} ORDER BY id LIMIT ?");
        let mut params = Vec::with_capacity(targets.len() * 3 + 1);
        for target in targets {
            params.extend([Value::from(target), after.into(), limit.into()]);
        }
        params.push(limit.into());
        let found = self.0.exec(query, Params::Positional(params));
        let ids: Vec<i64> = answered(found).await?;
        Ok(ids.into_iter().map(RowId).collect())
    }

    async fn finish(
        &mut self,
        dialect: &Dialect,
        ids: &[RowId],
        ending: &Ending<'_>,
    ) -> Result<(), Fault> {
        let Some(last) = ids.last() else { return Ok(()) };
        // The list is filled up to a power of two, so that a few prepared statements do for all.
        let places = ids.len().next_power_of_two();
        let marks = vec!["?"; places].join(", ");
        let statement = dialect.done(ending.result, ["?"; 5], &marks);
        let mut params = vec![
            Value::from(ending.finished_s),
            ending.code.into(),
            ending.sig.as_deref().into(),
            ending.stdout.as_deref().into(),
            ending.stderr.as_deref().into(),
        ];
        params.extend((0..places).map(|place| Value::from(ids.get(place).unwrap_or(last).0)));
        answered(self.0.exec_drop(statement, Params::Positional(params))).await
    }
}
