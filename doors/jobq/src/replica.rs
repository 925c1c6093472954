//! A copy of Jobq's jobs in a private database of SQLite, which queries run on.
//!
//! The copy exists because handing a hundred thousand jobs with their payloads from the engine to
//! SQLite for every poll takes many times as long as SQLite's scan of them. The copy follows the
//! engine's changes instead, so a poll costs what has changed since the last one, and one scan.
//!
//! It is bounded: a temporary database, of which SQLite keeps [`CACHE_KIB`] in memory and the rest
//! in an unnamed file that disappears with the process. It can be lost and rebuilt at any time, so
//! nothing is synced.
//!
//! Rows lie in the order in which jobs were last updated: the least recently updated match is the
//! first one a scan meets, and a changed job moves to the end.

use std::cell::Cell;
use std::time::Duration;

use rusqlite::limits::Limit;
use rusqlite::{Connection, params, params_from_iter};
use rusqlite::{Error, ErrorCode};

use crate::listing::{Listing, Piece, too_large};
use crate::query::{
    BoundQuery, Budget, End, Guard, NAMES_MAX, PATTERN_BYTES_MAX, Query, TERMS_MAX, Try,
    install_functions,
};
use crate::refusal::{Answered, Refusal};

/// What SQLite may keep in memory.
const CACHE_KIB: i32 = 64 * 1024;

/// The longest value a query sees, and the longest it makes. The cost of evaluating a job is a
/// multiple of this.
pub const VALUE_BYTES_MAX: usize = 1 << 20;

/// The longest row: three such values, and what SQLite adds.
const ROW_BYTES_MAX: usize = 4 * VALUE_BYTES_MAX;

/// Most arguments of a function: SQLite's JSON functions look for one place after the other.
const ARGUMENTS_MAX: i32 = 12;

/// A job as queries see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    pub id: i64,
    /// Smaller was updated less recently; no two jobs have the same.
    pub update_seq: i64,
    pub revision: u32,
    /// Polls pass over it, because its users may not set its state.
    pub fixed: bool,
    /// In seconds.
    pub modified: i64,
    /// JSON; none for null.
    pub state: Option<String>,
    /// None: as before.
    pub payload: Option<Column>,
    /// JSON.
    pub events: String,
    /// Its state or its events are not complete here.
    pub is_cut: bool,
}

/// A value as queries see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Column {
    /// JSON; none for null.
    Json(Option<String>),
    /// Over [`VALUE_BYTES_MAX`]: queries see null, and the copy has no more than that.
    TooLong,
}

/// A job a query has found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Match {
    pub id: u64,
    pub revision: u32,
}

/// Limits of a query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueryLimits {
    /// How long it may compute.
    pub time: Duration,
    /// Most bytes of an answer.
    pub answer_bytes_max: usize,
}

/// The copy.
pub struct Replica {
    db: Connection,
    guard: Guard,
    budget: Budget,
    limits: QueryLimits,
    /// Which kind of try the next query makes, and how the last one ended.
    one: Cell<Try>,
    end: Cell<End>,
}

