//! Requests and answers: order, gates, waits, the end of input.

mod common;

use std::sync::atomic::Ordering;
use std::time::Duration;

use common::{INPUT_BYTES_MAX, one_reactor, serve};
use socket2::SockRef;
use spindle_testkit::wait_until;

#[test]
fn answers_come_back_and_bytes_are_counted() {
    let served = serve(one_reactor());
    let mut client = served.client();
    client.asks("echo hello", "hello");
    let counters = served.handle.counters();
    wait_until("the counts of the turn", || {
        counters.bytes_in.load(Ordering::Relaxed) == 11
            && counters.bytes_out.load(Ordering::Relaxed) == 6
    });
    assert_eq!(counters.open.load(Ordering::Relaxed), 1);
}

#[test]
fn requests_cut_anywhere_are_answered_once_each_and_in_order() {
    let served = serve(one_reactor());
    let mut client = served.client();
    let requests: String = (0..500).map(|n| format!("echo {n}\n")).collect();
    for piece in requests.as_bytes().chunks(7) {
        client.send(std::str::from_utf8(piece).unwrap());
    }
    client.send(&requests);
    client.half_close();
    let answers: String = (0..500).map(|n| format!("{n}\n")).collect();
    assert_eq!(client.rest(), answers.repeat(2));
}

#[test]
fn pipelined_requests_are_answered_by_one_write() {
    let served = serve(one_reactor());
    let mut client = served.client();
    client.send(&"echo x\n".repeat(32));
    for _ in 0..32 {
        assert_eq!(client.line(), "x");
    }
    let counters = served.handle.counters();
    wait_until("the counts of the turn", || counters.bytes_out.load(Ordering::Relaxed) == 64);
    let (reads, writes) = (&counters.reads, &counters.writes);
    assert_eq!((reads.load(Ordering::Relaxed), writes.load(Ordering::Relaxed)), (1, 1));
}

#[test]
fn a_group_commit_costs_one_write_per_connection() {
    let served = serve(one_reactor());
    let mut clients: Vec<_> = (0..64).map(|_| served.client()).collect();
    for client in &mut clients {
        client.send("gate 1 a\ngate 2 b\ngate 3 c\n");
    }
    served.toy.until("all requests", |seen| seen.requests == 3 * 64);
    let counters = served.handle.counters();
    assert_eq!(counters.writes.load(Ordering::Relaxed), 0);
    served.toy.set_durable(3);
    for client in &mut clients {
        assert_eq!([client.line(), client.line(), client.line()], ["a", "b", "c"]);
    }
    served.let_turn_pass();
    let writes = counters.writes.load(Ordering::Relaxed);
    assert!((64..=65).contains(&writes), "{writes} writes");
}

#[test]
fn what_needs_no_disk_is_served_while_the_reactor_commits() {
    let served = serve(one_reactor());
    let toy = &served.toy;
    let (mut producer, mut reader) = (served.client(), served.client());
    for round in 1..=3 {
        toy.stall_disk(true);
        producer.send(&format!("add {round}\n"));
        toy.until("a commit", |seen| seen.commits == round);
        reader.asks("echo x", "x");
        // Somebody new, somebody who waits for others, and again the first.
        let mut other = served.client();
        other.asks("echo y", "y");
        other.send("wait\n");
        toy.until("a wait", |seen| seen.waits.len() == 1);
        toy.answer(0);
        assert_eq!(other.line(), "answered");
        reader.asks("echo z", "z");
        assert!(producer.has_nothing_to_read());
        toy.stall_disk(false);
        assert_eq!(producer.line(), "ok");
    }
}

#[test]
fn what_is_decided_during_a_commit_is_in_the_next_one() {
    let served = serve(one_reactor());
    let toy = &served.toy;
    let mut clients: Vec<_> = (0..8).map(|_| served.client()).collect();
    toy.stall_disk(true);
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(&format!("add {}\n", number + 1));
        toy.until("its request", |seen| seen.requests == number + 1);
    }
    assert_eq!(toy.seen().commits, 1);
    toy.stall_disk(false);
    for client in &mut clients {
        assert_eq!(client.line(), "ok");
    }
    assert_eq!(toy.seen().commits, 2);
}

#[test]
fn an_abort_during_a_commit_closes_everything_at_once() {
    let served = serve(one_reactor());
    let mut client = served.client();
    served.toy.stall_disk(true);
    client.send("add 1\n");
    served.toy.until("a commit", |seen| seen.commits == 1);
    served.handle.abort();
    assert!(client.is_cut_off());
    served.toy.stall_disk(false);
}

#[test]
fn a_closed_gate_holds_back_its_answer_and_all_after_it() {
    let served = serve(one_reactor());
    let mut client = served.client();
    client.send("echo a\ngate 5 b\necho c\ngate 7 d\n");
    assert_eq!(client.line(), "a");
    served.let_turn_pass();
    assert!(client.has_nothing_to_read());
    served.toy.set_durable(4);
    served.let_turn_pass();
    assert!(client.has_nothing_to_read());
    served.toy.set_durable(5);
    assert_eq!((client.line(), client.line()), ("b".to_owned(), "c".to_owned()));
    served.let_turn_pass();
    assert!(client.has_nothing_to_read());
    served.toy.set_durable(7);
    assert_eq!(client.line(), "d");
}

