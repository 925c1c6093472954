//! The routes: they turn requests into calls of the engine, and the results into answers.

use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Deserialize;
use spindle_access::Target;
use spindle_core::command::Submit;
use spindle_core::job::{JOB_ID_END, Origin};
use spindle_core::queue::QUEUE_NAME_BYTES_MAX;
use spindle_core::{BytesRef, JobId, JobImage, Rejection, Type};
use spindle_engine::{
    Before, Engine, FetchError, JobRef, JobUpdate, NewJob, Payload, Refused, Updated,
};
use spindle_http::{Pass, Trace, read_body, work_on_bytes};

use crate::bodies::{ListBody, NewBody, PollBody, StateBody};
use crate::door::{Clients, Jobq};
use crate::history::{self, Entry};
use crate::json;
use crate::refusal::{Answered, Refusal};
use crate::show::{self, Modified};

/// The queue of jobs whose creator names none.
const QUEUE: &str = "jobq";

type AnsweredText = Answered<Response>;

fn answer(text: String) -> Response {
    let json = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, json)], text).into_response()
}

/// Reads the body of a request.
async fn read<T: Send + 'static>(
    door: &Jobq,
    request: Request,
    read: fn(&[u8]) -> Answered<T>,
) -> Answered<T> {
    let body = read_body(request, door.options().body).await?;
    work_on_bytes(body.len(), move || read(&body)).await
}

/// `GET /api/v0/job`
pub async fn list(State(door): State<Jobq>) -> AnsweredText {
    listed(&door, ListBody::read(b"")?).await
}

/// `POST /api/v0/job`
pub async fn query(State(door): State<Jobq>, request: Request) -> AnsweredText {
    let body = read(&door, request, ListBody::read).await?;
    listed(&door, body).await
}

async fn listed(door: &Jobq, body: ListBody) -> AnsweredText {
    let found = door.query_thread().list(body).await;
    door.bridge().durable(found).await.map(answer)
}

/// `POST /api/v0/job/poll`
pub async fn poll(State(door): State<Jobq>, request: Request) -> AnsweredText {
    let body = read(&door, request, PollBody::read).await?;
    door.bridge().room(0).await?;
    let found = door.query_thread().poll(body).await;
    door.bridge().durable(found).await.map(answer)
}

/// What stands behind the question mark of a create.
#[derive(Deserialize)]
pub struct CreateArgs {
    queue: Option<String>,
    ready: Option<String>,
}

/// `POST /api/v0/job/create`
pub async fn create(
    State(door): State<Jobq>,
    mut pass: Pass,
    Trace(trace): Trace,
    args: Result<Query<CreateArgs>, axum::extract::rejection::QueryRejection>,
    request: Request,
) -> AnsweredText {
    let Query(args) = args.map_err(|error| Refusal::body(error.body_text()))?;
    let queue = args.queue.unwrap_or_else(|| QUEUE.to_owned());
    if !(1..=QUEUE_NAME_BYTES_MAX).contains(&queue.len()) {
        let message = format!("a queue's name has 1 to {QUEUE_NAME_BYTES_MAX} bytes");
        return Err(Refusal::body(message));
    }
    pass.allows(Target::Queue(queue.as_bytes()))?;
    let ready = match args.ready.as_deref() {
        None | Some("0" | "false") => false,
        Some("" | "1" | "true") => true,
        Some(_) => return Err(Refusal::body("`ready` is 1 or 0")),
    };
    let new = |body: &[u8]| {
        let NewBody { payload, state, form } = NewBody::read(body)?;
        Ok((Bytes::copy_from_slice(payload.as_bytes()), state.to_owned(), form))
    };
    let (payload, state, form) = read(&door, request, new).await?;
    let empty = BytesRef::empty(Type::Json);
    let created = Entry::created(form, door.bridge().engine().now_ms());
    let mut submit = Submit::new(JobId(0), Bytes::from(queue), Origin::Jobq, empty);
    submit.trace = trace;
    if !ready {
        submit.parked = true;
        submit.state = Some(Bytes::copy_from_slice(state.as_bytes()));
        submit.event = Some(created.encode());
    }
    let job = NewJob { submit, payload: Payload::new(payload.clone(), Type::Json) };
    let submit = |engine: &Engine| engine.jobs().submit(job);
    let id = door.bridge().change_with(payload.len(), submit).await?;
    // As it was created: others may have changed it by now.
    let state = if ready { history::ready() } else { state };
    let events = format!("[{}]", created.json);
    let image = door.bridge().engine().jobs().get(JobRef::Id(id))?;
    let image = image.without_waiting("when a job was created is in the record that is durable");
    let created_ms = image.map_or(created.at_ms, |image| image.created_ms);
    let shown = work_on_bytes(payload.len() + state.len(), move || {
        let payload = String::from_utf8_lossy(&payload);
        let mut shown = String::with_capacity(payload.len() + 256);
        show::write(&mut shown, id.0, [&payload, &state, &events], Some(created_ms / 1000));
        shown + "\n"
    });
    Ok(answer(shown.await))
}

