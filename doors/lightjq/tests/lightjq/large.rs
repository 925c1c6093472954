//! Large bodies are worked on beside the thread that serves.

use serde_json::json;
use spindle_http::SMALL_BYTES_MAX;
use spindle_testkit::on_serving_thread;

use crate::harness::Bench;

#[test]
fn large_arguments_and_results_are_worked_on_beside_the_thread_that_serves() {
    for (text, is_large) in [("x", false), (&*"x".repeat(SMALL_BYTES_MAX), true)] {
        let bench = Bench::new();
        let job = json!({ "name": "n", "argument": { "a": text }, "keep_result": true });
        let (id, others) = on_serving_thread(bench.submit(job));
        assert_eq!(others > 0, is_large, "submit");
        let (worker, _) = on_serving_thread(bench.worker(1));
        let (order, others) = on_serving_thread(bench.take(&worker));
        assert!(order["argument"]["a"] == text);
        assert_eq!(others > 0, is_large, "take");
        let done = json!({ "job_id": id, "type": "success", "result": text });
        let (_, others) = on_serving_thread(bench.done(&worker, done));
        assert_eq!(others > 0, is_large, "done");
        let (shown, others) = on_serving_thread(bench.job(&id));
        assert!(shown["result"] == text);
        assert_eq!(others > 0, is_large, "show");
    }
}
