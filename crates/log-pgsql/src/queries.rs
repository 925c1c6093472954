//! Questions and changes, in SQL.

use bytes::Bytes;
use spindle_log::{Position, Record, Stored};
use tokio_postgres::types::Type;

use crate::error::Fault;
use crate::runs::{RunRow, Span, weight};
use crate::schema::{Tables, bigint, one, position};
use crate::session::Session;

/// What a look at the tables found beyond what was known.
#[derive(Debug)]
pub(crate) struct News {
    pub log_id: String,
    pub first: Position,
    /// The run that was open, and those behind it.
    pub runs: Vec<RunRow>,
    /// Where the log ends, and the weight of the records in the open run that were not known.
    pub end: Position,
    pub added: u64,
}

impl Tables {
    /// Looks at the log from run `open` on, of which the records up to `end` are known.
    pub async fn look(&self, session: &Session, open: i64, end: Position) -> Result<News, Fault> {
        let head = self.read_head(session).await?;
        let runs = self.read_runs(session, open).await?;
        let Some(last) = runs.last() else {
            return Err(self.damaged("table `runs` has no row".to_owned()));
        };
        let from = last.first.max(end);
        let statement = format!(
            "SELECT count(*), min(position), max(position),
                    coalesce(sum(octet_length(bytes)), 0)::int8
             FROM {} WHERE position >= $1",
            self.records(last.number)
        );
        let rows = session.query_typed(&statement, &[(&bigint(from), Type::INT8)]).await?;
        let row = one(&rows)?;
        let count: i64 = row.try_get(0)?;
        let bounds: (Option<i64>, Option<i64>) = (row.try_get(1)?, row.try_get(2)?);
        let bytes: i64 = row.try_get(3)?;
        let end = match bounds {
            (Some(min), Some(max)) => {
                if position(min) != from || max - min + 1 != count {
                    let missing = max + 1 - bigint(from) - count;
                    let reason = format!(
                        "{missing} of the records {from} to {max} are missing in table \
                         `records_{}`",
                        last.number
                    );
                    return Err(self.damaged(reason));
                }
                Position(max.unsigned_abs() + 1)
            }
            _ => from,
        };
        let added = bytes.unsigned_abs() + count.unsigned_abs() * weight(0);
        Ok(News { log_id: head.log_id, first: head.first, runs, end, added })
    }

    /// Whether there is anything at `end` or behind it, of which run `open` was the open one.
    pub async fn has_more(
        &self,
        session: &Session,
        open: i64,
        end: Position,
    ) -> Result<bool, Fault> {
        let statement = format!(
            "SELECT EXISTS (SELECT FROM {} WHERE position >= $2)
                 OR NOT EXISTS (SELECT FROM {} WHERE number = $1 AND until IS NULL)",
            self.records(open),
            self.runs()
        );
        let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
            [(&open, Type::INT8), (&bigint(end), Type::INT8)];
        match session.query_typed(&statement, &parameters).await.map_err(Fault::from) {
            Ok(rows) => Ok(one(&rows)?.try_get(0)?),
            // The run was trimmed meanwhile.
            Err(Fault::NoTable(_)) => Ok(true),
            Err(fault) => Err(fault),
        }
    }

