//! Nothing is told before it is on disk.

use std::pin::pin;
use std::time::Duration;

use serde_json::json;
use spindle_testkit::opened;

use crate::harness::Bench;

/// How long an answer that must not come is waited for.
const A_WHILE: Duration = Duration::from_millis(150);

/// Answers that reveal what is not on disk yet, asked for while nothing gets there.
#[tokio::test]
async fn no_answer_tells_of_what_is_not_on_disk() {
    let bench = Bench::new();
    bench.create("{}").await;
    bench.create("{}").await;
    let poll = "{\"query\": [[\">\", \"id\", 1]], \"state\": [\"POLLED\"]}";
    let last = "{\"query\": [[\"=\", \"state\", [\"NEW\"]]]}";
    let none = "{\"query\": [[\"=\", \"id\", 77]], \"state\": 1}";
    for (path, body, answer) in [
        ("/api/v0/job/create", "{}", json!([3, ["CREATED"]])),
        ("/api/v0/job/1/state", "[\"NEW\"]", json!([1, ["NEW"]])),
        ("/api/v0/job/1/event", "1", json!([1, ["NEW"]])),
        ("/api/v0/job", last, json!([1, ["NEW"]])),
        ("/api/v0/job/poll", poll, json!([2, ["POLLED"]])),
        ("/api/v0/job/poll", none, json!([null, null])),
    ] {
        bench.log.hold(true);
        // Something that is decided, and not on disk: what a negative answer waits for as well.
        let update =
            spindle_engine::JobUpdate { state: None, event: b"\0\0\0\0\0\0\0\0null"[..].into() };
        let job = spindle_core::JobId(1);
        opened(bench.engine.jobs().update(job, None, |_| Ok::<_, ()>(update.clone()))).unwrap();
        let mut asked = pin!(bench.post(path, body));
        let early = tokio::time::timeout(A_WHILE, asked.as_mut()).await;
        assert!(early.is_err(), "{path} {body}: {early:?}");
        bench.log.hold(false);
        let shown = asked.await.json();
        let job = shown.get("jobs").map_or(&shown, |jobs| &jobs[0]);
        assert_eq!(json!([job["id"], job["state"]]), answer, "{path} {body}");
    }
}
