//! What handlers take out of requests, with problems instead of bare errors.

use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, Uri, header};
use bytes::Bytes;
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use spindle_access::{Denied, Target};
use spindle_core::JobId;
use spindle_core::command::Claim;
use spindle_engine::JobRef;
use utoipa::IntoParams;

use crate::api::Api;
use crate::ended::lease_gone;
use crate::naming;
use crate::numbers::digits;
use spindle_http::{Answered, Code, Pass, Problem, read_body, work_on_bytes};

/// A JSON body.
pub(crate) struct JsonBody<T> {
    /// The value parsed from it.
    pub value: T,
    /// The bytes as they were received.
    pub raw: Bytes,
}

impl<T: DeserializeOwned + Send + 'static> FromRequest<Api> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Answered<Self> {
        check_type(request.headers())?;
        let raw = read_body(request, api.options().body).await?;
        let len = raw.len();
        work_on_bytes(len, move || Ok(JsonBody { value: parse(&raw)?, raw })).await
    }
}

/// A JSON body as it came, for handlers that read it piece by piece: see [`parse`].
pub(crate) struct RawBody(pub Bytes);

impl FromRequest<Api> for RawBody {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Answered<Self> {
        check_type(request.headers())?;
        Ok(RawBody(read_body(request, api.options().body).await?))
    }
}

/// A JSON body that may be left out; all of its fields are left out then.
pub(crate) struct OptionalBody<T>(pub T);

impl<T: DeserializeOwned + Send + 'static> FromRequest<Api> for OptionalBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Answered<Self> {
        let typed = check_type(request.headers());
        let raw = read_body(request, api.options().body).await?;
        if raw.is_empty() {
            return parse(b"{}").map(OptionalBody);
        }
        typed?;
        work_on_bytes(raw.len(), move || parse(&raw).map(OptionalBody)).await
    }
}

/// A body without `Content-Type` is taken as JSON, the only format of this API. The types that
/// browsers send to other sites without asking the server first (forms, plain text) are refused,
/// whatever is in the body.
fn check_type(headers: &HeaderMap) -> Answered<()> {
    let mut said = headers.get_all(header::CONTENT_TYPE).iter();
    let (first, second) = (said.next(), said.next());
    let value = first.map(|value| String::from_utf8_lossy(value.as_bytes())).unwrap_or_default();
    let essence = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_json = essence.is_empty() || essence == "application/json" || essence.ends_with("+json");
    if is_json && second.is_none() {
        return Ok(());
    }
    let mut detail = format!("the body must be application/json, not `{value}`");
    if second.is_some() {
        detail = "the body has more than one Content-Type".to_owned();
    } else if essence == FORM {
        detail.push_str("; with curl: -H 'Content-Type: application/json', or --json for -d");
    }
    Err(Problem::new(Code::UnsupportedType, detail))
}

/// The type of submitted forms, and the one that `curl -d` sends by default.
const FORM: &str = "application/x-www-form-urlencoded";

/// Parses a JSON object into a value of the type expected.
pub(crate) fn parse<'a, T: Deserialize<'a>>(raw: &'a [u8]) -> Answered<T> {
    if raw.trim_ascii_start().starts_with(b"[") {
        // Without this check a list would be read as the fields in their order.
        return Err(Problem::bad_field("the body must be an object, not a list"));
    }
    serde_json::from_slice(raw).map_err(|error| {
        let code = if error.is_data() { Code::BadField } else { Code::BadJson };
        Problem::new(code, error.to_string())
    })
}

/// The parameters of the query string.
pub(crate) struct Args<T>(pub T);

impl<T: DeserializeOwned> FromRequestParts<Api> for Args<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Answered<Self> {
        query(&parts.uri).map(Args)
    }
}

/// Parses a query string.
pub(crate) fn query<T: DeserializeOwned>(uri: &Uri) -> Answered<T> {
    let read = Query::try_from_uri(uri);
    read.map(|Query(value)| value).map_err(|error| Problem::bad_field(error.body_text()))
}

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The `Last-Event-ID` of a client that resumes a stream of events. Browsers send an empty one for
/// none. One that is not text becomes U+FFFD, which every stream refuses.
pub(crate) fn last_event_id(headers: &HeaderMap) -> Option<&str> {
    let id = headers.get(LAST_EVENT_ID).map(|id| id.to_str().unwrap_or("\u{fffd}"));
    id.filter(|id| !id.is_empty())
}

/// The job a path names.
#[derive(IntoParams)]
#[into_params(names("id"), parameter_in = Path)]
pub(crate) struct JobPath(
    /// Its number, its UUID or its Gearman handle
    #[param(value_type = String, format = "job")]
    pub JobRef,
);

