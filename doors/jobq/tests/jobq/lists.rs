//! Lists and queries.

use serde_json::json;

use crate::bench::Bench;

async fn filled() -> Bench {
    let bench = Bench::new();
    bench.create("{\"payload\": {\"msg\": \"Hello, world!\"}, \"state\": [\"CREATED\"]}").await;
    bench.create("{\"payload\": 1, \"state\": null}").await;
    bench.create("{\"payload\": null, \"state\": {\"b\": 1, \"a\": 2}}").await;
    bench.create("{\"payload\": \"x\", \"state\": \"str\"}").await;
    bench
}

#[tokio::test]
async fn a_list_tells_numbers_and_states_in_the_order_of_numbers() {
    let bench = filled().await;
    let all = json!({"jobs": [
        {"id": 1, "state": ["CREATED"]},
        {"id": 2, "state": null},
        {"id": 3, "state": {"a": 2, "b": 1}},
        {"id": 4, "state": "str"},
    ]});
    assert_eq!(bench.get("/api/v0/job").await.json(), all);
    for body in ["", "{}", "{\"query\": []}"] {
        assert_eq!(bench.ok("/api/v0/job", body).await, all, "{body:?}");
    }
}

#[tokio::test]
async fn both_examples_of_the_document_work_as_printed() {
    let bench = filled().await;
    let body = r#"{"query": [["IS", "json_extract(state, '$[0]')", "CREATED"]]}"#;
    let found = bench.ok("/api/v0/job", body).await;
    assert_eq!(found, json!({"jobs": [{"id": 1, "state": ["CREATED"]}]}));
    let body = r#"{"query": [["IS", "j.state", null]], "state":["ASSIGNED", {"node": 1}]}"#;
    let polled = bench.ok("/api/v0/job/poll", body).await;
    assert_eq!(polled, json!({"id": 2, "state": ["ASSIGNED", {"node": 1}]}));
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
