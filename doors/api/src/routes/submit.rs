//! Submitting jobs, one or many in one request.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use spindle_access::{Denied, Target};
use spindle_core::address;
use spindle_core::job::Key;
use spindle_core::{JobId, Rejection};
use spindle_engine::JobRef;
use spindle_http::{Answered, Pass, Problem, ProblemBody, Trace, work_on_bytes};
use utoipa::ToSchema;

use crate::api::Api;
use crate::extract::{JsonBody, RawBody, parse};
use crate::submit::NewJobBody;
use crate::taking::{Taken, Wanted, take_many};
use crate::{keys, naming};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Jobs in one request.
pub(crate) const BATCH_MAX: usize = 1_000;

/// A job that was taken.
#[derive(Serialize, ToSchema)]
pub(crate) struct Submitted {
    /// Its number.
    id: u64,
    /// The UUID by which Workq's clients know it.
    uuid: String,
    /// The handle by which Gearman's clients know it.
    handle: String,
    /// It was there already: the same request came before, or another job has the unique key.
    existing: bool,
}

impl Submitted {
    pub fn new(api: &Api, Taken { id, existing }: Taken) -> Submitted {
        Submitted {
            id: id.0,
            // The API's own jobs have no UUID but the one every door computes.
            uuid: naming::uuid_of(id, None),
            handle: address::gearman_handle(&api.options().host, id),
            existing,
        }
    }
}

/// Submit a job. The answer comes when the job is on disk.
#[utoipa::path(post, path = "/api/v1/jobs",
    operation_id = "submit_job", tag = "jobs", request_body = NewJobBody,
    params(("Idempotency-Key" = Option<String>, Header, format = "idempotency-key",
        description = "1 to 255 printable ASCII characters. The same request with the same key \
                       makes one job, however often it is sent, as long as that job is kept."),
        ("traceparent" = Option<String>, Header,
        description = "W3C Trace Context. The job keeps it, and its workers get it.")),
    responses(
        (status = 201, description = "The job is taken", body = Submitted),
        (status = 200, description = "The job was there already", body = Submitted),
        (status = "4XX", description = "Refused"),
        (status = "5XX", description = "Not now")))]
pub(crate) async fn submit(
    State(api): State<Api>,
    headers: HeaderMap,
    trace: Trace,
    mut pass: Pass,
    JsonBody { value, raw }: JsonBody<NewJobBody>,
) -> Answered<Response> {
    let (once, now_ms) = (once_key(&headers)?.map(<[u8]>::to_vec), api.engine().now_ms());
    let wanted = work_on_bytes(raw.len(), move || {
        let once = once_with(once.map(|key| keys::once(&key, &raw)), &value, &raw)?;
        Wanted::new(value, once, trace, now_ms)
    });
    let wanted = wanted.await?;
    pass.allows(Target::Queue(wanted.queue()))?;
    if let Some(name) = wanted.linked().after.first() {
        let detail = format!("after has `{name}`: only jobs of one request are named by their ref");
        return Err(Problem::bad_field(detail));
    }
    may_join(&api, &mut pass, &wanted).await?;
    let taken = wanted.take(&api).await?;
    let status = if taken.existing { StatusCode::OK } else { StatusCode::CREATED };
    let location = HeaderValue::try_from(format!("/api/v1/jobs/{}", taken.id))
        .expect("a path of ASCII letters and digits");
    let body = Json(Submitted::new(&api, taken));
    Ok((status, [(header::LOCATION, location)], body).into_response())
}

/// A client that may not submit to the queue of a job or a batch may not wait for it either, nor
/// add to it: a job's workers may read the results of the jobs before it, and the managers of a
/// batch may cancel its jobs.
async fn may_join(api: &Api, pass: &mut Pass, wanted: &Wanted) -> Answered<()> {
    if let Some(id) = wanted.batch()
        && !may_use_batch(api, pass, id).await
    {
        return Err(Rejection::NoBatch(id).into());
    }
    for id in wanted.after() {
        match pass.allows_job(api.bridge(), JobRef::Id(*id)).await {
            Ok(()) => {}
            Err(Denied::Job) if may_use_batch(api, pass, *id).await => {}
            Err(Denied::Job) => return Err(Rejection::NoBlocker(*id).into()),
            Err(denied) => return Err(denied.into()),
        }
    }
    Ok(())
}

/// Whether the batch exists and its queue is one that the client may submit to.
async fn may_use_batch(api: &Api, pass: &mut Pass, id: JobId) -> bool {
    let batch = api.bridge().durable(api.engine().batches().get(id)).await;
    batch.is_some_and(|batch| pass.allows(Target::Queue(&batch.queue)).is_ok())
}

fn once_key(headers: &HeaderMap) -> Answered<Option<&[u8]>> {
    let mut given = headers.get_all(IDEMPOTENCY_KEY).iter().map(HeaderValue::as_bytes);
    let Some(key) = given.next() else { return Ok(None) };
    if given.next().is_some() {
        return Err(Problem::out_of_range("Idempotency-Key is there more than once"));
    }
    check_once("Idempotency-Key", key)?;
    Ok(Some(key))
}

