//! Reports about many leases in one request, with one wait for the disk.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use spindle_core::command::{Claim, Extend};
use spindle_core::job::Cause;
use spindle_engine::{Engine, Gated, Refused, WorkResult};
use utoipa::ToSchema;

use crate::api::Api;
use crate::ended::lease_ended;
use crate::extract::{RawBody, claim, parse};
use crate::routes::leases::{
    CompleteBody, ExtendBody, Extended, FailBody, LEASES_MAX, checked_ttr_ms,
};
use spindle_http::{Answered, Pass, Problem, ProblemBody};

/// Reports of a worker.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReportsBody<'a> {
    /// 1 to 100 reports, taken in this order. What is no report, or comes too late, is refused, and
    /// its answer says why; the others are taken all the same.
    #[serde(borrow)]
    #[schema(value_type = Vec<ReportBody>, min_items = 1, max_items = 100)]
    leases: Vec<&'a RawValue>,
}

/// What a worker says of one lease: one of the four.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReportBody {
    /// The lease's token.
    #[schema(format = "lease-token")]
    lease_token: String,
    /// The job is done.
    complete: Option<CompleteBody>,
    /// The attempt failed.
    fail: Option<FailBody>,
    /// The lease lasts longer.
    extend: Option<ExtendBody>,
    /// The job is given back untried: an empty object.
    release: Option<ReleaseBody>,
}

/// Nothing is said about a job that is given back.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReleaseBody {}

/// What became of each report.
#[derive(Serialize, ToSchema)]
pub(crate) struct ReportsAnswer {
    /// How many are taken.
    taken: usize,
    /// How many are refused.
    refused: usize,
    /// One answer for each report, in the order of the request.
    answers: Vec<ReportAnswer>,
}

/// What became of one report.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum ReportAnswer {
    /// The lease lasts longer.
    Extended(Extended),
    /// It is refused; the others are not, for that.
    Refused {
        /// As the same report alone would have been refused.
        problem: ProblemBody,
    },
    /// The attempt has ended.
    Ended {
        /// Always true.
        ended: bool,
    },
}

/// A report that can be made.
struct Report {
    claim: Claim,
    what: What,
}

enum What {
    Finish(Box<WorkResult>),
    Extend { ttr_ms: u64 },
    Release,
}

/// Report on up to 100 leases at once: complete, fail, extend or release each. Each report is taken
/// or refused for itself, in the order of the request; the answer comes when all that are taken are
/// on disk.
#[utoipa::path(post, path = "/api/v1/leases/batch",
    operation_id = "report_on_leases", tag = "leases", request_body = ReportsBody,
    responses(
        (status = 200, description = "What became of each", body = ReportsAnswer),
        (status = "4XX", description = "None is taken")))]
pub(crate) async fn batch(
    State(api): State<Api>,
    mut pass: Pass,
    RawBody(raw): RawBody,
) -> Answered<Json<ReportsAnswer>> {
    let ReportsBody { leases } = parse(&raw)?;
    if !(1..=LEASES_MAX).contains(&leases.len()) {
        return Err(Problem::out_of_range("there are 1 to 100 reports in a request"));
    }
    let mut reports = Vec::with_capacity(leases.len());
    for text in leases {
        reports.push(read(&api, &mut pass, text.get().as_bytes()).await);
    }
    let bytes = reports.iter().flatten().map(Report::bytes).sum();
    let make = |engine: &Engine| make_all(engine, reports);
    let made = api.bridge().change_with(bytes, make).await?;

    let mut answers = Vec::with_capacity(made.len());
    for outcome in made {
        answers.push(match outcome {
            Ok(Made { ttr_ms: Some(ttr_ms), done: Ok(()), .. }) => {
                ReportAnswer::Extended(Extended::now(&api, ttr_ms))
            }
            Ok(Made { ttr_ms: None, done: Ok(()), .. }) => ReportAnswer::Ended { ended: true },
            Ok(Made { claim, done: Err(refused), .. }) => {
                let problem = lease_ended(&api, claim, refused).await;
                ReportAnswer::Refused { problem: problem.into() }
            }
            Err(problem) => ReportAnswer::Refused { problem: problem.into() },
        });
    }
    let is_refused = |answer: &&ReportAnswer| matches!(answer, ReportAnswer::Refused { .. });
    let refused = answers.iter().filter(is_refused).count();
    Ok(Json(ReportsAnswer { taken: answers.len() - refused, refused, answers }))
}

async fn read(api: &Api, pass: &mut Pass, text: &[u8]) -> Answered<Report> {
    let ReportBody { lease_token, complete, fail, extend, release } = parse(text)?;
    let claim = claim(api, pass, &lease_token).await?;
    let what = match (complete, fail, extend, release) {
        (Some(body), None, None, None) => What::Finish(Box::new(body.read().await?)),
        (None, Some(body), None, None) => What::Finish(Box::new(body.read().await?)),
        (None, None, Some(body), None) => What::Extend { ttr_ms: checked_ttr_ms(&body)? },
        (None, None, None, Some(ReleaseBody {})) => What::Release,
        _ => {
            let detail = "a report has one of complete, fail, extend and release";
            return Err(Problem::bad_field(detail));
        }
    };
    Ok(Report { claim, what })
}

impl Report {
    /// How many bytes it brings.
    fn bytes(&self) -> usize {
        match &self.what {
            What::Finish(result) => result.result.len(),
            What::Extend { .. } | What::Release => 0,
        }
    }
}

/// A report, made.
struct Made {
    claim: Claim,
    /// How long the lease lasts now, if that was asked for.
    ttr_ms: Option<u64>,
    done: Result<(), Refused>,
}

/// Makes all reports that could be read, one after the other.
fn make_all(
    engine: &Engine,
    reports: Vec<Answered<Report>>,
) -> Gated<Result<Vec<Answered<Made>>, Refused>> {
    let mut answer = Gated::open(());
    let mut make = |Report { claim, what }: Report| {
        let leases = engine.leases();
        let (done, ttr_ms) = match what {
            What::Finish(result) => (leases.finish(claim, *result), None),
            What::Extend { ttr_ms } => (leases.extend(Extend { claim, ttr_ms }), Some(ttr_ms)),
            What::Release => (leases.release(claim, Cause::Released), None),
        };
        Made { claim, ttr_ms, done: answer.absorb(done) }
    };
    let made = reports.into_iter().map(|report| report.map(&mut make)).collect();
    answer.map(|()| Ok(made))
}
