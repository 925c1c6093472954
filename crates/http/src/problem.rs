//! What goes wrong, as `application/problem+json` (RFC 9457) with a stable code.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Map, Value};
use spindle_access::{Denied, hidden};
use spindle_core::Rejection;
use spindle_engine::{FetchError, Refused, RetryError};
use utoipa::ToSchema;

use crate::body::BodyError;

macro_rules! codes {
    ($($name:ident $code:literal $status:ident $title:literal,)*) => {
        /// Every kind of problem. Codes are never renamed: programs compare them.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Code {
            $(#[doc = $title] $name,)*
        }

        impl Code {
            /// All, in the order of the documentation.
            pub const ALL: &[Code] = &[$(Code::$name,)*];

            /// As it stands in answers.
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$name => $code,)* }
            }

            /// The status its answers have.
            pub fn status(self) -> StatusCode {
                match self { $(Code::$name => StatusCode::$status,)* }
            }

            /// What it is, in general.
            pub fn title(self) -> &'static str {
                match self { $(Code::$name => $title,)* }
            }
        }
    };
}

codes! {
    BadRequest "bad_request" BAD_REQUEST "The request is not well-formed",
    BadJson "bad_json" BAD_REQUEST "The body is not JSON",
    BadField "bad_field" BAD_REQUEST "A field is missing, unknown or of the wrong type",
    OutOfRange "out_of_range" BAD_REQUEST "A value is outside its limits",
    Unauthorized "unauthorized" UNAUTHORIZED "The request needs a token that is known",
    Forbidden "forbidden" FORBIDDEN "The token is not for this",
    ForeignOrigin "foreign_origin" FORBIDDEN "A page of another origin must not write here",
    UrlNotOwn "url_not_own" FORBIDDEN "The url is not the worker's own address",
    NotFound "not_found" NOT_FOUND "There is nothing at this path",
    JobNotFound "job_not_found" NOT_FOUND "There is no such job",
    WorkerNotFound "worker_not_found" NOT_FOUND "There is no such worker",
    TargetNotFound "target_not_found" NOT_FOUND "No jobd worker serves the target",
    QueueNotFound "queue_not_found" NOT_FOUND "There is no such queue",
    ConstraintNotFound "constraint_not_found" NOT_FOUND "There is no such constraint",
    ScheduleNotFound "schedule_not_found" NOT_FOUND "There is no such schedule",
    BatchNotFound "batch_not_found" NOT_FOUND "There is no such batch",
    MethodNotAllowed "method_not_allowed" METHOD_NOT_ALLOWED "The path does not take this method",
    NotAcceptable "not_acceptable" NOT_ACCEPTABLE "The answer is in no type that was asked for",
    BodyTimeout "body_timeout" REQUEST_TIMEOUT "The body did not come in time",
    PollTimeout "poll_timeout" REQUEST_TIMEOUT "The job is not finished yet",
    NoBlocker "after_not_found" NOT_FOUND "A job that is to be waited for is not there",
    KeyTaken "key_taken" CONFLICT "Another job has the unique key",
    BatchSealed "batch_sealed" CONFLICT "The batch takes no more jobs",
    BatchFull "batch_full" CONFLICT "The batch has as many jobs as it may",
    Circle "circle" CONFLICT "The job would wait for itself",
    JobFinished "job_finished" CONFLICT "The job is done or dead",
    JobNotFinished "job_not_finished" CONFLICT "The job is neither done nor dead",
    JobLeased "job_leased" CONFLICT "A worker has the job",
    JobDeleted "job_deleted" CONFLICT "The job is deleted",
    JobNotDeleted "job_not_deleted" CONFLICT "The job is not deleted",
    LeaseNotLive "lease_not_live" CONFLICT "The lease has ended",
    LeaseGone "lease_gone" GONE "The lease's job is gone",
    SegmentGone "segment_gone" GONE "The log holds the segment no more",
    NoFiles "no_files" CONFLICT "The server's log is in no files",
    NoJobdMaster "no_jobd_master" CONFLICT "The server runs no jobd master",
    NotShared "not_shared" CONFLICT "The server shares its log with no other",
    RevisionMismatch "revision_mismatch" PRECONDITION_FAILED "It is not as the request expects it",
    TooLarge "too_large" PAYLOAD_TOO_LARGE "The body is too large",
    UnsupportedType "unsupported_type" UNSUPPORTED_MEDIA_TYPE "The body must be application/json",
    RangeNotSatisfiable "range_not_satisfiable" RANGE_NOT_SATISFIABLE
        "The range begins behind the end",
    UnknownHost "unknown_host" MISDIRECTED_REQUEST "This server does not have that name",
    KeyReused "idempotency_key_reused" UNPROCESSABLE_ENTITY
        "The idempotency key was used with another request",
    QueueFull "queue_full" TOO_MANY_REQUESTS "The queue holds as much as it may",
    ServerFull "server_full" TOO_MANY_REQUESTS "The server holds as many unfinished jobs as it may",
    SeveralShards "several_shards" UNPROCESSABLE_ENTITY
        "What belongs together is on several shards",
    TooFast "too_fast" TOO_MANY_REQUESTS "More requests a second than the client may make",
    TooMany "too_many" TOO_MANY_REQUESTS "Too many clients wait",
    Unreadable "unreadable" INTERNAL_SERVER_ERROR "The log cannot be read there",
    NameAShard "name_a_shard" NOT_IMPLEMENTED "One shard has to be named",
    ShardBrokeOff "shard_broke_off" BAD_GATEWAY "A shard was lost before its answer",
    ShardUnavailable "shard_unavailable" SERVICE_UNAVAILABLE "A shard cannot be reached",
    Busy "busy" SERVICE_UNAVAILABLE "Too much waits for the disk",
    Overloaded "overloaded" SERVICE_UNAVAILABLE "Unfinished requests take too much memory",
    Stopping "stopping" SERVICE_UNAVAILABLE "The server is stopping",
    DiskFull "disk_full" INSUFFICIENT_STORAGE "The disk is full",
    LogCannotGrow "log_cannot_grow" INSUFFICIENT_STORAGE "The log cannot be made longer",
    LogFull "log_full" INSUFFICIENT_STORAGE "The log is as large as it may be",
}

