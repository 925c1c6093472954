//! The tables, and how they are checked.

use spindle_log::{Opening, Position};
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::error::{Fault, OpenError, reason_of};
use crate::options::PgsqlLogOptions;
use crate::runs::RunRow;
use crate::session::Session;

/// What `head.kind` says.
const KIND: &str = "spindle log";
/// What it says while the log is filled from a backup.
const KIND_RESTORING: &str = "spindle log, not restored to its end";
/// The newest format that is known.
const FORMAT: i32 = 1;

/// The tables of one log.
#[derive(Clone, Debug)]
pub(crate) struct Tables {
    pub schema: String,
    pub opening: Opening,
}

/// The row of `head`.
#[derive(Debug)]
pub(crate) struct Head {
    pub log_id: String,
    pub first: Position,
}

/// What the tables of runs are like. Records are not compressed, and nothing is ever updated or
/// deleted in these tables, so there is nothing to clean up in them.
fn template(schema: &str) -> String {
    format!(
        "CREATE TABLE IF NOT EXISTS {schema}.records (
             position bigint PRIMARY KEY, epoch bigint NOT NULL, bytes bytea NOT NULL);
         ALTER TABLE {schema}.records ALTER COLUMN bytes SET STORAGE EXTERNAL;"
    )
}

impl Tables {
    pub fn of(options: &PgsqlLogOptions) -> Tables {
        Tables { schema: options.schema.clone(), opening: options.opening }
    }

    pub fn head(&self) -> String {
        format!("{}.head", self.schema)
    }

    pub fn runs(&self) -> String {
        format!("{}.runs", self.schema)
    }

    pub fn records(&self, number: i64) -> String {
        format!("{}.records_{number}", self.schema)
    }

    /// Makes the table of a run, if it is not there. One that is there is not locked: a dump of the
    /// database may have it for hours.
    pub fn make_records(&self, number: i64) -> String {
        format!(
            "CREATE TABLE IF NOT EXISTS {} (LIKE {}.records INCLUDING STORAGE INCLUDING INDEXES)
                 WITH (autovacuum_enabled = off, toast.autovacuum_enabled = off);",
            self.records(number),
            self.schema
        )
    }

