//! What handlers take out of the heads of requests, with problems instead of bare errors.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use spindle_access::Login;
use spindle_core::{JobId, address};
use spindle_engine::JobRef;
use spindle_http::{Answered, Code, Pass, Problem, no_job, text_of};
use utoipa::IntoParams;

use crate::door::LightJq;
use crate::worker_id::WorkerId;

/// How a worker says who it is.
pub(crate) const WORKER_ID: HeaderName = HeaderName::from_static("worker-id");

/// The longest name that the engine accepts.
const NAME_BYTES_MAX: usize = 255;

/// The longest wait: proxies and clients give up sooner.
const WAIT_S_MAX: f64 = 300.0;
/// The wait of a request that does not name one.
const WAIT_S: f64 = 5.0;

#[derive(Deserialize)]
struct Asked {
    timeout: Option<f64>,
}

/// How long a request is willing to wait.
#[derive(IntoParams)]
#[into_params(names("timeout"), parameter_in = Query)]
pub(crate) struct PollTimeout(
    /// How long to wait, in seconds, at most 300; 5 by default
    #[param(value_type = Option<f64>, minimum = 0, maximum = 300)]
    pub Duration,
);

impl FromRequestParts<LightJq> for PollTimeout {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &LightJq) -> Answered<Self> {
        let Query(asked) = Query::<Asked>::try_from_uri(&parts.uri)
            .map_err(|error| Problem::bad_field(error.body_text()))?;
        let wait_s = asked.timeout.unwrap_or(WAIT_S);
        if !(0.0..=WAIT_S_MAX).contains(&wait_s) {
            let detail = "`timeout` must be a number of seconds from 0 to 300";
            return Err(Problem::out_of_range(detail));
        }
        Ok(PollTimeout(Duration::from_secs_f64(wait_s)))
    }
}

/// The job a path names.
#[derive(IntoParams)]
#[into_params(names("id"), parameter_in = Path)]
pub(crate) struct JobPath(
    /// The job_id
    #[param(value_type = String, pattern = "^[1-9][0-9]{0,15}$")]
    pub JobId,
);

impl FromRequestParts<LightJq> for JobPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, door: &LightJq) -> Answered<Self> {
        let rest = parts.uri.path().strip_prefix("/job/").unwrap_or_default();
        let segment = percent_decode_str(rest.split('/').next().unwrap_or_default());
        let digits: Vec<u8> = segment.collect();
        let id = address::from_decimal(&digits).ok_or_else(no_job)?;
        Pass::of(parts)?.allows_job(door.bridge(), JobRef::Id(id)).await?;
        Ok(JobPath(id))
    }
}

/// The constraint a path names.
#[derive(IntoParams)]
#[into_params(names("name"), parameter_in = Path)]
pub(crate) struct NamePath(
    /// What people call it, 1 to 255 bytes
    #[param(min_length = 1, max_length = 255)]
    pub String,
);

impl FromRequestParts<LightJq> for NamePath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &LightJq) -> Answered<Self> {
        let segment = parts.uri.path().strip_prefix("/constraint/").unwrap_or_default();
        let name = percent_decode_str(segment).decode_utf8().ok();
        let name = name.filter(|name| (1..=NAME_BYTES_MAX).contains(&name.len()));
        name.map(|name| NamePath(name.into_owned())).ok_or_else(|| {
            let detail = "a constraint's name is UTF-8 of 1 to 255 bytes";
            Problem::out_of_range(detail)
        })
    }
}

/// The worker a request says it comes from.
#[derive(IntoParams)]
#[into_params(names("worker-id"), parameter_in = Header)]
pub(crate) struct Caller(
    /// Which worker asks
    #[param(value_type = String, format = "uuid")]
    pub WorkerId,
);

impl FromRequestParts<LightJq> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, door: &LightJq) -> Answered<Self> {
        let missing = || Problem::new(Code::BadRequest, "the request needs a worker-id header");
        let id = worker_id(&parts.headers)?.ok_or_else(missing)?;
        door.may_speak_for(id, &Pass::of(parts)?.into_login())?;
        Ok(Caller(id))
    }
}

impl LightJq {
    /// Refuses a worker of somebody else as if it did not exist.
    pub(crate) fn may_speak_for(&self, id: WorkerId, login: &Login) -> Answered<()> {
        if self.registry().may_speak_for(id, login) { Ok(()) } else { Err(no_worker()) }
    }
}

/// The `worker-id` of a request. An id that this server cannot have given is answered as an unknown
/// worker.
pub(crate) fn worker_id(headers: &HeaderMap) -> Answered<Option<WorkerId>> {
    if !headers.contains_key(WORKER_ID) {
        return Ok(None);
    }
    let id = text_of(headers, &WORKER_ID).and_then(WorkerId::parse);
    id.map(Some).ok_or_else(no_worker)
}

/// There is no such worker, or not any more.
pub(crate) fn no_worker() -> Problem {
    Problem::new(Code::WorkerNotFound, "there is no such worker (any more): register again")
}

/// Whether a request comes from its user, not from a web page of another site. Such a page can make
/// a browser send a request but never sees the answer, so the result does not count as read.
pub(crate) struct Reads(pub bool);

/// What browsers say about where a request comes from.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

impl FromRequestParts<LightJq> for Reads {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &LightJq) -> Result<Self, Infallible> {
        let mut sites = parts.headers.get_all(SEC_FETCH_SITE).iter();
        Ok(Reads(sites.all(|site| matches!(site.as_bytes(), b"same-origin" | b"none"))))
    }
}
