//! Answers of all shards as one.

use std::time::Duration;

use serde_json::{Value, json};

use crate::shards::{Reply, Sharded};

fn listed(page: &Value, items: &str, field: &str) -> Vec<Value> {
    page[items].as_array().unwrap().iter().map(|item| item[field].clone()).collect()
}

/// All of a list, page by page.
fn all(sharded: &Sharded, target: &str, items: &str, field: &str) -> (Vec<Value>, usize) {
    let (mut all, mut cursor, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let page = sharded.get(&format!("{target}{cursor}"));
        page.is(200);
        let page = page.json();
        all.extend(listed(&page, items, field));
        pages += 1;
        assert!(pages < 50, "{page}");
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={}", next.replace('+', "%2B")),
            None => return (all, pages),
        }
    }
}

/// Jobs of all shards, one after the other in time.
fn submitted(sharded: &Sharded, count: usize) -> Vec<Value> {
    let each = |place: usize| {
        let shard = (place * 7 % 3) as u8;
        let id =
            sharded.submit(json!({ "queue": sharded.queue_on(shard, place % 2), "tags": ["t"] }));
        // The list is by the time of day, in milliseconds.
        std::thread::sleep(Duration::from_millis(2));
        json!(id)
    };
    (0..count).map(each).collect()
}

#[test]
fn jobs_of_all_shards_are_listed_by_time_over_pages() {
    let sharded = Sharded::new();
    let ids = submitted(&sharded, 14);
    for limit in [1, 4, 14, 50] {
        let (found, pages) = all(&sharded, &format!("/api/v1/jobs?limit={limit}"), "jobs", "id");
        assert_eq!(found, ids, "{limit}");
        assert!(pages >= 14 / limit, "{limit}: {pages}");
        let target = format!("/api/v1/jobs?order=desc&limit={limit}");
        let (mut found, _) = all(&sharded, &target, "jobs", "id");
        found.reverse();
        assert_eq!(found, ids, "{limit}");
    }
    let mut cursor = String::new();
    for _ in 0..7 {
        let page =
            sharded.get(&format!("/api/v1/jobs?limit=2&count=true&status=ready{cursor}")).json();
        assert_eq!((&page["total"], page.get("total_is_at_least")), (&json!(14), None));
        cursor = format!("&cursor={}", page["next_cursor"].as_str().unwrap_or("end_end_end"));
    }
    assert_eq!(cursor, "&cursor=end_end_end");
    let queue = sharded.queue_on(1, 0);
    let (of_queue, _) =
        all(&sharded, &format!("/api/v1/jobs?queue={queue}&limit=2"), "jobs", "queue");
    assert!(!of_queue.is_empty() && of_queue.iter().all(|name| *name == json!(queue)));
    let some = format!("/api/v1/jobs?ids={},{}", ids[0], ids[1]);
    assert_eq!(listed(&sharded.get(&some).json(), "jobs", "id"), ids[..2]);
    for wrong in ["cursor=7", "cursor=x", "cursor=begin_begin", "limit=0", "limit=x", "nothing=1"] {
        assert_eq!(sharded.get(&format!("/api/v1/jobs?{wrong}")).status, 400, "{wrong}");
    }
}

#[test]
fn queues_are_listed_by_name_over_pages() {
    let sharded = Sharded::new();
    let mut names: Vec<String> = (0..3)
        .flat_map(|shard| (0..3).map(move |number| (shard, number)))
        .map(|(shard, number)| sharded.queue_on(shard, number))
        .collect();
    for name in &names {
        sharded.submit(json!({ "queue": name }));
    }
    names.sort();
    for limit in [1, 2, 9, 100] {
        let (found, _) = all(&sharded, &format!("/api/v1/queues?limit={limit}"), "queues", "name");
        assert_eq!(found, names.iter().map(|name| json!(name)).collect::<Vec<_>>());
    }
    sharded.submit(json!({ "queue_base64": "/y8g" }));
    let (found, _) = all(&sharded, "/api/v1/queues?limit=3", "queues", "name_base64");
    assert_eq!(found.last(), Some(&json!("/y8g")));
    sharded.get("/api/v1/queues?cursor=!").is_problem(400, "out_of_range");
}

#[test]
fn batches_and_audit_entries_are_listed_the_newest_first() {
    let sharded = Sharded::new();
    let mut ids = Vec::new();
    for place in 0..7 {
        let queue = sharded.queue_on(place % 3, usize::from(place / 3));
        let batch =
            sharded.post("/api/v1/batches", json!({ "queue": queue, "name": place.to_string() }));
        ids.push(batch.json()["id"].clone());
        sharded.call("POST", &format!("/api/v1/queues/{queue}/pause"), None).is(200);
        std::thread::sleep(Duration::from_millis(2));
    }
    ids.reverse();
    for limit in [2, 7, 100] {
        let (found, _) = all(&sharded, &format!("/api/v1/batches?limit={limit}"), "batches", "id");
        assert_eq!(found, ids);
        let target = format!("/api/v1/audit?limit={limit}");
        let (shards, _) = all(&sharded, &target, "entries", "shard");
        assert_eq!(shards, [0, 2, 1, 0, 2, 1, 0].map(|shard: u8| json!(shard)));
    }
    let queue = sharded.queue_on(1, 0);
    let of_one = sharded.get(&format!("/api/v1/audit?queue={queue}")).json();
    assert_eq!(of_one["entries"].as_array().unwrap().len(), 1);
}

