//! Dropping the oldest records while readers still need them.

use spindle_log::{Log, Position, ReadError, SharedLog};
use spindle_log_pgsql::PgsqlLog;
use spindle_testkit::wait_until;

use crate::harness::{append_many, fresh, server, wait_for};

fn tables(schema: &str) -> String {
    server().sql(&format!(
        "SELECT string_agg(tablename, ' ' ORDER BY length(tablename), tablename) \
         FROM pg_tables WHERE schemaname = '{schema}' AND tablename LIKE 'records_%'"
    ))
}

fn has_table(schema: &str, number: u32) -> String {
    format!("to_regclass('{schema}.records_{number}') IS NOT NULL")
}

#[test]
fn a_trim_drops_tables_and_the_next_one_is_made_ahead() {
    let (log, options) = fresh();
    let schema = options.schema();
    append_many(&log, 64 * 15);
    wait_until("a table ahead", || {
        tables(schema) == "records_0 records_1 records_2 records_3 records_4"
    });
    log.trim_before(Position(600)).unwrap();
    assert_eq!(log.first(), Position(512));
    wait_until("dropped tables", || tables(schema) == "records_2 records_3 records_4");
    assert_eq!(server().sql(&format!("SELECT min(number) FROM {schema}.runs")), "2");
}

#[test]
fn a_trim_by_one_node_does_not_disturb_what_another_one_reads() {
    let (leader, options) = fresh();
    let schema = options.schema();
    append_many(&leader, 1_000);
    let follower = PgsqlLog::open(&options).unwrap();
    let mut reader = follower.read(Position(0)).unwrap();
    assert_eq!(reader.next().unwrap().unwrap().position, Position(0));
    leader.trim_before(Position(1_000)).unwrap();
    append_many(&leader, 300);
    leader.trim_before(Position(1_300)).unwrap();
    assert!(leader.first() >= Position(1_000));
    assert_eq!(reader.by_ref().inspect(|stored| assert!(stored.is_ok())).count(), 999);
    drop(reader);
    wait_for(server(), &format!("NOT {}", has_table(schema, 0)));
    let trimmed = follower.read(Position(0)).err().unwrap();
    assert!(matches!(trimmed, ReadError::Trimmed { .. }), "{trimmed:?}");
    assert!(matches!(follower.read_at(Position(5), 0, 1), Err(ReadError::Trimmed { .. })));
    assert_eq!(follower.refresh().unwrap(), Position(1_300));
    assert_eq!(follower.first(), leader.first());
}

#[test]
fn a_table_that_somebody_has_locked_is_dropped_later_and_keeps_nobody() {
    let (log, options) = fresh();
    let schema = options.schema();
    append_many(&log, 300);
    let dump = format!("BEGIN; LOCK TABLE {schema}.records_0 IN ACCESS SHARE MODE");
    server().sql(&format!("{dump}; PREPARE TRANSACTION 'dump_{schema}'"));
    log.trim_before(Position(300)).unwrap();
    assert_eq!(log.first(), Position(256));
    append_many(&log, 600);
    wait_for(server(), &has_table(schema, 0));
    server().sql(&format!("COMMIT PREPARED 'dump_{schema}'"));
    wait_for(server(), &format!("NOT {}", has_table(schema, 0)));
}
