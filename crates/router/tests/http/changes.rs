//! What is changed on several shards.

use serde_json::{Value, json};

use crate::shards::Sharded;

#[test]
fn constraints_are_on_all_shards() {
    let sharded = Sharded::new();
    let path = "/api/v1/constraints/few";
    let limit = |most: u64| json!({ "running_max": most, "per_shard": true });
    let body = limit(2);
    let put = |headers: &[(&str, &str)], body: &Value| {
        sharded.send("PUT", path, headers, Some(&body.to_string()))
    };
    // A constraint that one shard alone has does not count for the condition.
    sharded.call("PUT", &format!("{path}?shard=2"), Some(body.clone())).is(201);
    sharded.call("PUT", &format!("{path}?shard=2"), Some(limit(9))).is(200);
    let created = put(&[("if-none-match", "*")], &body);
    created.is(201);
    let tag = created.header("etag").to_owned();
    let max_of = |shard: u8| {
        let reply = sharded.get(&format!("{path}?shard={shard}"));
        reply.json()["running_max"].clone()
    };
    assert_eq!([0, 1, 2].map(max_of), [json!(2), json!(2), json!(2)]);
    put(&[("if-none-match", "*")], &body).is_problem(412, "revision_mismatch");
    let body = limit(1);
    put(&[("if-match", &tag)], &body).is(200);
    put(&[("if-match", &tag)], &body).is_problem(412, "revision_mismatch");
    assert_eq!([0, 1, 2].map(max_of), [json!(1), json!(1), json!(1)]);
    assert_eq!(sharded.get(path).json()["running_max"], 1);

    // The limit holds for each shard.
    for shard in 0..2 {
        for _ in 0..2 {
            sharded.submit(json!({ "queue": sharded.queue_on(shard, 0) }));
        }
        let queue = sharded.queue_on(shard, 0);
        sharded.post("/api/v1/lease", json!({ "queues": [queue] })).is(200);
        sharded.post("/api/v1/lease", json!({ "queues": [queue] })).is(204);
    }
    let held = sharded.get(&format!("{path}/held")).json();
    assert_eq!(held["queues"].as_array().unwrap().len(), 2, "{held}");
    let shown = sharded.get(path);
    assert_eq!(shown.header("etag"), "\"2\"", "the first shard's");
    let sum = json!([{ "running": 2, "jobs": 4, "admits": false }]);
    assert_eq!(shown.json()["buckets"], sum);
    let list = sharded.get("/api/v1/constraints").json();
    assert_eq!(list["constraints"], json!([shown.json()]));
    assert_eq!(sharded.get(&format!("{path}/buckets")).json(), json!({ "buckets": sum }));

    // A constraint that an interrupted request has left on some shards is removed from all.
    sharded.call("DELETE", &format!("{path}?shard=0"), None).is(204);
    sharded.call("DELETE", path, None).is(204);
    sharded.call("DELETE", path, None).is_problem(404, "constraint_not_found");
    sharded.get(&format!("{path}?shard=2")).is_problem(404, "constraint_not_found");
    sharded.send("PUT", path, &[], Some("{")).is_problem(400, "bad_json");
    sharded.call("POST", "/api/v1/clock/accept", None).is(204);
    sharded.lose(2);
    put(&[], &body).is_problem(503, "shard_unavailable");
}