impl Replica {
    /// An empty copy.
    pub fn new(limits: QueryLimits) -> rusqlite::Result<Replica> {
        let mut db = Connection::open("")?;
        db.execute_batch(&format!(
            "PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF;
             PRAGMA locking_mode = EXCLUSIVE; PRAGMA trusted_schema = OFF;
             PRAGMA cache_size = -{CACHE_KIB};
             CREATE TABLE job (
                 update_seq INTEGER PRIMARY KEY, id INTEGER NOT NULL, revision INTEGER NOT NULL,
                 fixed INTEGER NOT NULL, modified INTEGER NOT NULL, state TEXT, payload TEXT,
                 events TEXT NOT NULL, payload_too_long INTEGER NOT NULL,
                 is_cut INTEGER NOT NULL);
             CREATE UNIQUE INDEX job_by_id ON job (id);"
        ))?;
        for (limit, value) in [
            (Limit::SQLITE_LIMIT_LENGTH, ROW_BYTES_MAX as i32),
            (Limit::SQLITE_LIMIT_SQL_LENGTH, 1 << 21),
            (Limit::SQLITE_LIMIT_COLUMN, 64),
            // The depth of the terms and the operators between them, and the depth within a term.
            (Limit::SQLITE_LIMIT_EXPR_DEPTH, 2 * TERMS_MAX as i32 + 200),
            (Limit::SQLITE_LIMIT_COMPOUND_SELECT, 1),
            (Limit::SQLITE_LIMIT_VDBE_OP, 100_000),
            (Limit::SQLITE_LIMIT_FUNCTION_ARG, ARGUMENTS_MAX),
            (Limit::SQLITE_LIMIT_ATTACHED, 0),
            (Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, PATTERN_BYTES_MAX as i32),
            (Limit::SQLITE_LIMIT_VARIABLE_NUMBER, 256),
            (Limit::SQLITE_LIMIT_TRIGGER_DEPTH, 1),
            (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
        ] {
            db.set_limit(limit, value)?;
        }
        let (guard, budget) = (Guard::default(), Budget::default());
        guard.install(&mut db)?;
        budget.install(&mut db)?;
        install_functions(&db, &budget, VALUE_BYTES_MAX)?;
        let (one, end) = (Cell::new(Try::Whole), Cell::new(End::Own));
        Ok(Replica { db, guard, budget, limits, one, end })
    }

    /// The budget that ends a query of this copy, for the thread that waits for the query.
    pub fn budget(&self) -> Budget {
        self.budget.clone()
    }

    /// Forgets all jobs.
    pub fn clear(&self) -> rusqlite::Result<()> {
        self.db.execute_batch("DELETE FROM job")
    }

    /// Applies some changes, all or none. Returns the jobs for which it has no payload and was
    /// given none; they are left out.
    pub fn apply(&mut self, rows: &[Row], gone: &[i64]) -> rusqlite::Result<Vec<i64>> {
        let change = self.db.transaction()?;
        let mut unknown = Vec::new();
        {
            let mut delete = change.prepare_cached("DELETE FROM job WHERE id = ?1")?;
            for id in gone {
                delete.execute([id])?;
            }
            let mut update = change.prepare_cached(
                "UPDATE job SET update_seq = ?1, revision = ?3, fixed = ?4, modified = ?5,
                 state = ?6, events = ?7, is_cut = ?8 WHERE id = ?2",
            )?;
            let mut insert = change.prepare_cached(
                "INSERT OR REPLACE INTO job (update_seq, id, revision, fixed, modified, state,
                 events, is_cut, payload, payload_too_long)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            )?;
            for row in rows {
                let Row { id, update_seq, revision, fixed, modified, state, .. } = row;
                let (events, is_cut) = (&row.events, row.is_cut);
                let (payload, too_long) = match &row.payload {
                    Some(Column::Json(payload)) => (payload.as_deref(), false),
                    Some(Column::TooLong) => (None, true),
                    None => {
                        let values = params![
                            update_seq, id, revision, fixed, modified, state, events, is_cut
                        ];
                        if update.execute(values)? == 0 {
                            unknown.push(*id);
                        }
                        continue;
                    }
                };
                insert.execute(params![
                    update_seq, id, revision, fixed, modified, state, events, is_cut, payload,
                    too_long
                ])?;
            }
        }
        change.commit()?;
        Ok(unknown)
    }

    /// Makes one try at a query. None: the try was over before there was an answer.
    pub fn try_to<T>(
        &self,
        one: Try,
        ask: impl Fn(&Replica) -> Answered<T>,
    ) -> Option<Answered<T>> {
        self.one.set(one);
        self.end.set(End::Own);
        let answer = ask(self);
        self.one.set(Try::Whole);
        (self.end.get() != End::Cut).then_some(answer)
    }