/// The job a path names. What is no number names none.
fn job_id(path: &str) -> Answered<JobId> {
    let digits = !path.is_empty() && path.bytes().all(|byte| byte.is_ascii_digit());
    let id = path.parse::<u64>().ok().filter(|id| digits && *id > 0 && *id < JOB_ID_END);
    id.map(JobId).ok_or_else(Refusal::no_job)
}

/// As [`job_id`], if the caller may do this; a job in a queue that the caller may not use is
/// answered as not found.
async fn permitted(door: &Jobq, path: &str, mut pass: Pass) -> Answered<JobId> {
    let id = job_id(path)?;
    pass.allows_job(door.bridge(), JobRef::Id(id)).await?;
    Ok(id)
}

/// `GET /api/v0/job/<id>`
pub async fn show(State(door): State<Jobq>, Path(id): Path<String>, pass: Pass) -> AnsweredText {
    let image =
        door.bridge().engine().jobs().get(JobRef::Id(permitted(&door, &id, pass).await?))?;
    let image = door.bridge().durable(image).await;
    shown(&door, image.ok_or_else(Refusal::no_job)?, of_one(&door)).await
}

/// How a job is shown to a client that names it. At the address for all generations this must be a
/// client of the first version, because the newest never makes this request for a job it was given.
fn of_one(door: &Jobq) -> Modified {
    match door.clients() {
        Clients::All | Clients::First => Modified::Hidden,
        Clients::Newest => Modified::Shown,
    }
}

/// A job in full, once what it reveals is durable.
async fn shown(door: &Jobq, image: JobImage, modified: Modified) -> AnsweredText {
    let engine = door.bridge().engine().clone();
    let shown = work_on_bytes(show::bytes_of(&image), move || {
        Ok::<_, FetchError>(show::job(&engine, image, modified)?.map(|shown| shown + "\n"))
    });
    Ok(answer(shown.await?.ok_or_else(Refusal::no_job)?))
}

/// Why a job's state was not changed.
enum Declined {
    /// It came through another door.
    Foreign,
    /// The engine drives it.
    Driven,
    /// The state is not the expected one, but this.
    Other(Bytes),
}

/// `POST /api/v0/job/<id>/state`
pub async fn set_state(
    State(door): State<Jobq>,
    Path(id): Path<String>,
    pass: Pass,
    request: Request,
) -> AnsweredText {
    let id = permitted(&door, &id, pass).await?;
    let states = |body: &[u8]| {
        let StateBody { old, new } = StateBody::read(body)?;
        Ok((old.map(str::to_owned), new.to_owned()))
    };
    let (expected, new) = read(&door, request, states).await?;
    let expected = expected.as_deref();
    // The state as the job has it: compared byte by byte, and by its meaning if that fails.
    let mut same = expected.map(|text| Bytes::copy_from_slice(text.as_bytes()));
    loop {
        let compose = |before: &Before| advanced(before, same.as_ref(), &new);
        match door.bridge().change(|engine| engine.jobs().update(id, None, compose)).await {
            Ok(Updated::Done(image)) => return shown(&door, *image, of_one(&door)).await,
            Ok(Updated::Declined(declined)) => {
                let now = match declined {
                    Declined::Other(now) => now,
                    Declined::Foreign => return Err(foreign()),
                    Declined::Driven => return Err(driven()),
                };
                let text = String::from_utf8_lossy(&now);
                if !expected.is_some_and(|expected| json::is_same(expected, &text)) {
                    let message = format!("the state is {text} by now");
                    return Err(Refusal::conflict("state_conflict", message));
                }
                same = Some(now);
            }
            // A job that is gone counts as having another state than the expected one, as in the
            // original.
            Err(Refused::Rejected(Rejection::NotFound)) if expected.is_some() => {
                return Err(Refusal::conflict("state_conflict", "there is no such job"));
            }
            Err(refused) => return Err(refused.into()),
        }
    }
}

