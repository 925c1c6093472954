//! Jobs on their way from one server to another.

use axum::http::Method;
use serde_json::{Value, json};
use spindle_core::command::Submit;
use spindle_core::job::{Key, Origin, Scope, TraceParent};
use spindle_core::{BytesRef, JobId, Type};
use spindle_engine::{NewJob, Payload};
use spindle_testkit::opened;

use crate::harness::Bench;

/// All lines of an export, page by page.
async fn exported(bench: &Bench, query: &str) -> Vec<Value> {
    let (mut jobs, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = bench.get(&format!("/api/v1/jobs/export?{query}{cursor}")).await;
        assert_eq!(page.status, 200, "{}", page.text());
        let page = page.json();
        jobs.extend(page["jobs"].as_array().unwrap().iter().cloned());
        let Some(next) = page["next_cursor"].as_str() else { return jobs };
        cursor = format!("&cursor={next}");
    }
}

async fn import(bench: &Bench, jobs: &[Value]) -> Vec<Value> {
    let reply = bench.post("/api/v1/jobs/import", json!({ "jobs": jobs })).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()["answers"].as_array().unwrap().clone()
}

/// What must be the same of a job wherever it is.
fn lasting(job: &Value) -> Value {
    let mut job = job.clone();
    let fields = job.as_object_mut().unwrap();
    for name in ["id", "created_at", "attempts", "fails"] {
        fields.remove(name);
    }
    // The name it has for being imported comes first.
    if let Some(keys) = fields.get_mut("keys").and_then(Value::as_array_mut) {
        keys.retain(|key| {
            let name = key["name_base64"].as_str().unwrap();
            let door = key["door"].as_str().unwrap();
            !(door == "api" && is_reference(name))
        });
        if keys.is_empty() {
            fields.remove("keys");
        }
    }
    job
}

