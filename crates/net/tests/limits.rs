//! What no client may exceed, and that the others notice nothing of it.

#[expect(dead_code, reason = "each test file uses a part of it")]
mod common;

use std::io::{ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use common::{Client, INPUT_BYTES_MAX, Served, one_reactor, serve};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use spindle_limits::{PlaceLimits, Places};
use spindle_net::{Limits, NetConfig};
use spindle_testkit::wait_until;

fn limited(limits: Limits) -> NetConfig {
    NetConfig { limits, ..one_reactor() }
}

/// Sends requests until the server takes no more; how many whole ones went out.
fn stuff(client: &mut Client, request: &str) -> usize {
    let stream = client.stream.get_mut();
    stream.set_write_timeout(Some(Duration::from_millis(300))).expect("an open socket");
    let block = request.repeat(1000);
    let mut sent = 0;
    loop {
        match stream.write(&block.as_bytes()[sent % request.len()..]) {
            Ok(count) => sent += count,
            Err(error) => {
                let full = [ErrorKind::WouldBlock, ErrorKind::TimedOut];
                assert!(full.contains(&error.kind()), "{error}");
                return sent / request.len();
            }
        }
    }
}

#[test]
fn a_client_that_reads_late_costs_bounded_memory_and_gets_everything() {
    let served = serve(limited(Limits { outbox_bytes_max: 300_000, ..Limits::default() }));
    let mut client = served.client();
    let requests = stuff(&mut client, &format!("big 100000 {}\n", "-".repeat(20_000)));
    client.half_close();
    served.client().asks("echo others", "others");
    let most = served.toy.seen().pending_bytes_max;
    assert!(most <= 64 * 1024 + 100_000, "{most} bytes of answers were held");
    for _ in 0..requests {
        assert_eq!(client.line().len(), 99_999);
    }
    assert_eq!(client.rest(), "");
    let most = served.toy.seen().input_bytes_max;
    assert!(most <= INPUT_BYTES_MAX + 64 * 1024, "{most} bytes of requests were held");
}

#[test]
fn held_back_requests_go_on_when_no_more_input_comes() {
    let served = serve(one_reactor());
    let mut client = served.client();
    client.send(&"big 50000\n".repeat(300));
    for _ in 0..300 {
        assert_eq!(client.line().len(), 49_999);
    }
    client.asks("echo end", "end");
}

#[test]
fn nothing_is_read_from_a_client_with_too_much_to_read() {
    let served = serve(limited(Limits { outbox_bytes_max: 10_000, ..Limits::default() }));
    let mut client = served.client();
    client.send("gate 1 a\nbig 20000\n");
    served.toy.until("both requests", |seen| seen.requests == 2);
    client.send("echo b\n");
    served.let_turn_pass();
    assert_eq!(served.toy.seen().requests, 3, "only the one of the other client was read");
    served.toy.set_durable(1);
    assert_eq!(client.line(), "a");
    assert_eq!(client.line().len(), 19_999);
    assert_eq!(client.line(), "b");
}

/// With 4 MiB to read, as `docs/limits.md` says, a client is read on; with a byte more it is not.
#[test]
fn so_much_may_be_unread_and_not_one_byte_more() {
    for (unread, is_read_on) in [(4 << 20, true), ((4 << 20) + 1, false)] {
        let served = serve(one_reactor());
        let read = || served.handle.counters().bytes_in.load(Ordering::Relaxed);
        let mut client = served.client();
        // Both answers wait, the first of two bytes.
        let (first, second) = (format!("gate 1 a\nbig {}\n", unread - 2), "echo b\n");
        client.send(&first);
        served.toy.until("both requests", |seen| seen.requests == 2);
        client.send(second);
        served.let_turn_pass();
        let own = first.len() + if is_read_on { second.len() } else { 0 };
        let all = (own + "echo turn\n".len()) as u64;
        wait_until("what was read to be counted", || read() >= all);
        assert_eq!(read(), all, "{unread}");
    }
}

#[test]
fn a_client_that_never_reads_is_closed() {
    let write_stall_timeout = Duration::from_millis(400);
    let served = serve(limited(Limits { write_stall_timeout, ..Limits::default() }));
    let mut client = served.client();
    client.send(&"big 30000000\n".repeat(3));
    served.toy.until("the end of the deaf client", |seen| seen.closed.len() == 1);
    served.client().asks("echo others", "others");
}

#[test]
fn a_client_that_sends_without_end_does_not_keep_the_others_waiting() {
    let served = serve(one_reactor());
    let mut flood = served.client();
    let stop = &AtomicBool::new(false);
    thread::scope(|scope| {
        let mut sender = flood.stream.get_ref().try_clone().unwrap();
        flood.send("swallow\n");
        scope.spawn(move || {
            let block = vec![b'x'; 1 << 20];
            while !stop.load(Ordering::Relaxed) && sender.write_all(&block).is_ok() {}
        });
        wait_until("the flood", || {
            served.handle.counters().bytes_in.load(Ordering::Relaxed) > 1 << 20
        });
        for _ in 0..5 {
            served.client().asks("echo x", "x");
        }
        stop.store(true, Ordering::Relaxed);
        drop(flood);
    });
}

#[test]
fn half_a_request_and_silence_is_closed_but_an_idle_client_is_not() {
    let partial_request_timeout = Duration::from_millis(50);
    let served = serve(limited(Limits { partial_request_timeout, ..Limits::default() }));
    let (mut idle, mut silent, mut slow) = (served.client(), served.client(), served.client());
    idle.asks("echo x", "x");
    slow.send("echo a\nec");
    assert_eq!(slow.line(), "a");
    assert!(slow.is_cut_off());
    idle.asks("echo y", "y");
    silent.asks("echo z", "z");
    assert_eq!(served.toy.seen().closed.len(), 1);
}

#[test]
fn silence_and_idleness_are_closed_when_asked_for() {
    let timeout = Some(Duration::from_millis(100));
    let limits =
        Limits { idle_timeout: timeout, first_bytes_timeout: timeout, ..Limits::default() };
    let served = serve(limited(limits));
    let (mut waiting, mut silent, mut idle) = (served.client(), served.client(), served.client());
    let mut working = served.client();
    working.send("work\n");
    waiting.send("wait\n");
    served.toy.until("the wait", |seen| seen.waits.len() == 1);
    idle.asks("echo x", "x");
    assert!(idle.is_cut_off());
    assert!(silent.is_cut_off());
    served.toy.answer(0);
    assert_eq!(waiting.line(), "answered", "a waiting client is not idle");
    assert!(waiting.is_cut_off());
    // It is silent for longer than the others were.
    working.asks("echo y", "y");
}

/// A server whose clients have a moment to log in, if it asks for that.
fn with_little_time_to_log_in() -> Served {
    let login_timeout = Duration::from_millis(100);
    serve(limited(Limits { login_timeout, ..Limits::default() }))
}

#[test]
fn who_does_not_say_who_it_is_is_closed_whatever_it_sends() {
    let served = with_little_time_to_log_in();
    let mut known = served.client();
    known.asks("echo a", "a");
    served.toy.asks_who.store(true, Ordering::SeqCst);
    let mut silent = served.client();
    assert!(silent.is_cut_off());
    let mut waiting = served.client();
    waiting.send("wait\n");
    assert!(waiting.is_cut_off());
    // Half a request, whole ones, and requests that bring a lot.
    for part in ["e", "echo b\n", "big 1000000\n"] {
        let mut busy = served.client();
        let mut reader = busy.stream.get_ref().try_clone().unwrap();
        let end = thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
        while !end.is_finished() {
            thread::sleep(Duration::from_millis(10));
            // An error is its end, which the other thread sees.
            let _ = busy.stream.get_mut().write_all(part.as_bytes());
        }
    }
    // It was there before all of them.
    known.asks("echo c", "c");
}

#[test]
fn who_is_silent_where_nothing_is_asked_stays() {
    let served = with_little_time_to_log_in();
    let mut silent = served.client();
    let opened = || served.toy.seen().opened;
    wait_until("the session", || opened() == 1);
    // One that came later is closed.
    served.toy.asks_who.store(true, Ordering::SeqCst);
    assert!(served.client().is_cut_off());
    silent.asks("echo x", "x");
}

#[test]
fn one_connection_too_many_is_closed_at_once_and_a_place_can_be_taken_again() {
    let places = Places::new(PlaceLimits::of(3));
    let served = serve(NetConfig { places, ..one_reactor() });
    let mut clients: Vec<_> = (0..3).map(|_| served.client()).collect();
    for client in &mut clients {
        client.asks("echo x", "x");
    }
    assert!(served.client().is_cut_off());
    let counters = served.handle.counters();
    assert_eq!(counters.refused.load(Ordering::Relaxed), 1);
    assert_eq!(counters.accepted.load(Ordering::Relaxed), 3);
    clients.truncate(2);
    wait_until("the place", || counters.open.load(Ordering::Relaxed) == 2);
    served.client().asks("echo y", "y");
}

#[test]
fn thousands_of_connections_are_served() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    let served = serve(NetConfig { reactors: 2, ..one_reactor() });
    let mut clients: Vec<_> = (0..2000).map(|_| served.client()).collect();
    for client in &mut clients {
        client.send("gate 9 x\n");
    }
    served.toy.until("all requests", |seen| seen.requests == 2000);
    served.toy.set_durable(9);
    for client in &mut clients {
        assert_eq!(client.line(), "x");
    }
    drop(clients);
    served.toy.until("all ends", |seen| seen.closed.len() == 2000);
    let open = &served.handle.counters().open;
    wait_until("all places", || open.load(Ordering::Relaxed) == 0);
}
