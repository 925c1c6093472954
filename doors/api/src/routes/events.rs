//! Everything that happens, as server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event as Sse, KeepAlive, Sse as Stream};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use spindle_access::Target;
use spindle_core::event::{Edited, Event, Leased, Requeued};
use spindle_core::job::Outcome;
use spindle_core::{JobImage, Status, Type, cut_text};
use spindle_engine::{FeedError, FeedEvent, FeedId, Refused};
use tokio::select;
use tokio::sync::watch;
use utoipa::{IntoParams, ToSchema};

use crate::api::Api;
use crate::deletion::Deletion;
use crate::extract::{Args, last_event_id};
use crate::instant;
use crate::naming;
use crate::view::{cause_word, error_text, status_word, text};
use spindle_http::{Answered, Pass, Problem, door_word};

/// The longest text of a worker that is shown, in bytes; the job has it in full.
const WORD_BYTES_MAX: usize = 1024;
/// Events read from the log at once.
const PAGE: usize = 128;
/// How often a comment is sent while nothing happens, so that no proxy takes the connection for dead.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long to wait when too many wait already.
const CROWDED_PAUSE: Duration = Duration::from_secs(1);

/// Where to begin.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Asked {
    /// Begin behind this event; `Last-Event-ID` goes before it. `oldest` begins with the oldest
    /// event that is kept. Without it, only what happens from now on is sent.
    #[param(pattern = "^(oldest|[0-9]{1,15}\\.[0-9]{1,9})$")]
    after: Option<String>,
    /// Whether to go on with what happens from now on. If not, the stream ends with the newest
    /// event there is; without `after` it then has none. True by default.
    follow: Option<bool>,
}

/// One event of the stream.
#[derive(ToSchema)]
#[expect(dead_code, reason = "only described: events are written line by line")]
pub(crate) struct StreamEvent {
    /// Its place in the feed, for `after` and `Last-Event-ID`.
    #[schema(example = "16.0")]
    id: Option<String>,
    /// What happened, the same as `type` in `data`.
    #[schema(example = "submitted")]
    event: Option<String>,
    /// A JSON object: `type`, when it was (`at`), and what it is about.
    data: Option<String>,
}

/// Follow what happens on this server: every durable event, in order. A stream that broke off is
/// resumed by its last id; a stream that begins now says first, without an event, at which id. An
/// event `gap` says that what came next is not kept any more.
#[utoipa::path(get, path = "/api/v1/events", operation_id = "follow_events", tag = "server",
    params(Asked, ("Last-Event-ID" = Option<String>, Header, format = "feed-id",
        description = "The id of the last event that was seen")),
    responses(
        (status = 200, description = "Events, without end", body = StreamEvent,
            content_type = "text/event-stream"),
        (status = "4XX", description = "Refused")))]
pub(crate) async fn events(
    State(api): State<Api>,
    Args(asked): Args<Asked>,
    pass: Pass,
    headers: HeaderMap,
) -> Answered<Response> {
    let resumed = last_event_id(&headers);
    let from = match (resumed, asked.after.as_deref()) {
        (Some(text), _) => Some(read_id(text)?),
        (None, Some("oldest")) => None,
        (None, Some(text)) => Some(read_id(text)?),
        (None, None) => Some(end_of(&api)),
    };
    // Sent first, so that a client whose stream breaks off before any event still knows where it
    // began.
    let begins = from.map(|id| Ok(Sse::default().id(id.to_string())));
    let begins = stream::iter(begins.filter(|_| resumed.is_none() && asked.after.is_none()));
    let stopping = api.stopping();
    let follow = asked.follow.unwrap_or(true);
    let follower = Follower { api, pass, from, follow, stopping, page: Vec::new().into_iter() };
    let events = stream::unfold(follower, |mut follower| async move {
        let event = follower.next().await?;
        Some((Ok::<_, Infallible>(event), follower))
    });
    let alive = KeepAlive::new().interval(KEEP_ALIVE);
    Ok(Stream::new(begins.chain(events)).keep_alive(alive).into_response())
}

fn read_id(text: &str) -> Answered<FeedId> {
    text.parse()
        .map_err(|error: spindle_engine::FeedIdError| Problem::out_of_range(error.to_string()))
}

