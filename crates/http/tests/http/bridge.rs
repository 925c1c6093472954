//! Bridges of several doors at one engine, on a thread that serves connections and on others.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc::channel;

use axum::Router;
use axum::routing::get;
use futures_util::FutureExt;
use futures_util::future::join_all;
use spindle_core::JobId;
use spindle_core::job::Origin;
use spindle_engine::{Gate, Gated, Refused};
use spindle_http::EngineBridge;
use spindle_http::listen::{self, HttpConfig};
use spindle_testkit::{PATIENCE, new_job, opened, submit_to, wait_until};

use crate::{engine, site};

async fn submit(bridge: &EngineBridge) -> Gated<Result<JobId, Refused>> {
    let job = new_job(submit_to("q", Origin::Api), b"x");
    bridge.call(|engine| engine.jobs().submit(job)).await
}

async fn submit_gate(bridge: &EngineBridge) -> Gate {
    let submitted = submit(bridge).await;
    let gate = submitted.gate();
    opened(submitted).unwrap();
    gate
}

/// The result of a handler on a thread that serves connections, at an engine none of whose own threads
/// runs. The listener is still there when the result is looked at.
fn served<T: Send + 'static, F: Future<Output = T> + Send>(
    handler: impl Fn(EngineBridge) -> F + Clone + Send + Sync + 'static,
    look: impl FnOnce(T, &EngineBridge),
) {
    let bridge = EngineBridge::new(engine());
    let (sender, receiver) = channel();
    let handle = {
        let of_handler = bridge.clone();
        let asked = get(move || {
            let (handled, sender) = (handler(of_handler.clone()), sender.clone());
            async move { drop(sender.send(handled.await)) }
        });
        let bound = listen::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let committer = Arc::new(bridge.engine().clone());
        let routes = Router::new().route("/", asked);
        bound.start(site(routes), committer, HttpConfig::default(), Arc::default()).unwrap()
    };
    let mut client = TcpStream::connect(handle.local_addr()).unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let handled = receiver.recv_timeout(PATIENCE).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(client.read(&mut [0]).unwrap(), 1, "the answer has left");
    look(handled, &bridge);
}

#[test]
fn what_requests_of_one_pass_decide_is_one_record() {
    let several = async |bridge: &EngineBridge| {
        let before = bridge.engine().durable();
        let submitted = join_all((0..8).map(|_| submit(bridge))).await;
        let gates: Vec<Gate> = submitted.iter().map(Gated::gate).collect();
        for job in join_all(submitted.into_iter().map(|job| bridge.durable(job))).await {
            job.unwrap();
        }
        assert_eq!(gates, vec![Gate(before.0 + 1); 8]);
        assert_eq!(bridge.engine().durable(), Gate(before.0 + 1));
        bridge.durable(submit(bridge).await).await.unwrap();
        (before, bridge.engine().durable())
    };
    let handler = move |bridge: EngineBridge| async move { several(&bridge).await };
    served(handler, |(before, after), _| assert_eq!(after, Gate(before.0 + 2)));
}

#[test]
fn a_change_nobody_waits_for_any_more_goes_to_the_log_all_the_same() {
    let handler = async |bridge: EngineBridge| {
        let before = bridge.engine().durable();
        let job = new_job(submit_to("q", Origin::Api), b"x");
        let mut changed = Box::pin(bridge.change(|engine| engine.jobs().submit(job)));
        assert!(changed.as_mut().now_or_never().is_none());
        assert_eq!(bridge.engine().durable(), before);
        drop(changed);
        before
    };
    served(handler, |before, bridge| {
        wait_until("the commit", || bridge.engine().durable() == Gate(before.0 + 1));
    });
}

#[test]
fn what_a_thread_decides_at_its_end_is_committed_as_well() {
    struct AtEnd(EngineBridge);
    impl Drop for AtEnd {
        fn drop(&mut self) {
            submit_gate(&self.0).now_or_never().unwrap();
        }
    }
    let handler = async |bridge: EngineBridge| {
        let before = bridge.engine().durable();
        spindle_testkit::spawn(bridge.engine());
        let at_end = AtEnd(bridge);
        tokio::spawn(async move {
            std::future::pending::<()>().await;
            drop(at_end);
        });
        before
    };
    let mut ended = None;
    served(handler, |before, bridge| ended = Some((before, bridge.clone())));
    let (before, bridge) = ended.unwrap();
    wait_until("the commit", || bridge.engine().durable() == Gate(before.0 + 1));
    bridge.engine().stop();
}

#[tokio::test]
async fn on_other_threads_the_log_thread_commits() {
    let bridge = EngineBridge::new(engine());
    let before = bridge.engine().durable();
    spindle_testkit::spawn(bridge.engine());
    bridge.durable(submit(&bridge).await).await.unwrap();
    assert_eq!(bridge.engine().durable(), Gate(before.0 + 1));
    bridge.engine().stop();
}

#[test]
fn no_two_waits_share_a_connection_whatever_their_doors() {
    let engine = engine();
    let doors = [EngineBridge::new(engine.clone()), EngineBridge::new(engine)];
    let connections: Vec<_> =
        (0..10).flat_map(|_| doors.each_ref().map(|bridge| bridge.caller().connection)).collect();
    let different: HashSet<_> = connections.iter().collect();
    assert_eq!(different.len(), connections.len());
}
