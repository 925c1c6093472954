//! What the server did in the last hour and day.

use axum::Json;
use axum::extract::State;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use spindle_access::Target;
use spindle_history::{Points, QueueSlot, Range, ServerSlot, percentile_us};
use spindle_http::{Answered, Pass};
use utoipa::{IntoParams, ToSchema};

use crate::api::Api;
use crate::extract::Args;
use crate::numbers::bounded;
use crate::{instant, naming};

/// The most points there are: an hour of the server.
pub(crate) const POINTS_MAX: usize = 360;
/// Queues of a list.
const LIMIT: usize = 25;
/// The most queues of a list: as many as the server follows.
pub(crate) const LIMIT_MAX: usize = 128;

/// How far back.
#[derive(Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Span {
    /// The last hour.
    #[default]
    Hour,
    /// The last day.
    Day,
}

impl Span {
    pub fn range(self) -> Range {
        match self {
            Span::Hour => Range::Hour,
            Span::Day => Range::Day,
        }
    }
}

/// Which history.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Asked {
    /// `hour` (the default) or `day`.
    #[serde(default)]
    #[param(inline)]
    range: Span,
    /// At most so many points, 1 to 360; by default as many as there are: of the server 360 for an
    /// hour and 288 for a day, of a queue 60 and 96.
    #[param(minimum = 1, maximum = 360)]
    points: Option<usize>,
    /// Of this queue instead of the server.
    #[param(min_length = 1, max_length = 512)]
    queue: Option<String>,
    /// Of this queue, its name in base64. Both: they must be the same.
    #[param(format = "queue-base64")]
    queue_base64: Option<String>,
}

/// Which queues' history.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct QueuesAsked {
    /// `hour` (the default) or `day`.
    #[serde(default)]
    #[param(inline)]
    range: Span,
    /// At most so many points of each, 1 to 360; by default as many as there are: 60 for an hour and
    /// 96 for a day.
    #[param(minimum = 1, maximum = 360)]
    points: Option<usize>,
    /// At most so many queues, 1 to 128; 25 by default.
    #[param(minimum = 1, maximum = 128)]
    limit: Option<usize>,
}

/// What the server or a queue did, from point to point.
#[derive(Serialize, ToSchema)]
pub(crate) struct History {
    /// How far back it goes.
    #[schema(value_type = String, example = "hour")]
    range: Span,
    /// How long a point is.
    step_ms: u64,
    /// When the answer was made. The newest point goes on until then at most.
    now: String,
    /// The points, the oldest first. A time of which nothing is known, because no server ran or the
    /// queue was not followed yet, has no point.
    points: Vec<Point>,
}

/// A stretch of time, and what happened in it.
#[derive(Serialize, ToSchema, Default)]
#[schema(as = HistoryPoint)]
pub(crate) struct Point {
    /// When it began.
    at: String,
    /// How much of it is known. A count divided by this is a rate.
    seen_ms: u32,
    /// Jobs submitted.
    submitted: u32,
    /// Jobs done.
    done: u32,
    /// Attempts that failed, timed out or lost their worker.
    failed: u32,
    /// Jobs that died.
    dead: u32,
    /// Of a queue: its ready jobs at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    ready: Option<u32>,
    /// Of the server: how often it wrote to the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    commits: Option<u64>,
    /// Of the server: half of these took no longer, in microseconds. Exact within a factor of two.
    #[serde(skip_serializing_if = "Option::is_none")]
    commit_p50_us: Option<u64>,
    /// Of the server: 99 of 100 took no longer, in microseconds. Exact within a factor of two.
    #[serde(skip_serializing_if = "Option::is_none")]
    commit_p99_us: Option<u64>,
}

/// What the busiest queues did.
#[derive(Serialize, ToSchema)]
pub(crate) struct QueuesHistory {
    /// How far back it goes.
    #[schema(value_type = String, example = "hour")]
    range: Span,
    /// When the answer was made.
    now: String,
    /// The queues, the one with the most jobs first. Those without any in this time are not listed.
    queues: Vec<QueueHistory>,
}

/// What a queue did, from point to point.
#[derive(Serialize, ToSchema)]
pub(crate) struct QueueHistory {
    /// Its name, where it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    /// Its name in base64, where it is no UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = "queue-base64")]
    queue_base64: Option<String>,
    /// How long a point is.
    step_ms: u64,
    /// The points, the oldest first.
    points: Vec<Point>,
}

