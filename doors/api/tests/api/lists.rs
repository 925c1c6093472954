//! Lists of jobs.

use axum::http::Method;
use serde_json::{Value, json};
use spindle_core::command::Submit;
use spindle_core::job::Origin;
use spindle_core::{BytesRef, JobId, Type};
use spindle_testkit::{new_job, opened};

use crate::harness::Bench;

async fn ids(bench: &Bench, query: &str) -> Vec<u64> {
    let page = bench.get(&format!("/api/v1/jobs{query}")).await.json();
    page["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_u64().unwrap()).collect()
}

/// Four jobs in each status, two in each of two queues.
async fn crowd(bench: &Bench) {
    for queue in ["a", "b"] {
        bench.submit(json!({ "queue": queue, "payload": 1, "tags": ["red"] })).await;
        bench.submit(json!({ "queue": queue, "run_at": "2030-01-01T00:00:00Z" })).await;
        bench.submit(json!({ "queue": queue, "parked": true, "tags": ["red", "big"] })).await;
        let dead = bench.submit(json!({ "queue": queue, "tags": ["big"] })).await;
        bench.call(Method::POST, &format!("/api/v1/jobs/{dead}/cancel")).await;
    }
}

#[tokio::test]
async fn jobs_are_listed_by_queue_status_and_tag() {
    let bench = Bench::new();
    crowd(&bench).await;
    assert_eq!(ids(&bench, "").await, [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(ids(&bench, "?queue=a").await, [1, 2, 3, 4]);
    assert_eq!(ids(&bench, "?queue_base64=Yg==").await, [5, 6, 7, 8]);
    assert_eq!(ids(&bench, "?status=dead").await, [4, 8]);
    assert_eq!(ids(&bench, "?status=dead&queue=b").await, [8]);
    assert_eq!(ids(&bench, "?status=scheduled").await, [2, 6]);
    assert_eq!(ids(&bench, "?tag=big").await, [3, 4, 7, 8]);
    assert_eq!(ids(&bench, "?tag=big&status=parked&queue=a").await, [3]);
    assert_eq!(ids(&bench, "?queue=c").await, [0; 0]);
}

#[tokio::test]
async fn a_list_leaves_out_what_is_large_and_tells_the_rest() {
    let bench = Bench::new();
    crowd(&bench).await;
    let page = bench.get("/api/v1/jobs?limit=1").await.json();
    let job = &page["jobs"][0];
    assert_eq!((&job["payload"], &job["payload_bytes"]), (&Value::Null, &json!(1)));
    assert_eq!((&job["queue"], &job["tags"]), (&json!("a"), &json!(["red"])));
    let page = bench.get("/api/v1/jobs?status=dead").await.json();
    assert_eq!(page["jobs"][0]["result"]["code"], "cancelled");
    assert_eq!(page["next_cursor"], Value::Null);
}

#[tokio::test]
async fn pages_follow_each_other_without_a_gap() {
    let bench = Bench::new();
    crowd(&bench).await;
    let mut seen = Vec::new();
    let mut path = "/api/v1/jobs?limit=3".to_owned();
    loop {
        let page = bench.get(&path).await.json();
        let jobs = page["jobs"].as_array().unwrap();
        assert!(jobs.len() <= 3);
        seen.extend(jobs.iter().map(|job| job["id"].as_u64().unwrap()));
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("/api/v1/jobs?limit=3&cursor={cursor}");
    }
    assert_eq!(seen, [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[tokio::test]
async fn one_among_many_is_found_at_once_by_what_is_indexed_and_step_by_step_by_its_tag() {
    let bench = Bench::new();
    let submit = |count: u64, queue: &'static [u8]| {
        for _ in 0..count {
            let empty = BytesRef::empty(Type::Bytes);
            let mut submit = Submit::new(JobId(0), queue.into(), Origin::Workq, empty);
            submit.tags = if queue == b"rare" { vec!["odd".into()] } else { Vec::new() };
            opened(bench.engine.jobs().submit(new_job(submit, b""))).unwrap();
        }
    };
    // More than a request looks through for a tag.
    submit(27_000, b"q");
    submit(1, b"rare");
    drop(bench.engine.turn());
    bench.call(Method::POST, "/api/v1/jobs/27001/park").await;
    assert_eq!(ids(&bench, "?queue=rare").await, [27_001]);
    assert_eq!(ids(&bench, "?status=parked").await, [27_001]);
    assert_eq!(ids(&bench, "?door=api").await, [0; 0]);
    let page = bench.get("/api/v1/jobs?tag=odd").await.json();
    assert_eq!((&page["jobs"], &page["partial"]), (&json!([]), &json!(true)));
    let cursor = page["next_cursor"].as_str().expect("there is more to look through");
    assert_eq!(ids(&bench, &format!("?tag=odd&cursor={cursor}")).await, [27_001]);
}

#[tokio::test]
async fn what_a_list_gets_wrong_is_told() {
    let bench = Bench::new();
    for query in [
        "?limit=0",
        "?limit=1001",
        "?status=asleep",
        "?queue=",
        "?cursor=x",
        "?cursor=-1",
        "?cursor=%2B1",
        "?queue_base64=!",
        "?status=Ready",
    ] {
        let answer = bench.get(&format!("/api/v1/jobs{query}")).await;
        assert_eq!(answer.json()["code"], "out_of_range", "{query}");
        answer.is_problem(400, "out_of_range");
    }
    for query in ["?limit=many", "?colour=red", "?queue=a&queue=b"] {
        bench.get(&format!("/api/v1/jobs{query}")).await.is_problem(400, "bad_field");
    }
    assert_eq!(ids(&bench, "?limit=1000").await, [0; 0]);
}

#[tokio::test]
async fn jobs_are_listed_by_door_time_and_key() {
    let bench = Bench::new();
    let key = json!({ "queue": "a", "unique": { "key": "k" } });
    bench.submit(key).await;
    let own = Submit::new(JobId(0), "a".into(), Origin::Workq, BytesRef::empty(Type::Bytes));
    opened(bench.engine.jobs().submit(new_job(own, b"x"))).unwrap();
    drop(bench.engine.turn());
    bench.pass(60_000);
    bench.submit(json!({ "queue": "a" })).await;
    bench.call(Method::POST, "/api/v1/jobs/3/cancel").await;
    bench.pass(60_000);
    bench.submit(json!({ "queue": "b" })).await;
    assert_eq!(ids(&bench, "?door=workq").await, [2]);
    assert_eq!(ids(&bench, "?door=api").await, [1, 3, 4]);
    assert_eq!(ids(&bench, "?door=api&status=dead").await, [3]);
    assert_eq!(ids(&bench, "?door=workq&status=dead").await, [0; 0]);
    assert_eq!(ids(&bench, "?status=ready,dead&queue=a").await, [1, 2, 3]);
    // 03:04:05.678, a minute later, and two.
    assert_eq!(ids(&bench, "?created_from=2026-01-02T03:05:05.678Z").await, [3, 4]);
    assert_eq!(ids(&bench, "?created_from=2026-01-02T03:05:05.679Z").await, [4]);
    assert_eq!(ids(&bench, "?created_before=2026-01-02T03:05:05.678Z").await, [1, 2]);
    let hour = "?created_from=2026-01-02T03:04:30Z&created_before=2026-01-02T03:05:30Z";
    assert_eq!(ids(&bench, hour).await, [3]);
    assert_eq!(ids(&bench, "?unique_key=k&queue=a").await, [1]);
    assert_eq!(ids(&bench, "?unique_key=k&queue=b").await, [0; 0]);
    assert_eq!(ids(&bench, "?unique_key=other&queue=a").await, [0; 0]);
    assert_eq!(ids(&bench, "?unique_key=k&queue=a&status=done").await, [0; 0]);
    assert_eq!(ids(&bench, "?queue=a&queue_base64=YQ==").await, [1, 2, 3]);
    assert_eq!(ids(&bench, "?queue=a&queue_base64=Yg==").await, [0; 0], "no job is in two");
    for (query, code) in [
        ("unique_key=", "out_of_range"),
        ("door=front", "out_of_range"),
        ("created_from=soon", "out_of_range"),
        ("status=ready,", "out_of_range"),
        ("text=", "out_of_range"),
        ("colour=red", "bad_field"),
        ("limit=0", "out_of_range"),
        ("limit=ten", "bad_field"),
        ("cursor=-1", "out_of_range"),
    ] {
        bench.get(&format!("/api/v1/jobs?{query}")).await.is_problem(400, code);
    }
}

/// All pages of a list, page by page.
async fn pages(bench: &Bench, query: &str) -> Vec<u64> {
    let mut all = Vec::new();
    let mut cursor = String::new();
    for _ in 0..1000 {
        let answer = bench.get(&format!("/api/v1/jobs{query}{cursor}")).await.json();
        let jobs = answer["jobs"].as_array().unwrap();
        all.extend(jobs.iter().map(|job| job["id"].as_u64().unwrap()));
        let Some(next) = answer["next_cursor"].as_str() else { return all };
        cursor = format!("&cursor={next}");
    }
    panic!("{query} has no end: {all:?}");
}

#[tokio::test]
async fn a_list_may_begin_with_the_newest_job() {
    let bench = Bench::new();
    for number in 1..=400 {
        let tags = if number % 7 == 0 { vec!["seventh"] } else { vec![] };
        bench.submit(json!({ "queue": "q", "payload": number % 5, "tags": tags })).await;
    }
    for id in [3, 399] {
        bench.call(Method::POST, &format!("/api/v1/jobs/{id}/cancel")).await;
    }
    assert_eq!(ids(&bench, "?order=desc&limit=3").await, [400, 399, 398]);
    assert_eq!(ids(&bench, "?order=desc&limit=3&cursor=398").await, [397, 396, 395]);
    assert_eq!(ids(&bench, "?order=asc&limit=2").await, [1, 2]);
    for query in ["", "&status=dead", "&status=ready", "&tag=seventh", "&text=4", "&queue=no"] {
        for limit in [1, 7, 150, 1000] {
            let query = format!("{query}&limit={limit}");
            let mut back = pages(&bench, &format!("?order=desc{query}")).await;
            back.reverse();
            assert_eq!(back, pages(&bench, &format!("?order=asc{query}")).await, "{query}");
        }
    }
    bench.pass(60_000);
    bench.submit(json!({ "queue": "q" })).await;
    let recent = "&created_from=2026-01-02T03:05:00Z";
    assert_eq!(pages(&bench, &format!("?order=desc{recent}")).await, [401]);
    let older = "&created_before=2026-01-02T03:05:00Z&limit=2";
    assert_eq!(ids(&bench, &format!("?order=desc{older}")).await, [400, 399]);
    bench.get("/api/v1/jobs?order=down").await.is_problem(400, "bad_field");
}

#[tokio::test]
async fn a_unique_key_is_found_in_every_queue_that_has_it() {
    let bench = Bench::new();
    for queue in ["a", "b", "c"] {
        bench.submit(json!({ "queue": queue })).await;
        bench.submit(json!({ "queue": queue, "unique": { "key": "k" } })).await;
    }
    bench.call(Method::POST, "/api/v1/jobs/4/cancel").await;
    assert_eq!(ids(&bench, "?unique_key=k").await, [2, 6], "a dead job holds no key");
    assert_eq!(ids(&bench, "?unique_key=k&limit=1&cursor=3").await, [6]);
    assert_eq!(ids(&bench, "?unique_key=other").await, [0; 0]);
    let body = json!({ "filter": { "unique_key": "k" }, "action": "park" });
    let answer = bench.post("/api/v1/jobs/bulk", body).await.json();
    assert_eq!((&answer["matched"], &answer["changed"]), (&json!(2), &json!(2)));
}

#[tokio::test]
async fn jobs_are_found_by_a_field_of_their_payload() {
    let bench = Bench::new();
    let orders = [
        json!({ "queue": "q", "payload": { "customer": "acme", "order": { "total": 7 } } }),
        json!({ "queue": "q", "payload": { "customer": "acme", "paid": true, "lines": [1, 2.5] } }),
        json!({ "queue": "q", "payload": { "customer": 7, "note": null } }),
        // {"customer":"acme"} as bytes, as MessagePack, and something that is neither.
        json!({ "queue": "q", "payload_base64": "eyJjdXN0b21lciI6ImFjbWUifQ==" }),
        json!({ "queue": "q", "payload_base64": "gahjdXN0b21lcqRhY21l", "payload_type": "msgpack" }),
        json!({ "queue": "q", "payload_base64": "/w==" }),
        json!({ "queue": "q", "payload": { "customer": "acme=b" } }),
    ];
    for order in orders {
        bench.submit(order).await;
    }
    for (field, expected) in [
        ("/customer=acme", &[1, 2, 4, 5][..]),
        ("/customer=acme=b", &[7]),
        ("/customer=7", &[3]),
        ("/customer", &[1, 2, 3, 4, 5, 7]),
        ("/order/total=7", &[1]),
        ("/order/total=7.0", &[1]),
        ("/order/total=%227%22", &[]),
        ("/lines/1=2.5", &[2]),
        ("/paid=true", &[2]),
        ("/note=null", &[3]),
        ("/note=", &[]),
        ("/nothing", &[]),
    ] {
        assert_eq!(ids(&bench, &format!("?field={field}")).await, expected, "{field}");
    }
    assert_eq!(ids(&bench, "?field=/customer=acme&text=paid").await, [2]);
    assert_eq!(ids(&bench, "?field=/customer=acme&ids=2,3,5&limit=1").await, [2]);
    for field in
        ["", "=7", "customer", "/a~2", &format!("/a={}", "x".repeat(1_025)), &"/a".repeat(33)]
    {
        let refused = bench.get(&format!("/api/v1/jobs?field={field}")).await;
        refused.is_problem(400, "out_of_range");
    }
    let most = format!("?field=/a={}", "x".repeat(1_024));
    assert_eq!(ids(&bench, &most).await, [0; 0]);
}

#[tokio::test]
async fn a_job_is_found_by_its_idempotency_key_also_when_it_is_done() {
    let bench = Bench::new();
    let mut request =
        crate::harness::json(Method::POST, "/api/v1/jobs", &json!({ "queue": "a", "payload": 7 }));
    request.headers_mut().insert("idempotency-key", "order 7".parse().unwrap());
    bench.send(request).await;
    bench.submit(json!({ "queue": "a" })).await;
    assert_eq!(ids(&bench, "?idempotency_key=order%207").await, [1]);
    bench.call(Method::POST, "/api/v1/jobs/1/cancel").await;
    assert_eq!(ids(&bench, "?idempotency_key=order%207").await, [1]);
    assert_eq!(ids(&bench, "?idempotency_key=order%208").await, [0; 0]);
}

#[tokio::test]
async fn jobs_are_found_by_a_text_in_their_payload() {
    let bench = Bench::new();
    for name in ["Ann", "Bob", "Annika"] {
        bench.submit(json!({ "queue": "a", "payload": { "name": name } })).await;
    }
    bench.submit(json!({ "queue": "b", "payload_base64": "QW5uAP8=" })).await;
    bench.call(Method::POST, "/api/v1/jobs/3/cancel").await;
    assert_eq!(ids(&bench, "?text=Ann").await, [1, 3, 4]);
    assert_eq!(ids(&bench, "?text=Ann&queue=a&status=ready").await, [1]);
    assert_eq!(ids(&bench, "?text=%22name%22:%22Bob%22").await, [2]);
    assert_eq!(ids(&bench, "?text=ann").await, [0; 0], "byte for byte");
}

#[tokio::test]
async fn a_search_through_more_than_one_request_may_goes_on_from_its_cursor() {
    let bench = Bench::new();
    let large = "x".repeat(900_000);
    for batch in 0..10 {
        let jobs: Vec<Value> = (0..8)
            .map(|n| {
                let hit = if (batch, n) == (9, 7) { "needle" } else { "" };
                json!({ "queue": "a", "payload": format!("{large}{hit}") })
            })
            .collect();
        let answer = bench.post("/api/v1/jobs/batch", json!({ "jobs": jobs })).await.json();
        assert_eq!(answer["taken"], 8, "{answer}");
    }
    let first = bench.get("/api/v1/jobs?text=needle").await.json();
    assert_eq!((&first["partial"], &first["jobs"]), (&json!(true), &json!([])));
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = bench.get(&format!("/api/v1/jobs?text=needle&cursor={cursor}")).await.json();
    assert_eq!(second["jobs"][0]["id"], 80);
    assert_eq!((&second["partial"], &second["next_cursor"]), (&Value::Null, &Value::Null));
}

#[tokio::test]
async fn a_list_waits_for_what_it_tells_and_not_for_what_it_does_not() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "a" })).await;
    bench.log.hold(true);
    let own = Submit::new(JobId(0), "b".into(), Origin::Api, BytesRef::empty(Type::Bytes));
    opened(bench.engine.jobs().submit(new_job(own, b"x"))).unwrap();
    assert_eq!(ids(&bench, "?queue=a").await, [1]);
    let asked = ids(&bench, "?queue=b");
    let mut asked = std::pin::pin!(asked);
    let early = tokio::time::timeout(std::time::Duration::from_millis(50), &mut asked).await;
    assert!(early.is_err(), "job 2 is not on disk yet");
    bench.log.hold(false);
    assert_eq!(asked.await, [2]);
}

async fn total(bench: &Bench, query: &str) -> (Value, Value) {
    let page = bench.get(&format!("/api/v1/jobs?limit=1&count=true{query}")).await.json();
    assert!(page["jobs"].as_array().unwrap().len() <= 1, "{page}");
    (page["total"].clone(), page["total_is_at_least"].clone())
}

#[tokio::test]
async fn a_list_counts_what_it_means_if_it_is_asked_to() {
    let bench = Bench::new();
    crowd(&bench).await;
    for (query, count) in [
        ("", 8),
        ("&queue=a", 4),
        ("&queue=nowhere", 0),
        ("&status=dead", 2),
        ("&status=dead,ready&queue=b", 2),
        ("&tag=red", 4),
        ("&tag=big&status=dead", 2),
        ("&door=workq", 0),
        ("&created_before=2020-01-01T00:00:00Z", 0),
        ("&created_from=2020-01-01T00:00:00Z", 8),
        ("&cursor=7", 8),
        ("&order=desc&queue=a", 4),
    ] {
        assert_eq!(total(&bench, query).await, (json!(count), Value::Null), "{query}");
    }
    assert_eq!(bench.get("/api/v1/jobs?limit=1").await.json()["total"], Value::Null);
    bench.get("/api/v1/jobs?count=yes").await.is_problem(400, "bad_field");
}

#[tokio::test]
async fn what_one_request_cannot_count_is_told_as_at_least() {
    let bench = Bench::new();
    for _ in 0..30_000 {
        let empty = BytesRef::empty(Type::Bytes);
        let mut submit = Submit::new(JobId(0), "q".into(), Origin::Workq, empty);
        submit.tags = vec!["odd".into()];
        opened(bench.engine.jobs().submit(new_job(submit, b""))).unwrap();
    }
    drop(bench.engine.turn());
    assert_eq!(total(&bench, "&queue=q").await, (json!(30_000), Value::Null));
    let (count, is_at_least) = total(&bench, "&tag=odd").await;
    assert_eq!(is_at_least, true);
    assert!((25_600..30_000).contains(&count.as_u64().unwrap()), "{count}");
}

#[tokio::test]
async fn a_list_tells_how_payloads_begin_if_it_is_asked_to() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "q", "payload": {"to": "ann"} })).await;
    bench.submit(json!({ "queue": "q", "payload": "grüße" })).await;
    bench.submit(json!({ "queue": "q", "payload_base64": "/wAB" })).await;
    bench.submit(json!({ "queue": "q" })).await;
    let begin = async |bytes: u32| {
        let page = bench.get(&format!("/api/v1/jobs?payload_preview={bytes}")).await.json();
        let jobs = page["jobs"].as_array().unwrap().iter();
        let answer = |job: &Value| {
            let base64 = &job["payload_preview_base64"];
            if base64.is_null() { job["payload_preview"].clone() } else { base64.clone() }
        };
        jobs.map(answer).collect::<Vec<Value>>()
    };
    assert_eq!(begin(256).await, ["{\"to\":\"ann\"}", "\"grüße\"", "/wAB", ""]);
    // The fourth byte is the first half of a letter.
    assert_eq!(begin(4).await, ["{\"to", "\"gr", "/wAB", ""]);
    assert_eq!(begin(1).await, ["{", "\"", "/w==", ""]);
    let page = bench.get("/api/v1/jobs").await.json();
    assert_eq!(page["jobs"][0]["payload_preview"], Value::Null);
    for wrong in ["0", "257", "x", "-1"] {
        let answer = bench.get(&format!("/api/v1/jobs?payload_preview={wrong}")).await;
        assert_eq!(answer.status, 400, "{wrong}");
    }
}

