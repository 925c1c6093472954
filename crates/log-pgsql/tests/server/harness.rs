//! A server shared by all tests that do not harm it, and records to append.

#![expect(clippy::unwrap_used, reason = "only tests use this")]

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use spindle_log::{Ack, Log, Position, Record, Stored, SubmitError};
use spindle_log_pgsql::{PgsqlLog, PgsqlLogOptions};
use spindle_testkit::{PATIENCE, PostgresServer, wait_until};

/// Lives as long as the tests.
pub fn server() -> &'static PostgresServer {
    static SERVER: LazyLock<&PostgresServer> = LazyLock::new(|| {
        PostgresServer::start(&["max_connections=400", "max_prepared_transactions=20"]).shared()
    });
    *SERVER
}

/// A log on this server in a schema of its own, with short runs.
pub fn options(server: &PostgresServer, schema: &str) -> PgsqlLogOptions {
    options_at(&server.url("spindle"), schema)
}

/// A log at this URL, with short runs.
pub fn options_at(url: &str, schema: &str) -> PgsqlLogOptions {
    let options = PgsqlLogOptions::from_url(url).unwrap();
    let mut options = options.with_schema(schema).unwrap();
    options.run_records = 256;
    // However busy the machine is.
    options.answer_within = PATIENCE;
    options
}

/// The same log, opened by a process that waits only a short time for its server.
pub fn impatient(options: &PgsqlLogOptions) -> PgsqlLogOptions {
    let mut options = options.clone();
    options.answer_within = Duration::from_secs(1);
    options
}

/// A schema that no other test uses.
pub fn schema() -> String {
    static LOGS: AtomicU32 = AtomicU32::new(0);
    format!("log_{}", LOGS.fetch_add(1, Ordering::Relaxed))
}

/// A new log on the shared server.
pub fn fresh() -> (PgsqlLog, PgsqlLogOptions) {
    let options = options(server(), &schema());
    (PgsqlLog::open(&options).unwrap(), options)
}

pub fn record(epoch: u64, text: &str) -> Record {
    Record { epoch, bytes: text.to_owned().into() }
}

/// Submits a record at the end.
pub fn submit(log: &PgsqlLog, record: &Record) -> Position {
    let at = log.next();
    log.submit(at, record).unwrap();
    at
}

#[track_caller]
pub fn append(log: &PgsqlLog, record: &Record) -> Position {
    let at = submit(log, record);
    let ack = log.next_ack();
    assert!(matches!(ack, Ack::Committed(position) if position == at), "{ack:?}");
    at
}

/// Appends this many records, many at a time.
pub fn append_many(log: &PgsqlLog, count: u64) {
    let mut left = count;
    while left > 0 {
        let group = left.min(64);
        for _ in 0..group {
            let at = log.next();
            log.submit(at, &record(1, &format!("record {at}"))).unwrap();
        }
        for _ in 0..group {
            assert!(matches!(log.next_ack(), Ack::Committed(_)));
        }
        left -= group;
    }
}

pub fn all(log: &PgsqlLog) -> Vec<Stored> {
    log.read(log.first()).unwrap().map(|stored| stored.unwrap()).collect()
}

pub fn texts(log: &PgsqlLog) -> Vec<String> {
    let text = |stored: Stored| String::from_utf8(stored.bytes.to_vec()).unwrap();
    all(log).into_iter().map(text).collect()
}

/// Waits until an SQL query returns true.
#[track_caller]
pub fn wait_for(server: &PostgresServer, question: &str) {
    wait_until(question, || server.sql(&format!("SELECT {question}")) == "t");
}

/// A statement that appends to this log waits for this event.
pub fn is_waiting(options: &PgsqlLogOptions, event: &str) -> String {
    let table = format!("{}.records_", options.schema());
    format!(
        "EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = '{event}' \
         AND strpos(query, 'INSERT INTO {table}') > 0)"
    )
}

/// Does something to the session that appends to this log, while it does.
pub fn appender(server: &PostgresServer, options: &PgsqlLogOptions, function: &str) {
    let table = format!("{}.records_", options.schema());
    server.sql(&format!(
        "SELECT {function}(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() \
         AND strpos(query, 'INSERT INTO {table}') > 0"
    ));
}

/// The failure with which a log that has lost committed records answers a record.
#[track_caller]
pub fn fatal(log: &PgsqlLog) -> String {
    let at = submit(log, &record(1, "next"));
    let mut ack = log.next_ack();
    if let Ack::Unknown(position) = ack {
        // It was sent on the old connection, whose end the log had not noticed yet.
        assert_eq!((position, log.next()), (at, at));
        submit(log, &record(1, "next"));
        ack = log.next_ack();
    }
    let Ack::Fatal(error) = ack else { panic!("{ack:?}") };
    error.to_string()
}

/// Appends `record N` at each position N up to `until`, as an engine does: several on their way, and
/// what is Unknown is submitted again. Says after each answer how far it is.
pub fn feed(log: &PgsqlLog, until: u64, mut acknowledged: impl FnMut(Position)) {
    let mut answered = log.next();
    while answered.0 < until {
        while log.next().0 < until && log.next().0 - answered.0 < log.in_flight_max() as u64 {
            let at = log.next();
            match log.submit(at, &record(1, &format!("record {at}"))) {
                Ok(()) => {}
                // An Unknown one is on its way to here: none is taken behind it.
                Err(SubmitError::Conflict { next, .. }) if next < at => break,
                Err(error) => panic!("{error}"),
            }
        }
        match log.next_ack() {
            Ack::Committed(position) => {
                assert_eq!(position, answered);
                answered = position.next();
                acknowledged(position);
            }
            Ack::Unknown(first) => {
                assert_eq!(first, answered);
                for behind in first.0 + 1..log.next().0 {
                    let ack = log.next_ack();
                    assert!(matches!(ack, Ack::Unknown(Position(at)) if at == behind), "{ack:?}");
                }
                assert_eq!(log.next(), first);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// That the log has `record N` at each position below `until`, once.
pub fn check_fed(log: &PgsqlLog, until: u64) {
    let expected: Vec<String> = (0..until).map(|at| format!("record {at}")).collect();
    assert!(texts(log) == expected, "the log holds something else");
}