/// The place behind everything durable.
fn end_of(api: &Api) -> FeedId {
    FeedId { position: api.engine().durable().0, index: 0 }
}

/// One client's place in the feed. Nothing is read ahead of what it takes.
struct Follower {
    api: Api,
    /// The client's rights: the stream ends when it may not see events any more.
    pass: Pass,
    /// None: the oldest.
    from: Option<FeedId>,
    /// Whether to wait for more at the end.
    follow: bool,
    stopping: watch::Receiver<bool>,
    page: std::vec::IntoIter<(FeedId, FeedEvent)>,
}

impl Follower {
    /// The next event; none when the stream ends.
    async fn next(&mut self) -> Option<Sse> {
        loop {
            if *self.stopping.borrow() {
                return None;
            }
            if let Some((id, event)) = self.page.next() {
                self.from = Some(id);
                if let Some(rendered) = rendered(id, &event) {
                    return Some(rendered);
                }
                continue;
            }
            self.pass.allows(Target::AllQueues).ok()?;
            match self.api.engine().feed().page(self.from, PAGE) {
                Ok(page) if page.events.is_empty() && Some(page.next) == self.from => {
                    if !self.follow {
                        return None;
                    }
                    self.wait(page.next).await;
                }
                Ok(page) if page.events.is_empty() => self.from = Some(page.next),
                Ok(page) => self.page = page.events.into_iter(),
                Err(FeedError::Gap { first }) => {
                    self.from = None;
                    return Some(gap("trimmed", &json!({ "first_position": first })));
                }
                Err(FeedError::Ahead { .. }) => {
                    self.from = Some(end_of(&self.api));
                    return Some(gap("unknown_id", &json!({})));
                }
                Err(error) => {
                    tracing::error!("an event stream ends: {error}");
                    return None;
                }
            }
        }
    }

    /// Waits until there is something new, or the server stops.
    async fn wait(&mut self, after: FeedId) {
        let bridge = self.api.bridge();
        let caller = bridge.caller();
        let ticket = match self.api.engine().feed().wait(&caller, after) {
            Ok(ticket) => ticket,
            Err(Refused::TooMany(_)) => return tokio::time::sleep(CROWDED_PAUSE).await,
            Err(_) => return,
        };
        let wait = bridge.wait(caller, ticket);
        select! {
            _ = wait.answered() => {}
            _ = self.stopping.changed() => {}
        }
    }
}

fn gap(reason: &str, more: &Value) -> Sse {
    let mut data = json!({ "type": "gap", "reason": reason });
    if let (Some(data), Some(more)) = (data.as_object_mut(), more.as_object()) {
        data.extend(more.clone());
    }
    Sse::default().event("gap").data(data.to_string())
}

fn rendered(id: FeedId, event: &FeedEvent) -> Option<Sse> {
    let (kind, mut data) = described(&event.event)?;
    data.insert("type".to_owned(), kind.into());
    data.insert("at".to_owned(), instant::shown(event.at_ms).into());
    let data = Value::Object(data).to_string();
    Some(Sse::default().id(id.to_string()).event(kind).data(data))
}

