//! What all clients together make the server hold: who holds the most goes, the others notice nothing.

#[expect(dead_code, reason = "each test file uses a part of it")]
mod common;

use common::{Client, Served, one_reactor, serve};
use spindle_budget::{Budget, Budgets};
use spindle_net::NetConfig;
use spindle_testkit::wait_until;

const KIB: usize = 1024;

/// A server with two reactors and these budgets.
fn limited(input_bytes_max: usize, output_bytes_max: usize) -> (Served, Budgets) {
    let budgets = Budgets::new(input_bytes_max, output_bytes_max);
    let config = NetConfig { budgets: budgets.clone(), reactors: 2, ..one_reactor() };
    (serve(config), budgets)
}

fn held(budget: &Budget) -> usize {
    budget.readings().held_bytes as usize
}

fn closed(budget: &Budget) -> u64 {
    budget.readings().closed
}

/// Bytes are counted at the end of a turn, when an answer may have arrived already.
fn until_nothing_is_held(budget: &Budget) {
    wait_until("the memory", || held(budget) == 0);
}

/// Sends the beginning of a line, this many bytes, and waits until the server counts it.
fn begin_line(served: &Served, budget: &Budget, bytes: usize) -> Client {
    let mut client = served.client();
    // In this order: a connection that is counted as closed has left the total.
    let closed_before = closed(budget);
    let before = held(budget);
    client.send(&format!("echo {}", "x".repeat(bytes - 5)));
    wait_until("the bytes", || held(budget) >= before + bytes || closed(budget) > closed_before);
    client
}

#[test]
fn the_largest_unfinished_request_goes_with_an_error_and_the_others_go_on() {
    let (served, Budgets { input, .. }) = limited(300 * KIB, usize::MAX);
    let mut large = begin_line(&served, &input, 90_000);
    let mut small = Vec::new();
    while closed(&input) == 0 {
        small.push(begin_line(&served, &input, 20_000));
        assert!(small.len() < 16, "{} bytes are held", held(&input));
    }
    assert_eq!(large.rest(), "too much\n");
    assert!(held(&input) <= 300 * KIB);
    for client in &mut small {
        client.send("y\n");
        assert_eq!(client.line().len(), 20_000 - 5 + 1);
    }
    until_nothing_is_held(&input);
    assert_eq!(closed(&input), 1);
    served.client().asks("echo x", "x");
}

#[test]
fn requests_that_are_finished_cost_nothing_and_their_rest_does_not_keep_them() {
    let (served, Budgets { input, .. }) = limited(300 * KIB, usize::MAX);
    let mut clients: Vec<_> = (0..8).map(|_| served.client()).collect();
    for _ in 0..3 {
        for client in &mut clients {
            // The rest of the line before, a large line, and the beginning of the next.
            client.send(&format!("{}\necho ", "x".repeat(90_000)).replacen("xx", "echo ", 1));
            assert_eq!(client.line().len(), 89_998);
            client.asks("y", "y");
        }
    }
    until_nothing_is_held(&input);
    assert_eq!(closed(&input), 0);
}

#[test]
fn a_request_that_waits_and_what_comes_behind_it_count() {
    let (served, Budgets { input, .. }) = limited(100 * KIB, usize::MAX);
    let mut waiting = served.client();
    waiting.send(&format!("wait {}\n", "x".repeat(60_000)));
    served.toy.until("the wait", |seen| seen.waits.len() == 1);
    wait_until("the request in hand", || held(&input) >= 60_000);
    waiting.send(&format!("echo {}\n", "x".repeat(50_000)));
    wait_until("the end of the one that holds too much", || closed(&input) == 1);
    assert!(waiting.is_cut_off());
    served.client().asks("echo x", "x");
    until_nothing_is_held(&input);
}

#[test]
fn a_handshake_and_nothing_else_costs_nothing() {
    let (served, Budgets { input, output }) = limited(KIB, KIB);
    let mut clients: Vec<_> = (0..50).map(|_| served.client()).collect();
    for client in &mut clients {
        client.asks("echo x", "x");
        client.send(&format!("echo {}", "x".repeat(4000)));
    }
    for client in &mut clients {
        client.send("\n");
        assert_eq!(client.line().len(), 4000);
    }
    assert_eq!((closed(&input), closed(&output)), (0, 0));
}

#[test]
fn the_largest_unread_answer_goes_and_the_others_can_be_read() {
    let (served, Budgets { output, .. }) = limited(usize::MAX, 50_000 * KIB);
    // More than the buffers of sockets that nobody reads from take.
    let mut large = served.client();
    large.send("big 40000000\n");
    wait_until("the first answer", || held(&output) >= 40_000_000);
    let mut small = served.client();
    small.send("big 20000000\n");
    wait_until("the end of the deafest", || closed(&output) == 1);
    served.toy.until("its end", |seen| seen.closed.len() == 1);
    assert_eq!(small.line().len(), 19_999_999);
    small.asks("echo x", "x");
    wait_until("the memory", || held(&output) <= 64 * KIB);
    drop(large);
    assert_eq!(closed(&output), 1);
}