#[test]
fn workers_of_all_shards_are_listed_with_their_shard() {
    let sharded = Sharded::new();
    for shard in 0..3 {
        let queue = sharded.queue_on(shard, 0);
        sharded.submit(json!({ "queue": queue }));
        sharded.post("/api/v1/lease", json!({ "queues": [queue], "worker": "w" })).is(200);
    }
    let page = sharded.get("/api/v1/workers").json();
    assert_eq!(listed(&page, "workers", "shard"), [json!(0), json!(1), json!(2)]);
    assert_eq!(listed(&page, "workers", "name"), [json!("w"), json!("w"), json!("w")]);
    assert_eq!(page.get("next_cursor"), None);
    for cursor in ["x", "9.0", "1."] {
        assert_eq!(
            sharded.get(&format!("/api/v1/workers?cursor={cursor}")).status,
            400,
            "{cursor}"
        );
    }
}

fn fail(sharded: &Sharded, shard: u8, times: usize) {
    let queue = sharded.queue_on(shard, 0);
    for _ in 0..times {
        sharded.submit(json!({ "queue": queue, "fails_max": 1 }));
        let job = sharded.post("/api/v1/lease", json!({ "queues": [queue] })).json();
        let path = format!("/api/v1/leases/{}/fail", job["lease_token"].as_str().unwrap());
        sharded.post(&path, json!({ "error": format!("db-{shard} is away") })).is(204);
    }
}

#[test]
fn what_the_servers_did_is_added_up() {
    let sharded = Sharded::new();
    fail(&sharded, 0, 1);
    fail(&sharded, 2, 2);
    let server = sharded.get("/api/v1/server").json();
    let counts = ["jobs", "jobs_finished", "queues", "waits"].map(|field| server[field].clone());
    assert_eq!(counts, [3, 3, 2, 0].map(|count: u8| json!(count)), "{server}");
    assert_eq!(listed(&server, "shards", "shard"), [json!(0), json!(1), json!(2)]);
    assert_eq!((&server["status"], &server["shards"][2]["jobs"]), (&json!("ok"), &json!(2)));
    let history = sharded.get("/api/v1/history?points=5").json();
    assert_eq!(history["range"], "hour");
    history["points"].as_array().unwrap();
    sharded.get("/api/v1/history/queues").json()["queues"].as_array().unwrap();
    let failures = sharded.get("/api/v1/failures?limit=5").json();
    assert_eq!(failures["range"], "hour");
    for path in
        ["history?points=0", "failures?limit=0", "failures?points=x", "history/queues?limit=999"]
    {
        assert_eq!(sharded.get(&format!("/api/v1/{path}")).status, 400, "{path}");
    }
    let queue = sharded.queue_on(2, 0);
    sharded.get(&format!("/api/v1/history?queue={queue}")).is(200);
    sharded.get(&format!("/api/v1/failures?queue={queue}")).is(200);
}

#[test]
fn metrics_of_all_shards_are_one_page() {
    let sharded = Sharded::new();
    sharded.submit(json!({ "queue": sharded.queue_on(1, 0) }));
    let page = sharded.get("/metrics");
    assert!(page.header("content-type").starts_with("text/plain; version=0.0.4"));
    let line = |text: &str| page.text.lines().any(|line| line == text);
    assert_eq!(page.text.matches("# TYPE spindle_jobs_kept ").count(), 1);
    assert!(line("spindle_jobs_kept{shard=\"0\"} 0") && line("spindle_jobs_kept{shard=\"1\"} 1"));
    let queue = sharded.queue_on(1, 0);
    let jobs = format!("spindle_queue_jobs{{shard=\"1\",queue=\"{queue}\",status=\"ready\"}} 1");
    assert!(line(&jobs), "{}", page.text);
    let accept = [("accept", "application/openmetrics-text")];
    let page = sharded.send("GET", "/metrics", &accept, None);
    assert!(page.header("content-type").starts_with("application/openmetrics-text"));
    assert!(page.text.ends_with("# EOF\n") && page.text.matches("# EOF").count() == 1);
}

#[test]
fn a_lost_shard_is_missed_where_all_are_needed_and_shown_where_it_is_looked_for() {
    let sharded = Sharded::new();
    sharded.submit(json!({ "queue": sharded.queue_on(0, 0) }));
    sharded.lose(1);
    for path in [
        "jobs",
        "queues",
        "workers",
        "batches",
        "schedules",
        "failures",
        "history",
        "audit",
        "events",
    ] {
        let reply: Reply = sharded.get(&format!("/api/v1/{path}"));
        reply.is_problem(503, "shard_unavailable");
        assert_eq!(reply.json()["shard"], 1, "{path}");
    }
    sharded.get("/api/v1/jobs?shard=0").is(200);
    let server = sharded.get("/api/v1/server").json();
    assert_eq!((&server["status"], &server["jobs"]), (&json!("shard_unavailable"), &json!(1)));
    assert_eq!(server["shards"][1]["problem"]["code"], "shard_unavailable");
    let page = sharded.get("/metrics").text;
    assert!(
        page.contains("spindle_shard_up{shard=\"1\"} 0\nspindle_shard_up{shard=\"2\"} 1\n"),
        "{page}"
    );
    assert!(!page.contains("spindle_jobs_kept{shard=\"1\"}"));
}
