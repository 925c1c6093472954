//! Functions whose queues move between shards.

use std::collections::HashMap;

use super::*;
use crate::{Shard, Spread};

/// The queue of the first shard's function moves, or has moved, to the second one.
fn move_queue(client: &Client, drains: bool) {
    let drains = drains.then_some(Shard(0));
    let spread = Spread { drains, to: Shard(1), is_open: true };
    let moved = HashMap::from([(function_on(0), spread)]);
    assert!(client.session.placement.set_moved(moved));
}

fn elsewhere() -> Vec<u8> {
    bytes_of(&Response::Error { code: b"OTHER_SHARD", text: b"x" })
}

#[test]
fn a_job_is_offered_to_the_shard_that_drains_and_then_to_the_other() {
    let mut client = Client::new();
    move_queue(&client, true);
    client.send(&foreground(0));
    client.send(&background(2));
    assert_eq!(client.sent_to(0), encoded(&foreground(0)));
    client.hear(0, &elsewhere());
    assert_eq!(client.sent_to(1), encoded(&foreground(0)));
    client.hear(1, &job_created(1));
    // Its news come there, and a way with news to come is not given up.
    client.hear(1, &complete(1));
    assert_eq!(client.got(), [job_created(1), complete(1)].concat());
    assert_eq!(client.sent_to(2), encoded(&background(2)));
    client.hear(2, &job_created(2));
    client.got();
    // One that joins a job is joined where that is.
    client.send(&background(0));
    client.sent();
    client.hear(0, &job_created(0));
    assert_eq!(client.got(), job_created(0));
    assert!(client.sent().is_empty());
    move_queue(&client, false);
    client.send(&background(0));
    assert_eq!(client.sent_to(1), encoded(&background(0)));
}

#[test]
fn the_news_of_a_foreground_job_are_waited_for_where_it_is() {
    let mut client = Client::new();
    move_queue(&client, true);
    client.send(&foreground(0));
    client.hear(0, &elsewhere());
    client.hear(1, &job_created(1));
    client.got();
    assert!(client.session.is_engaged());
    client.lose(1);
    assert_eq!(client.flow, Flow::Close);
}

#[test]
fn a_worker_grabs_at_both_shards_and_then_at_the_one_only() {
    let mut client = Client::new();
    move_queue(&client, true);
    client.send(&can_do(0));
    let mut sent = client.sent();
    sent.sort();
    assert_eq!(sent, [(0, encoded(&can_do(0))), (1, encoded(&can_do(0)))]);
    client.send(&GRAB);
    assert!(client.sent_to(0).ends_with(&encoded(&GRAB)));
    client.hear(0, &fence_back());
    client.hear(0, &bytes_of(&Response::NoJob));
    assert!(client.sent_to(1).ends_with(&encoded(&GRAB)));
    client.hear(1, &fence_back());
    client.hear(1, &assigned(1));
    assert_eq!(client.got(), assigned(1));

    move_queue(&client, false);
    client.send(&GRAB);
    let sent = client.sent();
    let to = |shard| -> Vec<u8> {
        sent.iter().filter(|(to, _)| *to == shard).flat_map(|(_, bytes)| bytes.clone()).collect()
    };
    assert_eq!(to(0), encoded(&Request::CantDo { function: function_on(0) }));
    assert!(to(1).ends_with(&encoded(&GRAB)), "{sent:?}");
}

#[test]
fn a_worker_that_sleeps_sleeps_at_the_other_shard_too_when_its_queue_moves() {
    let mut client = Client::new();
    client.send(&can_do(0));
    client.send(&Request::PreSleep);
    client.sent();
    client.wake();
    assert!(client.sent().is_empty());
    move_queue(&client, true);
    client.wake();
    let sent = client.sent();
    let asleep = [encoded(&can_do(0)), encoded(&Request::PreSleep)].concat();
    let to_1 = sent.iter().filter(|(shard, _)| *shard == 1).flat_map(|(_, bytes)| bytes.clone());
    assert_eq!(to_1.collect::<Vec<u8>>(), asleep);
    client.hear(1, &bytes_of(&Response::Noop));
    assert_eq!(client.got(), bytes_of(&Response::Noop));
}

#[test]
fn of_a_move_that_a_node_has_not_heard_of_its_clients_hear_nothing_and_are_let_go() {
    // Sent at once, and in turn to all shards that the node knows of.
    for drains in [false, true] {
        let mut client = Client::new();
        if drains {
            move_queue(&client, true);
        }
        client.send(&background(0));
        client.sent();
        client.hear(0, &elsewhere());
        if drains {
            client.sent();
            client.hear(1, &elsewhere());
        }
        assert_eq!((client.got(), client.flow), (Vec::new(), Flow::Close));
    }
}
