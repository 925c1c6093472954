//! How connections and servers end.

#[expect(dead_code, reason = "each test file uses a part of it")]
mod common;

use std::error::Error;
use std::io::ErrorKind;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use common::{Toy, ToyDoor, one_reactor, serve};
use spindle_core::JobId;
use spindle_engine::door::LeaseRef;
use spindle_net::{Server, bind};
use spindle_testkit::{PATIENCE, wait_until};

fn lease(job: u64) -> LeaseRef {
    LeaseRef { job: JobId(job), attempt: 1 }
}

#[test]
fn a_taken_port_names_the_door_and_the_address() {
    let toy = Arc::new(Toy::default());
    let addr = "127.0.0.1:0".parse().unwrap();
    let first = bind(Arc::new(ToyDoor(Arc::clone(&toy))), addr).unwrap();
    let Err(error) = bind(Arc::new(ToyDoor(toy)), first.local_addr()) else {
        panic!("the port was given twice");
    };
    assert_eq!(error.to_string(), format!("toy: cannot listen on {}", first.local_addr()));
    assert_eq!(error.source.kind(), ErrorKind::AddrInUse);
    assert!(error.source().is_some());
}

#[test]
fn leases_that_never_left_are_named_once_when_the_connection_goes() {
    let served = serve(one_reactor());
    let mut client = served.client();
    client.send("lease 0 1\nlease 5 2\nlease 5 3\n");
    assert_eq!(client.line(), "job");
    drop(client);
    // The client only ended its input, for all the server knows: what is held back may be read.
    served.let_turn_pass();
    assert!(served.toy.seen().closed.iter().all(|(_, unsent)| unsent.is_empty()));
    let mut other = served.client();
    other.asks("lease 0 4", "job");
    other.send("lease 5 5\nlease 5 6\ndie\n");
    served.toy.until("the abort", |seen| {
        seen.closed.iter().filter(|(_, unsent)| *unsent == [lease(5), lease(6)]).count() == 1
    });
    served.handle.abort();
    served.toy.until("the end of the first", |seen| {
        seen.closed.iter().filter(|(_, unsent)| *unsent == [lease(2), lease(3)]).count() == 1
    });
    // The clients of `let_turn_pass` included, nobody gets it twice.
    let mut ids: Vec<_> = served.toy.seen().closed.iter().map(|(id, _)| *id).collect();
    ids.sort();
    let ends = ids.len();
    ids.dedup();
    assert_eq!(ids.len(), ends);
}

#[test]
fn a_lease_answered_while_the_connection_breaks_is_named_unsent() {
    let served = serve(one_reactor());
    let mut client = served.client();
    client.send("answered-and-gone\n");
    assert!(client.is_cut_off());
    served.toy.until("the end", |seen| seen.closed.len() == 1);
    assert_eq!(served.toy.seen().closed[0].1, [lease(77)]);
}

#[test]
fn the_doors_count_follows_its_sessions() {
    let toy = Arc::new(Toy::default());
    let door = Arc::new(ToyDoor(Arc::clone(&toy)));
    let bound = bind(door, "127.0.0.1:0".parse().unwrap()).unwrap();
    let count = bound.connections();
    let addr = bound.local_addr();
    let _handle = Server::start(toy, vec![bound], one_reactor()).unwrap();
    let mut clients: Vec<_> =
        (0..3).map(|_| common::Client::new(TcpStream::connect(addr).unwrap())).collect();
    for client in &mut clients {
        client.asks("echo x", "x");
    }
    assert_eq!(count.load(Ordering::Relaxed), 3);
    clients.truncate(1);
    wait_until("two to be gone", || count.load(Ordering::Relaxed) == 1);
}

#[test]
fn without_listeners_open_connections_are_served_on() {
    let served = serve(one_reactor());
    let mut client = served.client();
    client.asks("echo x", "x");
    served.handle.stop_accepting();
    wait_until("the port to close", || TcpStream::connect(served.addr).is_err());
    client.asks("echo y", "y");
}

#[test]
fn a_shutdown_answers_what_it_can_and_waits_for_the_rest() {
    let served = serve(one_reactor());
    let (mut idle, mut waits, mut runs) = (served.client(), served.client(), served.client());
    let mut gated = served.client();
    idle.asks("echo x", "x");
    gated.send("gate 1 late\n");
    served.toy.until("the gated one", |seen| seen.requests == 2);
    runs.send("run\necho never begun\n");
    served.toy.until("the run", |seen| seen.waits.len() == 1);
    waits.send("wait\n");
    served.toy.until("the wait", |seen| seen.waits.len() == 2);
    let in_time = thread::scope(|scope| {
        let stopping = scope.spawn(|| served.handle.shutdown(PATIENCE));
        assert_eq!(waits.rest(), "timeout\n");
        assert_eq!(idle.rest(), "");
        assert!(TcpStream::connect(served.addr).is_err());
        assert!(!stopping.is_finished());
        drop((waits, idle));
        served.toy.answer(1);
        served.toy.set_durable(1);
        assert_eq!(runs.rest(), "answered\n");
        assert_eq!(gated.rest(), "late\n");
        drop((runs, gated));
        stopping.join().unwrap()
    });
    assert!(in_time);
    assert_eq!(served.toy.seen().shutdowns, [false; 4]);
    assert_eq!(served.toy.seen().closed.len(), 4);
}

#[test]
fn a_shutdown_that_takes_too_long_ends_with_what_is_released() {
    let served = serve(one_reactor());
    let (mut runs, mut gated) = (served.client(), served.client());
    gated.send("lease 0 1\nlease 9 2\n");
    assert_eq!(gated.line(), "job");
    runs.send("run\n");
    served.toy.until("the run", |seen| seen.waits.len() == 1);
    assert!(!served.handle.shutdown(Duration::from_millis(50)));
    assert_eq!(runs.rest(), "timeout\n");
    assert!(gated.is_cut_off());
    let seen = served.toy.seen();
    assert_eq!(seen.shutdowns.iter().filter(|last| **last).count(), 2);
    let unsent: Vec<_> = seen.closed.iter().flat_map(|(_, unsent)| unsent.clone()).collect();
    assert_eq!((seen.closed.len(), unsent), (2, vec![lease(2)]));
}

#[test]
fn an_abort_sends_nothing_and_ends_a_shutdown_under_way() {
    let served = serve(one_reactor());
    let (mut runs, mut gated) = (served.client(), served.client());
    gated.send("gate 1 never\n");
    served.toy.until("the gated one", |seen| seen.requests == 1);
    runs.send("run\n");
    served.toy.until("the run", |seen| seen.waits.len() == 1);
    thread::scope(|scope| {
        let stopping = scope.spawn(|| served.handle.shutdown(PATIENCE * 100));
        served.toy.until("the first phase", |seen| seen.shutdowns.len() == 2);
        served.handle.abort();
        stopping.join().unwrap();
    });
    served.toy.set_durable(1);
    assert!(runs.is_cut_off() && gated.is_cut_off());
    assert_eq!(served.toy.seen().closed.len(), 2);
}

#[test]
fn dropping_the_handle_ends_everything() {
    let served = serve(one_reactor());
    let mut client = served.client();
    client.asks("echo x", "x");
    let common::Served { toy, handle, addr } = served;
    drop(handle);
    assert!(client.is_cut_off());
    assert!(TcpStream::connect(addr).is_err());
    assert_eq!(toy.seen().closed.len(), 1);
}
