//! Reports about many leases in one request, and the next jobs, with one wait for the disk.

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use spindle_core::command::{Claim, Extend};
use spindle_core::job::Cause;
use spindle_engine::{Gated, Refused, WorkResult};
use utoipa::ToSchema;

use crate::api::Api;
use crate::ended::lease_ended;
use crate::extract::{RawBody, claim, parse};
use crate::routes::leases::{
    CompleteBody, ExtendBody, Extended, FailBody, Held, LEASES_MAX, LeaseBody, Leased, Wanted,
    checked_ttr_ms, hand_out,
};
use crate::typed::{json_answer, to_json};
use spindle_http::{Answered, GuardedBody, LeaseGuard, Pass, Problem, ProblemBody};

/// Reports of a worker.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReportsBody<'a> {
    /// 1 to 100 reports, taken in this order. What is no report, or comes too late, is refused, and
    /// its answer says why; the others are taken all the same.
    #[serde(borrow)]
    #[schema(value_type = Vec<ReportBody>, min_items = 1, max_items = 100)]
    leases: Vec<&'a RawValue>,
    /// What `/api/v1/lease` takes: jobs are leased behind the reports, and the answer waits for the disk
    /// once for both. It is refused for itself as well, and `count` is 1 if omitted.
    #[serde(borrow, default)]
    #[schema(value_type = Option<LeaseBody>)]
    lease: Option<&'a RawValue>,
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
    /// What became of the `lease`, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<NextAnswer>,
}

/// What became of the request for jobs.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum NextAnswer {
    /// It is refused; the reports are not, for that.
    Refused {
        /// As the same request alone would have been refused.
        problem: ProblemBody,
    },
    /// It is granted.
    Leased {
        /// As many as were ready, the first to be worked on first; none if there were none.
        #[schema(value_type = Vec<Leased>, max_items = 100)]
        jobs: Box<RawValue>,
    },
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
/// on disk. A worker that goes on asks for its next jobs in the same request.
#[utoipa::path(post, path = "/api/v1/leases/batch",
    operation_id = "report_on_leases", tag = "leases", request_body = ReportsBody,
    responses(
        (status = 200, description = "What became of each", body = ReportsAnswer),
        (status = "4XX", description = "None is taken")))]
pub(crate) async fn batch(
    State(api): State<Api>,
    mut pass: Pass,
    RawBody(raw): RawBody,
) -> Answered<Response> {
    let ReportsBody { leases, lease } = parse(&raw)?;
    if !(1..=LEASES_MAX).contains(&leases.len()) {
        return Err(Problem::out_of_range("there are 1 to 100 reports in a request"));
    }
    let mut reports = Vec::with_capacity(leases.len());
    for text in leases {
        reports.push(read(&api, &mut pass, text.get().as_bytes()).await);
    }
    let wanted = lease.map(|text| Wanted::new(parse(text.get().as_bytes())?, &mut pass));

    let bytes = reports.iter().flatten().map(Report::bytes).sum();
    api.bridge().room(bytes).await?;
    let mut waits = Gated::open(());
    let made = make_all(&api, reports, &mut waits);
    // Leased before any long await, so that one wait for the disk covers both.
    let leased = match wanted {
        None => None,
        Some(Err(problem)) => Some(Err(problem)),
        Some(Ok(wanted)) => {
            let leased = waits.absorb(wanted.take(&api, wanted.wait_ms).await);
            Some(leased.map_err(Problem::from))
        }
    };
    api.bridge().durable(waits).await;

    let mut answers = Vec::with_capacity(made.len());
    for outcome in made {
        answers.push(report_answer(&api, outcome).await);
    }
    let is_refused = |answer: &&ReportAnswer| matches!(answer, ReportAnswer::Refused { .. });
    let refused = answers.iter().filter(is_refused).count();
    let (lease, guards) = match leased {
        None => (None, vec![]),
        Some(leased) => next_answer(&api, &mut pass, leased).await,
    };
    let answer = ReportsAnswer { taken: answers.len() - refused, refused, answers, lease };
    Ok(json_answer(Body::new(GuardedBody::new(to_json(&answer, 0), guards))))
}

/// The answer to a report, once everything that the answer depends on is on disk.
async fn report_answer(api: &Api, outcome: Answered<Made>) -> ReportAnswer {
    let problem = match outcome {
        Ok(Made { ttr_ms: Some(ttr_ms), done: Ok(()), .. }) => {
            return ReportAnswer::Extended(Extended::now(api, ttr_ms));
        }
        Ok(Made { ttr_ms: None, done: Ok(()), .. }) => return ReportAnswer::Ended { ended: true },
        Ok(Made { claim, done: Err(refused), .. }) => lease_ended(api, claim, refused).await,
        Err(problem) => problem,
    };
    ReportAnswer::Refused { problem: problem.into() }
}

/// The answer to the request for jobs, which leaves the reports in force if it is refused; and the
/// guard that undoes its leases unless the answer is sent.
async fn next_answer(
    api: &Api,
    pass: &mut Pass,
    leased: Answered<Vec<Held>>,
) -> (Option<NextAnswer>, Vec<LeaseGuard>) {
    let written = async {
        let write = |jobs: Vec<Leased>, _| to_raw_value(&jobs).expect("jobs are JSON");
        hand_out(api, pass, leased?, write).await
    };
    match written.await {
        Ok((jobs, guards)) => (Some(NextAnswer::Leased { jobs }), guards),
        Err(problem) => (Some(NextAnswer::Refused { problem: problem.into() }), vec![]),
    }
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

/// Applies all reports that could be read, one after the other. `answer` collects what their
/// answers wait for.
fn make_all(
    api: &Api,
    reports: Vec<Answered<Report>>,
    answer: &mut Gated<()>,
) -> Vec<Answered<Made>> {
    let _turn = api.bridge().turn();
    let leases = api.engine().leases();
    let mut make = |Report { claim, what }: Report| {
        let (done, ttr_ms) = match what {
            What::Finish(result) => (leases.finish(claim, *result), None),
            What::Extend { ttr_ms } => (leases.extend(Extend { claim, ttr_ms }), Some(ttr_ms)),
            What::Release => (leases.release(claim, Cause::Released), None),
        };
        Made { claim, ttr_ms, done: answer.absorb(done) }
    };
    reports.into_iter().map(|report| report.map(&mut make)).collect()
}