#[test]
fn input_behind_a_wait_is_kept_until_the_answer() {
    let served = serve(one_reactor());
    let mut client = served.client();
    client.send("wait\necho a\nwait\necho b\n");
    served.toy.until("the first wait", |seen| seen.waits.len() == 1);
    served.let_turn_pass();
    assert!(client.has_nothing_to_read());
    served.toy.answer(0);
    assert_eq!((client.line(), client.line()), ("answered".to_owned(), "a".to_owned()));
    served.toy.until("the second wait", |seen| seen.waits.len() == 1);
    client.send("echo c\n");
    served.toy.answer(3);
    served.toy.until("all requests", |seen| seen.requests == 6);
    served.let_turn_pass();
    assert!(client.has_nothing_to_read(), "the late answer has a gate");
    served.toy.set_durable(3);
    let lines = [client.line(), client.line(), client.line()];
    assert_eq!(lines, ["answered", "b", "c"]);
}

#[test]
fn a_waiting_connection_buffers_no_more_than_its_session_wants() {
    let served = serve(one_reactor());
    let mut client = served.client();
    client.send("wait\n");
    served.toy.until("the wait", |seen| seen.waits.len() == 1);
    let flood = "echo x\n".repeat(8 * INPUT_BYTES_MAX);
    let mut sender = client.stream.get_ref().try_clone().unwrap();
    let sending = std::thread::spawn(move || {
        std::io::Write::write_all(&mut sender, flood.as_bytes()).unwrap();
    });
    served.let_turn_pass();
    served.toy.answer(0);
    assert_eq!(client.line(), "answered");
    for _ in 0..8 * INPUT_BYTES_MAX {
        assert_eq!(client.line(), "x");
    }
    sending.join().unwrap();
    let most = served.toy.seen().input_bytes_max;
    assert!(most <= INPUT_BYTES_MAX + 64 * 1024, "{most} bytes of input were buffered");
}

#[test]
fn a_client_that_goes_while_it_waits_is_noticed() {
    let served = serve(one_reactor());
    let client = served.client();
    let mut rude = served.client();
    for (n, client) in [client, {
        rude.send("echo x\n");
        rude
    }]
    .into_iter()
    .enumerate()
    {
        let mut client = client;
        client.send("wait\n");
        served.toy.until("the wait", |seen| seen.waits.len() == n + 1);
        if n == 1 {
            let socket = SockRef::from(client.stream.get_ref());
            socket.set_linger(Some(Duration::ZERO)).unwrap();
        }
        drop(client);
        served.toy.until("the end", |seen| seen.closed.len() == n + 1);
    }
    // Answers to nobody are dropped.
    served.toy.answer(0);
    served.toy.answer(0);
    served.let_turn_pass();
}

#[test]
fn a_client_that_only_shut_its_sending_side_gets_its_answers() {
    let served = serve(one_reactor());
    let mut client = served.client();
    client.send("echo a\ngate 1 b\n");
    client.half_close();
    assert_eq!(client.line(), "a");
    assert!(client.has_nothing_to_read());
    served.toy.set_durable(1);
    assert_eq!(client.rest(), "b\n");
}

#[test]
fn the_last_answer_arrives_even_when_the_client_has_sent_more() {
    let served = serve(one_reactor());
    for _ in 0..3 {
        let mut client = served.client();
        client.send(&format!("quit\n{}", "junk\n".repeat(3_000_000)));
        assert_eq!(client.rest(), "bye\n");
    }
    served.toy.until("all ends", |seen| seen.closed.len() == 3);
}

#[test]
fn large_answers_pass_through_a_small_window() {
    let served = serve(one_reactor());
    let mut client = served.client();
    client.send("big 20000000\necho after\n");
    assert_eq!(client.line().len(), 20_000_000 - 1);
    assert_eq!(client.line(), "after");
}

#[test]
fn a_large_request_arrives_whole() {
    let served = serve(one_reactor());
    let mut client = served.client();
    let word = "y".repeat(3_000_000);
    client.send(&format!("echo a\necho {word}\necho b\n"));
    assert_eq!((client.line(), client.line() == word), ("a".to_owned(), true));
    assert_eq!(client.line(), "b");
}

#[test]
fn reactors_share_the_connections_and_all_hear_of_durability() {
    let served = serve(spindle_net::NetConfig { reactors: 3, ..one_reactor() });
    assert_eq!(served.toy.seen().mailboxes.len(), 3);
    let mut clients: Vec<_> = (0..12).map(|_| served.client()).collect();
    for client in &mut clients {
        client.send("gate 1 a\nwait\n");
    }
    served.toy.until("all requests", |seen| seen.waits.len() == 12);
    served.toy.set_durable(1);
    let mut ids: Vec<_> = served.toy.seen().waits.iter().map(|wait| wait.0).collect();
    for _ in 0..12 {
        served.toy.answer(1);
    }
    for client in &mut clients {
        assert_eq!((client.line(), client.line()), ("a".to_owned(), "answered".to_owned()));
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 12);
}
