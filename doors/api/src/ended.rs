//! Why a lease is over: the answer to a worker that comes too late with its token.

use spindle_core::command::Claim;
use spindle_core::job::{Attempt, Cause};
use spindle_core::{JobImage, Rejection, Status};
use spindle_engine::{JobRef, Refused};
use utoipa::{IntoResponses, ToSchema};

use crate::api::Api;
use spindle_http::{Code, Problem};

/// Why a lease has ended, for programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ToSchema)]
#[schema(rename_all = "snake_case")]
pub(crate) enum LeaseEnd {
    /// Somebody cancelled the job.
    Cancelled,
    /// The job is done or dead, or this attempt's end was reported before.
    Finished,
    /// The lease ran out. The job waits for another attempt, or that was its last.
    Timeout,
    /// The lease ran out or was given back, and another worker has the job.
    LeasedAgain,
    /// The job was given back.
    Released,
}

/// A lease that has ended, RFC 9457.
#[derive(ToSchema)]
#[expect(dead_code, reason = "only described: a problem is written as all others are")]
pub(crate) struct LeaseEndedBody {
    /// `urn:spindle:problem:` and the code.
    r#type: String,
    /// What the code means.
    title: String,
    /// The HTTP status.
    #[schema(example = 409)]
    status: u16,
    /// Stable: for programs.
    #[schema(example = "lease_not_live")]
    code: String,
    /// What happened here: for people.
    detail: String,
    /// With `lease_not_live`: why. There may be more words one day.
    reason: Option<LeaseEnd>,
}

/// The answers of a route that takes a lease's token and does not do what it is asked.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "only described: a problem is written as all others are")]
pub(crate) enum LeaseRefusal {
    /// The lease has ended
    #[response(status = 409, content_type = "application/problem+json")]
    Ended(LeaseEndedBody),
    /// The lease's job is gone
    #[response(status = 410)]
    Gone,
    /// Refused
    #[response(status = "4XX")]
    Other,
}

impl LeaseEnd {
    fn word(self) -> &'static str {
        match self {
            LeaseEnd::Cancelled => "cancelled",
            LeaseEnd::Finished => "finished",
            LeaseEnd::Timeout => "timeout",
            LeaseEnd::LeasedAgain => "leased_again",
            LeaseEnd::Released => "released",
        }
    }

    fn detail(self) -> &'static str {
        match self {
            LeaseEnd::Cancelled => "somebody cancelled the job: drop the work",
            LeaseEnd::Finished => "the attempt or the job has ended already: drop the work",
            LeaseEnd::Timeout => "the lease ran out: drop the work and lease again",
            LeaseEnd::LeasedAgain => "another worker has the job by now: drop the work",
            LeaseEnd::Released => "the job was given back: drop the work and lease again",
        }
    }

    /// How the lease of an attempt ended, for a lease that is not live any more.
    fn of(image: &JobImage, attempt: u32) -> LeaseEnd {
        // After a retry by hand attempts are counted anew: the newest one of this number.
        let past = image.history.iter().rev().find(|past| past.attempt == attempt);
        let cause = past.map(Attempt::cause);
        match image.status() {
            Status::Leased => LeaseEnd::LeasedAgain,
            _ if image.is_cancelled() || cause == Some(Cause::Cancelled) => LeaseEnd::Cancelled,
            Status::Done => LeaseEnd::Finished,
            Status::Dead if image.attempts > attempt => LeaseEnd::Finished,
            _ => match cause {
                Some(Cause::Released | Cause::HolderGone | Cause::Restarted | Cause::Undone) => {
                    LeaseEnd::Released
                }
                // Of many attempts only the first and the last are remembered.
                Some(Cause::Timeout) | None => LeaseEnd::Timeout,
                Some(_) => LeaseEnd::Finished,
            },
        }
    }
}

/// The refusal in terms of the lease: a lease ends when its job does.
pub(crate) async fn lease_ended(api: &Api, claim: Claim, refused: Refused) -> Problem {
    let is_over = matches!(
        refused,
        Refused::Rejected(Rejection::NotHeld | Rejection::Finished | Rejection::NotFound)
    );
    let Claim::Token { id, attempt, .. } = claim else { return refused.into() };
    if !is_over {
        return refused.into();
    }
    let image = match api.engine().jobs().get(JobRef::Id(id)) {
        Ok(image) => image,
        Err(error) => return error.into(),
    };
    match api.bridge().durable(image).await {
        Some(image) if image.options().deletion.is_some() => lease_gone(),
        Some(image) => {
            let end = LeaseEnd::of(&image, attempt);
            Problem::new(Code::LeaseNotLive, end.detail()).with("reason", end.word())
        }
        None => lease_gone(),
    }
}

/// The job of a lease is not there.
pub(crate) fn lease_gone() -> Problem {
    Problem::new(Code::LeaseGone, "the job is gone: deleted, or its time has passed")
}
