//! What people see of a job while a worker has it: its progress and its output. `reports.rs` has
//! what workers send.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event as Sse, KeepAlive, Sse as Stream};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::{Deserialize, Serialize};
use serde_json::json;
use spindle_access::{Role, Target};
use spindle_core::{JobId, Status};
use spindle_engine::{Activity, JobRef, OutputFrom, OutputPage, OutputPiece, Progress, Refused};
use spindle_http::{Answered, Pass, Problem, Wait, no_job};
use tokio::select;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};
use utoipa::{IntoParams, ToSchema};

use super::jobs;
use crate::api::Api;
use crate::extract::{Args, JobPath, last_event_id};
use crate::instant;
use crate::numbers::{bounded, digits, wait_ms};
use crate::routes::events::KEEP_ALIVE;
use crate::view::{ProgressShown, status_word, text};

/// The most of `tail_bytes`.
const TAIL_BYTES_MAX: usize = 64 * 1024;
/// How long to wait when too many wait already.
const CROWDED_PAUSE: Duration = Duration::from_secs(1);

/// Where to go on.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct OutputAsked {
    /// The `next` of the page before; 0 (the default) begins with the oldest output that is kept.
    #[serde(default)]
    from: u64,
    /// Begin with the piece that has the byte so many bytes before the end; at most 65536. It goes
    /// before `from`. With 0, `next` says how much was written in all.
    #[param(maximum = 65_536)]
    tail_bytes: Option<usize>,
    /// Wait so many seconds, at most 300, until there is output or the job has ended; 0 (the
    /// default) does not wait.
    #[serde(default)]
    #[param(maximum = 300)]
    wait_s: u64,
}

impl OutputAsked {
    fn begin(&self) -> Answered<OutputFrom> {
        let Some(bytes) = self.tail_bytes else { return Ok(OutputFrom::Offset(self.from)) };
        Ok(OutputFrom::End(bounded("tail_bytes", bytes, 0..=TAIL_BYTES_MAX)?))
    }
}

/// Some of a job's output.
#[derive(Serialize, ToSchema)]
pub(crate) struct OutputShown {
    /// What was written, in order; up to 64 KiB and one piece.
    pieces: Vec<PieceShown>,
    /// Where to go on. Lower than `from` if the server was started anew.
    next: u64,
    /// Where the job stands.
    status: &'static str,
}

/// Something a worker wrote.
#[derive(Serialize, ToSchema)]
#[schema(as = OutputPiece)]
pub(crate) struct PieceShown {
    /// How many bytes of output the job had before. Where it is higher than the `next` before, what
    /// lay between is not kept any more.
    offset: u64,
    /// When it came.
    at: String,
    /// The attempt that wrote it.
    attempt: u32,
    /// What it wrote. What is no UTF-8 is shown as U+FFFD.
    text: String,
}

impl PieceShown {
    fn of(piece: &OutputPiece) -> PieceShown {
        PieceShown {
            offset: piece.offset,
            at: instant::shown(piece.at_ms),
            attempt: piece.attempt,
            text: text(&piece.bytes),
        }
    }
}

/// What a job's workers wrote while they worked: the newest 256 KiB, as long as the server runs.
#[utoipa::path(get, path = "/api/v1/jobs/{id}/output", operation_id = "read_job_output",
    tag = "jobs", params(JobPath, OutputAsked),
    responses(
        (status = 200, description = "Output; none yet is an empty list", body = OutputShown),
        (status = "4XX", description = "No such job")))]
pub(crate) async fn output(
    State(api): State<Api>,
    JobPath(which): JobPath,
    Args(asked): Args<OutputAsked>,
    mut pass: Pass,
) -> Answered<Json<OutputShown>> {
    let begin = asked.begin()?;
    let until = Instant::now() + Duration::from_millis(wait_ms(asked.wait_s)?);
    let id = jobs::find(&api, which).await?;
    loop {
        let change = api.bridge().next_change(id);
        let Some(seen) = look(&api, id, begin).await else { return Err(no_job()) };
        let Activity { status, output: OutputPage { pieces, next }, .. } = seen;
        let is_news = !pieces.is_empty() || next < asked.from || status.is_finished();
        if is_news || timeout_at(until, changed(change)).await.is_err() {
            let pieces = pieces.iter().map(PieceShown::of).collect();
            return Ok(Json(OutputShown { pieces, next, status: status_word(status) }));
        }
        pass.allows_job(api.bridge(), which).await?;
    }
}

async fn look(api: &Api, id: JobId, from: OutputFrom) -> Option<Activity> {
    api.bridge().durable(api.engine().jobs().activity(id, from)).await
}

/// Waits for the change that was asked for. If too many wait already, waits a moment instead, so that
/// the job is looked at again all the same.
async fn changed(change: Result<Wait<'_>, Refused>) {
    match change {
        Ok(wait) => drop(wait.answered().await),
        Err(_) => sleep(CROWDED_PAUSE).await,
    }
}

/// Where to begin.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct FollowAsked {
    /// The offset to begin at in the job's output; `Last-Event-ID` goes before it. 0 by default.
    #[serde(default)]
    from: u64,
    /// Whether to go on with what happens from now on. If not, the stream ends with what is there.
    /// True by default.
    follow: Option<bool>,
}

