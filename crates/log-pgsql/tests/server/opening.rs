//! What a log is opened for: to be read without a trace, and to be filled from a backup.

use spindle_log::{Log, Opening, Position, SharedLog};
use spindle_log_pgsql::{PgsqlLog, PgsqlLogOptions};

use crate::harness::{append, append_many, fresh, options, record, schema, server, texts};

fn opened_for(options: &PgsqlLogOptions, opening: Opening) -> PgsqlLogOptions {
    let mut options = options.clone();
    options.opening = opening;
    options
}

#[track_caller]
fn check(options: &PgsqlLogOptions, part: &str) {
    let error = PgsqlLog::open(options).err().expect("refused").to_string();
    assert!(error.contains(part) && error.contains(options.schema()), "{error}");
}

#[test]
fn a_reader_makes_and_writes_nothing() {
    let reader = opened_for(&options(server(), &schema()), Opening::Reader);
    check(&reader, "there is no log");
    let name = reader.schema();
    let exists = format!("SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = '{name}')");
    assert_eq!(server().sql(&exists), "f");
    server().sql(&format!("CREATE SCHEMA {name}"));
    check(&reader, "there is no log");
    server().sql(&format!("CREATE TABLE {name}.orders (id int)"));
    check(&reader, "is not a log of Spindle");

    let (log, options) = fresh();
    append_many(&log, 300);
    let head = format!("SELECT * FROM {}.head", options.schema());
    let before = server().sql(&head);
    let read = PgsqlLog::open(&opened_for(&options, Opening::Reader)).unwrap();
    assert_eq!((read.first(), read.next()), (Position(0), Position(300)));
    assert_eq!((texts(&read), read.log_id()), (texts(&log), log.log_id()));
    append(&log, &record(1, "later"));
    assert_eq!((texts(&read).len(), server().sql(&head)), (300, before));
}

#[test]
fn a_log_is_filled_from_a_position_on_and_nodes_wait_for_its_end() {
    let node = options(server(), &schema());
    let restore = opened_for(&node, Opening::Restore(Position(1000)));
    let log = PgsqlLog::open(&restore).unwrap();
    assert_eq!((log.first(), log.next()), (Position(1000), Position(1000)));
    append_many(&log, 300);
    drop(log);
    check(&node, "was not restored to its end");
    check(&opened_for(&node, Opening::Reader), "was not restored to its end");
    // It goes on where it was.
    let log = PgsqlLog::open(&restore).unwrap();
    assert_eq!((log.first(), log.next()), (Position(1000), Position(1300)));
    append_many(&log, 300);
    log.end_restore().unwrap();
    drop(log);
    check(&restore, "has a log already");
    let log = PgsqlLog::open(&node).unwrap();
    assert_eq!((log.first(), log.next(), texts(&log).len()), (Position(1000), Position(1600), 600));
    assert_eq!(texts(&log)[0], "record 1000");
    append_many(&log, 100);
    log.trim_before(log.next()).unwrap();
    assert!(log.first() > Position(1000));
}
