//! The Workq router.
//!
//! - A request about a queue goes to the queue's shard, and its answer passes as it is.
//! - A request about a job goes to the shard that has it, if that is known: the session has added or leased
//!   it there, or its UUID says the number of a job. Otherwise all shards are asked.
//! - `auth` is said on every way, `inspect server` and `inspect queues` join what all shards say.
//! - A `lease` of queues on several shards asks one after the other, then waits at all of them for an
//!   *offer*, a lease that is undone unless it is taken: nothing is lost, and no attempt is counted, where
//!   several offer a job at once.
//!
//! A queue that is on its way between shards has jobs on several: a new job is offered to one after the other,
//! so that no UUID is taken twice, and leases are asked of all.
//!
//! Requests that are answered by a word are sent on as they come, many at a time. One that waits, may be
//! answered at length, or is asked at several shards is alone: nothing before it is owed, and nothing after
//! it is sent. So what is held for a client is bounded, and no job is leased to one that cannot see it yet.
//!
//! `route.rs` says where a request goes, `lines.rs` are the conversations with shards, `places.rs` is the
//! order of the answers, `task.rs` and its kinds (`joined.rs`, `listing.rs`, `hunt.rs`, `seek.rs`) are requests
//! that are alone, `session.rs` is the connection.

mod hunt;
mod joined;
mod known;
mod lines;
mod listing;
mod places;
mod route;
mod seek;
mod session;
mod task;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::BytesMut;
use spindle_engine::door::{ConnectionId, Door, Mailbox, Peer, Session, Unread};
use spindle_workq::refuse_unread;
use spindle_workq::wire::Limits;

use crate::{Network, Placement, Wake};
use session::WorkqSession;

/// Workq's protocol in front of shards.
pub struct WorkqRouter {
    network: Arc<dyn Network>,
    placement: Placement,
    limits: Limits,
}

impl WorkqRouter {
    /// A router with these limits on what clients send.
    #[must_use]
    pub fn new(network: Arc<dyn Network>, placement: Placement, limits: Limits) -> WorkqRouter {
        WorkqRouter { network, placement, limits }
    }
}

impl Door for WorkqRouter {
    fn name(&self) -> &'static str {
        "workq"
    }

    fn open(
        &self,
        connection: ConnectionId,
        peer: &Peer,
        mailbox: &Arc<dyn Mailbox>,
    ) -> Box<dyn Session> {
        let wake = Wake::new(connection, mailbox);
        let ways = self.network.ways(self.name(), peer, wake);
        Box::new(WorkqSession::new(ways, self.placement.clone(), self.limits))
    }

    fn refuse(&self, why: Unread, first: &[u8], out: &mut BytesMut) {
        refuse_unread(why, first, out);
    }
}