#[tokio::test]
async fn jobs_are_found_by_their_numbers() {
    let bench = Bench::new();
    crowd(&bench).await;
    assert_eq!(ids(&bench, "?ids=7,2,2,999").await, [2, 7]);
    assert_eq!(ids(&bench, "?ids=7,2,4&order=desc").await, [7, 4, 2]);
    assert_eq!(ids(&bench, "?ids=1,2,3,4,5&queue=a&status=dead").await, [4], "all must match");
    assert_eq!(ids(&bench, "?ids=1,2&tag=big").await, [0; 0]);
    assert_eq!(ids(&bench, "?ids=0").await, [0; 0]);
    for order in ["asc", "desc"] {
        let mut found = pages(&bench, &format!("?ids=1,3,5,8&limit=1&order={order}")).await;
        found.sort_unstable();
        assert_eq!(found, [1, 3, 5, 8], "{order}");
    }
    let many = |count: usize| vec!["1"; count].join(",");
    assert_eq!(ids(&bench, &format!("?ids={}", many(512))).await, [1]);
    for wrong in [many(513).as_str(), "", "1,", "-1", "one", "99999999999999999999"] {
        let query = format!("/api/v1/jobs?ids={wrong}");
        bench.get(&query).await.is_problem(400, "out_of_range");
    }
    let counted = bench.get("/api/v1/jobs?ids=2,3&count=true").await.json();
    assert_eq!(counted["total"], 2);
}
