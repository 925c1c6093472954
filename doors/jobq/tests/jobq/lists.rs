//! Lists and queries.

use serde_json::{Value, json};

use crate::harness::Bench;

async fn filled() -> Bench {
    let bench = Bench::new();
    bench.create("{\"payload\": {\"msg\": \"Hello, world!\"}, \"state\": [\"CREATED\"]}").await;
    bench.create("{\"payload\": 1, \"state\": null}").await;
    bench.create("{\"payload\": null, \"state\": {\"b\": 1, \"a\": 2}}").await;
    bench.create("{\"payload\": \"x\", \"state\": \"str\"}").await;
    bench
}

/// What a list says of its jobs' numbers and states, as the document's examples show it.
fn short(list: &Value) -> Value {
    let jobs = list["jobs"].as_array().unwrap().iter();
    jobs.map(|job| json!({"id": job["id"], "state": job["state"]})).collect()
}

#[tokio::test]
async fn a_list_tells_whole_jobs_in_the_order_of_their_numbers() {
    let bench = filled().await;
    bench.ok("/api/v0/job/2/event", "\"seen\"").await;
    bench.pass(2_000);
    bench.ok("/api/v0/job/1/state", "[\"X\", 1.10]").await;
    let all = bench.get("/api/v0/job").await.json();
    let states = json!([
        {"id": 1, "state": ["X", 1.1]},
        {"id": 2, "state": null},
        {"id": 3, "state": {"a": 2, "b": 1}},
        {"id": 4, "state": "str"},
    ]);
    assert_eq!(short(&all), states);
    for job in all["jobs"].as_array().unwrap() {
        let shown = bench.get(&format!("/jobq/newest/api/v0/job/{}", job["id"])).await;
        assert_eq!(*job, shown.json());
    }
    for body in ["", "{}", "{\"query\": []}"] {
        assert_eq!(bench.ok("/api/v0/job", body).await, all, "{body:?}");
    }
}

/// The copy that queries run on has a part of them only.
#[tokio::test]
async fn a_list_tells_long_jobs_whole_and_queries_see_null_for_what_is_too_long() {
    let bench = Bench::new();
    let of = |letters: usize| format!("\"{}\"", "x".repeat(letters - 2));
    for payload in [of(1 << 20), of((1 << 20) + 1), of(3)] {
        bench.create(&payload).await;
    }
    // Newer than those in memory are a page on disk, and the rest.
    for n in 0..3 {
        bench.ok("/api/v0/job/3/event", &of(200 * 1024 + n)).await;
    }
    let all = bench.get("/api/v0/job").await.json();
    assert_eq!(all["jobs"].as_array().unwrap().len(), 3);
    for job in all["jobs"].as_array().unwrap() {
        let shown = bench.get(&format!("/jobq/newest/api/v0/job/{}", job["id"])).await;
        assert!(*job == shown.json(), "job {}", job["id"]);
    }
    assert_eq!(bench.matches("[[\"IS\", \"payload\", null]]").await, [2]);
    assert_eq!(bench.matches("[[\"=\", \"length(payload)\", 1048576]]").await, [1]);
    let poll = "{\"query\": [[\"=\", \"id\", 2]], \"state\": 1}";
    let polled = bench.ok("/api/v0/job/poll", poll).await;
    assert_eq!(polled["payload"].as_str().map(str::len), Some((1 << 20) - 1));
}

#[tokio::test]
async fn a_list_that_grows_too_large_is_refused_also_by_jobs_the_copy_has_not() {
    let options = spindle_jobq::Options { answer_bytes_max: 2 << 20, ..Default::default() };
    let bench = Bench::with(options);
    bench.create(&format!("\"{}\"", "x".repeat(1_100_000))).await;
    assert_eq!(bench.matches("[]").await, [1]);
    bench.create(&format!("\"{}\"", "x".repeat(1_100_000))).await;
    bench.get("/api/v0/job").await.is_refused(400, "query_too_costly");
    assert_eq!(bench.matches("[[\">\", \"id\", 1]]").await, [2]);
}

#[tokio::test]
async fn a_list_may_be_as_long_as_it_may_and_no_byte_longer() {
    let fits = async |answer_bytes_max| {
        let options = spindle_jobq::Options { answer_bytes_max, ..Default::default() };
        let bench = Bench::with(options);
        for payload in ["\"a\"", "\"bb\""] {
            bench.create(payload).await;
        }
        bench.get("/api/v0/job").await
    };
    let whole = fits(1 << 20).await;
    // What closes the list is not counted.
    let limit = whole.text().len() - "]}\n".len();
    assert_eq!(fits(limit).await.text(), whole.text());
    fits(limit - 1).await.is_refused(400, "query_too_costly");
}

#[tokio::test]
async fn both_examples_of_the_document_work_as_printed() {
    let bench = filled().await;
    let body = r#"{"query": [["IS", "json_extract(state, '$[0]')", "CREATED"]]}"#;
    let found = bench.ok("/api/v0/job", body).await;
    assert_eq!(short(&found), json!([{"id": 1, "state": ["CREATED"]}]));
    let body = r#"{"query": [["IS", "j.state", null]], "state":["ASSIGNED", {"node": 1}]}"#;
    let polled = bench.ok("/api/v0/job/poll", body).await;
    assert_eq!((&polled["id"], &polled["state"]), (&json!(2), &json!(["ASSIGNED", {"node": 1}])));
    assert_eq!((&polled["payload"], &polled["events"][1][1]["old"]), (&json!(1), &json!(null)));
}

