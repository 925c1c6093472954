//! What goes wrong between a client and its server.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::send_error::SendError;
use crate::transport::Answer;

/// How many bytes are shown of an answer that does not come from a Spindle server.
const SHOWN_BYTES: usize = 200;
/// The longest body that the server takes.
pub(crate) const BODY_BYTES_MAX: usize = 16 << 20;

/// An error as the server describes it (RFC 9457).
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Problem {
    /// For programs; it never changes. The page of the API lists all of them. Empty if something
    /// in front of the server refused the request.
    pub code: String,
    /// For people: what kind of problem it is.
    pub title: String,
    /// For people: what is wrong with this request.
    pub detail: String,
    /// What some codes add, such as the `reason` of a lease that has ended.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// A request that the server refused.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{} (status {status}{}{})", self.detail(), if problem.code.is_empty() { "" } else { ", " }, problem.code)]
pub struct Refusal {
    /// The status of HTTP.
    pub status: u16,
    /// What the server says.
    pub problem: Problem,
    /// How long it asks to wait before another try.
    pub retry_after: Option<Duration>,
    /// An earlier sending of the request may have been received: this may be the answer to a repetition.
    pub is_repeated: bool,
}

impl Refusal {
    pub(crate) fn of(answer: &Answer) -> Self {
        let seconds = answer.headers.get("retry-after").and_then(|value| value.to_str().ok());
        let seconds: Option<u64> = seconds.and_then(|text| text.parse().ok());
        let problem = serde_json::from_slice(&answer.bytes).unwrap_or_else(|_| {
            let shown = answer.bytes.get(..SHOWN_BYTES).unwrap_or(&answer.bytes);
            let detail = String::from_utf8_lossy(shown).trim().to_owned();
            Problem { detail, ..Problem::default() }
        });
        let status = answer.status.as_u16();
        let retry_after = seconds.map(Duration::from_secs);
        Self { status, problem, retry_after, is_repeated: false }
    }

    /// The problem of one entry of an answer about many.
    pub(crate) fn of_entry(problem: Problem) -> Self {
        let status = problem.more.get("status").and_then(Value::as_u64).unwrap_or_default();
        let status = u16::try_from(status).unwrap_or_default();
        Self { status, problem, retry_after: None, is_repeated: false }
    }

    /// The stable code of the problem, such as `key_taken`.
    #[must_use]
    pub fn code(&self) -> &str {
        &self.problem.code
    }

    /// Whether there is no such job, queue or schedule, or no more.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self.status, 404 | 410)
    }

    /// Whether the reason passes by itself, and nothing was done.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        let passing = ["busy", "overloaded", "stopping", "too_fast", "too_many"];
        matches!(self.status, 429 | 503) && passing.contains(&self.code())
    }

    /// Whether a proxy did not reach the server, or not in time: the server may have got the request.
    pub(crate) fn is_of_proxy(&self) -> bool {
        matches!(self.status, 502..=504) && self.problem.code.is_empty()
    }

    fn detail(&self) -> &str {
        let Problem { title, detail, .. } = &self.problem;
        if detail.is_empty() { title } else { detail }
    }
}

/// Why a call did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The server could not be reached, went away, or did not answer in time. What could be
    /// repeated was repeated before this.
    #[error("{place}: {cause}")]
    NoAnswer {
        /// The server's URL.
        place: String,
        /// What happened.
        #[source]
        cause: SendError,
    },
    /// The server refused it.
    #[error(transparent)]
    Refused(Box<Refusal>),
    /// The server would not take so much, so nothing was sent.
    #[error("the request has {0} bytes, and the server takes {BODY_BYTES_MAX}")]
    TooLarge(usize),
    /// The answer is not that of this request: most often the URL is not that of a Spindle server.
    #[error("the answer is none of the API: {0}")]
    Strange(#[source] serde_json::Error),
}

impl CallError {
    /// The refusal, if the server answered.
    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal> {
        if let Self::Refused(refusal) = self { Some(refusal) } else { None }
    }

    /// The stable code of the server's problem; empty if it did not answer.
    #[must_use]
    pub fn code(&self) -> &str {
        self.refusal().map_or("", Refusal::code)
    }

    /// Whether the server may have done what was asked all the same.
    #[must_use]
    pub fn maybe_received(&self) -> bool {
        match self {
            Self::NoAnswer { cause, .. } => cause.maybe_received(),
            Self::Refused(refusal) => refusal.is_of_proxy(),
            Self::TooLarge(_) => false,
            Self::Strange(_) => true,
        }
    }

    /// Whether the same call may succeed later, without anybody having changed a setting.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            Self::NoAnswer { cause, .. } => cause.may_pass(),
            Self::Refused(refusal) => refusal.may_pass() || refusal.is_of_proxy(),
            Self::TooLarge(_) | Self::Strange(_) => false,
        }
    }
}

impl From<Refusal> for CallError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}
