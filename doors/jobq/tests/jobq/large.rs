//! Large bodies are worked on beside the thread that serves.

use serde_json::json;
use spindle_http::SMALL_BYTES_MAX;
use spindle_testkit::on_serving_thread;

use crate::harness::Bench;

#[test]
fn large_payloads_are_worked_on_beside_the_thread_that_serves() {
    for (text, is_large) in [("x", false), (&*"x".repeat(SMALL_BYTES_MAX), true)] {
        let bench = Bench::new();
        let (id, others) = on_serving_thread(bench.create(&json!(text).to_string()));
        assert_eq!(others > 0, is_large, "create");
        let (job, others) = on_serving_thread(bench.job(id));
        assert!(job["payload"] == text);
        assert_eq!(others > 0, is_large, "show");
    }
}
