//! Waiting for a job's end.

use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use spindle_http::{Answered, Pass};

use super::jobs;
use crate::api::Api;
use crate::extract::{Args, JobPath};
use crate::numbers::wait_ms;
use crate::view::Job;

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
            description = "At most this many seconds; 0 (the default) does not wait")),
    responses(
        (status = 200, description = "The job; ETag is its revision", body = Job),
        (status = "4XX", description = "No such job, or it went meanwhile")))]
pub(crate) async fn wait(
    State(api): State<Api>,
    JobPath(which): JobPath,
    Args(asked): Args<Asked>,
    mut pass: Pass,
) -> Answered<Response> {
    let wait_ms = wait_ms(asked.wait_s)?;
    let id = jobs::find(&api, which).await?;
    let bridge = api.bridge();
    if wait_ms > 0 {
        // The job is looked up below, whatever this wait answers.
        bridge.result(id, wait_ms).await?;
        pass.allows_job(bridge, which).await?;
    }
    jobs::answer(&api, which, &mut pass).await
}
