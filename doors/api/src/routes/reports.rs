//! What workers say of a job while they have it: how far it is, and what they write for people.

use axum::extract::State;
use axum::http::StatusCode;
use bytes::Bytes;
use serde::Deserialize;
use spindle_core::command::Claim;
use spindle_engine::{Engine, Gated, JobRef, News, OUTPUT_PIECE_BYTES_MAX, Refused};
use spindle_http::{Answered, Code, Problem, whole, whole_or_null};
use utoipa::ToSchema;

use super::jobs;
use crate::api::Api;
use crate::ended::{LeaseRefusal, lease_ended};
use crate::extract::{JobPath, JsonBody, LeasePath};

/// How far a worker is.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProgressBody {
    /// How much is done.
    #[serde(deserialize_with = "whole")]
    numerator: u64,
    /// Of how much; 100 by default.
    #[serde(default, deserialize_with = "whole_or_null")]
    denominator: Option<u64>,
    /// How many seconds it will take.
    #[serde(default, deserialize_with = "whole_or_null")]
    #[schema(maximum = 4_294_967_295_u32)]
    remaining_s: Option<u64>,
}

impl ProgressBody {
    fn read(&self) -> Answered<News> {
        let remaining_s = u32::try_from(self.remaining_s.unwrap_or(0));
        let remaining_s = remaining_s
            .map_err(|_| Problem::out_of_range(format!("remaining_s is at most {}", u32::MAX)))?;
        let (numerator, denominator) = (self.numerator, self.denominator.unwrap_or(100));
        Ok(News::Progress {
            numerator: numerator.to_string().into(),
            denominator: denominator.to_string().into(),
            remaining_s,
        })
    }
}

/// What a worker writes for people who follow its job.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OutputBody {
    /// At most 65,536 bytes of UTF-8. Lines end with a line feed, which is not added.
    #[schema(max_length = 65_536)]
    text: String,
}

impl OutputBody {
    fn read(self) -> Answered<Bytes> {
        if self.text.len() > OUTPUT_PIECE_BYTES_MAX {
            let detail = format!("text has at most {OUTPUT_PIECE_BYTES_MAX} bytes");
            return Err(Problem::out_of_range(detail));
        }
        Ok(Bytes::from(self.text))
    }
}

/// Say how far a job is: for its worker, which need not have leased it here. Whoever waits for the
/// job at the Gearman door is sent it. It is kept in memory until the lease ends.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/progress",
    operation_id = "report_job_progress", tag = "leases", request_body = ProgressBody,
    params(JobPath),
    responses(
        (status = 204, description = "People see it"),
        (status = "4XX", description = "No such job, or no worker has it")))]
pub(crate) async fn job_progress(
    State(api): State<Api>,
    JobPath(which): JobPath,
    JsonBody { value, .. }: JsonBody<ProgressBody>,
) -> Answered<StatusCode> {
    let news = value.read()?;
    of_job(&api, which, |engine, claim| engine.leases().report(claim, news)).await
}

/// Say how far a leased job is, as `POST /api/v1/jobs/{id}/progress` does, for the holder of the
/// token.
#[utoipa::path(post, path = "/api/v1/leases/{token}/progress",
    operation_id = "report_progress", tag = "leases", request_body = ProgressBody,
    params(LeasePath),
    responses((status = 204, description = "People see it"), LeaseRefusal))]
pub(crate) async fn lease_progress(
    State(api): State<Api>,
    LeasePath(claim): LeasePath,
    JsonBody { value, .. }: JsonBody<ProgressBody>,
) -> Answered<StatusCode> {
    let news = value.read()?;
    of_lease(&api, claim, |engine| engine.leases().report(claim, news)).await
}

/// Write output of a running job for people: for its worker, which need not have leased it here. The
/// newest 256 KiB of a job are kept in memory, and are gone when the server stops: what must last
/// belongs into the result.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/output",
    operation_id = "write_job_output", tag = "leases", request_body = OutputBody, params(JobPath),
    responses(
        (status = 204, description = "People see it"),
        (status = "4XX", description = "No such job, or no worker has it")))]
pub(crate) async fn job_output(
    State(api): State<Api>,
    JobPath(which): JobPath,
    JsonBody { value, .. }: JsonBody<OutputBody>,
) -> Answered<StatusCode> {
    let output = value.read()?;
    of_job(&api, which, |engine, claim| engine.leases().write(claim, output)).await
}

/// Write output of a leased job, as `POST /api/v1/jobs/{id}/output` does, for the holder of the
/// token.
#[utoipa::path(post, path = "/api/v1/leases/{token}/output",
    operation_id = "write_output", tag = "leases", request_body = OutputBody, params(LeasePath),
    responses((status = 204, description = "People see it"), LeaseRefusal))]
pub(crate) async fn lease_output(
    State(api): State<Api>,
    LeasePath(claim): LeasePath,
    JsonBody { value, .. }: JsonBody<OutputBody>,
) -> Answered<StatusCode> {
    let output = value.read()?;
    of_lease(&api, claim, |engine| engine.leases().write(claim, output)).await
}

async fn of_lease(
    api: &Api,
    claim: Claim,
    report: impl FnOnce(&Engine) -> Gated<Result<(), Refused>>,
) -> Answered<StatusCode> {
    match api.bridge().change(report).await {
        Ok(()) => Ok(StatusCode::NO_CONTENT),
        Err(refused) => Err(lease_ended(api, claim, refused).await),
    }
}

async fn of_job(
    api: &Api,
    which: JobRef,
    report: impl FnOnce(&Engine, Claim) -> Gated<Result<(), Refused>>,
) -> Answered<StatusCode> {
    let claim = Claim::Unfinished { id: jobs::find(api, which).await? };
    let reported = api.bridge().change(|engine| report(engine, claim)).await;
    reported.map(|()| StatusCode::NO_CONTENT).map_err(|refused| match Problem::from(refused) {
        problem if problem.code == Code::LeaseNotLive => {
            Problem::new(Code::LeaseNotLive, "no worker has the job")
        }
        problem => problem,
    })
}