#[test]
fn one_limit_of_several_queues_needs_them_on_one_shard() {
    let sharded = Sharded::new();
    let path = "/api/v1/constraints/few";
    let put = |body: Value| sharded.call("PUT", path, Some(body));
    for body in [
        json!({ "running_max": 2 }),
        json!({ "running_max": 2, "queue_glob": "jobs.*" }),
        json!({ "running_max": 2, "queue_glob": "{jo*}.a", "per_shard": false }),
    ] {
        put(body).is_problem(422, "several_shards");
    }
    sharded.get(path).is_problem(404, "constraint_not_found");

    // Queues of one hash tag are on one shard, and not on that of their whole names.
    let of_tag = |number: usize| format!("{{jobs}}.{number}");
    let created = put(json!({ "running_max": 2, "queue_glob": "{jobs}.*" }));
    created.is(201);
    assert_eq!(created.json().get("per_shard"), None);
    for number in 0..4 {
        sharded.submit(json!({ "queue": of_tag(number) }));
    }
    let queues: Vec<String> = (0..4).map(of_tag).collect();
    let lease = || sharded.post("/api/v1/lease", json!({ "queues": queues }));
    lease().is(200);
    lease().is(200);
    lease().is(204);
    let shown = sharded.get(path).json();
    assert_eq!(shown["buckets"], json!([{ "running": 2, "jobs": 4, "admits": false }]));
    assert_eq!(shown["buckets_count"], 1);
    let to = format!("/api/v1/queues/{}/move?to=1", of_tag(0).replace('{', "%7B"));
    let moved = sharded.post(&to, json!({}));
    moved.is_problem(400, "bad_request");

    // A change of an existing constraint is refused like a new one.
    put(json!({ "running_max": 2, "per_shard": true })).is(200);
    assert_eq!(sharded.get(path).json()["per_shard"], true);
    put(json!({ "running_max": 2 })).is_problem(422, "several_shards");
    // One queue is always on one shard; what its settings say is known there.
    let queue = sharded.queue_on(2, 0);
    let by_field = json!({ "running_max": 1, "queue": queue, "per": "/user" });
    assert_eq!(put(by_field.clone()).json()["notes"].as_array().map(Vec::len), Some(1));
    let settings = format!("/api/v1/queues/{queue}/settings");
    sharded.call("PUT", &settings, Some(json!({ "bytes_type": "json" }))).is(200);
    assert_eq!(put(by_field).json().get("notes"), None);
    assert_eq!(sharded.get(path).json().get("notes"), None);
}

fn schedule(queue: &str) -> Value {
    json!({ "expression": "0 9 * * *", "job": { "queue": queue } })
}

#[test]
fn a_schedule_is_on_its_queues_shard_and_found_by_its_name() {
    let sharded = Sharded::new();
    let path = "/api/v1/schedules/daily";
    let put = |path: &str, queue: &str| sharded.call("PUT", path, Some(schedule(queue)));
    put(path, &sharded.queue_on(2, 0)).is(201);
    sharded.get(path).is(200);
    sharded.get(&format!("{path}?shard=1")).is_problem(404, "schedule_not_found");
    put(path, &sharded.queue_on(2, 1)).is(200);
    let moved = put(path, &sharded.queue_on(1, 0));
    moved.is_problem(422, "several_shards");
    assert_eq!(moved.json()["shard"], 2);
    let run = sharded.call("POST", &format!("{path}/run"), None);
    run.is(201);
    sharded.get(&format!("/api/v1/jobs/{}", run.json()["job"])).is(200);
    sharded.call("POST", &format!("{path}/pause"), None).is(200);
    sharded.call("DELETE", path, None).is(204);
    sharded.call("DELETE", path, None).is_problem(404, "schedule_not_found");
    put(path, &sharded.queue_on(1, 0)).is(201);
    sharded.call("PUT", path, Some(json!({ "expression": "never" }))).is_problem(400, "bad_field");
}

#[test]
fn all_schedules_are_put_where_they_belong() {
    let sharded = Sharded::new();
    let path = "/api/v1/schedules";
    let on = |shard| schedule(&sharded.queue_on(shard, 0));
    let put = |path: &str, set: Value| sharded.call("PUT", path, Some(json!({ "schedules": set })));
    let first = json!({ "a": on(0), "b": on(1), "c": on(2) });
    let created =
        json!({ "created": ["a", "b", "c"], "changed": [], "removed": [], "unchanged": 0 });
    assert_eq!(put("/api/v1/schedules?dry_run=true", first.clone()).json(), created);
    assert_eq!(sharded.get(path).json()["schedules"], json!([]));
    assert_eq!(put(path, first).json(), created);
    // One is refused: nothing changes.
    let wrong = json!({ "expression": "x", "job": { "queue": sharded.queue_on(2, 0) } });
    put(path, json!({ "d": on(0), "e": wrong })).is_problem(400, "out_of_range");
    let second = json!({ "a": on(0), "b": on(2), "d": on(1) });
    let changed = json!({ "created": ["d"], "changed": ["b"], "removed": ["c"], "unchanged": 1 });
    assert_eq!(put(path, second).json(), changed);
    let listed = sharded.get("/api/v1/schedules?limit=2").json();
    let names = |page: &Value| {
        let names = page["schedules"].as_array().unwrap().iter().map(|it| it["name"].clone());
        names.collect::<Vec<_>>()
    };
    assert_eq!(names(&listed), ["a", "b"]);
    let cursor = listed["next_cursor"].as_str().unwrap();
    let rest = sharded.get(&format!("/api/v1/schedules?limit=2&cursor={cursor}")).json();
    assert_eq!((names(&rest), rest.get("next_cursor")), (vec![json!("d")], None));
    put("/api/v1/schedules?shard=1", json!({ "x": on(0) })).is_problem(422, "several_shards");
    let one = put("/api/v1/schedules?shard=1", json!({})).json();
    assert_eq!(one["removed"], json!(["d"]));
}

