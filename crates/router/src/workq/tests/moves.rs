//! Queues that move between shards.

use std::collections::HashMap;

use super::*;
use crate::Spread;

/// A queue moves, or has moved, from the first shard to the second one.
fn move_queue(scene: &Scene, drains: bool) {
    let drains = drains.then_some(Shard(0));
    let spread = Spread { drains, to: Shard(1), is_open: true };
    let moved = HashMap::from([(Bytes::from(queue(0)), spread)]);
    assert!(scene.session.shards.placement.set_moved(moved));
}

const ELSEWHERE: &str = "-CLIENT-ERROR the queue is on shard 1\r\n";

#[test]
fn a_job_is_offered_to_the_shard_that_drains_and_then_to_the_other() {
    let mut scene = Scene::new();
    move_queue(&scene, true);
    for (last, answer) in [(1, "+OK\r\n"), (1, "-CLIENT-ERROR Duplicate job\r\n")] {
        assert_eq!(scene.send(&(add(1, 0) + &add(2, 2))), Flow::Wait);
        assert_eq!((scene.sent(0), scene.sent(1)), (add(1, 0), String::new()));
        scene.reply(0, ELSEWHERE);
        assert_eq!((scene.heard().as_str(), scene.sent(last)), ("", add(1, 0)));
        // What is behind it is asked when it is answered.
        assert_eq!(scene.sent(2), "");
        scene.reply(last, answer);
        scene.send("");
        assert_eq!((scene.heard().as_str(), scene.sent(2)), (answer, add(2, 2)));
        scene.reply(2, "+OK\r\n");
        scene.heard();
    }
    // It has the name.
    scene.send(&add(1, 0));
    scene.sent(0);
    scene.reply(0, "-CLIENT-ERROR Duplicate job\r\n");
    assert_eq!(
        (scene.heard().as_str(), scene.sent(1)),
        ("-CLIENT-ERROR Duplicate job\r\n", String::new())
    );
    move_queue(&scene, false);
    assert_eq!(scene.send(&add(1, 0)), Flow::Continue);
    assert_eq!((scene.sent(0), scene.sent(1)), (String::new(), add(1, 0)));
}

#[test]
fn a_run_goes_on_at_the_other_shard_and_its_wait_ends_with_its_client() {
    let mut scene = Scene::new();
    move_queue(&scene, true);
    let run = |wait_ms| format!("run {} {} 1000 {wait_ms} 1\r\nx\r\n", id(1), queue(0));
    scene.send(&run(5000));
    assert_eq!(scene.sent(0), run(5000));
    scene.reply(0, ELSEWHERE);
    assert_eq!(scene.sent(1), run(5000));
    scene.end();
    assert_eq!(scene.ways.0.lock().finished, [Shard(1)]);
    scene.reply(1, "-TIMEOUT\r\n");
    assert_eq!(scene.heard(), "-TIMEOUT\r\n");
}

#[test]
fn a_worker_is_given_jobs_of_both_shards() {
    let mut scene = Scene::new();
    move_queue(&scene, true);
    assert_eq!(scene.send(&lease(&[0], 60_000)), Flow::Wait);
    let first = u8::from(scene.sent(0).is_empty());
    scene.reply(first, "-TIMEOUT\r\n");
    scene.reply(1 - first, &leased(7, 0));
    assert_eq!(scene.heard(), leased(7, 0));
}

#[test]
fn a_worker_that_waits_is_to_ask_again_when_its_queue_moves() {
    let mut scene = Scene::new();
    scene.send(&lease(&[0], 60_000));
    assert_eq!(scene.sent(0), lease(&[0], 60_000));
    // Another queue is no matter.
    let spread = Spread { drains: Some(Shard(0)), to: Shard(1), is_open: true };
    let other = HashMap::from([(Bytes::from(queue(2)), spread)]);
    assert!(scene.session.shards.placement.set_moved(other));
    assert_eq!(scene.wake(), Flow::Wait);
    assert!(scene.ways.0.lock().finished.is_empty());
    move_queue(&scene, true);
    scene.wake();
    assert_eq!(scene.ways.0.lock().finished, [Shard(0)], "its shard hears the end, and answers");
    scene.reply(0, "-TIMEOUT\r\n");
    assert_eq!(scene.heard(), "-TIMEOUT\r\n");

    let mut scene = waiting();
    move_queue(&scene, true);
    scene.wake();
    // The second one is not asked for it.
    assert_eq!(scene.heard(), "-TIMEOUT\r\n");
    for shard in [0, 1] {
        assert!(scene.sent(shard).contains("pass"), "{shard}");
    }
}

#[test]
fn of_a_move_that_a_node_has_not_heard_of_its_clients_hear_nothing_and_are_let_go() {
    // Sent at once, and in turn to all shards that the node knows of.
    for drains in [None, Some(true)] {
        let mut scene = Scene::new();
        drains.into_iter().for_each(|drains| move_queue(&scene, drains));
        scene.send(&(add(1, 0) + &add(2, 0)));
        scene.sent(0);
        scene.reply(0, ELSEWHERE);
        if drains.is_some() {
            scene.reply(1, "-CLIENT-ERROR the queue is on shard 2\r\n");
        }
        assert_eq!(scene.send(""), Flow::Close);
        assert_eq!(scene.heard(), "");
    }
}
