//! What a log is opened for: to be read without a trace, and to be filled from a backup.

use spindle_log::{Log, Opening, Position, SharedLog};
use spindle_log_nats::{NatsLogOptions, OpenError};
use spindle_testkit::NatsServers;

use crate::harness::{
    Admin, all, append, check, open_at, options, quick_options, quick_server, refusal,
};

fn opened_for(options: &NatsLogOptions, opening: Opening) -> NatsLogOptions {
    NatsLogOptions { opening, ..options.clone() }
}

#[test]
fn a_reader_makes_nothing() {
    let servers = quick_server();
    let node = quick_options(&servers);
    let reader = opened_for(&node, Opening::Reader);
    let error = refusal(&reader);
    assert!(matches!(error, OpenError::Absent { .. }), "{error}");
    let admin = Admin::of(&servers);
    assert!(admin.runtime.block_on(admin.context.get_stream("spindle")).is_err());
    let log = open_at(&node);
    append(&log, 1, 300);
    let read = open_at(&reader);
    assert_eq!((read.first(), read.next()), (Position(0), Position(300)));
    check(&read, 0, 300);
    assert_eq!(read.log_id(), log.log_id());
}

fn is_filled(servers: &NatsServers, node: &NatsLogOptions) {
    let restore = opened_for(node, Opening::Restore(Position(1000)));
    let log = open_at(&restore);
    assert_eq!((log.first(), log.next()), (Position(1000), Position(1000)));
    append(&log, 1, 300);
    drop(log);
    for opening in [Opening::Node, Opening::Reader] {
        let error = refusal(&opened_for(node, opening));
        assert!(matches!(error, OpenError::Unfinished { .. }), "{error}");
    }
    // It goes on where it was.
    let log = open_at(&restore);
    assert_eq!((log.first(), log.next()), (Position(1000), Position(1300)));
    append(&log, 2, 300);
    log.end_restore().expect("ended");
    drop(log);
    let error = refusal(&restore);
    assert!(matches!(error, OpenError::NotEmpty { .. }), "{error}");
    let log = open_at(node);
    assert_eq!((log.first(), log.next()), (Position(1000), Position(1600)));
    check(&log, 1000, 1600);
    append(&log, 3, 100);
    log.trim_before(log.next()).expect("trimmed");
    assert!(log.first() > Position(1000));
    assert_eq!(all(&log, log.first()).last().map(|it| it.position), Some(Position(1699)));
    drop(log);
    assert!(Admin::of(servers).config().metadata.contains_key("spindle-log"));
}

#[test]
fn a_log_is_filled_from_a_position_on_and_nodes_wait_for_its_end() {
    let servers = quick_server();
    is_filled(&servers, &quick_options(&servers));
}

#[test]
fn a_stream_on_three_servers_is_filled_as_well() {
    let servers = NatsServers::three();
    is_filled(&servers, &options(&servers));
}