/// One event of a job.
#[derive(ToSchema)]
#[expect(dead_code, reason = "only described: events are written line by line")]
pub(crate) struct JobEvent {
    /// With `output`: the offset behind it, for `from` and `Last-Event-ID`.
    #[schema(example = "512")]
    id: Option<String>,
    /// `status`, `progress`, `output`; then `ended` or `gone`, and the stream ends.
    #[schema(example = "output")]
    event: Option<String>,
    /// A JSON object: `job`, `type` and what it is about.
    data: Option<String>,
}

/// Follow one job: its status, progress and output as they change, until it is done or dead. Statuses
/// that pass quickly may be left out. Output is for those who may see payloads.
#[utoipa::path(get, path = "/api/v1/jobs/{id}/events", operation_id = "follow_job", tag = "jobs",
    params(JobPath, FollowAsked, ("Last-Event-ID" = Option<String>, Header, format = "offset",
        description = "The id of the last event that was seen")),
    responses(
        (status = 200, description = "Events, until the job has ended", body = JobEvent,
            content_type = "text/event-stream"),
        (status = "4XX", description = "No such job")))]
pub(crate) async fn follow(
    State(api): State<Api>,
    JobPath(which): JobPath,
    Args(asked): Args<FollowAsked>,
    pass: Pass,
    headers: HeaderMap,
) -> Answered<Response> {
    let id = jobs::find(&api, which).await?;
    let last = last_event_id(&headers).map(|last| {
        digits(last).ok_or_else(|| Problem::out_of_range("Last-Event-ID is an offset of output"))
    });
    let from = last.transpose()?.unwrap_or(asked.from);
    let stopping = api.stopping();
    let follower = Follower {
        api,
        pass,
        id,
        from,
        follow: asked.follow.unwrap_or(true),
        status: None,
        progress: None,
        events: VecDeque::new(),
        has_ended: false,
        stopping,
    };
    let events = stream::unfold(follower, |mut follower| async move {
        let event = follower.next().await?;
        Some((Ok::<_, Infallible>(event), follower))
    });
    Ok(Stream::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response())
}

/// One client that follows a job.
struct Follower {
    api: Api,
    /// The client's rights: the stream ends when it may not see the job any more.
    pass: Pass,
    id: JobId,
    /// The offset of the next output.
    from: u64,
    /// Whether to wait for more at the end.
    follow: bool,
    /// The status that was sent last.
    status: Option<Status>,
    progress: Option<Progress>,
    /// To be sent.
    events: VecDeque<Sse>,
    has_ended: bool,
    stopping: watch::Receiver<bool>,
}

impl Follower {
    /// The next event; none when the stream ends.
    async fn next(&mut self) -> Option<Sse> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            if self.has_ended || *self.stopping.borrow() {
                return None;
            }
            self.pass.allows_job(self.api.bridge(), JobRef::Id(self.id)).await.ok()?;
            let api = self.api.clone();
            let change = api.bridge().next_change(self.id);
            match look(&api, self.id, OutputFrom::Offset(self.from)).await {
                Some(seen) => self.take(seen).await,
                None => self.end("gone", json!({})),
            }
            let may_change = self.status.is_none_or(|status| !status.is_finished());
            if self.events.is_empty() && may_change {
                if !self.follow {
                    return None;
                }
                select! {
                    () = changed(change) => {}
                    _ = self.stopping.changed() => {}
                }
            }
        }
    }

    /// Sends what is new.
    async fn take(&mut self, Activity { status, progress, output }: Activity) {
        if self.status != Some(status) && !status.is_finished() {
            self.push("status", None, json!({ "status": status_word(status) }));
        }
        self.status = Some(status);
        if self.progress != progress {
            self.progress = progress.clone();
            if let Some(progress) = progress {
                self.push("progress", None, json!(ProgressShown::from(progress)));
            }
        }
        self.from = output.next;
        if !output.pieces.is_empty() && self.may_inspect().await {
            for piece in &output.pieces {
                self.push("output", Some(piece.end()), json!(PieceShown::of(piece)));
            }
        }
        // There may be more pages of output.
        if status.is_finished() && output.pieces.is_empty() {
            self.end("ended", json!({ "status": status_word(status) }));
        }
    }

    /// Whether the client may see output. This is checked each time, because the token may have
    /// lost the role, or the job may have been moved.
    async fn may_inspect(&mut self) -> bool {
        let queue = self.api.engine().jobs().queue_of(JobRef::Id(self.id));
        let queue = self.api.bridge().durable(queue).await;
        self.pass.allows_as(Role::Inspect, Target::Job(&mut || queue.clone())).is_ok()
    }

    fn end(&mut self, kind: &str, data: serde_json::Value) {
        self.has_ended = true;
        self.push(kind, None, data);
    }

    fn push(&mut self, kind: &str, id: Option<u64>, mut data: serde_json::Value) {
        data["type"] = kind.into();
        data["job"] = self.id.0.into();
        let event = Sse::default().event(kind).data(data.to_string());
        self.events.push_back(match id {
            Some(id) => event.id(id.to_string()),
            None => event,
        });
    }
}