#[test]
fn a_bulk_action_goes_from_shard_to_shard() {
    let sharded = Sharded::new();
    let mut ids = Vec::new();
    for shard in [0, 1, 1, 2] {
        ids.push(sharded.submit(json!({ "queue": sharded.queue_on(shard, 0), "tags": ["t"] })));
    }
    let bulk = |body: Value| sharded.post("/api/v1/jobs/bulk", body);
    let counted = bulk(json!({ "filter": { "tag": "t" }, "action": "cancel", "dry_run": true }));
    let answer = json!({ "dry_run": true, "matched": 4, "changed": 4, "refused": {} });
    assert_eq!(counted.json(), answer);
    let parked = bulk(json!({ "filter": { "queue": sharded.queue_on(1, 0) }, "action": "park" }));
    assert_eq!(parked.json()["changed"], 2);
    let some = format!("{},{}", ids[0], ids[3]);
    let parked = bulk(json!({ "filter": { "ids": some }, "action": "park" })).json();
    assert_eq!((&parked["changed"], parked.get("next_cursor")), (&json!(2), None));

    // Deletions that can be undone are reported shard by shard.
    let body = json!({ "filter": { "tag": "t" }, "action": "delete", "undo_ms": 60_000 });
    let (mut cursor, mut undone) = (Value::Null, 0);
    for shard in 0..3 {
        let mut body = body.clone();
        if !cursor.is_null() {
            body["cursor"] = cursor;
        }
        let deleted = bulk(body).json();
        assert_eq!(deleted["shard"], shard, "{deleted}");
        cursor = deleted["next_cursor"].clone();
        let request = deleted["deletion"]["request"].to_string();
        let undo = json!({ "filter": { "deleted_by": request }, "action": "undo" });
        bulk(undo.clone()).is_problem(501, "name_a_shard");
        let reply = sharded.post(&format!("/api/v1/jobs/bulk?shard={shard}"), undo);
        undone += reply.json()["changed"].as_u64().unwrap();
    }
    assert_eq!((cursor, undone), (Value::Null, 4));

    // A job stays on its shard.
    let to = sharded.queue_on(1, 1);
    let moved = |filter: Value| bulk(json!({ "filter": filter, "action": "edit", "queue": to }));
    moved(json!({ "tag": "t" })).is_problem(422, "several_shards");
    moved(json!({ "queue": sharded.queue_on(0, 0) })).is_problem(422, "several_shards");
    assert_eq!(moved(json!({ "queue": sharded.queue_on(1, 0) })).json()["changed"], 2);
    let one = format!("/api/v1/jobs/{}", ids[0]);
    sharded.call("PATCH", &one, Some(json!({ "queue": to }))).is_problem(422, "several_shards");
    sharded.call("PATCH", &one, Some(json!({ "queue": sharded.queue_on(0, 1) }))).is(200);

    bulk(json!({ "filter": {}, "action": "park" })).is_problem(400, "out_of_range");
    bulk(json!({ "filter": { "tag": "t" }, "action": "park", "cursor": "x" }))
        .is_problem(400, "out_of_range");
    bulk(json!({ "filter": { "tag": "t" }, "action": "fly" })).is_problem(400, "bad_field");
}
