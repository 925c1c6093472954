//! Desks of several doors at one engine.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::join_all;
use spindle_core::job::Origin;
use spindle_engine::{Gate, Options};
use spindle_http::Desk;
use spindle_log::MemoryLog;
use spindle_testkit::{ManualEngine, new_job, submit_to};

/// A desk at an engine that commits whatever a turn has decided at the turn's end.
fn desk() -> Desk {
    let options = Options { turn_entries_max: 0, ..Options::default() };
    let engine = ManualEngine::open(Arc::new(MemoryLog::new()), 1, options).engine;
    engine.flush().unwrap();
    Desk::new(engine)
}

async fn submit(desk: &Desk) -> Gate {
    let job = new_job(submit_to("q", Origin::Api), b"x");
    desk.call(|engine| engine.jobs().submit(job.clone())).await.unwrap().1
}

#[tokio::test]
async fn what_requests_of_one_turn_decide_is_one_record() {
    let desk = desk();
    let before = desk.engine().durable();
    let gates = join_all((0..8).map(|_| submit(&desk))).await;
    assert_eq!(gates, vec![Gate(before.0 + 1); 8]);
    assert_eq!(desk.engine().durable(), Gate(before.0 + 1));
    assert_eq!(submit(&desk).await, Gate(before.0 + 2));
}

#[tokio::test]
async fn a_call_nobody_waits_for_any_more_goes_to_the_log_all_the_same() {
    let desk = desk();
    let before = desk.engine().durable();
    let mut called = Box::pin(submit(&desk));
    assert!(called.as_mut().now_or_never().is_none());
    assert_eq!(desk.engine().durable(), before);
    drop(called);
    assert_eq!(desk.engine().durable(), Gate(before.0 + 1));
}

#[test]
fn no_two_waits_share_a_connection_whatever_their_doors() {
    let engine = ManualEngine::open(Arc::new(MemoryLog::new()), 1, Options::default()).engine;
    let doors = [Desk::new(engine.clone()), Desk::new(engine)];
    let connections: Vec<_> =
        (0..10).flat_map(|_| doors.each_ref().map(|desk| desk.caller().connection)).collect();
    let different: HashSet<_> = connections.iter().collect();
    assert_eq!(different.len(), connections.len());
}