fn advanced(before: &Before, same: Option<&Bytes>, new: &str) -> Result<JobUpdate, Declined> {
    if before.origin != Origin::Jobq {
        return Err(Declined::Foreign);
    }
    let old = before.state.as_ref().ok_or(Declined::Driven)?;
    if same.is_some_and(|same| same != old) {
        return Err(Declined::Other(old.clone()));
    }
    let event = Entry::advanced(&String::from_utf8_lossy(old), new, before.now_ms).encode();
    Ok(JobUpdate { state: Some(Bytes::copy_from_slice(new.as_bytes())), event })
}

fn foreign() -> Refusal {
    let message = "the job came through another door: only its own clients change it";
    Refusal::conflict("job_foreign", message)
}

fn driven() -> Refusal {
    let message = "the job was created ready to be leased: the server sets its state";
    Refusal::conflict("job_driven", message)
}

/// `POST /api/v0/job/<id>/event`
pub async fn add_event(
    State(door): State<Jobq>,
    Path(id): Path<String>,
    pass: Pass,
    request: Request,
) -> AnsweredText {
    let id = permitted(&door, &id, pass).await?;
    let event = read(&door, request, |body| Ok(json::read(body)?.get().to_owned())).await?;
    let compose = |before: &Before| {
        let event = Entry::noted(&event, before.now_ms).encode();
        Ok::<_, std::convert::Infallible>(JobUpdate { state: None, event })
    };
    let bridge = door.bridge();
    let image = match bridge.change(|engine| engine.jobs().update(id, None, compose)).await {
        Ok(Updated::Done(image)) => *image,
        Ok(Updated::Declined(never)) => match never {},
        Err(Refused::Rejected(Rejection::Finished)) => {
            let event = Entry::noted(&event, bridge.engine().now_ms()).encode();
            bridge.room(0).await?;
            let noted = {
                let _turn = bridge.turn();
                bridge.engine().jobs().add_event_to_finished(id, &event)?
            };
            bridge.durable(noted).await?
        }
        Err(refused) => return Err(refused.into()),
    };
    let modified = match door.clients() {
        // Both generations send this request, and the job shows which of them created it.
        Clients::All => Modified::AsCreated,
        Clients::First => Modified::Hidden,
        Clients::Newest => Modified::Shown,
    };
    shown(&door, image, modified).await
}

/// `DELETE /api/v0/job/<id>`
pub async fn delete(State(door): State<Jobq>, Path(id): Path<String>, pass: Pass) -> AnsweredText {
    let bridge = door.bridge();
    let mut audit = pass.audit(Origin::Jobq);
    let id = permitted(&door, &id, pass).await?;
    let image = bridge.durable(bridge.engine().jobs().get(JobRef::Id(id))?).await;
    if image.is_some_and(|image| image.origin() != Origin::Jobq) {
        return Err(foreign());
    }
    match bridge.change(|engine| engine.people(&mut audit).delete(JobRef::Id(id))).await {
        // The job is gone, as asked.
        Ok(()) | Err(Refused::Rejected(Rejection::NotFound)) => Ok(answer("{}\n".to_owned())),
        Err(refused) => Err(refused.into()),
    }
}

/// Any other path.
pub async fn nothing_here(uri: Uri) -> Refusal {
    Refusal::nothing_here(uri.path())
}

/// Any other method. OPTIONS is answered with the methods there are, as in the original.
pub async fn wrong_method(method: Method) -> Response {
    if method == Method::OPTIONS {
        return StatusCode::OK.into_response();
    }
    let (status, code) = (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed");
    let message = "this path does not take that method; see Allow".to_owned();
    Refusal { status, code, message }.into_response()
}