    /// Makes the tables where there are none, unless they are only to be read.
    pub async fn ensure(&self, session: &Session) -> Result<(), Fault> {
        let Self { schema, opening } = self;
        let question = "
            SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1),
                   (SELECT min(c.relname::text) FROM pg_class c
                    JOIN pg_namespace n ON n.oid = c.relnamespace
                    WHERE n.nspname = $1 AND c.relkind IN ('r', 'p', 'v', 'm', 'S', 'f')),
                   EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                           WHERE n.nspname = $1 AND c.relname = 'head')";
        let rows = session.query_typed(question, &[(schema, Type::TEXT)]).await?;
        let row = one(&rows)?;
        let (exists, table): (bool, Option<&str>) = (row.try_get(0)?, row.try_get(1)?);
        if row.try_get(2)? {
            return Ok(());
        }
        if let Some(table) = table {
            let reason = format!("it has no table `head`, but others, `{table}` for one");
            return Err(OpenError::Foreign { schema: schema.clone(), reason }.into());
        }
        let first = match opening {
            Opening::Reader => return Err(OpenError::Absent { schema: schema.clone() }.into()),
            Opening::Restore(first) => *first,
            Opening::Node => Position(0),
        };
        let made = session.batch_execute(&self.creation(exists, first)).await;
        if let Err(error) = made {
            // Another process may have made them at the same time.
            session.batch_execute("ROLLBACK").await?;
            if self.read_head(session).await.is_err() {
                let reason = format!("cannot make the tables: {}", reason_of(&error));
                return Err(OpenError::Refused(reason).into());
            }
        }
        Ok(())
    }

    /// In one transaction, for which other processes that want the same wait.
    fn creation(&self, schema_exists: bool, first: Position) -> String {
        let (schema, head, runs) = (&self.schema, self.head(), self.runs());
        let (kind, first) = (self.kind(), bigint(first));
        let make_schema = if schema_exists {
            String::new()
        } else {
            format!("CREATE SCHEMA IF NOT EXISTS {schema};")
        };
        let (template, records) = (template(schema), self.make_records(0));
        let log_id = Uuid::new_v4().simple();
        format!(
            "BEGIN;
             SELECT pg_advisory_xact_lock(hashtext('spindle log'), hashtext('{schema}'));
             {make_schema}
             CREATE TABLE IF NOT EXISTS {head} (
                 kind text PRIMARY KEY, format integer NOT NULL, log_id text NOT NULL,
                 first bigint NOT NULL, confirmations bigint NOT NULL)
                 WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0,
                       autovacuum_vacuum_threshold = 1000);
             CREATE TABLE IF NOT EXISTS {runs} (
                 number bigint PRIMARY KEY, first bigint NOT NULL, until bigint, bytes bigint)
                 WITH (fillfactor = 50);
             {template}
             {records}
             INSERT INTO {head} SELECT '{kind}', {FORMAT}, '{log_id}', {first}, 0
                 WHERE NOT EXISTS (SELECT FROM {head});
             INSERT INTO {runs} SELECT 0, {first} WHERE NOT EXISTS (SELECT FROM {runs});
             COMMIT"
        )
    }

    /// What `head.kind` says of a log that may be opened so.
    fn kind(&self) -> &'static str {
        if matches!(self.opening, Opening::Restore(_)) { KIND_RESTORING } else { KIND }
    }

    /// Lets nodes open a log that was filled from a backup, in a transaction that waits for what commits wait for.
    /// Nothing when the wait was cancelled.
    pub async fn end_restore(&self, session: &Session) -> Result<Option<()>, Fault> {
        let statement = format!("UPDATE {} SET kind = '{KIND}'", self.head());
        session.take_unconfirmed();
        session.batch_execute(&statement).await?;
        Ok((!session.take_unconfirmed()).then_some(()))
    }

    /// Reads the row of `head`, and refuses what is not ours.
    pub async fn read_head(&self, session: &Session) -> Result<Head, Fault> {
        let statement = format!("SELECT kind, format, log_id, first FROM {}", self.head());
        let rows = match session.query_typed(&statement, &[]).await {
            Ok(rows) => rows,
            Err(error) if is_another_table(error.code()) => {
                return Err(self.foreign(format!("its table `head`: {}", reason_of(&error))));
            }
            Err(error) => return Err(error.into()),
        };
        let [row] = &*rows else {
            return Err(self.foreign(format!("its table `head` has {} rows", rows.len())));
        };
        self.check_head(row).map_err(|fault| match fault {
            Fault::InDoubt(reason) => self.foreign(format!("its table `head`: {reason}")),
            other => other,
        })
    }

    fn check_head(&self, row: &Row) -> Result<Head, Fault> {
        let (kind, format): (&str, i32) = (row.try_get(0)?, row.try_get(1)?);
        let schema = || self.schema.clone();
        match kind {
            kind if kind == self.kind() => {}
            KIND => return Err(OpenError::NotEmpty { schema: schema() }.into()),
            KIND_RESTORING => return Err(OpenError::Unfinished { schema: schema() }.into()),
            _ => return Err(self.foreign(format!("its table `head` is one of `{kind}`"))),
        }
        if format > FORMAT {
            return Err(OpenError::Newer { schema: schema(), format, known: FORMAT }.into());
        }
        if format < 1 {
            return Err(self.foreign(format!("its table `head` has format {format}")));
        }
        Ok(Head { log_id: row.try_get(2)?, first: position(row.try_get(3)?) })
    }

    /// The rows of `runs` from this one on; they must follow each other, and have their tables.
    pub async fn read_runs(&self, session: &Session, from: i64) -> Result<Vec<RunRow>, Fault> {
        let statement = format!(
            "SELECT number, first, until, bytes, to_regclass('{}.records_' || number) IS NOT NULL
             FROM {} WHERE number >= $1 ORDER BY number",
            self.schema,
            self.runs()
        );
        let rows = match session.query_typed(&statement, &[(&from, Type::INT8)]).await {
            Err(error) if is_another_table(error.code()) => {
                return Err(self.damaged(format!("its table `runs`: {}", reason_of(&error))));
            }
            rows => rows?,
        };
        let mut runs: Vec<RunRow> = Vec::with_capacity(rows.len());
        for row in &rows {
            let number: i64 = row.try_get(0)?;
            let first = position(row.try_get(1)?);
            let until: Option<i64> = row.try_get(2)?;
            let bytes: Option<i64> = row.try_get(3)?;
            let closed = until.map(|until| (position(until), bytes.unwrap_or(0).unsigned_abs()));
            if !row.try_get::<_, bool>(4)? {
                return Err(self.damaged(format!("the table `records_{number}` is missing")));
            }
            let before =
                runs.last().map(|run| (run.number + 1, run.closed.map(|(until, _)| until)));
            if before.is_some_and(|before| before != (number, Some(first))) {
                let reason =
                    format!("run {number} of table `runs` does not follow the one before it");
                return Err(self.damaged(reason));
            }
            runs.push(RunRow { number, first, closed });
        }
        match runs.last() {
            Some(run) if run.closed.is_none() => Ok(runs),
            _ => Err(self.damaged("table `runs` has no open run".to_owned())),
        }
    }

    pub fn damaged(&self, reason: String) -> Fault {
        OpenError::Damaged { schema: self.schema.clone(), reason }.into()
    }

    pub fn lost(&self, reason: String) -> Fault {
        OpenError::Lost { schema: self.schema.clone(), reason }.into()
    }

    fn foreign(&self, reason: String) -> Fault {
        OpenError::Foreign { schema: self.schema.clone(), reason }.into()
    }
}

/// There is none, it is something else, it has other columns, or it may not be read.
fn is_another_table(code: Option<&SqlState>) -> bool {
    code.is_some_and(|code| {
        [
            SqlState::UNDEFINED_TABLE,
            SqlState::WRONG_OBJECT_TYPE,
            SqlState::UNDEFINED_COLUMN,
            SqlState::INSUFFICIENT_PRIVILEGE,
            SqlState::INVALID_SCHEMA_NAME,
        ]
        .contains(code)
    })
}

/// The one row of an answer that has exactly one.
pub(crate) fn one(rows: &[Row]) -> Result<&Row, Fault> {
    rows.first().ok_or_else(|| Fault::Away("the server sent no row".to_owned()))
}

/// Positions are never negative: the log begins at 0.
pub(crate) fn position(value: i64) -> Position {
    Position(value.unsigned_abs())
}

/// A position that cannot be in the database is beyond everything that is.
pub(crate) fn bigint(position: Position) -> i64 {
    i64::try_from(position.0).unwrap_or(i64::MAX)
}