fn check_once(name: &str, key: &[u8]) -> Answered<()> {
    if !key.iter().all(|byte| matches!(byte, b' '..=b'~')) {
        return Err(Problem::out_of_range(format!("{name} is ASCII that can be printed")));
    }
    keys::check(name, key.len())
}

/// What makes a job safe to send twice: its own field, or else its request's header.
fn once_with(
    by_header: Option<[Key; 2]>,
    body: &NewJobBody,
    raw: &[u8],
) -> Answered<Option<[Key; 2]>> {
    let Some(key) = &body.idempotency_key else { return Ok(by_header) };
    check_once("idempotency_key", key.as_bytes())?;
    Ok(Some(keys::once(key.as_bytes(), raw)))
}

/// Jobs to submit.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BatchBody<'a> {
    /// 1 to 1,000 jobs, taken in this order, but for those that wait for later ones. What is no job
    /// is refused, and its answer says why; the others are taken all the same.
    #[serde(borrow)]
    #[schema(value_type = Vec<NewJobBody>, min_items = 1, max_items = 1000)]
    jobs: Vec<&'a RawValue>,
}

/// What became of each job of a batch.
#[derive(Serialize, ToSchema)]
pub(crate) struct BatchAnswer {
    /// How many are taken, or were there already.
    taken: usize,
    /// How many are refused.
    refused: usize,
    /// One answer for each job, in the order of the request.
    answers: Vec<OneAnswer>,
}

/// What became of one job of a batch.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum OneAnswer {
    /// It is taken.
    Submitted(Submitted),
    /// It is refused; the others are not, for that.
    Refused {
        /// As the same job alone would have been refused.
        problem: ProblemBody,
    },
}

/// Submit up to 1,000 jobs at once. Each is taken or refused for itself, in the order of the
/// request; the answer comes when all that are taken are on disk.
#[utoipa::path(post, path = "/api/v1/jobs/batch",
    operation_id = "submit_jobs", tag = "jobs", request_body = BatchBody,
    params(("Idempotency-Key" = Option<String>, Header, format = "idempotency-key",
        description = "1 to 255 printable ASCII characters. The same job at the same place of a \
                       request with the same key is one job, however often it is sent, as \
                       long as that job is kept."),
        ("traceparent" = Option<String>, Header,
        description = "W3C Trace Context. The jobs keep it, and their workers get it.")),
    responses(
        (status = 200, description = "What became of each", body = BatchAnswer),
        (status = "4XX", description = "None is taken")))]
pub(crate) async fn batch(
    State(api): State<Api>,
    headers: HeaderMap,
    trace: Trace,
    mut pass: Pass,
    RawBody(raw): RawBody,
) -> Answered<Json<BatchAnswer>> {
    let (once, now_ms) = (once_key(&headers)?.map(<[u8]>::to_vec), api.engine().now_ms());
    let jobs = work_on_bytes(raw.len(), move || {
        let mut may = |wanted: &Wanted| pass.allows(Target::Queue(wanted.queue()));
        let wanted = read_batch(&raw, once.as_deref(), &trace, now_ms, &mut may)?;
        Ok::<_, Problem>((wanted, pass))
    });
    let (mut wanted, mut pass) = jobs.await?;
    for job in &mut wanted {
        if let Ok(it) = job
            && let Err(problem) = may_join(&api, &mut pass, it).await
        {
            *job = Err(problem);
        }
    }
    let answers = take_many(&api, wanted).await?;
    let taken = answers.iter().filter(|answer| answer.is_ok()).count();
    let refused = answers.len() - taken;
    let shown = |answer| match answer {
        Ok(taken) => OneAnswer::Submitted(Submitted::new(&api, taken)),
        Err(problem) => OneAnswer::Refused { problem: ProblemBody::from(problem) },
    };
    Ok(Json(BatchAnswer { taken, refused, answers: answers.into_iter().map(shown).collect() }))
}

/// The jobs of a batch, or why one cannot be taken. `may` says whether a job may be submitted.
fn read_batch(
    raw: &[u8],
    once: Option<&[u8]>,
    trace: &Trace,
    now_ms: u64,
    may: &mut dyn FnMut(&Wanted) -> Result<(), Denied>,
) -> Answered<Vec<Answered<Wanted>>> {
    let BatchBody { jobs } = parse(raw)?;
    if !(1..=BATCH_MAX).contains(&jobs.len()) {
        return Err(Problem::out_of_range("a batch has 1 to 1000 jobs"));
    }
    let read = |(place, job): (usize, &&RawValue)| -> Answered<Wanted> {
        let raw = job.get().as_bytes();
        let body = parse(raw)?;
        let once = once_with(once.map(|key| once_in_batch(key, place, raw)), &body, raw)?;
        let wanted = Wanted::new(body, once, trace.clone(), now_ms)?;
        may(&wanted)?;
        Ok(wanted)
    };
    Ok(jobs.iter().enumerate().map(read).collect())
}

/// A batch's key names each of its jobs by its place. No header can contain the NUL in between, so
/// no single request's key is one of these.
fn once_in_batch(key: &[u8], place: usize, raw: &[u8]) -> [Key; 2] {
    let key = [key, b"\0", place.to_string().as_bytes()].concat();
    keys::once(&key, raw)
}
