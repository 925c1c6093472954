//! How much of a turn goes to clients that send much: the rule, not the time it takes.

#[expect(dead_code, reason = "each test file uses a part of it")]
mod common;

use std::io::Write;
use std::sync::atomic::Ordering;
use std::thread;

use common::{Client, Served, one_reactor, serve};
use spindle_testkit::wait_until;

/// What all connections that send much may be given in a turn, and what one of them may exceed it by; and
/// what a connection that has not sent much before may send in its first read.
const TURN_BYTES: usize = (128 + 64) * 1024;
const FIRST_BYTES: usize = 16 * 1024;
/// What a session is given at a time of what came while it waited.
const SHARE_BYTES: usize = 64 * 1024;
/// `echo a` and the end of the line.
const REQUEST: &str = "echo a\n";

/// Lets something happen while the reactor is held up in a session, until all of it has arrived.
fn while_held_up(served: &Served, happens: impl FnOnce()) {
    let mut client = served.client();
    let seen = served.toy.seen();
    // The session cannot take note of the request.
    client.send("echo x\n");
    happens();
    drop(seen);
    assert_eq!(client.line(), "x");
}

/// How many requests the door has seen when it answers this client.
fn requests_before(client: &mut Client) -> usize {
    client.line().parse().expect("a number")
}

#[test]
fn who_sends_little_waits_for_a_part_of_what_others_send() {
    let served = serve(one_reactor());
    const FLOOD: usize = 20;
    let mut flood: Vec<_> = (0..FLOOD).map(|_| served.client()).collect();
    let mut honest = served.client();
    honest.asks("echo h", "h");
    thread::scope(|scope| {
        while_held_up(&served, || {
            for client in &mut flood {
                let mut stream = client.stream.get_ref().try_clone().expect("an open socket");
                stream.write_all(REQUEST.repeat(10_000).as_bytes()).expect("its socket takes it");
                scope.spawn(move || stream.write_all(REQUEST.repeat(10_000).as_bytes()));
            }
            honest.send("count\n");
        });
        let before = requests_before(&mut honest);
        let most = (FLOOD * FIRST_BYTES + 2 * TURN_BYTES) / REQUEST.len();
        assert!(before <= most, "{before} requests came first, of {most} at most");
        for client in &mut flood {
            for _ in 0..20_000 {
                assert_eq!(client.line(), "a");
            }
        }
    });
}

#[test]
fn what_came_while_sessions_waited_is_worked_on_in_turn() {
    let served = serve(one_reactor());
    const FLOOD: usize = 20;
    let requests = 90_000 / REQUEST.len();
    let mut flood: Vec<_> = (0..FLOOD).map(|_| served.client()).collect();
    for client in &mut flood {
        client.send("wait\n");
        client.send(&REQUEST.repeat(requests));
    }
    served.toy.until("the waits", |seen| seen.waits.len() == FLOOD);
    let read = || served.handle.counters().bytes_in.load(Ordering::Relaxed) as usize;
    wait_until("what comes behind them", || read() >= (5 + requests * REQUEST.len()) * FLOOD);
    for _ in 0..FLOOD {
        served.toy.answer(0);
    }
    for client in &mut flood {
        assert_eq!(client.line(), "answered");
        for _ in 0..requests {
            assert_eq!(client.line(), "a");
        }
        client.half_close();
        assert_eq!(client.rest(), "");
    }
    let most = served.toy.seen().input_bytes_max;
    assert!(most <= SHARE_BYTES, "{most} bytes were given at once");
}