impl Point {
    pub(crate) fn of_server(at_ms: u64, slot: &ServerSlot) -> Point {
        let ServerSlot { seen_ms, submitted, done, failed, dead, ref commits } = *slot;
        Point {
            at: instant::shown(at_ms),
            seen_ms,
            submitted,
            done,
            failed,
            dead,
            commits: Some(commits.iter().map(|count| u64::from(*count)).sum()),
            commit_p50_us: percentile_us(commits, 0.5),
            commit_p99_us: percentile_us(commits, 0.99),
            ..Point::default()
        }
    }

    fn of_queue(at_ms: u64, slot: QueueSlot) -> Point {
        let QueueSlot { seen_ms, submitted, done, failed, dead, ready } = slot;
        Point {
            at: instant::shown(at_ms),
            seen_ms,
            submitted,
            done,
            failed,
            dead,
            ready: Some(ready),
            ..Point::default()
        }
    }
}

fn of_queue(slots: Points<QueueSlot>) -> Vec<Point> {
    slots.points.into_iter().map(|(at_ms, slot)| Point::of_queue(at_ms, slot)).collect()
}

/// The queue that a query names, as text or in base64. Two different names are treated as a queue
/// that does not exist.
pub(crate) fn queue_of(name: Option<&str>, base64: Option<&str>) -> Answered<Option<Bytes>> {
    let name = name.map(|name| naming::queue(Some(name), None)).transpose()?;
    let coded = base64.map(|text| naming::queue(None, Some(text))).transpose()?;
    Ok(match (name, coded) {
        (Some(name), Some(coded)) if name != coded => Some(Bytes::new()),
        (name, coded) => name.or(coded),
    })
}

pub(crate) fn points_of(asked: Option<usize>) -> Answered<usize> {
    bounded("points", asked.unwrap_or(POINTS_MAX), 1..=POINTS_MAX)
}

/// Show what the server did, or what went through a queue, in the last hour or day: rates, and how
/// long commits took or how many jobs were ready. Kept over restarts. A queue that is not among the
/// 128 that are followed has no points.
#[utoipa::path(get, path = "/api/v1/history", operation_id = "show_history", tag = "server",
    params(Asked),
    responses(
        (status = 200, description = "The points that are known", body = History),
        (status = "4XX", description = "Refused")))]
pub(crate) async fn show(
    State(api): State<Api>,
    mut pass: Pass,
    Args(asked): Args<Asked>,
) -> Answered<Json<History>> {
    let queue = queue_of(asked.queue.as_deref(), asked.queue_base64.as_deref())?;
    pass.allows(queue.as_deref().map_or(Target::AllQueues, Target::Queue))?;
    let max = points_of(asked.points)?;
    let (now_ms, range) = (api.engine().now_ms(), asked.range.range());
    let book = api.options().history.book();
    let (step_ms, points) = match &queue {
        Some(queue) => {
            let slots = book.queue(queue, range, now_ms, max);
            (slots.step_ms, of_queue(slots))
        }
        None => {
            let slots = book.server(range, now_ms, max);
            let points = slots.points.iter().map(|(at, slot)| Point::of_server(*at, slot));
            (slots.step_ms, points.collect())
        }
    };
    Ok(Json(History { range: asked.range, step_ms, now: instant::shown(now_ms), points }))
}

/// Show what went through the busiest queues in the last hour or day. At most 128 queues are
/// followed: those with the most jobs, those of the last hour counting most.
#[utoipa::path(get, path = "/api/v1/history/queues", operation_id = "list_queue_history",
    tag = "server", params(QueuesAsked),
    responses(
        (status = 200, description = "The busiest queues", body = QueuesHistory),
        (status = "4XX", description = "Refused")))]
pub(crate) async fn queues(
    State(api): State<Api>,
    Args(asked): Args<QueuesAsked>,
) -> Answered<Json<QueuesHistory>> {
    let limit = bounded("limit", asked.limit.unwrap_or(LIMIT), 1..=LIMIT_MAX)?;
    let max = points_of(asked.points)?;
    let now_ms = api.engine().now_ms();
    let found = api.options().history.book().busiest(asked.range.range(), now_ms, max, limit);
    let queues = found.into_iter().map(|(name, slots)| {
        let (queue, queue_base64) = naming::text_or_base64(&name);
        QueueHistory { queue, queue_base64, step_ms: slots.step_ms, points: of_queue(slots) }
    });
    let queues = queues.collect();
    Ok(Json(QueuesHistory { range: asked.range, now: instant::shown(now_ms), queues }))
}
