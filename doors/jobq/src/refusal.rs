//! The refusals of this door: a JSON body with a message, with the status codes of the original
//! server.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use spindle_access::{Denied, hidden};
use spindle_core::Rejection;
use spindle_engine::{FetchError, Refused};
use spindle_http::{BodyError, Code, Problem};

use crate::json::{JsonError, quoted};

/// A refused request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    pub status: StatusCode,
    /// Stable: for programs.
    pub code: &'static str,
    /// What happened, and what to do: for people.
    pub message: String,
}

/// What handlers return.
pub type Answered<T> = Result<T, Refusal>;

impl Refusal {
    fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Refusal {
        // It may quote a query or a document.
        let message = hidden(&message.into()).into_owned();
        Refusal { status, code, message }
    }

    /// The body does not say what this route needs.
    pub fn body(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, "bad_body", message)
    }

    /// The query is not one that this door evaluates.
    pub fn query(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, "bad_query", message)
    }

    /// The query is valid, but takes too much.
    pub fn too_costly(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, "query_too_costly", message)
    }

    pub fn no_job() -> Refusal {
        Refusal::new(StatusCode::NOT_FOUND, "job_not_found", "there is no such job")
    }

    pub fn no_match() -> Refusal {
        Refusal::new(StatusCode::NOT_FOUND, "no_match", "no job matches the query")
    }

    pub fn nothing_here(path: &str) -> Refusal {
        let message = format!("there is nothing at {path}; jobs are at /api/v0/job");
        Refusal::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    pub fn conflict(code: &'static str, message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::CONFLICT, code, message)
    }

    /// The thread that answers queries has too many waiting, or has ended.
    pub fn busy() -> Refusal {
        let message = "too many queries wait; come again in a second";
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "busy", message)
    }

    /// The server is stopping, or the client has disconnected.
    pub fn interrupted() -> Refusal {
        let message = "the server is stopping; nothing was changed";
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, Code::Stopping.as_str(), message)
    }

    /// The copy of the jobs that queries look at cannot be kept.
    pub fn replica(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "query_failed", message)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Refusal { status, code, message } = self;
        let text = format!(
            "{{\"status\":{},\"code\":{},\"message\":{}}}\n",
            status.as_u16(),
            quoted(code),
            quoted(&message)
        );
        let mut response = (status, text).into_response();
        response.extensions_mut().insert(Message(message));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if status == StatusCode::SERVICE_UNAVAILABLE || status == StatusCode::TOO_MANY_REQUESTS {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// What a refusal says to people, beside the answer made of it.
#[derive(Clone)]
struct Message(String);

/// An answer for one generation of Jobq's client: its errors are text, as the original's were. Its
/// clients parse every answer as JSON, and their users catch the exception that this raises.
pub async fn in_text(mut response: Response) -> Response {
    let Some(Message(message)) = response.extensions_mut().remove() else { return response };
    let (mut head, _) = response.into_parts();
    head.headers.remove(header::CONTENT_LENGTH);
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    head.headers.insert(header::CONTENT_TYPE, text);
    Response::from_parts(head, format!("{message}\n").into())
}

impl From<Denied> for Refusal {
    fn from(denied: Denied) -> Refusal {
        match denied {
            Denied::Job => Refusal::no_job(),
            denied => Problem::from(denied).into(),
        }
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Refusal {
        let code = problem.code;
        Refusal::new(code.status(), code.as_str(), problem.detail)
    }
}

impl From<BodyError> for Refusal {
    fn from(error: BodyError) -> Refusal {
        Problem::from(error).into()
    }
}

impl From<FetchError> for Refusal {
    fn from(error: FetchError) -> Refusal {
        Problem::from(error).into()
    }
}

impl From<JsonError> for Refusal {
    fn from(error: JsonError) -> Refusal {
        Refusal::body(error.to_string())
    }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Refusal {
        match refused {
            Refused::Rejected(Rejection::NotFound) => Refusal::no_job(),
            Refused::Rejected(Rejection::Finished) => {
                let message = "the job is done or dead: its state stays; it still takes events";
                Refusal::conflict("job_finished", message)
            }
            refused => Problem::from(refused).into(),
        }
    }
}