/// An answer that says what went wrong.
#[derive(Clone, PartialEq, Debug)]
pub struct Problem {
    /// Which kind.
    pub code: Code,
    /// What happened, to what, and what to do.
    pub detail: String,
    more: Map<String, Value>,
}

/// The body of every error, RFC 9457.
#[derive(Serialize, ToSchema)]
pub struct ProblemBody {
    /// `urn:spindle:problem:` and the code.
    r#type: String,
    /// What the code means.
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// Stable: for programs.
    code: &'static str,
    /// What happened here: for people.
    detail: String,
    /// The request that this is the answer to, as `X-Request-Id` names it. Put in at the very end.
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
    #[serde(flatten)]
    #[schema(ignore)]
    more: Map<String, Value>,
}

impl Problem {
    /// A problem of a kind. The detail may quote the request: tokens in it are hidden.
    pub fn new(code: Code, detail: impl Into<String>) -> Problem {
        let detail = hidden(&detail.into()).into_owned();
        Problem { code, detail, more: Map::new() }
    }

    /// A field that is not what it must be.
    pub fn bad_field(detail: impl Into<String>) -> Problem {
        Problem::new(Code::BadField, detail)
    }

    /// A value of the right type that is not one it may have.
    pub fn out_of_range(detail: impl Into<String>) -> Problem {
        Problem::new(Code::OutOfRange, detail)
    }

    /// Adds a field for programs.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Problem {
        self.more.insert(name.to_owned(), value.into());
        self
    }
}