    /// The statement that appends records, to be prepared: run, position, epochs, bytes.
    ///
    /// The row of the run is locked, shared: a process that closes the run waits for this
    /// statement, and a statement that comes after the close finds no open run. The record before
    /// must be there, and the primary key refuses positions that are taken.
    pub fn append_statement(&self, number: i64) -> String {
        let (records, runs) = (self.records(number), self.runs());
        format!(
            "WITH open AS (
                 SELECT first FROM {runs} WHERE number = $1 AND until IS NULL FOR SHARE)
             INSERT INTO {records} (position, epoch, bytes)
             SELECT $2 + r.place - 1, r.epoch, r.bytes
             FROM open, unnest($3::int8[], $4::bytea[]) WITH ORDINALITY AS r(epoch, bytes, place)
             WHERE $2 = open.first OR EXISTS (SELECT FROM {records} WHERE position = $2 - 1)"
        )
    }

    /// Commits a transaction that waits for whatever the server makes commits wait for, and moves
    /// the beginning of the log with it. Returns where the log begins, or nothing when the wait was
    /// cancelled.
    pub async fn confirm(
        &self,
        session: &Session,
        trim_to: Position,
    ) -> Result<Option<Position>, Fault> {
        let statement = format!(
            "UPDATE {} SET confirmations = confirmations + 1, first = greatest(first, $1)
             RETURNING first",
            self.head()
        );
        session.take_unconfirmed();
        let rows = session.query_typed(&statement, &[(&bigint(trim_to), Type::INT8)]).await?;
        if session.take_unconfirmed() {
            return Ok(None);
        }
        Ok(Some(position(one(&rows)?.try_get(0)?)))
    }

    /// Closes run `number`, which must end at `end`, and opens the next one. Does nothing when it
    /// does not end there.
    pub async fn close_run(
        &self,
        session: &Session,
        number: i64,
        end: Position,
        bytes: u64,
    ) -> Result<bool, Fault> {
        let (runs, records, next) = (self.runs(), self.records(number), number + 1);
        let (until, bytes) = (bigint(end), i64::try_from(bytes).unwrap_or(i64::MAX));
        // Every append holds the row, shared; so the records seen once it is locked are all there
        // will be.
        let lock = format!(
            "BEGIN; SELECT FROM {runs} WHERE number = {number} AND until IS NULL FOR UPDATE"
        );
        session.batch_execute(&lock).await?;
        let question = format!(
            "SELECT (SELECT max(position) FROM {records}) = {until} - 1
                AND EXISTS (SELECT FROM {runs} WHERE number = {number} AND until IS NULL)"
        );
        let rows = session.query_typed(&question, &[]).await?;
        if one(&rows)?.try_get::<_, Option<bool>>(0)? != Some(true) {
            session.batch_execute("ROLLBACK").await?;
            return Ok(false);
        }
        let close = format!(
            "{}
             UPDATE {runs} SET until = {until}, bytes = {bytes} WHERE number = {number};
             INSERT INTO {runs} (number, first) VALUES ({next}, {until});
             COMMIT",
            self.make_records(next)
        );
        session.batch_execute(&close).await?;
        Ok(true)
    }

    /// The records of a span in order: at most `rows`, and no more than `bytes` unless the first one
    /// alone is longer.
    pub async fn fetch(
        &self,
        session: &Session,
        span: Span,
        rows: i64,
        bytes: i64,
    ) -> Result<Vec<Stored>, Fault> {
        let statement = format!(
            "SELECT position, epoch, bytes FROM (
                 SELECT position, epoch, bytes, sum(octet_length(bytes)) OVER (ORDER BY position)
                        - octet_length(bytes) AS before
                 FROM (SELECT * FROM {} WHERE position >= $1 AND position < $2
                       ORDER BY position LIMIT $3) AS portion) AS weighed
             WHERE before < $4 ORDER BY position",
            self.records(span.number)
        );
        let statement = session.prepared(&statement, &[const { Type::INT8 }; 4]).await?;
        let (from, until) = (bigint(span.from), bigint(span.until));
        let found = session.query(&statement, &[&from, &until, &rows, &bytes]).await?;
        let stored = found.iter().map(|row| {
            let (at, epoch): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
            let bytes = Bytes::copy_from_slice(row.try_get(2)?);
            Ok(Stored {
                position: position(at),
                epoch: epoch.cast_unsigned(),
                bytes,
                damaged: false,
            })
        });
        stored.collect()
    }

    /// The record at a position of a run.
    pub async fn record(
        &self,
        session: &Session,
        number: i64,
        at: Position,
    ) -> Result<Option<Record>, Fault> {
        let span = Span { number, from: at, until: Position(at.0 + 1) };
        let found = self.fetch(session, span, 1, 1).await?;
        let record = found.into_iter().next();
        Ok(record.map(|stored| Record { epoch: stored.epoch, bytes: stored.bytes }))
    }
}