impl FromRequestParts<Api> for JobPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Answered<Self> {
        let text = segment(parts, "/api/v1/jobs/");
        let job = naming::job(&String::from_utf8_lossy(&text))?;
        Pass::of(parts)?.allows_job(api.bridge(), job).await?;
        Ok(JobPath(job))
    }
}

/// The queue a path names: percent-encoded bytes, whatever they are.
#[derive(IntoParams)]
#[into_params(names("name"), parameter_in = Path)]
pub(crate) struct QueuePath(
    /// Its name, percent-encoded
    #[param(value_type = String, min_length = 1, max_length = 512)]
    pub Bytes,
);

impl FromRequestParts<Api> for QueuePath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Answered<Self> {
        let name = naming::checked(segment(parts, "/api/v1/queues/").into())?;
        Pass::of(parts)?.allows(Target::Queue(&name))?;
        Ok(QueuePath(name))
    }
}

/// The constraint a path names.
#[derive(IntoParams)]
#[into_params(names("name"), parameter_in = Path)]
pub(crate) struct ConstraintPath(
    /// Its name, 1 to 255 bytes, percent-encoded
    #[param(min_length = 1, max_length = 255)]
    pub String,
);

impl FromRequestParts<Api> for ConstraintPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Answered<Self> {
        let name = String::from_utf8(segment(parts, "/api/v1/constraints/"));
        name.map(ConstraintPath).map_err(|_| Problem::bad_field("a constraint's name is UTF-8"))
    }
}

/// The schedule a path names. Handlers ask for the queue of its jobs.
#[derive(IntoParams)]
#[into_params(names("name"), parameter_in = Path)]
pub(crate) struct SchedulePath(
    /// Its name, 1 to 100 bytes, percent-encoded
    #[param(min_length = 1, max_length = 100)]
    pub String,
);

impl FromRequestParts<Api> for SchedulePath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Answered<Self> {
        let name = String::from_utf8(segment(parts, "/api/v1/schedules/"));
        name.map(SchedulePath).map_err(|_| Problem::bad_field("a schedule's name is UTF-8"))
    }
}

/// The batch a path names. Handlers ask for its queue.
#[derive(IntoParams)]
#[into_params(names("id"), parameter_in = Path)]
pub(crate) struct BatchPath(
    /// Its number
    #[param(value_type = u64, minimum = 1)]
    pub JobId,
);

impl FromRequestParts<Api> for BatchPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Answered<Self> {
        let text = segment(parts, "/api/v1/batches/");
        let id = digits(&String::from_utf8_lossy(&text)).filter(|id| *id > 0).map(JobId);
        let id = id.ok_or_else(|| Problem::out_of_range("a batch is named by its number"))?;
        Ok(BatchPath(id))
    }
}

/// The lease a path names.
#[derive(IntoParams)]
#[into_params(names("token"), parameter_in = Path)]
pub(crate) struct LeasePath(
    /// The lease's token
    #[param(value_type = String, format = "lease-token")]
    pub Claim,
);

impl FromRequestParts<Api> for LeasePath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Answered<Self> {
        let text = segment(parts, "/api/v1/leases/");
        let claim = claim(api, &mut Pass::of(parts)?, &String::from_utf8_lossy(&text)).await?;
        Ok(LeasePath(claim))
    }
}

/// A lease, and a job that its job waited for.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct AfterPath {
    /// The lease's token
    #[param(value_type = String, rename = "token", format = "lease-token")]
    pub claim: Claim,
    /// The number of the job before it
    #[param(value_type = u64, minimum = 1)]
    pub id: JobId,
}

impl FromRequestParts<Api> for AfterPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Answered<Self> {
        let LeasePath(claim) = LeasePath::from_request_parts(parts, api).await?;
        let text = parts.uri.path().rsplit('/').next().unwrap_or_default();
        let id = text.parse().ok().filter(|id| *id > 0).map(JobId);
        let id =
            id.ok_or_else(|| Problem::out_of_range("a job before another is named by its number"))?;
        Ok(AfterPath { claim, id })
    }
}

/// The lease a token names, if it is of a job that the request may end.
pub(crate) async fn claim(api: &Api, pass: &mut Pass, token: &str) -> Answered<Claim> {
    let claim = naming::claim(token)?;
    let job = JobRef::Id(claim.id());
    pass.allows_job(api.bridge(), job).await.map_err(|denied| match denied {
        Denied::Job => lease_gone(),
        denied => denied.into(),
    })?;
    Ok(claim)
}

/// The segment of the path behind a prefix, decoded. The extractor of axum is not used because it
/// accepts UTF-8 only.
fn segment(parts: &Parts, prefix: &str) -> Vec<u8> {
    let rest = parts.uri.path().strip_prefix(prefix).unwrap_or_default();
    percent_decode_str(rest.split('/').next().unwrap_or_default()).collect()
}
