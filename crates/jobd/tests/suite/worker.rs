//! A worker's answers, byte by byte.

use std::time::Duration;

use crate::{
    peer::MEMORY,
    world::{World, connect},
};

/// What is sent and what comes back; an empty answer is none.
async fn converse(lines: &str, conversation: &[(&str, &str)]) {
    let world = World::new();
    let worker = world.worker(lines).await;
    let mut peer = connect(&worker).await;
    for (sent, expected) in conversation {
        if expected.is_empty() {
            peer.send(sent).await;
            peer.hears_nothing().await;
        } else {
            assert_eq!(peer.ask(sent).await, expected.replace("<MEM>", MEMORY), "{sent}");
        }
    }
}

#[tokio::test]
async fn malformed_messages_get_the_originals_errors_and_the_connection_goes_on() {
    converse(
        "",
        &[
            ("[2]", "[3]"),
            ("[3]", ""),
            ("[2,{\"x\":1}]", "[3]"),
            ("[9]", r#"[1,{"no":0,"error":"unexpected type 9"}]"#),
            ("[\"0\"]", r#"[1,{"no":0,"error":"unexpected type 0"}]"#),
            ("[]", r#"[1,{"no":0,"error":"unexpected type undefined"}]"#),
            ("{\"a\":1}", r#"[1,{"no":0,"error":"JSON array expected, got: [object Object]"}]"#),
            ("null", r#"[1,{"no":0,"error":"JSON array expected, got: null"}]"#),
            ("not json", ""),
            ("", ""),
            (
                "[0,null]",
                r#"[1,{"no":0,"error":"malformed REQUEST message: data is not an object"}]"#,
            ),
            (r#"[0,{"no":1.0,"type":"poll"}]"#, r#"[1,{"no":1,"data":"ok"}]"#),
            (r#"[0,{"no":-5,"type":"poll"}]"#, r#"[1,{"no":-5,"data":"ok"}]"#),
            (r#"[0,{"no":1,"type":"poll","data":"x"}]"#, r#"[1,{"no":1,"data":"ok"}]"#),
            (r#"[1,{"no":5,"data":"ok"}]"#, ""),
            (
                "[1,{}]",
                r#"[1,{"no":0,"error":"malformed RESPONSE message: missing required field no"}]"#,
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_message_in_two_pieces_and_two_messages_in_one_piece_are_read() {
    let world = World::new();
    let worker = world.worker("").await;
    let mut peer = connect(&worker).await;
    peer.send_bytes(b"[2").await;
    peer.send_bytes(b"]\x04[2]\n\x04[2]\x04").await;
    for _ in 0..3 {
        assert_eq!(peer.hear().await, "[3]");
    }
}

#[tokio::test]
async fn requests_get_the_originals_answers() {
    converse(
        "",
        &[
            (r#"[0,{"no":1,"type":"nosuch"}]"#, r#"[1,{"no":1,"error":"unknown request type: 'nosuch'"}]"#),
            (
                r#"[0,{"no":2,"type":"status"}]"#,
                r#"[1,{"no":2,"data":{"targets":{"low":{"paused":false,"concurrency":1,"length":0},"normal":{"paused":false,"concurrency":3,"length":0},"1/high":{"paused":false,"concurrency":10,"length":0}},"jobPromisesCount":0,<MEM>}}]"#,
            ),
            (r#"[0,{"no":4,"type":"poll","data":{"targets":["low","normal"]}}]"#, r#"[1,{"no":4,"data":"ok"}]"#),
            (r#"[0,{"no":5,"type":"poll","data":{"targets":["nope"]}}]"#, r#"[1,{"no":5,"error":"invalid target 'nope'"}]"#),
            (r#"[0,{"no":6,"type":"poll","data":{"targets":[]}}]"#, r#"[1,{"no":6,"error":"targets are empty"}]"#),
            (r#"[0,{"no":10,"type":"pause","data":{"targets":["low"]}}]"#, r#"[1,{"no":10,"data":"ok"}]"#),
            (r#"[0,{"no":11,"type":"pause","data":{"targets":["low"]}}]"#, r#"[1,{"no":11,"data":"ok"}]"#),
            (r#"[0,{"no":13,"type":"pause","data":{"targets":["nope"]}}]"#, r#"[1,{"no":13,"error":"invalid target 'nope'"}]"#),
            (
                r#"[0,{"no":12,"type":"status"}]"#,
                r#"[1,{"no":12,"data":{"targets":{"low":{"paused":true,"concurrency":1,"length":0},"normal":{"paused":false,"concurrency":3,"length":0},"1/high":{"paused":false,"concurrency":10,"length":0}},"jobPromisesCount":0,<MEM>}}]"#,
            ),
            (r#"[0,{"no":17,"type":"continue"}]"#, r#"[1,{"no":17,"data":"ok"}]"#),
            (r#"[0,{"no":20,"type":"add-target","data":{"target":"new","concurrency":2}}]"#, r#"[1,{"no":20,"data":"ok"}]"#),
            (r#"[0,{"no":21,"type":"add-target","data":{"target":"new","concurrency":2}}]"#, r#"[1,{"no":21,"error":"target 'new' already added"}]"#),
            (r#"[0,{"no":23,"type":"add-target","data":{"target":"x","concurrency":0}}]"#, r#"[1,{"no":23,"error":"Invalid concurrency value."}]"#),
            (r#"[0,{"no":30,"type":"set-target-concurrency","data":{"target":"new","concurrency":9}}]"#, r#"[1,{"no":30,"data":"ok"}]"#),
            (r#"[0,{"no":31,"type":"set-target-concurrency","data":{"target":"nope","concurrency":9}}]"#, r#"[1,{"no":31,"error":"target 'nope' not found"}]"#),
            (
                r#"[0,{"no":33,"type":"status"}]"#,
                r#"[1,{"no":33,"data":{"targets":{"low":{"paused":false,"concurrency":1,"length":0},"normal":{"paused":false,"concurrency":3,"length":0},"1/high":{"paused":false,"concurrency":10,"length":0},"new":{"paused":false,"concurrency":9,"length":0}},"jobPromisesCount":0,<MEM>}}]"#,
            ),
            (r#"[0,{"no":34,"type":"remove-target","data":{"target":"new"}}]"#, r#"[1,{"no":34,"data":"ok"}]"#),
            (r#"[0,{"no":35,"type":"remove-target","data":{"target":"new"}}]"#, r#"[1,{"no":35,"error":"target 'new' not found"}]"#),
            (r#"[0,{"no":36,"type":"remove-target"}]"#, r#"[1,{"no":36,"error":"missing required field target"}]"#),
            (r#"[0,{"no":40,"type":"send-signal","data":{"jobs":{"999":15}}}]"#, r#"[1,{"no":40,"data":{"999":false}}]"#),
            (r#"[0,{"no":42,"type":"send-signal"}]"#, r#"[1,{"no":42,"data":{}}]"#),
            (r#"[0,{"no":43,"type":"send-signal","data":{"jobs":[]}}]"#, r#"[1,{"no":43,"data":{}}]"#),
            (r#"[0,{"no":50,"type":"run-manual","data":{"ids":["1"]}}]"#, r#"[1,{"no":50,"error":"all ids must be numbers, got string"}]"#),
            // The original answers with an error of its language here; ours with a sentence.
            (r#"[0,{"no":70,"type":"run-manual"}]"#, r#"[1,{"no":70,"error":"ids are missing"}]"#),
            (r#"[0,{"no":71,"type":"run-manual","data":{"ids":[]}}]"#, r#"[1,{"no":71,"error":"ids are empty"}]"#),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_password_is_asked_for_once_and_a_wrong_one_ends_the_connection() {
    let world = World::new();
    let worker = world.worker("password = sesame").await;
    for wrong in
        [r#"[0,{"no":1,"type":"poll"}]"#, r#"[0,{"no":1,"type":"poll","password":"wrong"}]"#]
    {
        let mut peer = connect(&worker).await;
        assert_eq!(peer.ask("[2]").await, "[3]");
        // What follows the refused request is not looked at.
        peer.send(wrong).await;
        peer.send(r#"[0,{"no":2,"type":"poll","password":"sesame"}]"#).await;
        assert_eq!(peer.hear().await, r#"[1,{"no":1,"error":"invalid password"}]"#);
        peer.is_closed().await;
    }
    let mut peer = connect(&worker).await;
    for request in [
        r#"[0,{"no":1,"type":"poll","password":"sesame"}]"#,
        r#"[0,{"no":1,"type":"poll"}]"#,
        r#"[0,{"no":1,"type":"poll","password":"wrong"}]"#,
    ] {
        assert_eq!(peer.ask(request).await, r#"[1,{"no":1,"data":"ok"}]"#);
    }
}

#[tokio::test]
async fn localhost_needs_no_password_when_it_is_always_allowed() {
    let world = World::new();
    let worker = world.worker("password = sesame\nalways_allow_localhost = 1").await;
    let mut peer = connect(&worker).await;
    assert_eq!(peer.ask(r#"[0,{"no":1,"type":"poll"}]"#).await, r#"[1,{"no":1,"data":"ok"}]"#);
}

#[tokio::test]
async fn a_message_without_end_closes_the_connection_at_the_limit() {
    let world = World::new();
    let worker = world.worker("max_message_bytes = 2000").await;
    let mut peer = connect(&worker).await;
    peer.send_bytes(&[b'x'; 2001]).await;
    peer.is_closed().await;
    let mut peer = connect(&worker).await;
    peer.hears_nothing().await;
}

#[tokio::test]
async fn a_web_page_cannot_start_anything() {
    let world = World::new();
    world.table.insert(1, "low", "manual");
    let worker = world.worker("").await;
    let mut peer = connect(&worker).await;
    let page = "POST / HTTP/1.1\r\nContent-Type: text/plain\r\n\r\n\
                \x04[0,{\"no\":1,\"type\":\"run-manual\",\"data\":{\"ids\":[1]}}]\x04";
    peer.send_bytes(page.as_bytes()).await;
    peer.is_closed().await;
    assert_eq!(world.table.line(1), "manual");
}

#[tokio::test]
async fn connections_over_the_limit_are_closed_and_later_ones_are_served() {
    let world = World::new();
    let worker = world.worker("max_connections = 1").await;
    let mut first = connect(&worker).await;
    first.hears_nothing().await;
    connect(&worker).await.is_closed().await;
    drop(first);
    let mut served = false;
    for _ in 0..500 {
        let mut peer = connect(&worker).await;
        if tokio::time::timeout(Duration::from_millis(100), peer.next()).await.is_err() {
            peer.hears_nothing().await;
            served = true;
            break;
        }
    }
    assert!(served);
}

#[tokio::test]
async fn a_client_that_reads_nothing_does_not_fill_the_memory() {
    let world = World::new();
    let worker = world.worker("").await;
    let mut deaf = connect(&worker).await;
    // An unknown type is named in the answer, which is so as large as the request.
    let request = format!("[0,{{\"no\":1,\"type\":\"{}\"}}]\x04", "x".repeat(100_000));
    // 60 MB: far more than sockets hold.
    let mut is_held = false;
    for _ in 0..600 {
        let sending = deaf.send_bytes(request.as_bytes());
        if tokio::time::timeout(Duration::from_secs(2), sending).await.is_err() {
            is_held = true;
            break;
        }
    }
    assert!(is_held, "the worker read on without being listened to");
    connect(&worker).await.hears_nothing().await;
}
