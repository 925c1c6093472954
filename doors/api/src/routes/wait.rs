//! Waiting for a job's end.

use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use spindle_http::{Answered, Code, Problem};

use super::jobs;
use crate::api::Api;
use crate::extract::{Args, JobPath};
use crate::view::Job;

/// The longest wait, in seconds: proxies and clients give up sooner.
const WAIT_S_MAX: u64 = 300;

/// How long to wait.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    #[serde(default)]
    wait_s: u64,
}

/// Wait until a job is done or dead. The answer is the job as it is then, or as it is when the wait
/// is over: its `status` says which.
#[utoipa::path(get, path = "/api/v1/jobs/{id}/wait", operation_id = "wait_for_job", tag = "jobs",
    params(JobPath,
        ("wait_s" = Option<u64>, Query, maximum = 300,
            description = "At most so many seconds; 0, as if not said, does not wait")),
    responses(
        (status = 200, description = "The job; ETag is its revision", body = Job),
        (status = "4XX", description = "No such job, or it went meanwhile")))]
pub(crate) async fn wait(
    State(api): State<Api>,
    JobPath(which): JobPath,
    Args(asked): Args<Asked>,
) -> Answered<Response> {
    if asked.wait_s > WAIT_S_MAX {
        return Err(Problem::new(Code::OutOfRange, "wait_s is at most 300"));
    }
    let id = jobs::find(&api, which).await?;
    let bridge = api.bridge();
    if asked.wait_s > 0 {
        // What it came to is looked up, whatever the answer is.
        bridge.result(id, asked.wait_s * 1000).await?;
    }
    jobs::answer(&api, which).await
}