#[tokio::test]
async fn queries_are_expressions_of_sqlite_over_a_jobs_columns() {
    let bench = filled().await;
    for (query, ids) in [
        (r#"[["=", "json_extract(state, '$[0]')", "'CREATED'"]]"#, &[1][..]),
        (r#"[["LIKE", "payload", "'%Hello%'"]]"#, &[1]),
        (r#"[[">", "id", "1"], ["<", "id", "4"]]"#, &[2, 3]),
        (r#"[["=", "id", "1"]]"#, &[1]),
        (r#"[["=", "state", {"a": 2, "b": 1}]]"#, &[3]),
        (r#"[["IS", "payload", null]]"#, &[3]),
        (r#"[["=", "events ->> '$[0][0]'", "job_created"]]"#, &[1, 2, 3, 4]),
        (r#"[[">=", "modified", 1767323045]]"#, &[1, 2, 3, 4]),
        (r#"[[">", "modified", 1767323045]]"#, &[]),
        (r#"[["not  like", "state", "'%E%'"], ["GLOB", "state", "'*s*'"]]"#, &[4]),
    ] {
        assert_eq!(bench.matches(query).await, ids, "{query}");
    }
}

#[tokio::test]
async fn a_limit_is_honoured() {
    let bench = filled().await;
    for (limit, ids) in [(0, &[][..]), (1, &[2]), (2, &[2, 3]), (99, &[2, 3, 4])] {
        let body = format!("{{\"query\": [[\">\", \"id\", \"1\"]], \"limit\": {limit}}}");
        let found = bench.ok("/api/v0/job", &body).await;
        let found: Vec<u64> = found["jobs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|job| job["id"].as_u64().unwrap())
            .collect();
        assert_eq!(found, ids);
    }
    for limit in ["\"x\"", "-1", "1.5", "[]"] {
        let body = format!("{{\"limit\": {limit}}}");
        bench.post("/api/v0/job", &body).await.is_refused(400, "bad_body");
    }
}

#[tokio::test]
async fn what_is_no_query_is_refused_and_sqlites_message_is_told() {
    let bench = filled().await;
    for query in [
        "5",
        "\"id > 1 AND id < 4\"",
        "[\"id = 1\"]",
        "[[\"true\"]]",
        "[[\"FOO\", \"id\", \"1\"]]",
        "[[\"IN\", \"id\", \"(1)\"]]",
        "[[\"=\", \"(select 1)\", \"1\"]]",
        "[[\"=\", \"id\", \"1; delete from job\"]]",
        "[[\"=\", \"id) OR (1\", \"1\"]]",
    ] {
        let body = format!("{{\"query\": {query}}}");
        bench.post("/api/v0/job", &body).await.is_refused(400, "bad_query");
    }
    for body in ["x", "[]", "5"] {
        bench.post("/api/v0/job", body).await.is_refused(400, "bad_body");
    }
    let reply = bench.post("/api/v0/job", "{\"query\": [[\"=\", \"nosuch\", 1]]}").await;
    reply.is_refused(400, "bad_query");
    assert!(reply.text().contains("no such column: nosuch"), "{}", reply.text());
    assert_eq!(bench.matches("[]").await, [1, 2, 3, 4]);
}

#[tokio::test]
async fn one_job_that_spoils_a_query_spoils_no_other_query() {
    let bench = filled().await;
    let query = "{\"query\": [[\"=\", \"json(payload ->> '$')\", \"1\"]]}";
    bench.post("/api/v0/job", query).await.is_refused(400, "bad_query");
    assert_eq!(bench.matches("[[\"=\", \"id\", 4]]").await, [4]);
}

#[tokio::test]
async fn lists_follow_every_change_at_once() {
    let bench = filled().await;
    for round in 0..50 {
        let state = format!("[\"ROUND\", {round}]");
        bench.ok("/api/v0/job/3/state", &state).await;
        let query = format!("[[\"=\", \"state\", [\"ROUND\", {round}]]]");
        assert_eq!(bench.matches(&query).await, [3]);
        let id = bench.create(&format!("{{\"round\": {round}}}")).await;
        let query = format!("[[\"=\", \"payload ->> 'round'\", {round}]]");
        assert_eq!(bench.matches(&query).await, [id]);
    }
}

#[tokio::test]
async fn a_restarted_server_lists_what_it_had() {
    let bench = filled().await;
    bench.ok("/api/v0/job/2/state", "[\"X\"]").await;
    let before = bench.get("/api/v0/job").await.json();
    let job = bench.job(1).await;
    let bench = bench.restarted();
    assert_eq!(bench.get("/api/v0/job").await.json(), before);
    assert_eq!(bench.job(1).await, job);
    assert_eq!(bench.matches("[[\"LIKE\", \"payload\", \"'%Hello%'\"]]").await, [1]);
}
