//! The role that each request requires of its client.

use bytes::Bytes;
use spindle_access::Role;

use crate::wire::{Request, Uuid};

/// What a request is about.
pub(crate) enum About<'a> {
    Queue(&'a [u8]),
    Queues(&'a [Bytes]),
    Job(Uuid),
    AllQueues,
    Server,
}

/// The role that a request needs, and what it is about; `None` if everybody may make it.
pub(crate) fn needs(request: &Request) -> Option<(Role, About<'_>)> {
    Some(match request {
        Request::Add(job) | Request::Schedule { job, .. } => {
            (Role::Submit, About::Queue(&job.name))
        }
        Request::Run(run) => (Role::Submit, About::Queue(&run.name)),
        Request::Result { id, .. } | Request::InspectJob { id } => (Role::Inspect, About::Job(*id)),
        Request::Lease { names, .. } | Request::Offer { names, .. } => {
            (Role::Work, About::Queues(names))
        }
        Request::Complete { id, .. }
        | Request::Fail { id, .. }
        | Request::Extend { id, .. }
        | Request::Take { id } => (Role::Work, About::Job(*id)),
        Request::Pass => (Role::Work, About::Server),
        Request::Delete { id } => (Role::Manage, About::Job(*id)),
        // They show payloads.
        Request::InspectJobs { name, .. } | Request::InspectScheduledJobs { name, .. } => {
            (Role::Inspect, About::Queue(name))
        }
        Request::InspectQueue { name } => (Role::Read, About::Queue(name)),
        Request::InspectQueues { .. } => (Role::Read, About::AllQueues),
        Request::InspectServer => (Role::Read, About::Server),
        Request::Auth { .. } => return None,
    })
}
