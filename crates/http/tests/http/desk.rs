//! Desks of several doors at one engine.

use std::collections::HashSet;
use std::sync::Arc;

use spindle_engine::{Engine, ManualClock, Options};
use spindle_http::Desk;
use spindle_log::MemoryLog;

#[test]
fn no_two_waits_share_a_connection_whatever_their_doors() {
    let clock = Arc::new(ManualClock::new(1));
    let engine = Engine::open(Arc::new(MemoryLog::new()), clock, Options::default()).unwrap();
    let doors = [Desk::new(engine.clone()), Desk::new(engine)];
    let connections: Vec<_> =
        (0..10).flat_map(|_| doors.each_ref().map(|desk| desk.caller().connection)).collect();
    let different: HashSet<_> = connections.iter().collect();
    assert_eq!(different.len(), connections.len());
}
