//! Many jobs in one request, flows and batches of jobs.

use serde_json::{Value, json};
use spindle_core::JobId;
use spindle_router::Shard;

use crate::shards::Sharded;

fn shard_of(answer: &Value) -> u8 {
    Shard::of_job(JobId(answer["id"].as_u64().unwrap())).0
}

#[test]
fn each_job_of_many_goes_to_its_shard_and_the_answers_come_in_order() {
    let sharded = Sharded::new();
    let on = |shard| sharded.queue_on(shard, 0);
    let jobs = json!([
        { "queue": on(2), "ref": "a" },
        { "queue": "" },
        { "queue": on(0), "payload": { "n": 1 } },
        7,
        { "queue": on(2), "after": ["a"] },
        { "queue": on(1), "after": ["a"] },
        { "queue": on(1), "after": ["nobody"] },
        { "queue": on(1) },
    ]);
    let body = json!({ "jobs": jobs }).to_string();
    let key = [("idempotency-key", "order-4711")];
    let reply = sharded.send("POST", "/api/v1/jobs/batch", &key, Some(&body));
    reply.is(200);
    let answer = reply.json();
    let answers = answer["answers"].as_array().unwrap();
    let code = |place: usize| answers[place]["problem"]["code"].as_str().unwrap().to_owned();
    assert_eq!((&answer["taken"], &answer["refused"]), (&json!(4), &json!(4)), "{answer}");
    assert_eq!([0, 2, 4, 7].map(|place: usize| shard_of(&answers[place])), [2, 0, 2, 1]);
    assert_eq!((code(1), code(3)), ("out_of_range".into(), "bad_field".into()));
    assert_eq!((code(5), code(6)), ("several_shards".into(), "after_not_found".into()));
    let waiting = sharded.get(&format!("/api/v1/jobs/{}", answers[4]["id"])).json();
    assert_eq!(waiting["status"], "blocked");
    // The same request again is the same jobs.
    let again = sharded.send("POST", "/api/v1/jobs/batch", &key, Some(&body)).json();
    for place in [0, 2, 4, 7] {
        assert_eq!(again["answers"][place]["id"], answers[place]["id"]);
        assert_eq!(again["answers"][place]["existing"], true);
    }
}

#[test]
fn many_that_no_shard_takes_are_refused_as_by_one_server() {
    let sharded = Sharded::new();
    let (one, other) = (sharded.queue_on(0, 0), sharded.queue_on(1, 0));
    let path = "/api/v1/jobs/batch";
    sharded.post(path, json!({ "jobs": [] })).is_problem(400, "out_of_range");
    let too_many: Vec<Value> = (0..1001).map(|_| json!({ "queue": one })).collect();
    sharded.post(path, json!({ "jobs": too_many })).is_problem(400, "out_of_range");
    sharded.post(path, json!({ "jobs": [], "more": 1 })).is_problem(400, "bad_field");
    let twice =
        json!([{ "queue": one, "ref": "a" }, { "queue": other, "ref": "a", "after": ["a"] }]);
    sharded.post(path, json!({ "jobs": twice })).is_problem(400, "bad_field");
    let two = json!({ "jobs": [{ "queue": one }, { "queue": other }] });
    sharded.post(&format!("{path}?shard=0"), two.clone()).is_problem(422, "several_shards");
    let reply = sharded.send(
        "POST",
        path,
        &[("idempotency-key", "a"), ("idempotency-key", "b")],
        Some(&two.to_string()),
    );
    reply.is_problem(400, "out_of_range");
    let form = [("content-type", "text/plain")];
    let reply = sharded.send("POST", path, &form, Some(&two.to_string()));
    reply.is_problem(415, "unsupported_type");
    for queue in [one, other] {
        sharded.get(&format!("/api/v1/queues/{queue}")).is_problem(404, "queue_not_found");
    }
}

