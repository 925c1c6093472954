//! What workers do: register, ask for jobs, leave.

use axum::body::Body as HttpBody;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use spindle_engine::Peer;
use spindle_http::{Answered, Code, GuardedBody, Pass, Problem, TRACEPARENT, trace_header};
use tokio::time::Instant;

use crate::body::{Body, Wanted};
use crate::door::LightJq;
use crate::extract::{Caller, PollTimeout, no_worker, worker_id};
use crate::registry::Profile;
use crate::routes::schema;
use crate::take::allows_names;
use crate::target::{Target, TargetError};
use crate::wire::{Pack, Registration};
use crate::worker_id::WorkerId;

/// Register a worker. One that sends its worker-id keeps it, and its jobs, also when the server was
/// started anew meanwhile.
#[utoipa::path(post, path = "/worker", operation_id = "register_worker", tag = "workers",
    request_body = schema::NewWorker,
    params(("worker-id" = Option<String>, Header, format = "uuid",
        description = "The id it has already, if it has one")),
    responses(
        (status = 201, description = "It is registered", body = schema::Registered),
        (status = 403, description = "The url is not the caller's own address"),
        (status = "4XX", description = "Refused")))]
pub(crate) async fn register(
    State(door): State<LightJq>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
    pass: Pass,
    wanted: Wanted,
    body: Body,
) -> Answered<Response> {
    let given = body.read(Registration::decode).await?;
    let id = worker_id(&headers)?.unwrap_or_else(WorkerId::random);
    let target = given.url.as_deref().map(|url| target(&door, url, peer.map(|it| it.0)));
    let Registration { name, max_jobs, names, .. } = given;
    let mut login = pass.into_login();
    door.may_speak_for(id, &login)?;
    allows_names(&mut login, names.as_deref())?;
    let profile = Profile { name, max_jobs, names, target: target.transpose()?, login };
    let now_ms = door.engine().steady_ms();
    let entered = door.registry().enter(id, profile, now_ms);
    let Some(entered) = entered else {
        return Err(Problem::new(Code::TooMany, "there are as many workers as there may be"));
    };
    door.begin_sweeping();
    if let Some(lost) = entered.replaced {
        tracing::info!("lightjq: worker {} ({}) is there anew, as {id}", lost.name, lost.id);
        door.give_up_all(lost).await;
    }
    if entered.to_serve {
        tokio::spawn(door.clone().serve(id));
    }
    let mut pack = Pack::new();
    pack.map(1).text("worker_id").text(&id.to_string());
    wanted.answer(StatusCode::CREATED, pack.into_bytes()).await
}

fn target(door: &LightJq, url: &str, peer: Option<Peer>) -> Answered<Target> {
    let read = if door.options().allow_urls {
        Target::read(url, None)
    } else {
        let unknown = || Problem::new(Code::UrlNotOwn, "nobody knows where you call from");
        Target::read(url, Some(peer.ok_or_else(unknown)?.address.ip()))
    };
    read.map_err(|error| {
        let code = match error {
            TargetError::Malformed => Code::OutOfRange,
            TargetError::NotOwn(_) => Code::UrlNotOwn,
        };
        Problem::new(code, error.to_string())
    })
}

/// Unregister a worker. The jobs it has go back.
#[utoipa::path(delete, path = "/worker", operation_id = "leave", tag = "workers",
    params(Caller),
    responses(
        (status = 204, description = "It is gone"),
        (status = "4XX", description = "There is no such worker")))]
pub(crate) async fn leave(State(door): State<LightJq>, Caller(id): Caller) -> Answered<StatusCode> {
    let lost = door.registry().remove(id).ok_or_else(no_worker)?;
    door.give_up_all(lost).await;
    Ok(StatusCode::NO_CONTENT)
}

/// A job for a worker that has no server of its own. It has at most `max_jobs` at once.
#[utoipa::path(get, path = "/worker/job", operation_id = "next_job", tag = "workers",
    params(Caller, PollTimeout),
    responses(
        (status = 200, description = "A job", body = schema::Order),
        (status = 204, description = "Nothing to do"),
        (status = "4XX", description = "There is no such worker: register again")))]
pub(crate) async fn next_job(
    State(door): State<LightJq>,
    Caller(id): Caller,
    pass: Pass,
    wanted: Wanted,
    PollTimeout(wait): PollTimeout,
) -> Answered<Response> {
    let now_ms = door.engine().steady_ms();
    door.registry().seen(id, now_ms);
    let Some(taken) = door.take(id, Some(Instant::now() + wait), pass.into_login()).await? else {
        return Ok(StatusCode::NO_CONTENT.into_response());
    };
    let trace = taken.job.trace;
    let body = GuardedBody::new(wanted.bytes(taken.order).await?, vec![taken.lease_guard]);
    let mut response = wanted.with(StatusCode::OK, HttpBody::new(body));
    if let Some(trace) = trace {
        response.headers_mut().insert(TRACEPARENT, trace_header(trace));
    }
    Ok(response)
}
