//! The trace a job belongs to, from its submit to the command that works on it.

use serde_json::json;
use spindle_testkit::HttpRequest;

use crate::{
    fake_workq::stdout,
    native::{at, output_of, url},
    serve::{data, serve},
};

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[test]
fn a_trace_comes_from_the_submit_to_the_workers_command_over_a_restart() {
    let (_folder, data) = data();
    let arguments = ["--workq", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data", &data];
    let mut served = serve(&arguments);
    let address = served.address_of("http");
    let head =
        format!("Host: {address}\r\nContent-Type: application/json\r\ntraceparent: {TRACE}\r\n");
    for path in ["POST /api/v1/jobs", "POST /api/v0/job/create?queue=q&ready=1"] {
        let body = json!({ "queue": "q" }).to_string();
        let (status, text) = HttpRequest::send_with(&address, path, &head, &body).answer();
        assert!(matches!(status, 200 | 201), "{text}");
    }
    at(&served, &["add", "q"]).env("TRACEPARENT", TRACE).assert().success();
    output_of(&served, &["add", "q"]);
    served.crash();

    let served = serve(&arguments);
    assert!(url(&served).starts_with("http://"));
    let show = "printf %s \"${TRACEPARENT-none}\"";
    // The worker's own trace is not that of its jobs.
    let mut work = at(&served, &["work", "q", "--drain", "--", "sh", "-c", show]);
    work.env("TRACEPARENT", TRACE.replace("4bf9", "0000")).assert().success();
    let results = ["1", "2", "3", "4"].map(|id| stdout(&at(&served, &["result", id]).unwrap()));
    assert_eq!(results, [TRACE, TRACE, TRACE, "none"]);
}