/// An event's name and its data; `None` for an event that concerns only the server.
fn described(event: &Event) -> Option<(&'static str, Map<String, Value>)> {
    let (kind, data) = match event {
        Event::Submitted(image) => ("submitted", of_image(image)),
        Event::Retried(image) => ("retried", of_image(image)),
        Event::Persisted(image) => ("persisted", of_image(image)),
        Event::Finished(image) => (status_word(image.status()), of_finished(image)),
        Event::Leased(leased) => ("leased", of_leased(leased)),
        Event::Extended(extended) => {
            let until = extended.deadline_ms.map(instant::shown);
            ("extended", json!({ "job": extended.id, "deadline_at": until }))
        }
        Event::Requeued(requeued) => ("requeued", of_requeued(requeued)),
        Event::Deleted(deleted) => {
            let shown = Deletion::from(deleted.deletion);
            ("deleted", json!({ "job": deleted.id, "deletion": shown }))
        }
        Event::Undeleted(undeleted) => ("undeleted", json!({ "job": undeleted.id })),
        Event::Ready(ready) => ("ready", json!({ "job": ready.id })),
        Event::BlockerEnded(ended) => {
            let status = status_word(ended.status());
            ("unblocked", json!({ "job": ended.id, "ended": ended.ended, "status": status }))
        }
        Event::Gone(gone) => {
            ("gone", json!({ "jobs": gone.ids, "cause": cause_word(gone.cause()) }))
        }
        Event::Edited(edited) => ("edited", of_edited(edited)),
        Event::ResultRead(read) => {
            let until = instant::shown(read.kept_until_ms);
            ("result_read", json!({ "job": read.id, "kept_until": until }))
        }
        Event::StateSet(set) => ("state_set", json!({ "job": set.id })),
        Event::QueueSet(set) => {
            let mut data = json!({ "paused": set.settings.paused });
            put_queue(&mut data, &set.name);
            ("queue_set", data)
        }
        Event::ConstraintSet(set) => {
            let name = String::from_utf8_lossy(&set.constraint.name).into_owned();
            let number = set.constraint.number;
            ("constraint_set", json!({ "constraint": number, "name": name }))
        }
        Event::ConstraintRemoved(removed) => {
            ("constraint_removed", json!({ "constraint": removed.number }))
        }
        Event::Relabelled(relabelled) => ("relabelled", json!({ "job": relabelled.id })),
        Event::Started(started) => ("started", json!({ "epoch": started.epoch })),
        _ => return None,
    };
    match data {
        Value::Object(data) => Some((kind, data)),
        _ => None,
    }
}

fn of_image(image: &JobImage) -> Value {
    let mut data = json!({
        "job": image.id,
        "status": status_word(image.status()),
        "origin": door_word(image.origin()),
        "priority": image.priority,
    });
    put_queue(&mut data, &image.queue);
    data
}

fn of_finished(image: &JobImage) -> Value {
    let mut data = of_image(image);
    if let Some(outcome) = &image.outcome {
        put_words(&mut data, outcome, image.error_type());
    }
    data
}

/// What a worker said at the end of an attempt, or the server for it.
fn put_words(data: &mut Value, outcome: &Outcome, error_type: Type) {
    let words = [
        ("code", text(&outcome.code)),
        ("message", text(&outcome.message)),
        ("error", error_text(&outcome.error, error_type)),
    ];
    let Some(data) = data.as_object_mut() else { return };
    for (name, word) in words.into_iter().filter(|(_, word)| !word.is_empty()) {
        let shown = String::from_utf8_lossy(cut_text(word.as_bytes(), WORD_BYTES_MAX));
        data.insert(name.to_owned(), shown.into());
    }
}

fn of_leased(leased: &Leased) -> Value {
    json!({
        "job": leased.id,
        "attempt": leased.attempts,
        "door": door_word(leased.lease.door()),
        "worker": String::from_utf8_lossy(&leased.lease.worker),
        "deadline_at": leased.lease.deadline_ms.map(instant::shown),
    })
}

fn of_requeued(requeued: &Requeued) -> Value {
    let mut data = json!({
        "job": requeued.id,
        "cause": cause_word(requeued.cause()),
        "attempts": requeued.attempts,
        "fails": requeued.fails,
        "run_at": requeued.run_at_ms.map(instant::shown),
    });
    if let Some(outcome) = &requeued.outcome {
        put_words(&mut data, outcome, outcome.error_kind());
    }
    data
}

fn of_edited(edited: &Edited) -> Value {
    let status = Status::try_from(edited.status).map(status_word).unwrap_or_default();
    let mut data = json!({
        "job": edited.id,
        "priority": edited.priority,
        "status": status,
        "run_at": edited.run_at_ms.map(instant::shown),
    });
    if let Some(queue) = &edited.queue {
        put_queue(&mut data, queue);
    }
    data
}

fn put_queue(data: &mut Value, name: &[u8]) {
    let (text, base64) = naming::text_or_base64(name);
    let named = text.map(|text| ("queue", text)).or(base64.map(|text| ("queue_base64", text)));
    if let (Some(data), Some((field, text))) = (data.as_object_mut(), named) {
        data.insert(field.to_owned(), text.into());
    }
}
