//! Why a request is not done.

use spindle_limits::Excess;

use crate::role::Role;

/// Why a request is not done. Its text is for the client, and names no token and no other queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Denied {
    /// Nothing was presented, and this door requires everybody to identify themselves.
    #[error("this needs a token, and none was presented")]
    NoToken,
    /// What was presented is in no entry of the tokens file, or no longer.
    #[error("the token is not known")]
    UnknownToken,
    /// Its time is over.
    #[error("the token has expired")]
    Expired,
    /// The identity does not have this role.
    #[error("this needs the role `{0}`, which the token does not have")]
    Role(Role),
    /// The queue fits none of the identity's patterns.
    #[error("the token is not for this queue")]
    Queue,
    /// The request is about all queues, and the identity is limited to some.
    #[error("this shows or changes all queues, and needs a token for the queues `*`")]
    AllQueues,
    /// It comes too soon after others, and was not done.
    #[error("more than {} requests a second of this {}", .0.per_second, .0.of.as_str())]
    TooFast(Excess),
    /// There is no such job, as far as the identity may know.
    #[error("there is no such job")]
    Job,
}

impl Denied {
    /// Whether another token would have to be presented before anything is done: 401 in HTTP.
    pub fn is_unauthenticated(self) -> bool {
        matches!(self, Denied::NoToken | Denied::UnknownToken | Denied::Expired)
    }
}
