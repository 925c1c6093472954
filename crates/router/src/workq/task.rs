//! Requests that are alone: nothing before them is owed, and nothing after them is sent.

use bytes::Bytes;
use rand::rngs::SmallRng;
use spindle_workq::wire::{Reply, Request};

use super::hunt::Hunt;
use super::joined::{Anywhere, Login, Servers};
use super::known::Known;
use super::lines::{Lines, Says, Whose};
use super::listing::{Listing, Position};
use super::route::{says, waits};
use super::seek::Seek;
use crate::{Placement, Shard};

/// What a request that is alone works with.
pub(super) struct Shards {
    pub(super) lines: Lines,
    pub(super) known: Known,
    pub(super) placement: Placement,
    /// Where the last list of queues has ended.
    pub(super) listed: Option<Position>,
    /// The client waits for nothing any longer.
    pub(super) ended: bool,
    /// The source of random choices.
    pub(super) random: SmallRng,
}

/// A request that is alone. Each of its steps returns the answer to the client once there is one; then the
/// task is over, and further replies to it are for nobody.
pub(super) enum Task {
    One(One),
    Anywhere(Anywhere),
    Login(Login),
    Servers(Servers),
    Listing(Listing),
    Hunt(Hunt),
    Seek(Seek),
}

impl Task {
    /// Begins with a request for one shard.
    pub(super) fn at(shard: Shard, request: &Request, shards: &mut Shards) -> Task {
        shards.lines.ask(shard, request, Whose::Task);
        Task::One(One {
            says: says(request),
            waits: waits(request),
            is_run: matches!(request, Request::Run(_)),
            leases: match request {
                Request::Lease { names, .. } => names.clone(),
                _ => Vec::new(),
            },
            shard,
        })
    }

    /// Begins with a request for several shards.
    pub(super) fn at_several(request: Request, shards: &mut Shards) -> Task {
        match request {
            Request::Auth { token } => Task::Login(Login::begin(token, shards)),
            Request::InspectServer => Task::Servers(Servers::begin(shards)),
            Request::InspectQueues { cursor_offset, limit } => {
                Task::Listing(Listing::begin(cursor_offset, limit, shards))
            }
            Request::Lease { names, wait_timeout_ms } => {
                Task::Hunt(Hunt::begin(&names, wait_timeout_ms, shards))
            }
            Request::Add(ref job) | Request::Schedule { ref job, .. } => {
                let queue = job.name.clone();
                Task::Seek(Seek::begin(request, &queue, shards))
            }
            Request::Run(ref run) => {
                let queue = run.name.clone();
                Task::Seek(Seek::begin(request, &queue, shards))
            }
            request => Task::Anywhere(Anywhere::begin(&request, shards)),
        }
    }

    /// A shard has replied to it.
    pub(super) fn heard(
        &mut self,
        shard: Shard,
        reply: Reply,
        whole: Bytes,
        shards: &mut Shards,
    ) -> Option<Bytes> {
        match self {
            Task::One(one) => Some(one.heard(shard, &reply, whole, &mut shards.known)),
            Task::Anywhere(anywhere) => anywhere.heard(shard, &reply, whole, shards),
            Task::Login(login) => login.heard(shard, &reply, whole),
            Task::Servers(servers) => servers.heard(&reply, whole),
            Task::Listing(listing) => listing.heard(shard, reply, whole, shards),
            Task::Hunt(hunt) => hunt.heard(shard, &reply, whole, shards),
            Task::Seek(seek) => seek.heard(shard, &reply, whole, shards),
        }
    }

    /// The client waits no longer.
    pub(super) fn end_wait(&mut self, shards: &mut Shards) -> Option<Bytes> {
        match self {
            Task::One(One { waits: true, .. }) | Task::Anywhere(Anywhere { waits: true, .. }) => {
                shards.lines.finish_asked();
                None
            }
            Task::Hunt(hunt) => hunt.end_wait(shards),
            Task::Seek(seek) => {
                seek.end_wait(shards);
                None
            }
            _ => None,
        }
    }

    /// Whether it waits for a job, but not at all shards that may have one, because a queue has moved.
    pub(super) fn waits_elsewhere(&self, placement: &Placement) -> bool {
        match self {
            Task::One(one) => {
                one.leases.iter().any(|queue| placement.only_of(queue) != Some(one.shard))
            }
            Task::Hunt(hunt) => hunt.waits_elsewhere(placement),
            _ => false,
        }
    }

    /// Whether it is a `run`, whose client waits as long as the server can.
    pub(super) fn is_run(&self) -> bool {
        match self {
            Task::One(one) => one.is_run,
            Task::Seek(seek) => seek.is_run(),
            _ => false,
        }
    }
}

/// A request for one shard, whose answer passes as it is.
pub(super) struct One {
    says: Says,
    waits: bool,
    is_run: bool,
    /// The queues of a lease.
    leases: Vec<Bytes>,
    shard: Shard,
}

impl One {
    fn heard(&self, shard: Shard, reply: &Reply, whole: Bytes, known: &mut Known) -> Bytes {
        note(self.says, shard, reply, known);
        whole
    }
}

/// Remembers where a job is, if a reply says so.
pub(super) fn note(says: Says, shard: Shard, reply: &Reply, known: &mut Known) {
    match (reply, says) {
        (Reply::Ok, Says::IsNew(id)) => known.note(id, shard),
        (Reply::NotFound, Says::IsThere(id)) => known.forget(id),
        (Reply::Lease(job), _) => known.note(job.id, shard),
        _ => {}
    }
}
