//! The limits on the cost of queries. Nothing here measures time: a query that takes too long is
//! ended and refused, and one that would take SQLite minutes is answered before the test's time is
//! over.

use std::time::Duration;

use axum::http::StatusCode;
use serde_json::json;
use spindle_jobq::Options;

use crate::harness::Bench;

/// A list and a poll with this as a term.
fn bodies(expression: &str) -> [(&'static str, String); 2] {
    let query = json!([["=", expression, "1"]]);
    [
        ("/api/v0/job", json!({"query": query}).to_string()),
        ("/api/v0/job/poll", json!({"query": query, "state": ["TAKEN"]}).to_string()),
    ]
}

async fn is_refused(bench: &Bench, expression: &str, code: &str) {
    for (path, body) in bodies(expression) {
        let reply = bench.post(path, &body).await;
        assert_eq!(reply.json()["code"], code, "{path} {expression}: {}", reply.text());
        reply.is_refused(400, code);
    }
}

/// Products of two lengths in SQLite's own functions. They are answered: nothing matches.
#[tokio::test]
async fn searches_for_long_texts_in_long_texts_are_answered() {
    let bench = Bench::new();
    bench.create(&format!("\"{}\"", "a".repeat(1_000_000))).await;
    let part = "printf('%.500000c', 'a')";
    for expression in [
        format!("instr(payload, {part} || 'b')"),
        format!("instr(printf('%.1000000c', 'a'), {part} || 'b')"),
        format!("length(replace(payload, {part} || 'b', ''))"),
        format!("length(trim(payload, replace({part}, 'a', 'b') || 'c'))"),
        format!("payload LIKE {part} || '%'"),
        "payload LIKE '%a%a%a%a%a%a%a%b%'".to_owned(),
    ] {
        let [(list, listed), (poll, polled)] = bodies(&expression);
        let reply = bench.post(list, &listed).await;
        if expression.starts_with("payload LIKE printf") {
            // Longer than a pattern may be.
            reply.is_refused(400, "bad_query");
            continue;
        }
        assert_eq!((reply.status, reply.text()), (StatusCode::OK, "{\"jobs\":[]}\n"));
        bench.post(poll, &polled).await.is_refused(404, "no_match");
    }
}

#[tokio::test]
async fn texts_that_grow_over_the_limit_are_refused_and_never_no_match() {
    let bench = Bench::new();
    bench.create("\"aaaa\"").await;
    for expression in [
        "printf('%.9900000c', 'a')",
        "length(printf('%.9900000c', 'a'))",
        "format('%9900000d', 1)",
        "length(replace(printf('%.1000000c', 'a'), 'a', 'bbbbbbbbbb'))",
        "hex(printf('%.1000000c', payload))",
        "length(printf('%.1000000c', payload) || printf('%.1000000c', payload))",
        "quote(replace(printf('%.1000000c', payload), char(34), char(39)))",
        "json_array(printf('%.1000000c', payload), printf('%.1000000c', payload))",
        "strftime(replace(printf('%.500000c', payload), '\"', '%J'))",
    ] {
        is_refused(&bench, expression, "query_too_costly").await;
    }
    let limit = "replace(printf('%.524288c', 'a'), 'a', 'bb')";
    let most = bodies(&format!("length({limit}) / 1048576"));
    assert_eq!(bench.post(most[0].0, &most[0].1).await.json()["jobs"][0]["id"], 1);
    is_refused(&bench, &format!("length({limit} || 'c') / 1048577"), "query_too_costly").await;
    assert_eq!(bench.job(1).await["state"], json!(["CREATED"]));
}

#[tokio::test]
async fn functions_that_take_products_of_lengths_and_make_bytes_out_of_nothing_are_not_there() {
    let bench = Bench::new();
    bench.create("1").await;
    for expression in [
        "json_patch(payload, payload)",
        "json_pretty(payload)",
        "unhex('zz', 'z')",
        "zeroblob(1000000000)",
        "length(zeroblob(1))",
        "randomblob(1)",
    ] {
        is_refused(&bench, expression, "bad_query").await;
    }
}

/// SQLite asks for the time between jobs and terms only, and a single one can be the whole query.
#[tokio::test]
async fn what_takes_longer_than_it_may_is_never_no_match() {
    let options = Options { query_time: Duration::from_millis(5), ..Options::default() };
    let bench = Bench::with(options);
    bench.create(&format!("\"{}\"", "a".repeat(1_000_000))).await;
    let backtracks = format!("payload LIKE '%{}b%'", "a".repeat(250));
    let sets = format!("payload GLOB '*{}b*'", "[^b]".repeat(60));
    let parts: Vec<String> =
        (0..30).map(|n| format!("json_valid('[' || payload || ',{n}]')")).collect();
    for expression in [backtracks, sets, parts.join(" + ")] {
        is_refused(&bench, &expression, "query_too_costly").await;
    }
    assert_eq!(bench.job(1).await["state"], json!(["CREATED"]));
}

#[tokio::test]
async fn few_jobs_that_take_long_are_no_longer_than_many_that_take_little() {
    let options = Options { query_time: Duration::from_millis(5), ..Options::default() };
    let bench = Bench::with(options);
    for _ in 0..200 {
        bench.create("1").await;
    }
    is_refused(&bench, "length(hex(printf('%.400000c', id)))", "query_too_costly").await;
    assert_eq!(bench.matches("[[\"=\", \"id\", 7]]").await, [7]);
}

#[tokio::test]
async fn a_query_names_columns_and_functions_192_times_at_most() {
    let bench = Bench::new();
    let id = bench.create("1").await;
    let query = |names: usize| {
        let of = |names: usize| format!("1{}", " + (id > 0)".repeat(names));
        json!([[">", of(names / 2), "0"], [">", of(names - names / 2), "0"]]).to_string()
    };
    assert_eq!(bench.matches(&query(192)).await, [id]);
    let body = format!("{{\"query\": {}, \"state\": 1}}", query(193));
    for path in ["/api/v0/job", "/api/v0/job/poll"] {
        bench.post(path, &body).await.is_refused(400, "query_too_costly");
    }
    // As many terms as there may be: lists are compared by what they mean, which names three.
    let term = json!(["!=", "state", ["X"]]);
    let all = serde_json::Value::from(vec![term; 64]).to_string();
    assert_eq!(bench.matches(&all).await, [id]);
}

#[tokio::test]
async fn a_query_of_more_parts_than_sqlite_takes_is_too_costly() {
    let bench = Bench::new();
    bench.create("1").await;
    let long = format!("id{}", " + 1".repeat(100));
    let wide = format!("id IN (0{})", format!(", {long}").repeat(30));
    let query = serde_json::Value::from(vec![json!(["=", wide, 1]); 64]);
    let reply = bench.post("/api/v0/job", &json!({"query": query}).to_string()).await;
    reply.is_refused(400, "query_too_costly");
}

#[tokio::test]
async fn a_function_takes_twelve_arguments_and_a_list_many_more() {
    let bench = Bench::new();
    let id = bench.create("1").await;
    let of = |arguments: usize| {
        let call = format!("max(id{}) > 0", ", 1".repeat(arguments - 1));
        json!([["=", call, 1]]).to_string()
    };
    assert_eq!(bench.matches(&of(12)).await, [id]);
    let body = format!("{{\"query\": {}}}", of(13));
    bench.post("/api/v0/job", &body).await.is_refused(400, "bad_query");
    let listed = format!("id IN (0{})", (1..3_000).map(|n| format!(",{n}")).collect::<String>());
    assert_eq!(bench.matches(&json!([["=", listed, 1]]).to_string()).await, [id]);
}

/// The server does not wait for a query when it stops, and tells the client so.
#[tokio::test]
async fn a_stopping_door_ends_its_query_and_changes_nothing() {
    let options = Options { query_time: Duration::from_secs(3_600), ..Options::default() };
    let bench = Bench::with(options);
    bench.create(&format!("\"{}\"", "a".repeat(1_000_000))).await;
    let endless: Vec<_> = (0..64)
        .map(|n| json!(["NOT LIKE", "payload", format!("'%{}{n}%'", "a".repeat(240))]))
        .collect();
    let slow = json!({"query": endless, "state": ["TAKEN"]}).to_string();
    let all = "{\"query\": [[\">\", \"id\", 0]], \"state\": [\"TAKEN\"]}";
    let stop = async {
        // Those before it have been asked by now.
        bench.create("2").await;
        bench.door.stop();
    };
    let (poll, list, waits, ()) = tokio::join!(
        bench.post("/api/v0/job/poll", &slow),
        bench.post("/api/v0/job", &slow),
        bench.post("/api/v0/job/poll", all),
        stop
    );
    for reply in [poll, list, waits, bench.post("/api/v0/job/poll", all).await] {
        reply.is_refused(503, "stopping");
    }
    assert_eq!(bench.job(1).await["state"], json!(["CREATED"]));
}

/// Whatever holds the thread that answers queries: here it waits for the engine.
#[tokio::test]
async fn a_stopping_door_answers_also_who_waits_for_a_thread_that_does_not_come_back() {
    let bench = Bench::new();
    bench.create("1").await;
    let (let_go, held) = std::sync::mpsc::channel::<()>();
    let (locked, is_locked) = std::sync::mpsc::channel();
    let engine = bench.engine.clone();
    let holder = std::thread::spawn(move || {
        engine.inspect(|_| {
            locked.send(()).unwrap();
            held.recv().unwrap();
        });
    });
    is_locked.recv().unwrap();
    let stop = async { bench.door.stop() };
    let asked = async { tokio::join!(bench.get("/api/v0/job"), stop) };
    let answered = tokio::time::timeout(Duration::from_secs(30), asked).await;
    let_go.send(()).unwrap();
    holder.join().unwrap();
    answered.expect("an answer").0.is_refused(503, "stopping");
}