    /// The jobs that match, by number.
    pub fn list(&self, query: &Query, limit: Option<u64>) -> Answered<Vec<Piece>> {
        let BoundQuery { sql, values } = self.checked(query)?;
        // Only places are sorted by number, not whole jobs.
        let sql = format!("SELECT j.update_seq FROM job AS j WHERE {sql} ORDER BY j.id");
        let limit = usize::try_from(limit.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        let mut listing = Listing::new(self.limits.answer_bytes_max);
        self.run(|db| {
            let mut found = db.prepare_cached(&sql)?;
            let found = found.query_map(params_from_iter(&values), |row| row.get::<_, i64>(0))?;
            let mut job = db.prepare_cached(
                "SELECT id, payload, state, events, modified, payload_too_long OR is_cut
                 FROM job WHERE update_seq = ?1",
            )?;
            for update_seq in found.take(limit) {
                job.query_row([update_seq?], |row| listing.add(row))?;
                if listing.is_too_large {
                    return Ok(());
                }
            }
            Ok(())
        })?;
        if listing.is_too_large { Err(too_large(listing.bytes_max)) } else { Ok(listing.pieces) }
    }

    /// The first few jobs that match and whose state may be set, the least recently updated first.
    pub fn candidates(&self, query: &Query, limit: usize) -> Answered<Vec<Match>> {
        let BoundQuery { sql, values } = self.checked(query)?;
        let sql = format!(
            "SELECT j.id, j.revision FROM job AS j WHERE ({sql}) AND NOT j.fixed
             ORDER BY j.update_seq"
        );
        let mut found = Vec::new();
        self.run(|db| {
            let mut statement = db.prepare_cached(&sql)?;
            let mut rows = statement.query(params_from_iter(&values))?;
            while found.len() < limit
                && let Some(row) = rows.next()?
            {
                let id = row.get::<_, i64>(0)?.cast_unsigned();
                found.push(Match { id, revision: row.get(1)? });
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// The query's condition, once SQLite has read it with the guard closed.
    fn checked(&self, query: &Query) -> Answered<BoundQuery> {
        let bound = query.bound();
        let sql = format!("SELECT 1 FROM job AS j WHERE {}", bound.sql);
        let prepared = self.guard.closed(|| self.db.prepare(&sql).map(drop));
        prepared.map_err(|error| match error.sqlite_error_code() {
            // SQLite reports a statement over its limits as a lack of memory.
            Some(ErrorCode::OutOfMemory) => Refusal::too_costly("the query has too many parts"),
            _ => refusal_of(error, false),
        })?;
        let names = self.guard.names();
        if names > NAMES_MAX {
            return Err(Refusal::too_costly(format!(
                "the query names columns and functions {names} times; {NAMES_MAX} are allowed"
            )));
        }
        Ok(bound)
    }

    fn run(&self, run: impl FnOnce(&Connection) -> rusqlite::Result<()>) -> Answered<()> {
        let (limit, one) = (self.limits.time, self.one.get());
        let (ran, end) = self.budget.within(limit, one, || {
            self.db.set_limit(Limit::SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX as i32)?;
            let ran = run(&self.db);
            self.db.set_limit(Limit::SQLITE_LIMIT_LENGTH, ROW_BYTES_MAX as i32)?;
            ran
        });
        self.end.set(end);
        match end {
            End::Spent => Err(Refusal::too_costly(format!(
                "the query computed for more than {} ms and was ended: make it simpler, or give \
                 it less to look through",
                limit.as_millis()
            ))),
            End::Interrupted => Err(Refusal::interrupted()),
            // This answer of a try that was cut short is not sent.
            End::Own | End::Cut => ran.map_err(|error| refusal_of(error, true)),
        }
    }
}

#[cfg(test)]
impl Replica {
    /// Fills the copy with `jobs` jobs, for tests of how long queries take.
    pub fn fill_for_tests(&mut self, jobs: i64) {
        let rows: Vec<Row> = (1..=jobs).map(|id| tests::row(id, id, "[\"CREATED\"]")).collect();
        assert_eq!(self.apply(&rows, &[]), Ok(Vec::new()));
    }
}

/// What went wrong, in SQLite's words.
fn refusal_of(error: Error, ran: bool) -> Refusal {
    let in_words = |message: &str| {
        let when = if ran { "SQLite ended the query" } else { "SQLite does not take the query" };
        Refusal::query(format!("{when}: {message}"))
    };
    match &error {
        Error::SqlInputError { msg, .. } => in_words(msg),
        Error::SqliteFailure(failure, message) => match failure.code {
            ErrorCode::DiskFull
            | ErrorCode::OutOfMemory
            | ErrorCode::SystemIoFailure
            | ErrorCode::CannotOpen
            | ErrorCode::DatabaseCorrupt => Refusal::replica(error.to_string()),
            ErrorCode::TooBig => Refusal::too_costly(format!(
                "a text in the query grows over {VALUE_BYTES_MAX} bytes"
            )),
            _ => in_words(message.as_deref().unwrap_or("it failed")),
        },
        _ => in_words(&error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> QueryLimits {
        QueryLimits { time: Duration::from_millis(200), answer_bytes_max: 1 << 20 }
    }

    pub fn row(id: i64, update_seq: i64, state: &str) -> Row {
        Row {
            id,
            update_seq,
            revision: 1,
            fixed: false,
            modified: 5,
            state: Some(state.to_owned()),
            payload: Some(Column::Json(Some(format!("{{\"n\": {id}}}")))),
            events: "[]".to_owned(),
            is_cut: false,
        }
    }

    fn replica(jobs: i64) -> Replica {
        let mut replica = Replica::new(limits()).unwrap();
        replica.fill_for_tests(jobs);
        replica
    }

    fn query(text: &str) -> Query {
        Query::read(text).unwrap()
    }

    fn found(replica: &Replica, text: &str) -> Vec<u64> {
        let found = replica.candidates(&query(text), usize::MAX).unwrap();
        found.into_iter().map(|found| found.id).collect()
    }

    #[test]
    fn candidates_come_in_the_order_they_were_updated() {
        let mut replica = replica(4);
        let updated = Row { payload: None, ..row(2, 9, "[\"B\"]") };
        let fixed = Row { fixed: true, payload: None, ..row(3, 3, "[\"READY\"]") };
        let unknown = Row { payload: None, ..row(7, 7, "[]") };
        assert_eq!(replica.apply(&[updated, fixed, unknown], &[4]), Ok(vec![7]));
        assert_eq!(found(&replica, "[[\">\",\"id\",0]]"), [1, 2]);
        assert_eq!(found(&replica, "[[\"=\",\"payload->>'n'\",2]]"), [2], "the payload stayed");
    }

    #[test]
    fn a_list_is_whole_jobs_by_number_and_names_those_that_are_not_whole_here() {
        let mut replica = replica(5);
        let cut = Row { is_cut: true, payload: None, ..row(2, 9, "[\"B\"]") };
        let long = Row { payload: Some(Column::TooLong), ..row(4, 8, "[\"C\"]") };
        let moved = Row { payload: None, ..row(1, 7, "[\"D\"]") };
        assert_eq!(replica.apply(&[cut, long, moved], &[]), Ok(Vec::new()));
        let job = |id, state: &str| {
            format!(
                "{{\"id\":{id},\"payload\":{{\"n\": {id}}},\"state\":[\"{state}\"],\"events\":[],\
                 \"modified\":5}}"
            )
        };
        let expected = |last: &[Piece]| {
            let first = Piece::Jobs(job(1, "D"));
            let rest = [Piece::Elsewhere(2), Piece::Jobs(job(3, "CREATED")), Piece::Elsewhere(4)];
            [&[first][..], &rest, last].concat()
        };
        let all = replica.list(&Query::default(), None).unwrap();
        assert_eq!(all, expected(&[Piece::Jobs(job(5, "CREATED"))]));
        assert_eq!(replica.list(&Query::default(), Some(4)).unwrap(), expected(&[]));
        // The values that changed since are not too long any more.
        let short = Row { payload: None, ..row(2, 10, "[\"B\"]") };
        assert_eq!(replica.apply(&[short], &[]), Ok(Vec::new()));
        let listed = replica.list(&query("[[\"=\",\"id\",2]]"), None).unwrap();
        assert_eq!(listed, [Piece::Jobs(job(2, "B"))]);
    }

    const ATTACKS: &[&str] = &[
        "(select 1)",
        "EXISTS (SELECT 1)",
        "(VALUES (1))",
        "id IN (select id from job)",
        "id IN job",
        "id IN sqlite_schema",
        "1 IN pragma_cache_size",
        "id IN json_each('[1]')",
        "(\"sel\"\"ect\" 1)",
        "(WITH x AS (SELECT 1) SELECT 1)",
        "1) UNION SELECT (1",
        "1; DELETE FROM job",
        "1); DELETE FROM job; --",
        "1 -- ",
        "1 /*",
        "?1",
        ":a",
        "@a",
        "$a",
        "load_extension('x')",
        "randomblob(1000000000)",
        "zeroblob(1000000000)",
        "random()",
        "sqlite_version()",
        "sqlite_source_id()",
        "sqlite_compileoption_get(1)",
        "changes()",
        "last_insert_rowid()",
        "total_changes()",
        "fts3_tokenizer('simple')",
        "rtreecheck('job')",
        "readfile('/etc/passwd')",
        "writefile('x', 1)",
        "edit('x')",
        "sqlite_log(1, 'x')",
        "count(*)",
        "sum(id)",
        "max(id)",
        "group_concat(state)",
        "json_group_array(id)",
        "row_number() OVER ()",
        "update_seq",
        "j.update_seq",
        "rowid",
        "_rowid_",
        "oid",
        "j.rowid",
        "revision",
        "fixed",
        "sqlite_schema.sql",
        "main.job.update_seq",
        "temp.job.id",
        "job.id",
        "raise(ABORT, 'x')",
        "id MATCH 'x'",
        "state REGEXP 'x'",
        "nosuch(1)",
        "nosuch",
        "printf('%*d', 2000000000, 1)",
        "replace(payload, '', '')  LIMIT 1",
        "id ORDER BY id",
        "id) AND (SELECT 1",
        "x'",
        "'",
        "[",
        "1 COLLATE nosuch",
        "CAST(id AS",
        "id = ",
    ];

    /// Each is refused, before or after SQLite has read it, and nothing is seen or changed.
    #[test]
    fn attacks_are_refused() {
        let replica = replica(3);
        let before = replica.list(&Query::default(), None).unwrap();
        for attack in ATTACKS {
            let text = serde_json::json!([["=", attack, 1]]).to_string();
            let refused = Query::read(&text).and_then(|query| replica.list(&query, None));
            assert!(
                refused.as_ref().is_err_and(|refusal| refusal.status == 400),
                "{attack}: {refused:?}"
            );
        }
        assert_eq!(replica.list(&Query::default(), None).unwrap(), before);
    }

    /// The authorizer alone, without the scan that precedes it. It is not asked about `id IN
    /// (SELECT id FROM job)`, which SQLite turns into an index look-up: the scan refuses that one
    /// by its keyword, and it would reveal nothing new anyway.
    #[test]
    fn the_authorizer_lets_through_one_query_over_a_jobs_columns_only() {
        let replica = replica(3);
        let prepared = |sql: &str| replica.guard.closed(|| replica.db.prepare(sql).map(drop));
        let allowed = "SELECT 1 FROM job AS j WHERE json_extract(j.state, '$[0]') = lower('A')";
        assert_eq!(prepared(allowed), Ok(()));
        for sql in [
            "SELECT 1 FROM job AS j WHERE (SELECT 1)",
            "SELECT 1 FROM job AS j WHERE EXISTS (SELECT 1)",
            "SELECT 1 FROM job AS j WHERE (VALUES (1))",
            "SELECT 1 FROM job AS j WHERE id IN (SELECT update_seq FROM job)",
            "SELECT 1 FROM job AS j WHERE id IN (SELECT rootpage FROM sqlite_schema)",
            "SELECT 1 FROM job AS j WHERE 1 IN pragma_cache_size",
            "SELECT 1 FROM job AS j WHERE j.update_seq = 1",
            "SELECT 1 FROM job AS j WHERE rowid = 1",
            "SELECT 1 FROM job AS j WHERE randomblob(9) = 1",
            "SELECT 1 FROM job AS j WHERE load_extension('x')",
            "SELECT 1 FROM sqlite_schema",
            "SELECT 1 UNION SELECT 2",
            "DELETE FROM job",
            "UPDATE job SET state = 1",
            "PRAGMA cache_size = 1",
            "ATTACH ':memory:' AS more",
            "CREATE TABLE more (id)",
            "DROP TABLE job",
            "BEGIN",
        ] {
            assert!(prepared(sql).is_err(), "{sql}");
        }
        assert_eq!(
            replica.db.prepare("SELECT update_seq FROM job").map(drop),
            Ok(()),
            "open again"
        );
    }

    #[test]
    fn expressions_of_all_kinds_are_taken() {
        let replica = replica(3);
        for (left, right) in [
            ("json_extract(payload, '$.n')", "id"),
            ("CASE WHEN id BETWEEN 1 AND 3 THEN 1 ELSE 0 END", "1"),
            ("id IN (1, 2, 3)", "1"),
            ("lower(state) LIKE '%created%'", "1"),
            ("state ->> 0", "'CREATED'"),
            ("CAST(id AS TEXT) || ''", "id || ''"),
            ("json_array_length(events)", "0"),
            ("j.modified % 2", "1"),
            ("coalesce(NULL, iif(id > 0, 'x', 'y')) COLLATE NOCASE", "'X'"),
            ("date('now') IS NOT NULL", "1"),
        ] {
            let text = serde_json::json!([["=", left, right]]).to_string();
            assert_eq!(found(&replica, &text), [1, 2, 3], "{left}");
        }
    }

    #[test]
    fn json_values_are_compared_by_what_they_mean() {
        let mut replica = replica(1);
        let null = Row { state: None, ..row(3, 3, "") };
        replica.apply(&[row(2, 2, "{\"b\": 1, \"a\": [2]}"), null], &[]).unwrap();
        assert_eq!(found(&replica, "[[\"=\",\"state\",{\"a\":[2.0],\"b\":1}]]"), [2]);
        assert_eq!(found(&replica, "[[\"!=\",\"state\",{\"a\":[2],\"b\":1}]]"), [1]);
        assert_eq!(found(&replica, "[[\"IS NOT\",\"state\",{\"a\":[2],\"b\":1}]]"), [1, 3]);
        assert_eq!(found(&replica, "[[\"IS\",\"state\",null]]"), [3]);
    }

    #[test]
    fn a_query_that_takes_too_long_is_ended_and_the_next_one_runs() {
        let replica = replica(20_000);
        let slow = "[[\"=\",\"length(replace(hex(printf('%5000d', id)), '20', 'abc'))\",1]]";
        let refusal = replica.list(&query(slow), None).unwrap_err();
        assert_eq!((refusal.status.as_u16(), refusal.code), (400, "query_too_costly"));
        assert_eq!(found(&replica, "[[\"=\",\"id\",7]]"), [7]);
    }

    #[test]
    fn an_answer_that_grows_too_large_is_refused() {
        let mut replica = Replica::new(QueryLimits { answer_bytes_max: 100, ..limits() }).unwrap();
        replica.apply(&[row(1, 1, "[1]"), row(2, 2, &"1".repeat(80))], &[]).unwrap();
        assert!(replica.list(&Query::default(), Some(1)).is_ok());
        let refusal = replica.list(&Query::default(), None).unwrap_err();
        assert_eq!(refusal.code, "query_too_costly");
    }
}