#[test]
fn jobs_of_a_shard_that_is_lost_are_refused_and_the_others_taken() {
    let sharded = Sharded::new();
    sharded.lose(1);
    let jobs = json!([{ "queue": sharded.queue_on(0, 0) }, { "queue": sharded.queue_on(1, 0) }]);
    let answer = sharded.post("/api/v1/jobs/batch", json!({ "jobs": jobs })).json();
    assert_eq!((&answer["taken"], &answer["refused"]), (&json!(1), &json!(1)));
    let problem = &answer["answers"][1]["problem"];
    assert_eq!((&problem["code"], &problem["shard"]), (&json!("shard_unavailable"), &json!(1)));
    let only = json!({ "jobs": [{ "queue": sharded.queue_on(1, 0) }] });
    sharded.post("/api/v1/jobs/batch", only).is_problem(503, "shard_unavailable");
    sharded
        .post("/api/v1/jobs", json!({ "queue": sharded.queue_on(1, 0) }))
        .is_problem(503, "shard_unavailable");
}

#[test]
fn flows_and_batches_are_on_one_shard() {
    let sharded = Sharded::new();
    let (one, other) = (sharded.queue_on(1, 0), sharded.queue_on(2, 0));
    let first = sharded.submit(json!({ "queue": one }));
    let path = "/api/v1/jobs";
    for after in [json!([first]), json!([first as f64])] {
        let refused = sharded.post(path, json!({ "queue": other, "after": after }));
        refused.is_problem(422, "several_shards");
        assert_eq!(refused.json()["shard"], 1);
        sharded.post(path, json!({ "queue": sharded.queue_on(1, 1), "after": after })).is(201);
    }
    // Of no shard is nowhere.
    let nowhere = 9_u64 << 45;
    sharded
        .post(path, json!({ "queue": one, "after": [nowhere] }))
        .is_problem(404, "after_not_found");

    let batch = sharded.post("/api/v1/batches", json!({ "queue": one }));
    batch.is(201);
    let id = batch.json()["id"].as_u64().unwrap();
    assert_eq!(Shard::of_job(JobId(id)), Shard(1));
    sharded.post(path, json!({ "queue": other, "batch": id })).is_problem(422, "several_shards");
    sharded.post(path, json!({ "queue": one, "batch": id })).is(201);
    let inner = json!({ "queue": other, "parent": id });
    sharded.post("/api/v1/batches", inner).is_problem(422, "several_shards");
    let jobs = sharded.get(&format!("/api/v1/jobs?batch={id}")).json();
    assert_eq!(jobs["jobs"].as_array().unwrap().len(), 1);
    for (method, action) in [("GET", ""), ("GET", "/wait"), ("POST", "/seal"), ("POST", "/cancel")]
    {
        let reply = sharded.call(method, &format!("/api/v1/batches/{id}{action}"), None);
        reply.is(200);
    }
    sharded.get("/api/v1/batches/x").is_problem(400, "out_of_range");
}

#[test]
fn what_an_export_lists_an_import_takes_in() {
    let from = Sharded::new();
    for shard in 0..3 {
        let first = from.submit(json!({ "queue": from.queue_on(shard, 0), "payload": shard }));
        from.submit(json!({ "queue": from.queue_on(shard, 0), "after": [first] }));
    }
    let (mut jobs, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = from.get(&format!("/api/v1/jobs/export?limit=4{cursor}")).json();
        jobs.extend(page["jobs"].as_array().unwrap().clone());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(jobs.len(), 6);
    let to = Sharded::over(2);
    let answer = to.post("/api/v1/jobs/import", json!({ "jobs": jobs })).json();
    for (job, answer) in jobs.iter().zip(answer["answers"].as_array().unwrap()) {
        let queue = job["queue"].as_str().unwrap();
        assert_eq!(Shard(shard_of(answer)), to.placement.of(queue.as_bytes()), "{answer}");
    }
    let waiting = to.get("/api/v1/jobs?status=blocked&count=true").json();
    assert_eq!(waiting["total"], 3);
}