impl From<Problem> for ProblemBody {
    fn from(problem: Problem) -> ProblemBody {
        let Problem { code, detail, more } = problem;
        ProblemBody {
            r#type: format!("urn:spindle:problem:{}", code.as_str()),
            title: code.title(),
            status: code.status().as_u16(),
            code: code.as_str(),
            detail,
            request_id: None,
            more,
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.code.status();
        let body = ProblemBody::from(self);
        let text = serde_json::to_vec(&body).expect("a map of texts and numbers is JSON");
        let mut response = (status, text).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

impl From<Denied> for Problem {
    fn from(denied: Denied) -> Problem {
        match denied {
            Denied::Job => no_job(),
            Denied::TooFast(_) => Problem::new(Code::TooFast, denied.to_string()),
            _ if denied.is_unauthenticated() => {
                Problem::new(Code::Unauthorized, denied.to_string())
            }
            _ => Problem::new(Code::Forbidden, denied.to_string()),
        }
    }
}

impl From<Rejection> for Problem {
    fn from(rejection: Rejection) -> Problem {
        let detail = rejection.to_string();
        match rejection {
            Rejection::KeyTaken(id) => Problem::new(Code::KeyTaken, detail).with("job", id.0),
            Rejection::NoBlocker(id) => Problem::new(Code::NoBlocker, detail).with("job", id.0),
            Rejection::NoBatch(id) => Problem::new(Code::BatchNotFound, detail).with("batch", id.0),
            Rejection::BatchSealed(id) => {
                Problem::new(Code::BatchSealed, detail).with("batch", id.0)
            }
            Rejection::BatchFull(id) => Problem::new(Code::BatchFull, detail).with("batch", id.0),
            Rejection::Circle => Problem::new(
                Code::Circle,
                "the job is of a batch, and what it is to wait for waits for that batch",
            ),
            Rejection::FlowTooLarge => Problem::new(Code::OutOfRange, detail),
            Rejection::Finished => {
                Problem::new(Code::JobFinished, "the job is done or dead; retry lets it run again")
            }
            Rejection::NotFinished => {
                Problem::new(Code::JobNotFinished, "only a done or dead job can be retried")
            }
            Rejection::Leased => {
                Problem::new(Code::JobLeased, "a worker has the job; cancel takes it away")
            }
            Rejection::Deleted => Problem::new(
                Code::JobDeleted,
                "the job is deleted, and soon gone; undo that before anything else",
            ),
            Rejection::NotDeleted => Problem::new(
                Code::JobNotDeleted,
                "the job is not deleted: there is nothing to undo",
            ),
            Rejection::NotHeld => Problem::new(
                Code::LeaseNotLive,
                "the lease ran out, was released, or was given anew: drop the work and lease again",
            ),
            Rejection::Stale => Problem::new(
                Code::RevisionMismatch,
                "the job changed since it was read: read it again and decide anew",
            ),
            Rejection::QueueFull | Rejection::TooManyValues => {
                Problem::new(Code::QueueFull, detail)
            }
            Rejection::OtherShard(shard) => {
                Problem::new(Code::SeveralShards, detail).with("shard", shard)
            }
            Rejection::SpansShards => Problem::new(
                Code::SeveralShards,
                "its queues may be on several shards, each of which counts its own jobs: name one queue, or \
                 queues that have the same {...} before any * or ?, or say \"per_shard\": true",
            ),
            Rejection::ServerFull => Problem::new(Code::ServerFull, detail),
            Rejection::OutOfRange(_) => Problem::new(Code::OutOfRange, detail),
            Rejection::NotFound => Problem::new(Code::JobNotFound, detail),
            Rejection::NoSchedule => Problem::new(Code::ScheduleNotFound, detail),
            Rejection::NoConstraint => Problem::new(Code::ConstraintNotFound, detail),
            Rejection::StaleConstraints | Rejection::Rebasing | Rejection::Moves => {
                Problem::new(Code::Busy, detail)
            }
            Rejection::OtherSeat(_) => Problem::new(
                Code::NotShared,
                "the server's queues are all on one log: there is no other shard",
            ),
            Rejection::PayloadDamaged => Problem::new(
                Code::Unreadable,
                "the payload failed its checksum; give another one to run the job again",
            ),
            _ => Problem::new(Code::BadRequest, detail),
        }
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Problem {
        let detail = refused.to_string();
        match refused {
            Refused::Rejected(rejection) => rejection.into(),
            Refused::Busy => Problem::new(Code::Busy, detail),
            Refused::DiskFull => Problem::new(
                Code::DiskFull,
                "the disk is full: jobs can be worked and deleted, new ones are refused",
            ),
            Refused::LogCannotGrow => Problem::new(
                Code::LogCannotGrow,
                "the log cannot grow, the server's own log says why: jobs can be worked and deleted, new ones \
                 are refused",
            ),
            Refused::LogFull => Problem::new(
                Code::LogFull,
                "the log is as large as it may be: jobs can be worked and deleted, new ones are refused",
            ),
            Refused::TooLarge { max, .. } => {
                Problem::new(Code::TooLarge, detail).with("bytes_max", max)
            }
            Refused::TooMany(_) => Problem::new(Code::TooMany, detail),
            Refused::Stopping => Problem::new(Code::Stopping, detail),
        }
    }
}

impl From<BodyError> for Problem {
    fn from(error: BodyError) -> Problem {
        let detail = error.to_string();
        match error {
            BodyError::TooLarge { bytes_max } => {
                Problem::new(Code::TooLarge, detail).with("bytes_max", bytes_max)
            }
            BodyError::TimedOut { .. } => Problem::new(Code::BodyTimeout, detail),
            BodyError::TooMuch => Problem::new(Code::Overloaded, detail),
            BodyError::Broken(_) => Problem::new(Code::BadRequest, detail),
        }
    }
}

impl From<FetchError> for Problem {
    fn from(error: FetchError) -> Problem {
        Problem::new(Code::Unreadable, error.to_string())
    }
}

impl From<RetryError> for Problem {
    fn from(error: RetryError) -> Problem {
        match error {
            RetryError::Refused(refused) => refused.into(),
            RetryError::Fetch(error) => error.into(),
        }
    }
}

/// What handlers return.
pub type Answered<T> = Result<T, Problem>;

/// No such job.
pub fn no_job() -> Problem {
    Problem::new(Code::JobNotFound, "there is no such job, or it is gone")
}
