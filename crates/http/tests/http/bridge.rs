//! Bridges of several doors at one engine.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::join_all;
use spindle_core::job::Origin;
use spindle_engine::{Gate, Options};
use spindle_http::EngineBridge;
use spindle_log::MemoryLog;
use spindle_testkit::{ManualEngine, new_job, opened, submit_to};

/// A bridge at an engine that commits whatever a turn has decided at the turn's end.
fn bridge() -> EngineBridge {
    let options = Options::default();
    let engine = ManualEngine::open(Arc::new(MemoryLog::new()), 1, options).engine;
    engine.flush().unwrap();
    EngineBridge::new(engine)
}

async fn submit(bridge: &EngineBridge) -> Gate {
    let job = new_job(submit_to("q", Origin::Api), b"x");
    let submitted = bridge.call(|engine| engine.jobs().submit(job)).await;
    let gate = submitted.gate();
    opened(submitted).unwrap();
    gate
}

#[tokio::test]
async fn what_requests_of_one_turn_decide_is_one_record() {
    let bridge = bridge();
    let before = bridge.engine().durable();
    let gates = join_all((0..8).map(|_| submit(&bridge))).await;
    assert_eq!(gates, vec![Gate(before.0 + 1); 8]);
    assert_eq!(bridge.engine().durable(), Gate(before.0 + 1));
    assert_eq!(submit(&bridge).await, Gate(before.0 + 2));
}

#[tokio::test]
async fn a_call_nobody_waits_for_any_more_goes_to_the_log_all_the_same() {
    let bridge = bridge();
    let before = bridge.engine().durable();
    let mut called = Box::pin(submit(&bridge));
    assert!(called.as_mut().now_or_never().is_none());
    assert_eq!(bridge.engine().durable(), before);
    drop(called);
    assert_eq!(bridge.engine().durable(), Gate(before.0 + 1));
}

#[test]
fn no_two_waits_share_a_connection_whatever_their_doors() {
    let engine = ManualEngine::open(Arc::new(MemoryLog::new()), 1, Options::default()).engine;
    let doors = [EngineBridge::new(engine.clone()), EngineBridge::new(engine)];
    let connections: Vec<_> =
        (0..10).flat_map(|_| doors.each_ref().map(|bridge| bridge.caller().connection)).collect();
    let different: HashSet<_> = connections.iter().collect();
    assert_eq!(different.len(), connections.len());
}
