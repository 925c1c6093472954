//! What happens on all shards, as one stream.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::shards::Sharded;

/// A stream of events.
struct Stream(BufReader<TcpStream>);

impl Stream {
    fn begin(sharded: &Sharded, target: &str, headers: &str) -> Stream {
        let stream = sharded.begin("GET", target, headers, "");
        let mut stream = Stream(BufReader::new(stream));
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(stream.0.read_line(&mut head).unwrap() > 0, "{head}");
        }
        assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("text/event-stream"), "{head}");
        stream
    }

    /// The next line that is one of the stream's; none at its end.
    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        loop {
            line.clear();
            match self.0.read_line(&mut line) {
                Ok(0) => return None,
                Ok(_) => {}
                Err(error) => panic!("{error}"),
            }
            let is_chunk_size = line.ends_with("\r\n");
            if line == "0\r\n" {
                return None;
            }
            if !is_chunk_size {
                return Some(line.trim_end().to_owned());
            }
        }
    }

    /// The next event: its id, and its data.
    fn next(&mut self) -> Option<(String, Value)> {
        let (mut id, mut data) = (String::new(), Value::Null);
        loop {
            let line = self.line()?;
            if let Some(text) = line.strip_prefix("id: ") {
                id = text.to_owned();
            } else if let Some(text) = line.strip_prefix("data: ") {
                data = serde_json::from_str(text).unwrap();
            } else if line.is_empty() && !id.is_empty() {
                return Some((id, data));
            }
        }
    }

    fn submitted(&mut self) -> (String, u64) {
        loop {
            let (id, data) = self.next().unwrap();
            if data["type"] == "submitted" {
                return (id, data["job"].as_u64().unwrap());
            }
        }
    }
}

fn submit(sharded: &Sharded, shard: u8) -> u64 {
    sharded.submit(json!({ "queue": sharded.queue_on(shard, 0) }))
}

#[test]
fn events_of_all_shards_come_with_their_shard_and_a_place_to_go_on() {
    let sharded = Sharded::new();
    submit(&sharded, 1);
    let mut stream = Stream::begin(&sharded, "/api/v1/events", "");
    // It says first where it begins.
    let (begin, data) = stream.next().unwrap();
    assert_eq!((begin.split('-').count(), data), (3, Value::Null));
    let mut seen = Vec::new();
    for shard in [2, 0, 1, 0] {
        let job = submit(&sharded, shard);
        let (id, data) = stream.next().unwrap();
        assert_eq!((&data["type"], &data["job"]), (&json!("submitted"), &json!(job)));
        assert_eq!(data["shard"], shard);
        seen.push((id, job));
    }
    drop(stream);
    // From each id on, the stream has the events behind it on each shard.
    for (from, target, headers) in [
        (0, format!("/api/v1/events?after={begin}"), String::new()),
        (2, "/api/v1/events".to_owned(), format!("Last-Event-ID: {}\r\n", seen[1].0)),
        (4, "/api/v1/events?after=oldest".to_owned(), format!("Last-Event-ID: {}\r\n", seen[3].0)),
    ] {
        let mut stream = Stream::begin(&sharded, &target, &headers);
        let mut expected: Vec<u64> = seen[from..].iter().map(|(_, job)| *job).collect();
        let mut found: Vec<u64> = expected.iter().map(|_| stream.submitted().1).collect();
        expected.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, expected, "{from}");
        let last = submit(&sharded, 2);
        assert_eq!(stream.submitted().1, last);
        seen.push((String::new(), last));
    }
}

#[test]
fn the_oldest_events_come_up_to_the_newest() {
    let sharded = Sharded::new();
    let mut jobs: Vec<u64> = [0, 1, 2, 1].map(|shard| submit(&sharded, shard)).to_vec();
    let target = "/api/v1/events?after=oldest&follow=false";
    let mut stream = Stream::begin(&sharded, target, "");
    let (mut found, mut last) = (Vec::new(), String::new());
    while let Some((id, data)) = stream.next() {
        if data["type"] == "submitted" {
            found.push(data["job"].as_u64().unwrap());
        }
        last = id;
    }
    jobs.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, jobs);
    let target = format!("/api/v1/events?after={last}&follow=false");
    assert!(Stream::begin(&sharded, &target, "").next().is_none());
    let target = "/api/v1/events?after=oldest-oldest-oldest&follow=false";
    assert!(Stream::begin(&sharded, target, "").next().is_some());
}

#[test]
fn a_place_that_is_none_is_refused() {
    let sharded = Sharded::new();
    for after in ["x", "1.0", "1.0-1.0", "1.0-1.0-1.0-1.0", "1-1-1"] {
        sharded.get(&format!("/api/v1/events?after={after}")).is_problem(400, "out_of_range");
    }
    sharded.get("/api/v1/events?follow=maybe").is_problem(400, "bad_field");
    let one =
        Stream::begin(&sharded, "/api/v1/events?after=oldest&shard=1&follow=false", "").next();
    assert_eq!(one.map(|(id, _)| id.contains('-')), Some(false));
}

#[test]
fn a_stream_ends_with_a_shard_that_is_lost() {
    let sharded = Sharded::new();
    let mut stream = Stream::begin(&sharded, "/api/v1/events", "");
    stream.next().unwrap();
    sharded.lose(1);
    assert!(stream.next().is_none());
}
