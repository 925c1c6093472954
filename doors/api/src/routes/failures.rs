//! Failures, those that say the same together.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use spindle_access::Target;
use spindle_history::{Group, Share};
use spindle_http::{Answered, Pass};
use utoipa::{IntoParams, ToSchema};

use super::history::{Span, points_of, queue_of};
use crate::api::Api;
use crate::extract::Args;
use crate::numbers::bounded;
use crate::{instant, naming};

const LIMIT: usize = 50;
/// The most groups of a list: as many as the server follows.
pub(crate) const LIMIT_MAX: usize = 512;

/// Which failures.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Asked {
    /// `hour` (the default) or `day`.
    #[serde(default)]
    #[param(inline)]
    range: Span,
    /// At most so many points of a trend, 1 to 360; by default as many as there are: 60 for an hour
    /// and 96 for a day.
    #[param(minimum = 1, maximum = 360)]
    points: Option<usize>,
    /// At most so many groups, 1 to 512; 50 by default.
    #[param(minimum = 1, maximum = 512)]
    limit: Option<usize>,
    /// Only those of this queue's jobs.
    #[param(min_length = 1, max_length = 512)]
    queue: Option<String>,
    /// Only those of this queue's jobs, its name in base64. Both: they must be the same.
    #[param(format = "queue-base64")]
    queue_base64: Option<String>,
}

/// Failures by what they say.
#[derive(Serialize, ToSchema)]
pub(crate) struct Failures {
    /// How far back it goes.
    #[schema(value_type = String, example = "hour")]
    range: Span,
    /// When the answer was made.
    now: String,
    /// The groups, the one with the most failures first.
    failures: Vec<FailureGroup>,
}

/// Attempts that failed and said the same.
#[derive(Serialize, ToSchema)]
pub(crate) struct FailureGroup {
    /// The first line of the error, or of the message or the code where there is none, with digits
    /// and hexadecimal runs as `#`. `GET /api/v1/jobs` finds the jobs by it.
    #[schema(example = "connection refused to db-#")]
    fingerprint: String,
    /// How many attempts.
    count: u64,
    /// When the last one ended.
    last_at: String,
    /// The job of the last one. It may be gone.
    last_job: u64,
    /// Whose jobs they were, the queue with the most first.
    queues: Vec<FailureShare>,
    /// How long a point of the trend is.
    step_ms: u64,
    /// How many there were from point to point, the oldest first. A time without any has no point.
    trend: Vec<TrendPoint>,
}

/// What a queue has of a group.
#[derive(Serialize, ToSchema)]
pub(crate) struct FailureShare {
    /// Its name, where it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    /// Its name in base64, where it is no UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = "queue-base64")]
    queue_base64: Option<String>,
    /// How many attempts.
    count: u64,
}

/// How many attempts failed in a stretch of time.
#[derive(Serialize, ToSchema)]
pub(crate) struct TrendPoint {
    /// When it began.
    at: String,
    /// How many.
    count: u64,
}

impl From<Group> for FailureGroup {
    fn from(group: Group) -> FailureGroup {
        let Group { fingerprint, count, last_ms, last_job, queues, trend } = group;
        let points = trend.points.into_iter().filter(|(_, count)| *count > 0);
        let points = points.map(|(at, count)| TrendPoint { at: instant::shown(at), count });
        FailureGroup {
            fingerprint,
            count,
            last_at: instant::shown(last_ms),
            last_job: last_job.0,
            queues: queues.into_iter().map(FailureShare::from).collect(),
            step_ms: trend.step_ms,
            trend: points.collect(),
        }
    }
}

impl From<Share> for FailureShare {
    fn from(Share { queue, count }: Share) -> FailureShare {
        let (queue, queue_base64) = naming::text_or_base64(&queue);
        FailureShare { queue, queue_base64, count }
    }
}

/// List the failures of the last hour or day, those that say the same together, whatever queues their
/// jobs were in. At most 512 are followed, each queue's apart: the most frequent ones, those of the
/// last hour counting most. Kept over restarts.
#[utoipa::path(get, path = "/api/v1/failures", operation_id = "list_failures", tag = "server",
    params(Asked),
    responses(
        (status = 200, description = "What failed", body = Failures),
        (status = "4XX", description = "Refused")))]
pub(crate) async fn list(
    State(api): State<Api>,
    mut pass: Pass,
    Args(asked): Args<Asked>,
) -> Answered<Json<Failures>> {
    let queue = queue_of(asked.queue.as_deref(), asked.queue_base64.as_deref())?;
    pass.allows(queue.as_deref().map_or(Target::AllQueues, Target::Queue))?;
    let limit = bounded("limit", asked.limit.unwrap_or(LIMIT), 1..=LIMIT_MAX)?;
    let max = points_of(asked.points)?;
    let now_ms = api.engine().now_ms();
    let range = asked.range.range();
    let found = api.options().history.book().failures(queue.as_deref(), range, now_ms, max, limit);
    let failures = found.into_iter().map(FailureGroup::from).collect();
    Ok(Json(Failures { range: asked.range, now: instant::shown(now_ms), failures }))
}
