//! The routes of a queue's settings.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use spindle_core::Rejection;
use spindle_core::audit::Action;
use spindle_core::job::Origin;
use spindle_core::queue::QueueSettings;
use spindle_engine::{Engine, Refused};
use spindle_http::{Answered, Code, Pass, Problem};

use crate::api::Api;
use crate::extract::{JsonBody, QueuePath};
use crate::precondition::Precondition;
use crate::routes::queues::{QueueAnswer, QueueInFull, changed, no_queue};
use crate::settings::{Settings, holds, replace};

/// A queue's settings, just as a request to replace them takes them.
#[utoipa::path(get, path = "/api/v1/queues/{name}/settings",
    operation_id = "show_settings", tag = "queues", params(QueuePath),
    responses(
        (status = 200, description = "The settings; ETag tells them from others", body = Settings),
        (status = "4XX", description = "No such queue")))]
pub(crate) async fn show(
    State(api): State<Api>,
    QueuePath(name): QueuePath,
) -> Answered<([(HeaderName, HeaderValue); 1], Json<Settings>)> {
    let view = api.bridge().durable(api.engine().queues().view(&name)).await;
    let settings = Settings::of(&view.ok_or_else(no_queue)?.settings);
    Ok(([(header::ETAG, settings.tag())], Json(settings)))
}

/// Replace a queue's settings; what is left out becomes the default. Pausing is not among them. A
/// queue that is not there comes to be.
#[utoipa::path(put, path = "/api/v1/queues/{name}/settings",
    operation_id = "set_queue", tag = "queues", request_body = Settings,
    params(QueuePath,
        ("If-Match" = Option<String>, Header, format = "entity-tag",
            description = "The ETag of the queue or its settings as they were read: only if the \
                           settings are still those. `*`: only if there is such a queue"),
        ("If-None-Match" = Option<String>, Header, format = "star",
            description = "`*`: only if there is no such queue")),
    responses(
        (status = 200, description = "The queue as it is now", body = QueueInFull),
        (status = 412, description = "They changed meanwhile"),
        (status = "4XX", description = "Refused")))]
pub(crate) async fn set(
    State(api): State<Api>,
    QueuePath(name): QueuePath,
    headers: HeaderMap,
    pass: Pass,
    JsonBody { value, .. }: JsonBody<Settings>,
) -> Answered<QueueAnswer> {
    let new = value.read()?;
    let wanted = Precondition::of(&headers)?;
    let change = |is_there: bool, settings: &mut QueueSettings| {
        if !holds(wanted, is_there, settings) {
            return Err(Rejection::Stale);
        }
        replace(settings, &new);
        Ok(())
    };
    let mut audit = pass.audit(Origin::Api);
    let set = |engine: &Engine| {
        engine.people(&mut audit).change_queue_seen(Action::SetQueue, &name, change)
    };
    let set = api.bridge().change(set).await;
    if let Err(Refused::Rejected(Rejection::Stale)) = set {
        let detail = match wanted {
            Precondition::Exists => "there is no such queue",
            Precondition::Absent => {
                "there is such a queue: read its settings, and send their ETag \
                                  as If-Match"
            }
            _ => "the settings changed since they were read: read them again and decide anew",
        };
        return Err(Problem::new(Code::RevisionMismatch, detail));
    }
    set?;
    changed(&api, &name).await
}