fn is_reference(base64: &str) -> bool {
    use base64::Engine as _;
    let name = base64::engine::general_purpose::STANDARD.decode(base64).unwrap();
    name.windows(7).any(|part| part == b"import:")
}

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[tokio::test]
async fn a_job_arrives_with_all_it_was_given() {
    let (from, to) = (Bench::new(), Bench::new());
    from.submit(json!({
        "queue": "mail", "payload": {"to": "ann", "n": 1.50}, "priority": -3,
        "run_at": "2030-01-31T08:00:00Z", "ttr_ms": 5000, "ttl_ms": 86_400_000,
        "attempts_max": 7, "fails_max": 0, "keep_ms": 9, "tags": ["x", "y"],
        "backoff": {"base_ms": 3, "factor": 1.5, "cap_ms": 20, "jitter": 0.25},
        "unique": {"key": "order 7"},
    }))
    .await;
    from.submit(json!({ "queue_base64": "/w==", "payload_base64": "AAH/", "parked": true })).await;
    from.submit(json!({ "queue": "q", "payload_base64": "kA==", "payload_type": "msgpack" })).await;
    let mut other =
        Submit::new(JobId(0), "work".into(), Origin::Workq, BytesRef::empty(Type::Bytes));
    other.uuid = Some([7; 16]);
    other.keys = vec![Key {
        namespace: Origin::Gearman as i32,
        name: (&b"f\0\xffu"[..]).into(),
        scope: Scope::WhileUnfinished as i32,
    }];
    other.state = Some("{\"a\":1}".into());
    let payload = Payload::new(&b"opaque"[..], Type::Bytes);
    opened(from.engine.jobs().submit(NewJob { submit: other, payload })).unwrap();
    let mut traced = Submit::new(JobId(0), "q".into(), Origin::Jobq, BytesRef::empty(Type::Bytes));
    traced.trace = TraceParent::parse(TRACE.as_bytes()).map(Box::new);
    let payload = Payload::new(&b" 7 "[..], Type::Json);
    opened(from.engine.jobs().submit(NewJob { submit: traced, payload })).unwrap();
    let jobs = exported(&from, "").await;
    let last = jobs.last().unwrap();
    // Spaces around JSON are a part of the payload.
    assert_eq!((&last["payload_base64"], &last["payload_type"]), (&json!("IDcg"), &json!("json")));
    assert_eq!(last["traceparent"], TRACE);
    let answers = import(&to, &jobs).await;
    assert!(answers.iter().all(|answer| answer["existing"] == json!(false)), "{answers:?}");
    let arrived = exported(&to, "").await;
    let lasting = |jobs: &[Value]| jobs.iter().map(lasting).collect::<Vec<_>>();
    assert_eq!(lasting(&arrived), lasting(&jobs));
    // JSON is kept as it was written.
    let raw = to.get("/api/v1/jobs/1").await;
    assert!(
        raw.text().contains(r#"{"n":1.5,"to":"ann"}"#) || raw.text().contains("1.50"),
        "{raw:?}"
    );
    let workq = to.get("/api/v1/jobs/07070707-0707-0707-0707-070707070707").await.json();
    assert_eq!((&workq["origin"], &workq["queue"]), (&json!("workq"), &json!("work")));
}

#[tokio::test]
async fn the_same_line_makes_one_job_however_often_it_is_sent() {
    let (from, to) = (Bench::new(), Bench::new());
    for n in 0..3 {
        from.submit(json!({ "queue": "q", "payload": n })).await;
    }
    let jobs = exported(&from, "").await;
    let first = import(&to, &jobs).await;
    to.pass(60_000);
    let mut again = import(&to, &jobs).await;
    for answer in &mut again {
        assert_eq!(answer["existing"], true);
        answer["existing"] = false.into();
    }
    assert_eq!(first, again);
    assert_eq!(exported(&to, "").await.len(), 3);
    // And what was imported there is other jobs for whoever imports them from there.
    let third = Bench::new();
    import(&third, &exported(&to, "").await).await;
    assert_eq!(exported(&third, "").await.len(), 3);
    assert!(import(&third, &exported(&to, "").await).await.iter().all(|it| it["existing"] == true));
}

#[tokio::test]
async fn an_imported_job_is_found_by_where_it_comes_from() {
    let (from, to) = (Bench::new(), Bench::new());
    from.submit(json!({ "queue": "q", "payload": 5 })).await;
    import(&to, &exported(&from, "").await).await;
    // The first 8 bytes of the payload's SHA-256.
    let key = "import%3A1%3A2026-01-02T03%3A04%3A05.678Z%3Aef2d127de37b942b";
    let found = to.get(&format!("/api/v1/jobs?idempotency_key={key}")).await.json();
    assert_eq!(found["jobs"].as_array().unwrap().len(), 1, "{found}");
}

#[tokio::test]
async fn a_job_that_was_moved_twice_is_named_after_the_last_server_alone() {
    let servers = [Bench::new(), Bench::new(), Bench::new()];
    servers[0].submit(json!({ "queue": "q", "payload": 5 })).await;
    for pair in servers.windows(2) {
        pair[1].submit(json!({ "queue": "other" })).await;
        import(&pair[1], &exported(&pair[0], "").await).await;
    }
    let jobs = exported(&servers[2], "").await;
    let moved = jobs.iter().find(|job| job["queue"] == "q").unwrap();
    let names: Vec<_> = moved["keys"].as_array().unwrap().iter().map(reference_of).collect();
    assert_eq!(names.len(), 2, "{moved}");
    // On the server in the middle it is the second job.
    assert!(names.iter().all(|name| name.starts_with("import:2:")), "{names:?}");
}

/// The reference that a key of an export holds.
fn reference_of(key: &Value) -> String {
    use base64::Engine as _;
    let base64 = key["name_base64"].as_str().unwrap();
    let name = base64::engine::general_purpose::STANDARD.decode(base64).unwrap();
    let begin = name.windows(7).position(|part| part == b"import:").unwrap();
    String::from_utf8(name[begin..].to_vec()).unwrap()
}

#[tokio::test]
async fn done_and_dead_jobs_are_shown_when_asked_for_and_not_imported() {
    let (from, to) = (Bench::new(), Bench::new());
    from.submit(json!({ "queue": "q" })).await;
    let lease = from.lease("q").await;
    let token = lease["lease_token"].as_str().unwrap();
    let result = json!({ "result_base64": "ewp9", "result_type": "json" });
    from.post(&format!("/api/v1/leases/{token}/complete"), result).await;
    let dead = from.submit(json!({ "queue": "q" })).await;
    from.call(Method::POST, &format!("/api/v1/jobs/{dead}/cancel")).await;
    from.submit(json!({ "queue": "q" })).await;
    from.lease("q").await;
    assert_eq!(exported(&from, "").await.len(), 1);
    let all = exported(&from, "finished=true").await;
    let statuses: Vec<_> = all.iter().map(|job| job["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["done", "dead", "leased"]);
    // JSON of more than one line would break the line.
    assert_eq!(all[0]["result"]["base64"], "ewp9");
    let answers = import(&to, &all).await;
    assert_eq!(
        (&answers[0]["skipped"], &answers[1]["skipped"]),
        (&json!("finished"), &json!("finished"))
    );
    assert_eq!(to.get("/api/v1/jobs/1").await.json()["status"], "ready");
}

#[tokio::test]
async fn a_job_whose_time_is_over_is_not_taken_and_one_that_lives_keeps_its_end() {
    let (from, to) = (Bench::new(), Bench::new());
    from.submit(json!({ "queue": "q", "ttl_ms": 60_000 })).await;
    from.submit(json!({ "queue": "q", "ttl_ms": 60_001 })).await;
    let jobs = exported(&from, "").await;
    to.pass(60_000);
    let answers = import(&to, &jobs).await;
    assert_eq!(answers[0], json!({ "skipped": "expired" }));
    assert_eq!(exported(&to, "").await[0]["expires_at"], jobs[1]["expires_at"]);
}

#[tokio::test]
async fn pages_end_by_number_and_by_bytes_and_miss_nothing() {
    let bench = Bench::new();
    let long = "x".repeat(3 << 20);
    for n in 0..5 {
        bench.submit(json!({ "queue": "q", "payload": format!("{n}{long}") })).await;
        bench.submit(json!({ "queue": "q", "payload": n })).await;
    }
    let page = bench.get("/api/v1/jobs/export").await.json();
    assert_eq!(page["jobs"].as_array().unwrap().len(), 3);
    for query in ["", "limit=1", "limit=3", "limit=1000"] {
        let ids: Vec<_> = exported(&bench, query).await.iter().map(|it| it["id"].clone()).collect();
        assert_eq!(json!(ids), json!([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]), "{query}");
    }
    for query in ["limit=0", "limit=1001", "cursor=x", "finished=maybe", "queue=q"] {
        let reply = bench.get(&format!("/api/v1/jobs/export?{query}")).await;
        assert_eq!(reply.status, 400, "{query}");
    }
}

#[tokio::test]
async fn what_will_not_do_is_refused_for_itself() {
    let (from, to) = (Bench::new(), Bench::new());
    from.submit(json!({ "queue": "q", "payload": 1, "unique": { "key": "k" } })).await;
    let job = exported(&from, "").await.remove(0);
    to.submit(json!({ "queue": "q", "unique": { "key": "k" } })).await;
    let with = |name: &str, value: Value| {
        let mut job = job.clone();
        job[name] = value;
        job
    };
    let jobs = [
        job.clone(),
        with("status", json!("lost")),
        with("door", json!("window")),
        with("uuid", json!("7")),
        with("payload_damaged", json!(true)),
        with("queue", json!("")),
        with("weight", json!(3)),
        with("type", json!("queue")),
        with("run_at", json!("soon")),
        with("state_base64", json!("?")),
        json!([]),
        json!({}),
        with("keys", json!([])),
    ];
    let answers = import(&to, &jobs).await;
    let codes: Vec<_> = answers.iter().map(|it| it["problem"]["code"].as_str()).collect();
    let (field, range) = (Some("bad_field"), Some("out_of_range"));
    let expected = [
        Some("key_taken"),
        field,
        field,
        field,
        Some("unreadable"),
        range,
        field,
        field,
        range,
        range,
        field,
        field,
        None,
    ];
    assert_eq!(codes, expected, "{answers:?}");
    for body in [json!({ "jobs": [] }), json!({ "jobs": vec![&job; 1001] }), json!({})] {
        assert_eq!(to.post("/api/v1/jobs/import", body).await.status, 400);
    }
}

#[tokio::test]
async fn a_job_that_waits_for_what_no_export_has_is_refused() {
    let (from, to) = (Bench::new(), Bench::new());
    let batch = from.post("/api/v1/batches", json!({ "queue": "q" })).await.json()["id"].clone();
    from.submit(json!({ "queue": "q", "after": [batch] })).await;
    let jobs = exported(&from, "").await;
    assert_eq!(jobs[0]["after"], json!([{ "id": batch }]));
    let answers = import(&to, &jobs).await;
    let problem = &answers[0]["problem"];
    assert_eq!(problem["code"], "after_not_found", "{problem}");
    let detail = format!("it waits for {batch}, a batch or a dead job, which no import makes");
    assert_eq!(problem["detail"], detail);
}
